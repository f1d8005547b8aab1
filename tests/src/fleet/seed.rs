//! The clusters that all others are copies of: Sluice itself installs their packages and records that, before anything is measured.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::bed::Bed;
use super::cluster::{self, State};
use super::copies::{Form, is_copy};
use super::gated;
use super::installer;
use super::kinds::{ANTREA, APP, BOOTSTRAP, CPI, INSTALL};
use super::objects::{Objects, name_of};
use super::{MINORS, name};
use crate::stack::SYSTEM_NAMESPACE;
use crate::wait;

/// Number of the cluster that waits for its control plane; those of its copies begin with the same digit.
pub(super) const WAITING: u32 = 60_000;

/// Timeout of Sluice for the two.
const TIMEOUT: Duration = Duration::from_mins(2);

/// What kapp-controller writes under.
const INSTALLER: &str = "kapp-controller";

/// Clusters to be copied.
pub(super) struct Forms {
    /// At rest: its upgrade is completed.
    pub(super) cold: Form,
    /// Waits for its control plane.
    pub(super) waiting: Form,
}

/// Makes one cluster of each form, and has Sluice bring them to rest.
pub(super) async fn grow(bed: &Bed, sync_period: Duration) -> Result<Forms> {
    let objects = bed.objects();
    bed.workloads.write(
        &name(0),
        "/api/v1/namespaces/kube-system",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}),
    );
    for (number, state) in [(0, State::Running), (WAITING, State::Waiting)] {
        let name = name(number);
        cluster::make(
            &objects,
            &name,
            MINORS[0],
            state,
            &bed.workloads.kubeconfig(&name),
        )
        .await?;
    }
    let replica = bed.replica("seed", sync_period)?;
    replica.restart().await?;
    wait::until("Sluice to bring the first clusters to rest", TIMEOUT, || async {
        for number in [0, WAITING] {
            install(&objects, number).await?;
        }
        install_in(bed, &name(0));
        at_rest(&objects).await
    })
    .await?;
    replica.kill().await?;
    let forms = Forms {
        cold: Form::of(&objects, &name(0)).await?,
        waiting: Form::of(&objects, &name(WAITING)).await?,
    };
    gated::install(bed, &name(0));
    bed.workloads.contents().share();
    Ok(forms)
}

async fn at_rest(objects: &Objects) -> Result<(), wait::Unmet> {
    for kind in [ANTREA, CPI] {
        for object in objects.all(kind, "").await? {
            if object["status"]["secretRef"].is_null() {
                return wait::not_yet(format!("{} has {}", name_of(&object), object["status"]));
            }
        }
    }
    let bootstraps = objects.all(BOOTSTRAP, "").await?;
    let record = |number| {
        let bootstrap = bootstraps.iter().find(|bootstrap| is_copy(bootstrap, number));
        bootstrap.map_or(&Value::Null, |bootstrap| &bootstrap["status"]["upgrade"])
    };
    let (cold, waiting) = (record(0), record(WAITING));
    if cold["outcome"] != "Completed" || waiting["gates"].is_null() {
        return wait::not_yet(format!("{cold}, {}", waiting["gates"]));
    }
    Ok(())
}

/// Does what kapp-controller does on the management cluster for the clusters with this number, or all.
pub(super) async fn install(objects: &Objects, number: u32) -> Result<()> {
    for found in objects.all(INSTALL, &name(number)).await? {
        if installer::is_due(&found) {
            installed(objects, &found).await?;
        }
    }
    Ok(())
}

/// Has one PackageInstall of the management cluster succeed.
pub(super) async fn installed(objects: &Objects, install: &Value) -> Result<()> {
    let of = name_of(install);
    let app = objects.apply(APP, INSTALLER, &installer::app(install)).await?;
    let status = installer::app_status(install, &app["metadata"]["generation"]);
    objects.status(APP, INSTALLER, of, &status).await?;
    objects
        .status(INSTALL, INSTALLER, of, &installer::install_status(install))
        .await
}

/// Has every PackageInstall of a workload cluster succeed.
fn install_in(bed: &Bed, cluster: &str) {
    let written = bed.workloads.contents().written(cluster, "/packageinstalls/");
    for (path, mut install) in written {
        if !installer::is_due(&install) {
            continue;
        }
        let app_path = format!("{}/{}", APP.all_in(SYSTEM_NAMESPACE), name_of(&install));
        let mut app = bed.workloads.write(cluster, &app_path, installer::app(&install));
        app["status"] = installer::app_status(&install, &app["metadata"]["generation"]);
        bed.workloads.write(cluster, &app_path, app);
        install["status"] = installer::install_status(&install);
        bed.workloads.write(cluster, &path, install);
    }
}

/// Fails if the forms are not like real clusters in size.
pub(super) fn check(forms: &Forms) -> Result<()> {
    ensure!(
        forms.cold.len() >= 18,
        "a cluster has only {} objects on the management cluster",
        forms.cold.len()
    );
    Ok(())
}
