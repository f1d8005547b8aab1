//! Credentials change: those of one Cluster, those that a tenant's Clusters share, and those of a cloud. They are not watched.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde_json::{Value, json};

use crate::around::{patch, read, remove, secret, write};
use crate::golden::Case;
use crate::mutations::{case, source};

/// All of them side by side.
pub(crate) async fn are_read_again(client: &Client) -> Result<()> {
    tokio::try_join!(
        of_a_cluster(client),
        of_a_cloud_provider(client),
        of_nsx(client),
        of_a_tenant(client),
        of_a_cloud(client),
    )
    .map(drop)
}

async fn of_a_cluster(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/minimal.yaml", "rotated-cluster")?;
    let mut values = ready(client, &mut case).await?;
    for password in ["canary-rotated", "canary-rotated-again"] {
        patch(client, source(&case, "Secret")?, &data("password", password)).await?;
        values["vsphereCSI"]["password"] = json!(password);
        case.values_are(client, &values).await.context(password)?;
    }
    goes_and_comes(client, &case, "rotated-cluster", "c1-vsphere-csi-data-values").await
}

async fn of_a_cloud_provider(client: &Client) -> Result<()> {
    let mut case = case("vsphere-cpi/minimal.yaml", "rotated-cpi")?;
    ready(client, &mut case).await?;
    goes_and_comes(client, &case, "rotated-cpi", "c1-vsphere-cpi-data-values").await
}

/// Credentials that are gone leave the values in use alone, and are found once they are back.
async fn goes_and_comes(client: &Client, case: &Case, namespace: &str, written: &str) -> Result<()> {
    let login = source(case, "Secret")?;
    remove(client, login).await?;
    case.is_refused(client, "CredentialsNotFound").await?;
    let written = read(client, &secret(namespace, written)).await?;
    ensure!(written.is_some(), "the values in use are gone");
    write(client, login).await?;
    case.values_are(client, &case.expected())
        .await
        .context("the Secret is back")
}

/// An identity made by hand, whose certificate is renewed.
async fn of_nsx(client: &Client) -> Result<()> {
    let mut case = case("antrea/nsx-inline.yaml", "rotated-nsx")?;
    let mut values = ready(client, &mut case).await?;
    for certificate in ["canary-renewed", "canary-renewed-again"] {
        patch(client, source(&case, "Secret")?, &data("tls.crt", certificate)).await?;
        values["antreaNsx"]["bootstrapFrom"]["inline"]["NsxCert"]["tls.crt"] = json!(certificate);
        case.values_are(client, &values).await.context(certificate)?;
    }
    Ok(())
}

async fn of_a_tenant(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/identity.yaml", "rotated-tenant")?;
    let mut values = ready(client, &mut case).await?;
    let (identity, login) = (source(&case, "VSphereClusterIdentity")?, source(&case, "Secret")?);
    for password in ["canary-of-next-month", "canary-of-the-month-after"] {
        patch(client, login, &data("password", password)).await?;
        values["vsphereCSI"]["password"] = json!(password);
        case.values_are(client, &values).await.context(password)?;
    }
    remove(client, identity).await?;
    remove(client, login).await
}

async fn of_a_cloud(client: &Client) -> Result<()> {
    let mut case = case("oracle-cpi/minimal.yaml", "rotated-oracle")?;
    let mut values = ready(client, &mut case).await?;
    let login = source(&case, "Secret")?;
    patch(client, login, &data("key", "canary-next")).await?;
    values["auth"]["key"] = json!("canary-next");
    case.values_are(client, &values).await.context("another key")?;
    goes_and_comes(client, &case, "rotated-oracle", "c1-oracle-cpi-data-values").await?;
    remove(client, login).await
}

/// The case with its values written. Cluster API may still write around it, so a first change is no proof of a look.
async fn ready(client: &Client, case: &mut Case) -> Result<Value> {
    case.make(client).await?;
    case.values_are(client, &case.expected()).await?;
    Ok(case.expected())
}

fn data(key: &str, text: &str) -> Value {
    json!({"data": {key: BASE64_STANDARD.encode(text)}})
}
