//! Configurations of packages on a real API server: the golden cases of every kind, what happens when one of their sources
//! changes, and that no credential is told.

mod admission;
mod around;
mod golden;
mod made_up;
mod mutations;
mod shared;

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use sluice_tests::extension::{Extension, Settings};
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::{Options, Stack};

/// In every credential of every test.
const CANARY: &str = "canary";

/// Time that a change gets to reach the Secret; a credential is read again every ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn configurations_become_values() -> Result<()> {
    let definitions = sluice_definitions()?
        .into_iter()
        .chain(around::definitions())
        .chain([made_up::definition()]);
    let stack = Stack::start(Options::new("providers").crds(definitions)).await?;
    let extension = Extension::start(&stack, Settings::new("sluice")).await?;
    let client = stack.client();
    let _made_up = made_up::start(&client);

    admission::antrea_is_checked(&client).await?;
    golden::every_case(&client).await?;
    Box::pin(mutations::every_source_is_observed(&client)).await?;
    every_configuration_is_counted(&extension).await?;
    no_credential_is_told(&client, &extension).await?;

    stack.check()?;
    stack.stop().await
}

/// The metric says of each kind how many are well, and what is wrong with the others.
async fn every_configuration_is_counted(extension: &Extension) -> Result<()> {
    let metrics = extension.metrics().await?;
    for (kind, reason) in [
        ("AntreaConfig", "ValuesWritten"),
        ("AntreaConfig", "NsxProviderInvalid"),
        ("CalicoConfig", "CIDRMissing"),
        ("VSphereCPIConfig", "ThumbprintMissing"),
    ] {
        let line = format!("sluice_configurations{{kind=\"{kind}\",reason=\"{reason}\"}} ");
        ensure!(metrics.contains(&line), "{line:?} is not among\n{metrics}");
    }
    Ok(())
}

/// Looks for the canary wherever Sluice speaks, except in the Secrets that it is for.
async fn no_credential_is_told(client: &Client, extension: &Extension) -> Result<()> {
    let log = fs::read_to_string(extension.log())?;
    let events = Api::<Event>::all(client.clone())
        .list(&ListParams::default())
        .await?;
    let events = serde_json::to_string(&events.items)?;
    let metrics = extension.metrics().await?;
    let statuses = around::statuses(client).await?;
    for (place, text) in [
        ("log", &log),
        ("events", &events),
        ("metrics", &metrics),
        ("status", &statuses),
    ] {
        ensure!(
            !text.is_empty(),
            "nothing was said in the {place}, so nothing is proven"
        );
        ensure!(!text.contains(CANARY), "a credential is told in the {place}");
    }
    Ok(())
}
