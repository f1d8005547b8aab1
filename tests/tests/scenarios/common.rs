//! The upgrade that most scenarios disturb: held by one package that becomes ready on request.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::install::Shell;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{Provider, Release, Values};
use sluice_tests::observer::{Event, Milestone, Revision};
use sluice_tests::scenario::{Cluster, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

/// A shell whose kubectl uses the namespace of the scenario. `home` names its home directory.
pub(crate) async fn shell(scene: &Scene, home: &str) -> Result<Shell> {
    let kubeconfig = scene.world().stack().management().admin_kubeconfig();
    shell_with(scene, home, &kubeconfig).await
}

/// The same with the rights of a user, who is in no group.
pub(crate) async fn shell_of(scene: &Scene, home: &str, user: &str) -> Result<Shell> {
    let management = scene.world().stack().management();
    let kubeconfig = management.pki().user_kubeconfig(&management.url(), user)?;
    shell_with(scene, home, &kubeconfig).await
}

async fn shell_with(scene: &Scene, home: &str, kubeconfig: &str) -> Result<Shell> {
    let shell = Shell::open(scene.world().stack().core(), home, kubeconfig).await?;
    let context = format!(
        "kubectl config set-context --current --namespace {}",
        scene.namespace()
    );
    shell.run(&context, &[]).await?.well()?;
    Ok(shell)
}

/// Two published releases, one minor apart. At the new one antrea never gets ready by itself.
pub(crate) async fn releases(scene: &Scene) -> Result<(Release, Release)> {
    let old = release(scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(scene, VERSIONS[2], "2.0.0", Delay::Never)?;
    scene.publish(&old).await?;
    scene.publish(&new).await?;
    Ok((old, new))
}

/// A release with kapp-controller, antrea and metrics.
pub(crate) fn release(scene: &Scene, kubernetes: &str, version: &str, antrea: Delay) -> Result<Release> {
    Ok(scene
        .release(kubernetes, version, antrea)?
        .additional(metrics(scene, version)))
}

/// The AntreaConfig that a template names, of which each Cluster gets a copy.
pub(crate) fn antrea_config() -> Values {
    Values::Provider(Provider {
        group: "cni.tanzu.vmware.com",
        version: "v1alpha1",
        kind: "AntreaConfig",
        spec: json!({"antrea": {"config": {}}}),
    })
}

/// The additional package of [`release`].
pub(crate) fn metrics(scene: &Scene, version: &str) -> TestPackage {
    scene.package("metrics", version)
}

/// The upgrade that most scenarios disturb, once nothing but antrea is waited for.
pub(crate) struct MidHold {
    /// Its name is `one`.
    pub(crate) cluster: Cluster,
    pub(crate) old: Release,
    pub(crate) new: Release,
    /// The revision from before the upgrade.
    pub(crate) before: Revision,
}

impl MidHold {
    /// Publishes both releases, creates the Cluster at the old one and upgrades it.
    pub(crate) async fn of(scene: &Scene) -> Result<Self> {
        let (old, new) = releases(scene).await?;
        let cluster = scene.cluster("one").create_settled(&old).await?;
        let before = held(&cluster, &new).await?;
        Ok(Self {
            cluster,
            old,
            new,
            before,
        })
    }
}

/// Upgrades and returns once nothing but antrea is waited for, with the revision from before.
pub(crate) async fn held(cluster: &Cluster, new: &Release) -> Result<Revision> {
    let before = cluster.upgrade(new).await?;
    is_held(cluster, new, before).await?;
    Ok(before)
}

/// Returns once nothing but antrea is waited for.
pub(crate) async fn is_held(cluster: &Cluster, new: &Release, before: Revision) -> Result<()> {
    cluster.says("antrea 2.0.0", TIMEOUT).await?;
    let others: Vec<String> = new
        .packages()
        .filter(|package| package.short() != "antrea")
        .map(|package| package.short().to_owned())
        .collect();
    for short in &others {
        record_says(cluster, short, "Ready").await?;
    }
    cluster.control_plane_is_untouched(before).await
}

/// Waits until the record shows a package in `state`.
pub(crate) async fn record_says(cluster: &Cluster, package: &str, state: &str) -> Result<()> {
    let what = format!(
        "the record of {} to say that {package} is {state}",
        cluster.name()
    );
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let packages = &bootstrap["status"]["upgrade"]["packages"];
            let found = packages
                .as_array()
                .into_iter()
                .flatten()
                .find(|found| found["name"] == package);
            match found {
                Some(found) if found["state"] == state => Ok(()),
                _ => sluice_tests::wait::not_yet(packages),
            }
        })
        .await
}

/// Makes antrea ready, and returns the write of the control plane once all is at rest.
pub(crate) async fn released(cluster: &Cluster, new: &Release, before: Revision) -> Result<Milestone> {
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("antrea", Delay::NONE);
    let written = proven_before_written(cluster, new, before).await?;
    cluster.is_settled(TIMEOUT).await?;
    Ok(written)
}

/// The `additionalPackages` of a ClusterBootstrap, changed by `edit`, as a merge patch.
pub(crate) async fn additional(cluster: &Cluster, edit: impl Fn(&mut Value)) -> Result<Value> {
    let mut packages = cluster.bootstrap().await?["spec"]["additionalPackages"].take();
    packages.as_array_mut().into_iter().flatten().for_each(edit);
    Ok(json!({"spec": {"additionalPackages": packages}}))
}

/// Revision of the write that an API server answered with.
pub(crate) fn revision(written: &Value) -> Result<Revision> {
    let revision = written["metadata"]["resourceVersion"].as_str();
    Ok(revision.context("an answer without resourceVersion")?.parse()?)
}

