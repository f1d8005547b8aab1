//! Configurations of packages on a real API server: the golden cases of every kind, what happens when one of their sources
//! changes, and that no credential is printed.

mod admission;
mod around;
mod credentials;
mod golden;
mod made_up;
mod mutations;

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use sluice_tests::extension::{Extension, PATIENT_ELECTION, Settings};
use sluice_tests::processes::canary;
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::{Options, Stack};
use sluice_tests::wait;

/// In every credential of every test.
const CANARY: &str = "canary";

/// Timeout until a change arrives, generous for a busy machine.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A `--sync-period` with hardly any resync. Changes arrive by watches, or by the retries for missing objects.
const RARELY: &str = "1h";

/// A `--sync-period` in which changes without a watch arrive as well: the Secrets of a Cluster without a connection.
const OFTEN: &str = "5s";

#[tokio::test(flavor = "multi_thread")]
async fn configurations_become_values() -> Result<()> {
    let definitions = sluice_definitions()?
        .into_iter()
        .chain(around::definitions())
        .chain([made_up::definition()]);
    let stack = Stack::start(Options::new("providers").crds(definitions)).await?;
    let settings = |name: &str, sync_period: &str| Settings {
        sync_period: sync_period.to_owned(),
        // After a leader that gave up on a busy machine, the next one would publish its events once more.
        election: PATIENT_ELECTION,
        ..Settings::new(name)
    };
    let watching = Extension::start(&stack, settings("watching", RARELY)).await?;
    let client = stack.client();
    let _made_up = made_up::start(&client);

    admission::antrea_is_checked(&client).await?;
    golden::every_case(&client).await?;
    Box::pin(mutations::every_source_is_observed(&client)).await?;
    every_configuration_is_counted(&client, &watching).await?;
    no_credential_is_told(&client, &watching).await?;
    watching.terminate(TIMEOUT).await?;

    let looking = Extension::start(&stack, settings("looking", OFTEN)).await?;
    looking.leader().await?;
    Box::pin(credentials::are_read_again(&client)).await?;
    no_credential_is_told(&client, &looking).await?;

    stack.check()?;
    stack.stop().await
}

/// The metric counts ready configurations of each kind, and the others by reason.
async fn every_configuration_is_counted(client: &Client, extension: &Extension) -> Result<()> {
    let wrong = [
        (
            "antrea/problem-nsx-kind.yaml",
            "AntreaConfig",
            "NsxProviderInvalid",
        ),
        ("calico/problem-no-range.yaml", "CalicoConfig", "CIDRMissing"),
        (
            "vsphere-cpi/problem-thumbprint.yaml",
            "VSphereCPIConfig",
            "ThumbprintMissing",
        ),
    ];
    let mut counted = vec![("AntreaConfig", "ValuesWritten")];
    for (index, (name, kind, reason)) in wrong.into_iter().enumerate() {
        let mut case = mutations::case(name, &format!("counted-{index}"))?;
        case.make(client).await?;
        case.is_refused(client, reason).await?;
        counted.push((kind, reason));
    }
    for (kind, reason) in counted {
        let line = format!("sluice_configurations{{kind=\"{kind}\",reason=\"{reason}\"}} ");
        // The metric follows the watch, which delivers the condition shortly after its write.
        wait::until(format!("metric {line}"), TIMEOUT, || async {
            let metrics = extension.metrics().await?;
            if metrics.contains(&line) {
                Ok(())
            } else {
                wait::not_yet(metrics)
            }
        })
        .await?;
    }
    Ok(())
}

/// Searches for the canary, plain and in base64, in all output of Sluice, except in the Secrets that it belongs to.
async fn no_credential_is_told(client: &Client, extension: &Extension) -> Result<()> {
    let log: String = extension
        .logs()
        .map(fs::read_to_string)
        .collect::<Result<_, _>>()?;
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
        tells_no_credential(place, text)?;
    }
    Ok(())
}

/// Searches for the canary in `text`, the output of Sluice in `place`.
fn tells_no_credential(place: &str, text: &str) -> Result<()> {
    for spelling in canary::spellings(CANARY) {
        ensure!(
            !text.contains(&spelling),
            "a credential stands in the {place}, as {spelling}"
        );
    }
    Ok(())
}
