//! The registration of Sluice is spoiled in each way: condition, metric and a refused upgrade name the reason.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::Scope;
use sluice_tests::extension::imposter::Imposter;
use sluice_tests::install::Shell;
use sluice_tests::objects::Release;
use sluice_tests::scenario::{Cluster, Objects, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait::{self, Unmet};

use crate::common::{HOOKS, is_completed, shell};
use crate::plan::admit;

const NAME: &str = "sluice";

/// The role by which Sluice reads ExtensionConfigs.
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sluice";

const METRIC: &str = "sluice_gate_not_in_force_clusters";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "not-in-force",
        "an ExtensionConfig that is missing, undiscovered, without the namespace or without handlers, or that ignores failures, and a Cluster without topology: condition, metric and a refused upgrade name the reason, and a scale-up passes",
        |scene| Box::pin(run(scene)),
    )
    // The registration of Sluice is changed.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let old = scene.release(VERSIONS[0], "1.0.0", Delay::NONE)?;
    let new = scene.release(VERSIONS[1], "2.0.0", Delay::NONE)?;
    for release in [&old, &new] {
        scene.publish(release).await?;
    }
    let cluster = scene.cluster("one").create_settled(&old).await?;
    is_completed(&cluster).await?;
    admit(&scene).await?;
    let site = Site {
        shell: shell(&scene, "home-not-in-force").await?,
        objects: scene.objects(),
        scene,
        cluster,
        new,
    };
    site.admits(None).await?;
    site.without_topology().await?;
    site.of_the_registration().await?;

    // In force again: the upgrade is admitted, and waits as ever.
    site.extension()?.register(NAME, &Scope::Everywhere).await?;
    site.counts("NotDiscovered", 0.0).await?;
    site.cluster.upgrade(&site.new).await?;
    site.condition("True", "HooksCalled").await?;
    site.cluster.is_settled(TIMEOUT).await?;
    is_completed(&site.cluster).await
}

struct Site {
    scene: Scene,
    cluster: Cluster,
    new: Release,
    shell: Shell,
    objects: Objects,
}

impl Site {
    fn extension(&self) -> Result<&sluice_tests::extension::Extension> {
        self.scene.world().extension()
    }