/// Last values of a package of `release`, as the package reports in the workload cluster.
pub(crate) async fn given(cluster: &Cluster, release: &Release, short: &str) -> Result<Value> {
    let package = release.packages().find(|package| package.short() == short);
    let package = package.with_context(|| format!("a release without {short}"))?;
    let mut echoed = cluster.echoed(package).await?;
    ensure!(
        echoed["version"] == package.version(),
        "{short} {} is installed, not {}",
        echoed["version"],
        package.version()
    );
    let values = echoed["values"].take();
    Ok(serde_json::from_str(values.as_str().context("no values")?)?)
}

/// Waits until the record shows a completed upgrade.
pub(crate) async fn is_completed(cluster: &Cluster) -> Result<()> {
    let what = format!("the record of {} to be complete", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["outcome"] == "Completed" {
                Ok(())
            } else {
                sluice_tests::wait::not_yet(record)
            }
        })
        .await
}

/// Whether kapp-controller has finished the current generation of an App.
pub(crate) fn is_deployed(app: &Value) -> bool {
    let status = &app["status"];
    let conditions = status["conditions"].as_array();
    let succeeded =
        |condition: &Value| condition["type"] == "ReconcileSucceeded" && condition["status"] == "True";
    status["observedGeneration"] == app["metadata"]["generation"]
        && conditions.into_iter().flatten().any(succeeded)
}

/// Error message of the API server for a request that a [`Refusal`] rejects.
pub(crate) const REFUSED: &str = "refused by the scenario";

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// Makes an API server reject an operation, from shortly after the creation of the objects until the deletion of the binding.
pub(crate) struct Refusal<'a> {
    pub(crate) name: &'a str,
    pub(crate) operation: &'a str,
    /// End of the user names whose requests it rejects; empty for all.
    pub(crate) users: &'a str,
    /// Group and name of each kind.
    pub(crate) resources: &'a [(&'a str, &'a str)],
}

impl Refusal<'_> {
    /// A policy and its binding.
    pub(crate) fn objects(&self) -> [Value; 2] {
        let rule = |(group, resource): &(&str, &str)| {
            json!({
                "apiGroups": [group],
                "apiVersions": ["*"],
                "operations": [self.operation],
                "resources": [resource],
            })
        };
        let rules: Vec<Value> = self.resources.iter().map(rule).collect();
        let object = |kind: &str, spec: Value| json!({"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": self.name}, "spec": spec});
        [
            object(
                "ValidatingAdmissionPolicy",
                json!({
                    "matchConstraints": {"resourceRules": rules},
                    "validations": [{
                        "expression": format!("!request.userInfo.username.endsWith('{}')", self.users),
                        "message": REFUSED,
                    }],
                }),
            ),
            object(
                "ValidatingAdmissionPolicyBinding",
                json!({"policyName": self.name, "validationActions": ["Deny"]}),
            ),
        ]
    }

    /// The path of the binding.
    pub(crate) fn binding(&self) -> String {
        format!(
            "/apis/{ADMISSION}/validatingadmissionpolicybindings/{}",
            self.name
        )
    }
}

/// Waits until all `packages` are proven after revision `since`, and their version is written to the control plane: in this order. Returns the
/// write.
pub(crate) async fn proven_before_written(
    cluster: &Cluster,
    packages: &Release,
    since: Revision,
) -> Result<Milestone> {
    let proven = cluster.packages_proven(packages, since, TIMEOUT).await?;
    let version = packages.kubernetes();
    let written = cluster.control_plane_written(version, since, TIMEOUT).await?;
    ensure!(
        proven.revision < written.revision,
        "{version} was written to {} at revision {}, the last package had proof only at {}",
        cluster.name(),
        written.revision,
        proven.revision
    );
    Ok(written)
}

/// Waits until the control plane runs the version of `packages`, all of these are proven on it, and it is written to the workers: in this order.
/// Returns the first.
pub(crate) async fn proven_before_workers(
    cluster: &Cluster,
    packages: &Release,
    since: Revision,
) -> Result<Milestone> {
    let version = packages.kubernetes();
    let what = format!("the control plane to run {version}");
    let runs = |event: &Event| matches!(event, Event::ControlPlaneRuns { version: runs } if runs == version);
    let runs = cluster.milestone(&what, TIMEOUT, since, runs).await?;
    let again = cluster.packages_proven(packages, runs.revision, TIMEOUT).await?;
    let what = format!("{version} to be written to the workers");
    let written =
        |event: &Event| matches!(event, Event::WorkersWritten { version: written, .. } if written == version);
    let workers = cluster.milestone(&what, TIMEOUT, since, written).await?;
    ensure!(
        again.revision < workers.revision,
        "the workers were written at revision {}, the last new proof came only at {}",
        workers.revision,
        again.revision
    );
    Ok(runs)
}

/// The hooks of a creation and of an upgrade by one minor, each once.
pub(crate) const HOOKS: &[&str] = &[
    "BeforeClusterCreate",
    "AfterControlPlaneInitialized",
    "BeforeClusterUpgrade",
    "BeforeControlPlaneUpgrade",
    "AfterControlPlaneUpgrade",
    "BeforeWorkersUpgrade",
    "AfterWorkersUpgrade",
    "AfterClusterUpgrade",
];

/// These hooks were released, and no others, in this order.
pub(crate) fn hooks_were_released(cluster: &Cluster, wanted: &[&str]) -> Result<()> {
    let mut released: Vec<String> = cluster
        .hook_answers()?
        .into_iter()
        .filter(|answer| !answer.is_held())
        .map(|answer| answer.hook)
        .collect();
    released.dedup();
    ensure!(
        released == wanted,
        "hooks were released in the order {released:?}"
    );
    Ok(())
}

/// The registration of Sluice.
pub(crate) const EXTENSION_CONFIG: &str = "/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs/sluice";
