//! PackageInstalls that ignore the Kubernetes versions that their Packages permit.

use std::time::Duration;

use kube::{ResourceExt as _, core::DynamicObject};
use sluice_core::{
    protocol::{Key, Server},
    upgrade_plan::{IGNORES_SELECTION, UpgradePlan},
};
use tokio::time::{Instant, timeout_at};

use super::not_made::NotMade;
use crate::reader::{Reader, one};

/// Name of the check.
const CHECK: &str = "ignoredSelections";

/// Time for all requests together.
const DEADLINE: Duration = Duration::from_secs(10);

/// Removes the findings about Packages that kapp-controller installs all the same, by an annotation of their PackageInstalls. `workload`
/// is the reader of the workload cluster, or says why there is none. Returns the PackageInstalls that were not read; their findings stay.
pub(super) async fn remove(
    plan: &mut UpgradePlan,
    management: &Reader,
    workload: Result<&Reader, &str>,
) -> Vec<NotMade> {
    let until = Instant::now() + DEADLINE;
    let mut installs: Vec<Key> = Vec::new();
    let findings = plan.findings.iter();
    for install in findings.filter_map(|finding| finding.install.as_ref()) {
        if !installs.contains(install) {
            installs.push(install.clone());
        }
    }
    let (mut ignoring, mut not_made) = (Vec::new(), Vec::new());
    for install in installs {
        let reader = match install.server {
            Server::Management => Ok(management),
            Server::Workload => workload,
        };
        let has_annotation = match reader {
            Ok(reader) => ignores(reader, &install, until).await,
            Err(why) => Err(why.to_owned()),
        };
        match has_annotation {
            Ok(true) => ignoring.push(install),
            Ok(false) => {}
            Err(why) => not_made.push(NotMade {
                check: CHECK,
                why: one(&format!("annotation of {install}: {why}")),
            }),
        }
    }
    let is_ignored = |install: &Key| ignoring.contains(install);
    plan.findings
        .retain(|finding| !finding.install.as_ref().is_some_and(is_ignored));
    not_made
}

/// Whether a PackageInstall has the annotation. Its own type may lack annotations that Sluice does not cache.
///
/// # Errors
/// It cannot be read in time.
async fn ignores(reader: &Reader, install: &Key, until: Instant) -> Result<bool, String> {
    let read = timeout_at(until, reader.object::<DynamicObject>(install)).await;
    let read = read.map_err(|_elapsed| format!("no answer within {} s", DEADLINE.as_secs()))?;
    let install = read.map_err(|failure| failure.text)?;
    Ok(install.is_some_and(|install| install.annotations().contains_key(IGNORES_SELECTION)))
}
