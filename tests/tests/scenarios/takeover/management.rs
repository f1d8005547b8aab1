//! A management cluster: the packages of its Cluster are installed on the very API server that Sluice runs with.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{Class, Infrastructure, Release, Values, cluster};
use sluice_tests::observer::Revision;
use sluice_tests::provider::{API_SERVER, MANAGEMENT};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, WatchLog};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::{Delay, RunningProcess};
use sluice_tests::wait;

use super::left::{self, Installed, ROLE};
use crate::at_rest::{checks_as_before, checks_often, costs_no_more};
use crate::common::{antrea_config, is_completed, record_says};
use crate::resolve::apply_until_accepted;

const INSTALL: (&str, &str, &str) = ("packaging.carvel.dev", "v1alpha1", "PackageInstall");

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "management-cluster",
        "a management cluster of the addons-manager keeps its PackageInstalls, Apps and values; it is upgraded while its API server, which is that of Sluice, is replaced; nothing installs or replaces its kapp-controller, and its deletion uninstalls nothing",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        infrastructure: Infrastructure::Docker,
        ..Class::default()
    })
    // There the values of a configuration have the name of those that the addons-manager has copied.
    .in_namespace(SYSTEM_NAMESPACE)
    .audited()
}

async fn run(scene: Scene) -> Result<()> {
    let management = scene.world().stack().management().clone();
    let version = management.version();
    checks_often(&scene).await?;
    let outcome = taken_over_and_upgraded(&scene).await;
    // Other scenarios of the stack need both as they were.
    if management.version() != version {
        management.swap(&version).await?;
    }
    let restarted = checks_as_before(&scene).await;
    outcome.and(restarted)
}

