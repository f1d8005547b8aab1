//! Credentials that clusters share change: those of a tenant, and those of a cloud.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde_json::{Value, json};

use crate::around::{patch, remove, write};
use crate::mutations::{case, source};

/// A tenant and a cloud side by side.
pub(crate) async fn credentials_are_read_again(client: &Client) -> Result<()> {
    tokio::try_join!(of_a_tenant(client), of_a_cloud(client)).map(drop)
}

async fn of_a_tenant(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/identity.yaml", "mutated-tenant")?;
    case.make(client).await?;
    let mut values = case.expected();
    case.values_are(client, &values).await?;

    let (identity, login) = (source(&case, "VSphereClusterIdentity")?, source(&case, "Secret")?);
    patch(client, login, &secret("password", "canary-of-next-month")).await?;
    values["vsphereCSI"]["password"] = json!("canary-of-next-month");
    case.follows(client, login, &values)
        .await
        .context("another password")?;

    let selected =
        |labels: Value| json!({"spec": {"allowedNamespaces": {"selector": {"matchLabels": labels}}}});
    patch(client, identity, &selected(json!({"tenant": "red"}))).await?;
    case.is_refused(client, "IdentityNotAllowed").await?;
    // The labels of the namespace are a source too.
    let namespace = source(&case, "Namespace")?;
    patch(
        client,
        namespace,
        &json!({"metadata": {"labels": {"tenant": "red"}}}),
    )
    .await?;
    case.follows(client, namespace, &values)
        .await
        .context("allowed again")?;

    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    patch(client, identity, &ready("False")).await?;
    case.is_refused(client, "IdentityNotReady").await?;
    patch(client, identity, &ready("True")).await?;
    case.follows(client, identity, &values)
        .await
        .context("ready again")?;
    remove(client, identity).await?;
    remove(client, login).await
}

async fn of_a_cloud(client: &Client) -> Result<()> {
    let mut case = case("oracle-cpi/minimal.yaml", "mutated-oracle")?;
    case.make(client).await?;
    let mut values = case.expected();
    case.values_are(client, &values).await?;
    let login = source(&case, "Secret")?;
    patch(client, login, &secret("key", "canary-next")).await?;
    values["auth"]["key"] = json!("canary-next");
    case.follows(client, login, &values)
        .await
        .context("another key")?;
    remove(client, login).await?;
    case.is_refused(client, "CredentialsNotFound").await?;
    write(client, login).await?;
    case.follows(client, login, &case.expected())
        .await
        .context("the Secret is back")?;
    remove(client, login).await
}

fn secret(key: &str, text: &str) -> Value {
    json!({"data": {key: BASE64_STANDARD.encode(text)}})
}
