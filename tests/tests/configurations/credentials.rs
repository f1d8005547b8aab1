//! Changes of credentials: of one Cluster, of all Clusters of a tenant, and of a cloud. Sluice does not watch them.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde_json::json;

use crate::around::{patch, remove};
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
    case.settle(client).await?;
    are_rotated(client, &case, "password", "/vsphereCSI/password").await?;
    go_and_come(client, &case).await
}

async fn of_a_cloud_provider(client: &Client) -> Result<()> {
    let mut case = case("vsphere-cpi/minimal.yaml", "rotated-cpi")?;
    case.settle(client).await?;
    go_and_come(client, &case).await
}

/// An identity made by hand, whose certificate is renewed.
async fn of_nsx(client: &Client) -> Result<()> {
    let mut case = case("antrea/nsx-inline.yaml", "rotated-nsx")?;
    case.settle(client).await?;
    let certificate = "/antreaNsx/bootstrapFrom/inline/NsxCert/tls.crt";
    are_rotated(client, &case, "tls.crt", certificate).await
}

async fn of_a_tenant(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/identity.yaml", "rotated-tenant")?;
    case.settle(client).await?;
    are_rotated(client, &case, "password", "/vsphereCSI/password").await?;
    remove(client, source(&case, "VSphereClusterIdentity")?).await?;
    remove(client, source(&case, "Secret")?).await
}

async fn of_a_cloud(client: &Client) -> Result<()> {
    let mut case = case("oracle-cpi/minimal.yaml", "rotated-oracle")?;
    case.settle(client).await?;
    are_rotated(client, &case, "key", "/auth/key").await?;
    is_withdrawn(client, &case).await?;
    go_and_come(client, &case).await?;
    remove(client, source(&case, "Secret")?).await
}

/// The namespace is taken off the list in the annotation: its copy of the key stays, and follows the Secret no more.
async fn is_withdrawn(client: &Client, case: &Case) -> Result<()> {
    let login = source(case, "Secret")?;
    let mut values = case.expected();
    values["auth"]["key"] = json!("canary-rotated-again");
    let newer = json!({
        "metadata": {"annotations": {"lifecycle.sluice.dev/allowed-namespaces": "another"}},
        "data": {"key": BASE64_STANDARD.encode("canary-withdrawn")},
    });
    patch(client, login, &newer).await?;
    case.is_refused(client, "CredentialsNotAllowed").await?;
    case.values_stay(client, &values).await?;
    let allowed = json!({"metadata": {"annotations": login["metadata"]["annotations"]}});
    patch(client, login, &allowed).await?;
    values["auth"]["key"] = json!("canary-withdrawn");
    case.values_are(client, &values)
        .await
        .context("the namespace is listed again")
}

/// The field `key` of the Secret changes, and the values at `pointer` with it. It does so twice: Cluster API may still write around
/// a new Cluster, and each of its writes triggers a reconcile that reads the Secret.
async fn are_rotated(client: &Client, case: &Case, key: &str, pointer: &str) -> Result<()> {
    let mut values = case.expected();
    for text in ["canary-rotated", "canary-rotated-again"] {
        let change = json!({"data": {key: BASE64_STANDARD.encode(text)}});
        patch(client, source(case, "Secret")?, &change).await?;
        *values.pointer_mut(pointer).context("no such value")? = json!(text);
        case.values_are(client, &values).await.context(text)?;
    }
    Ok(())
}

async fn go_and_come(client: &Client, case: &Case) -> Result<()> {
    let login = source(case, "Secret")?;
    case.goes_and_comes(client, login, "CredentialsNotFound").await
}
