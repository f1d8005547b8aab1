//! Credentials change: those of one Cluster, those that a tenant's Clusters share, and those of a cloud. They are not watched.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde_json::{Value, json};

use crate::around::{patch, read, remove, secret, write};
use crate::mutations::{case, source};

/// All of them side by side.
pub(crate) async fn are_read_again(client: &Client) -> Result<()> {
    tokio::try_join!(
        of_a_cluster(client),
        of_nsx(client),
        of_a_tenant(client),
        of_a_cloud(client),
    )
    .map(drop)
}

async fn of_a_cluster(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/minimal.yaml", "rotated-cluster")?;
    case.make(client).await?;
    let mut values = case.expected();
    case.values_are(client, &values).await?;
    let login = source(&case, "Secret")?;
    patch(client, login, &data("password", "canary-rotated")).await?;
    values["vsphereCSI"]["password"] = json!("canary-rotated");
    case.values_are(client, &values)
        .await
        .context("another password")?;

    remove(client, login).await?;
    case.is_refused(client, "CredentialsNotFound").await?;
    let written = read(client, &secret("rotated-cluster", "c1-vsphere-csi-data-values")).await?;
    ensure!(written.is_some(), "the values in use are gone");
    write(client, login).await?;
    case.values_are(client, &case.expected())
        .await
        .context("the Secret is back")
}

/// An identity made by hand, whose certificate is renewed.
async fn of_nsx(client: &Client) -> Result<()> {
    let mut case = case("antrea/nsx-inline.yaml", "rotated-nsx")?;
    case.make(client).await?;
    let mut values = case.expected();
    case.values_are(client, &values).await?;
    let certificate = source(&case, "Secret")?;
    patch(client, certificate, &data("tls.crt", "canary-renewed")).await?;
    values["antreaNsx"]["bootstrapFrom"]["inline"]["NsxCert"]["tls.crt"] = json!("canary-renewed");
    case.values_are(client, &values)
        .await
        .context("a renewed certificate")
}

async fn of_a_tenant(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/identity.yaml", "rotated-tenant")?;
    case.make(client).await?;
    let mut values = case.expected();
    case.values_are(client, &values).await?;
    let (identity, login) = (source(&case, "VSphereClusterIdentity")?, source(&case, "Secret")?);
    patch(client, login, &data("password", "canary-of-next-month")).await?;
    values["vsphereCSI"]["password"] = json!("canary-of-next-month");
    case.values_are(client, &values)
        .await
        .context("another password")?;
    remove(client, identity).await?;
    remove(client, login).await
}

async fn of_a_cloud(client: &Client) -> Result<()> {
    let mut case = case("oracle-cpi/minimal.yaml", "rotated-oracle")?;
    case.make(client).await?;
    let mut values = case.expected();
    case.values_are(client, &values).await?;
    let login = source(&case, "Secret")?;
    patch(client, login, &data("key", "canary-next")).await?;
    values["auth"]["key"] = json!("canary-next");
    case.values_are(client, &values).await.context("another key")?;
    remove(client, login).await?;
    case.is_refused(client, "CredentialsNotFound").await?;
    write(client, login).await?;
    case.values_are(client, &case.expected())
        .await
        .context("the Secret is back")?;
    remove(client, login).await
}

fn data(key: &str, text: &str) -> Value {
    json!({"data": {key: BASE64_STANDARD.encode(text)}})
}
