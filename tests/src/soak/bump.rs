//! Changes of version: the one that a run is about, and one that comes into its way.

use anyhow::{Result, bail};
use serde_json::json;
use tokio::time::sleep;

use super::disturbance::Kind;
use super::plan::Planned;
use super::subject::Subject;
use crate::objects::{self, Release, TKR};
use crate::requests::edit;
use crate::scenario::VERSIONS;

/// Requests the release as planned.
pub(super) async fn first(subject: &Subject, how: Option<&Planned>) -> Result<()> {
    let cluster = &subject.cluster;
    let target = subject.target().clone();
    match how {
        Some(planned) if planned.kind == Kind::VersionBeforeLabel => {
            cluster
                .patch(&objects::upgrade(target.kubernetes(), None))
                .await?;
            sleep(planned.lasts).await;
            label(subject).await
        }
        Some(planned) => {
            label(subject).await?;
            sleep(planned.lasts).await;
            // A manifest that was applied meanwhile may have brought the version already, and a second bump one above it.
            version_or_above(subject, &target).await
        }
        None => cluster.upgrade(&target).await.map(drop),
    }
}

async fn label(subject: &Subject) -> Result<()> {
    subject
        .persist("label of the release", || async {
            let patch = json!({"metadata": {"labels": {TKR: subject.target().name()}}});
            edit::merge(&subject.management(), &subject.path(), &patch).await
        })
        .await
        .map(drop)
}

async fn version_or_above(subject: &Subject, target: &Release) -> Result<()> {
    subject
        .persist("version of the release", || async {
            if subject.target().kubernetes() != target.kubernetes() {
                return Ok(());
            }
            let patch = objects::upgrade(target.kubernetes(), None);
            edit::merge(&subject.management(), &subject.path(), &patch)
                .await
                .map(drop)
        })
        .await
}

/// Asks for the next version while an upgrade is under way, or for the one before where there is none. Cluster API refuses it as
/// long as the first is not done; when it accepts, that is where the Cluster goes.
pub(super) async fn second(subject: &Subject) -> Result<()> {
    let aim = VERSIONS
        .iter()
        .position(|version| *version == subject.target().kubernetes());
    let Some(aim) = aim else {
        bail!("a target that is not among the versions");
    };
    let (next, patch) = match subject.releases.get(aim + 1) {
        Some(above) => (
            Some(aim + 1),
            objects::upgrade(above.kubernetes(), Some(&above.name())),
        ),
        None => (None, objects::upgrade(VERSIONS[aim - 1], None)),
    };
    let accepted = edit::merge(&subject.management(), &subject.path(), &patch)
        .await
        .is_ok();
    if let Some(next) = next.filter(|_| accepted) {
        subject.set_target(next);
    }
    Ok(())
}