async fn taken_over_and_upgraded(scene: &Scene) -> Result<()> {
    let old = release(scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(scene, VERSIONS[2], "2.0.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    let other = scene.cluster("other").workers(1).create_settled(&old).await?;
    is_completed(&other).await?;
    let one = create(scene, &old).await?;
    let log = scene.watch(&[INSTALL]).await?;
    let process = Process::of(scene).await?;

    let extension = scene.world().extension()?;
    extension.kill().await?;
    left::on_the_management_cluster(&one, &old, &other).await?;
    let before = contents(&one, &old).await?;
    extension.free_lease().await?;
    extension.restart().await?;
    for package in installable(&old) {
        record_says(&one, package.short(), "Ready").await?;
    }
    is_completed(&one).await?;
    let manages = one.bootstrap().await?["status"]["upgrade"]["kappController"].take();
    ensure!(
        manages == "Unmanaged",
        "Sluice says that kapp-controller of one is {manages}"
    );
    let after = contents(&one, &old).await?;
    ensure!(
        before == after,
        "what the addons-manager has installed was written:\n{before:#?}\n{after:#?}"
    );

    upgraded(&one, &new).await?;
    moved(&one, &new, &before).await?;
    labels_decide_nothing(&one, &other).await?;
    costs_no_more(&one, &other).await?;
    leads_to_management(&other, &new, &log).await?;
    process.still_runs(scene).await?;
    has_no_kapp_controller(&one, &log).await?;
    let packages = installed(&one, &new)?;
    deleted(&one, &new, &packages).await?;
    process.still_runs(scene).await?;
    has_no_kapp_controller(&one, &log).await?;
    for package in &packages {
        package.uninstall().await?;
    }
    Ok(())
}

/// Real Deployments would have no Pods there, so the packages have DaemonSets.
fn release(scene: &Scene, kubernetes: &str, version: &str, antrea: Delay) -> Result<Release> {
    let build = format!("{}.1", scene.namespace());
    let kapp_controller = scene.kapp_controller(version)?;
    let antrea = scene.package("antrea", version).daemon_set(antrea);
    let metrics = scene.package("metrics", version).daemon_set(Delay::NONE);
    Ok(Release::new(kubernetes, build, kapp_controller, antrea)
        .additional(metrics)
        .values("antrea", antrea_config())
        .values("metrics", Values::Inline(json!({"replicas": 1}))))
}

/// The packages of a release but for kapp-controller.
fn installable(release: &Release) -> impl Iterator<Item = &TestPackage> {
    release
        .packages()
        .filter(|package| package.short() != "kapp-controller")
}

fn installed<'a>(cluster: &'a Cluster, release: &'a Release) -> Result<Vec<Installed<'a>>> {
    installable(release)
        .map(|package| Installed::of(cluster, package))
        .collect()
}

/// A Cluster that nothing manages yet, whose control plane is the management API server.
async fn create(scene: &Scene, release: &Release) -> Result<Cluster> {
    let mut manifest = cluster(scene.namespace(), "one", release.kubernetes(), None, 1);
    let annotations = json!({"annotations": {API_SERVER: MANAGEMENT}});
    manifest["spec"]["topology"]["controlPlane"]["metadata"] = annotations;
    apply_until_accepted(scene, &manifest).await?;
    let one = scene.cluster("one").existing();
    one.is_available(TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    Ok(one)
}

/// UIDs, generations and specs of PackageInstalls and Apps, and UIDs and contents of values Secrets.
async fn contents(cluster: &Cluster, release: &Release) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for package in installed(cluster, release)? {
        all.push(json!([package.identity().await?, package.fixed_secret().await?]));
    }
    Ok(all)
}

/// Upgrades the Cluster, which waits for antrea, and replaces its API server.
async fn upgraded(one: &Cluster, new: &Release) -> Result<()> {
    let before = one.upgrade(new).await?;
    one.says("antrea 2.0.0", TIMEOUT).await?;
    record_says(one, "metrics", "Ready").await?;
    one.control_plane_is_untouched(before).await?;
    one.delay("antrea", Delay::NONE);
    let mut proven: Revision = before;
    for package in installable(new) {
        let milestone = one.package_proven(package, before, TIMEOUT).await?;
        proven = proven.max(milestone.revision);
    }
    let written = one
        .control_plane_written(new.kubernetes(), before, TIMEOUT)
        .await?;
    ensure!(
        proven < written.revision,
        "{} was written at revision {}, the last package had proof only at {proven}",
        new.kubernetes(),
        written.revision
    );
    one.is_settled(2 * TIMEOUT).await?;
    is_completed(one).await?;
    let runs = one.scene().world().stack().management().version();
    ensure!(
        runs == new.kubernetes(),
        "the management API server was not replaced: it runs {runs}"
    );
    Ok(())
}

/// Nothing was made again, values are in Secrets that are named after them, and no other Secret was deleted.
async fn moved(one: &Cluster, new: &Release, before: &[Value]) -> Result<()> {
    let packages = installed(one, new)?;
    ensure!(
        packages.len() == before.len(),
        "the releases differ in their packages"
    );
    for ((package, of), before) in packages.iter().zip(installable(new)).zip(before) {
        let identity = package.identity().await?;
        for (before, after) in [(&before[0][0], &identity[0]), (&before[0][1], &identity[1])] {
            ensure!(before["uid"] == after["uid"], "{} was made again", of.short());
        }
        let named = package.named().await?.unwrap_or_default();
        let prefix = format!("{}-{}-data-values-", one.name(), of.short());
        ensure!(
            named.starts_with(&prefix),
            "{} takes values from {named:?}",
            of.short()
        );
        let secret = package.fixed_secret().await?;
        ensure!(
            secret["uid"] == before[1]["uid"],
            "the Secret {} was made again",
            prefix.trim_end_matches('-')
        );
    }
    Ok(())
}

/// The management cluster loses its label, and another Cluster gets it: the API server of each decides, which stays as it is.
async fn labels_decide_nothing(one: &Cluster, other: &Cluster) -> Result<()> {
    let labelled = |value: Value| json!({"metadata": {"labels": {ROLE: value}}});
    one.patch(&labelled(Value::Null)).await?;
    other.patch(&labelled(json!(""))).await?;
    other.has_event("ManagementLabelIgnored", "", TIMEOUT).await?;
    record_says(other, "kapp-controller", "Ready").await?;
    other.is_settled(TIMEOUT).await?;
    one.is_settled(TIMEOUT).await
}

/// The kubeconfig of another Cluster is replaced by one for the management API server: its upgrade is held, and nothing is written there.
async fn leads_to_management(other: &Cluster, new: &Release, log: &WatchLog) -> Result<()> {
    let management = other.scene().world().stack().management();
    let kubeconfig = other.swap_kubeconfig(&management.admin_kubeconfig()).await?;
    let before = other.upgrade(new).await?;
    other.says("ReachesManagementCluster", TIMEOUT).await?;
    other.control_plane_is_untouched(before).await?;
    let names: Vec<String> = installable(new)
        .map(|package| format!("{}-{}", other.name(), package.short()))
        .collect();
    let writes = log.writes().await?;
    let found = writes.iter().find(|write| names.contains(&write.name));
    ensure!(
        found.is_none(),
        "the management API server got a PackageInstall of {}: {found:?}",
        other.name()
    );
    other.swap_kubeconfig(&kubeconfig).await?;
    Ok(())
}

/// Nothing has ever installed kapp-controller for the Cluster.
async fn has_no_kapp_controller(one: &Cluster, log: &WatchLog) -> Result<()> {
    let name = format!("{}-kapp-controller", one.name());
    let writes = log.writes().await?;
    ensure!(!writes.is_empty(), "no PackageInstall was seen");
    let found = writes.iter().find(|write| write.name == name);
    ensure!(found.is_none(), "there was a PackageInstall: {found:?}");
    Ok(())
}

/// The deletion of the Cluster is released at once, and its packages stay.
async fn deleted(one: &Cluster, release: &Release, packages: &[Installed<'_>]) -> Result<()> {
    let mut before = Vec::new();
    for package in packages {
        before.push(package.identity().await?);
    }
    let daemon_sets = daemon_sets(one, release).await?;
    one.delete().await?;
    let answers = one.hook_answers()?;
    let mut of_deletion = answers
        .iter()
        .filter(|answer| answer.hook == "BeforeClusterDelete");
    // A replica may be called before it observes the deletion.
    let held = of_deletion.find(|answer| answer.is_held() && answer.reason != "ClusterNotObserved");
    ensure!(held.is_none(), "the deletion was held: {held:?}");
    for (package, before) in packages.iter().zip(&before) {
        let after = package.identity().await?;
        ensure!(*before == after, "the deletion changed {before} to {after}");
    }
    // The workload cluster is gone as such, but its API server is not.
    for path in &daemon_sets {
        let found = one.scene().objects().get(path).await?;
        let found = found.with_context(|| format!("{path} was deleted with the Cluster"))?;
        ensure!(
            found["metadata"]["deletionTimestamp"].is_null(),
            "{path} is being deleted"
        );
    }
    Ok(())
}

/// Paths of what the packages have deployed.
async fn daemon_sets(one: &Cluster, release: &Release) -> Result<Vec<String>> {
    let path = |short: &str| format!("/apis/apps/v1/namespaces/kube-system/daemonsets/{short}");
    let paths: Vec<String> = installable(release)
        .map(|package| path(package.short()))
        .collect();
    for path in &paths {
        let found = one.scene().objects().get(path).await?;
        found.with_context(|| format!("{path} does not exist"))?;
    }
    Ok(paths)
}

/// The kapp-controller of the management cluster.
struct Process {
    running: RunningProcess,
    /// How often a kapp-controller of the stack had ended by itself.
    ends: usize,
}

impl Process {
    async fn of(scene: &Scene) -> Result<Self> {
        let stack = scene.world().stack();
        let running = stack.kapp_controller()?.process().await;
        Ok(Self {
            running: running.context("no kapp-controller runs")?,
            ends: stack.core().directory().counted_ends(),
        })
    }

    /// Fails if another process has taken its place, and if there is one of another package. Version 0.53.1 may crash while its API
    /// server is replaced; the kubelet starts the same one again then, with the same arguments: those of a package name its version.
    async fn still_runs(&self, scene: &Scene) -> Result<()> {
        let stack = scene.world().stack();
        let now = wait::until("kapp-controller to run", TIMEOUT, || async {
            match stack.kapp_controller()?.process().await {
                Some(now) => Ok(now),
                None => wait::not_yet("no kapp-controller runs"),
            }
        })
        .await?;
        let has_crashed = stack.core().directory().counted_ends() > self.ends;
        ensure!(
            now == self.running || has_crashed && now.arguments == self.running.arguments,
            "kapp-controller was {:?}, and is {now:?}",
            self.running
        );
        let deployment = "/apis/apps/v1/namespaces/kapp-controller/deployments/kapp-controller";
        let found = scene.objects().get(deployment).await?;
        ensure!(found.is_none(), "a package has deployed {found:?}");
        Ok(())
    }
}