    /// Spoils the registration of Sluice in one way after the other.
    async fn of_the_registration(&self) -> Result<()> {
        let elsewhere = Scope::Namespaces(vec!["elsewhere".to_owned()]);
        self.extension()?.register(NAME, &elsewhere).await?;
        self.is_reported("False", "NamespaceNotSelected").await?;

        let some: Vec<(&str, &str)> = HOOKS.iter().take(3).map(|hook| (*hook, "Fail")).collect();
        let imposter = Imposter::start(&self.scene, NAME, &some).await?;
        self.is_reported("False", "HandlersMissing").await?;

        let ignoring: Vec<(&str, &str)> = HOOKS
            .iter()
            .chain(&["BeforeClusterDelete"])
            .map(|hook| (*hook, "Ignore"))
            .collect();
        let ignores = Imposter::start(&self.scene, NAME, &ignoring).await?;
        imposter.stop().await?;
        self.is_reported("False", "FailurePolicyIgnore").await?;

        let sound = self.objects.get(ROLE).await?.context("no role of Sluice")?;
        let mut rules = sound["rules"]
            .as_array()
            .cloned()
            .context("a role without rules")?;
        rules.retain(|rule| rule["resources"][0] != "extensionconfigs");
        self.objects.merge(ROLE, &json!({"rules": rules})).await?;
        self.is_reported("Unknown", "Unreadable").await?;
        self.objects.restore(ROLE, &sound).await?;

        self.extension()?.unregister(NAME).await?;
        ignores.stop().await?;
        self.is_reported("False", "ExtensionConfigMissing").await?;

        // No process listens on this port.
        let away = json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig", "metadata": {"name": NAME},
            "spec": {"clientConfig": {"url": "https://127.0.0.1:1"}, "namespaceSelector": {}},
        });
        self.scene.apply(&[away]).await?;
        self.extension()?.discovered_is(NAME, "False", "").await?;
        self.is_reported("False", "NotDiscovered").await
    }

    /// Condition, metric and admission name a reason. What is only unknown is admitted with a warning.
    async fn is_reported(&self, status: &str, reason: &str) -> Result<()> {
        self.admits(Some(reason)).await?;
        self.condition(status, reason).await?;
        self.counts(reason, 1.0).await
    }

    /// Admission answers a raised version by this reason, and lets a scale-up pass.
    async fn admits(&self, reason: Option<&str>) -> Result<()> {
        let release = json!({"run.tanzu.vmware.com/tkr": self.new.name()});
        let bump = json!({"metadata": {"labels": release}, "spec": {"topology": {"version": self.new.kubernetes()}}});
        let scale = json!({"spec": {"topology": {"controlPlane": {"replicas": 3}}}});
        let is_refused = reason.is_some_and(|reason| reason != "Unreadable");
        let what = format!("admission to answer {reason:?} about a raised version");
        // The API server asks the webhook only some time after its registration.
        wait::until(what, TIMEOUT, || async {
            let said = self.dry_run(&bump).await?;
            let is_named = reason.is_none_or(|reason| said.1.contains(reason));
            if said.0 != is_refused && is_named {
                Ok(())
            } else {
                wait::not_yet(said.1)
            }
        })
        .await?;
        let (is_admitted, said) = self.dry_run(&scale).await?;
        ensure!(is_admitted, "a scale-up is refused: {said}");
        Ok(())
    }

    /// Returns whether a change of the Cluster is admitted, and what is said about it.
    async fn dry_run(&self, change: &Value) -> Result<(bool, String)> {
        let command =
            "kubectl patch clusters.cluster.x-k8s.io one --type merge --patch \"$CHANGE\" --dry-run=server";
        let change = change.to_string();
        let said = self.shell.run(command, &[("CHANGE", change.as_str())]).await?;
        Ok((said.succeeded, said.errors))
    }

    /// The condition of the ClusterBootstrap has this status and reason.
    async fn condition(&self, status: &str, reason: &str) -> Result<()> {
        let what = format!("GateInForce of Cluster one to be {status} for {reason}");
        let probe = |bootstrap: &Value| gate_is(bootstrap, status, reason);
        self.cluster.bootstrap_until(what, 2 * TIMEOUT, probe).await
    }

    /// The metric has this value for a reason.
    async fn counts(&self, reason: &str, count: f64) -> Result<()> {
        let series = format!("{METRIC}{{reason=\"{reason}\"}}");
        let extension = self.extension()?;
        wait::until(format!("{series} to be {count}"), TIMEOUT, || async {
            let counted = extension.metric(&series).await?;
            if (counted - count).abs() < 0.5 {
                Ok(())
            } else {
                wait::not_yet(counted)
            }
        })
        .await?;
        Ok(())
    }

    /// A Cluster without topology gets a ClusterBootstrap. It has no version that could be raised.
    async fn without_topology(&self) -> Result<()> {
        let namespace = self.scene.namespace();
        let metadata = json!({"name": "plain", "namespace": namespace});
        let reference = |kind: &str| json!({"apiGroup": "harness.test", "kind": kind, "name": "plain"});
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata,
            "spec": {
                "controlPlaneRef": reference("HarnessControlPlane"),
                "infrastructureRef": reference("HarnessCluster"),
            },
        });
        let own = self.cluster.bootstrap().await?;
        let bootstrap = json!({
            "apiVersion": own["apiVersion"], "kind": own["kind"], "metadata": metadata,
            "spec": {"kapp": own["spec"]["kapp"], "cni": {"refName": own["spec"]["cni"]["refName"]}},
        });
        self.scene.apply(&[cluster, bootstrap]).await?;
        let path =
            format!("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{namespace}/clusterbootstraps/plain");
        let what = "GateInForce of Cluster plain to be False for NoTopology";
        wait::until(what, 2 * TIMEOUT, || async {
            let bootstrap = self.objects.get(&path).await?.unwrap_or_default();
            gate_is(&bootstrap, "False", "NoTopology")
        })
        .await?;
        self.counts("NoTopology", 1.0).await?;
        self.objects.delete(&path).await?;
        let cluster = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/plain");
        self.objects
            .merge(&cluster, &json!({"metadata": {"finalizers": null}}))
            .await?;
        self.objects.delete(&cluster).await
    }
}

/// Whether condition `GateInForce` has this status and reason.
pub(crate) fn gate_is(bootstrap: &Value, status: &str, reason: &str) -> Result<(), Unmet> {
    let mut conditions = bootstrap["status"]["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == "GateInForce");
    match condition {
        Some(condition) if condition["status"] == status && condition["reason"] == reason => Ok(()),
        other => wait::not_yet(format!("{other:?}")),
    }
}
