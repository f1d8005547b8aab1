//! Planted defects: each walk of [`crate::planted`] about one of them must fail.
//!
//! A defect is a fact that a process does not observe. That equals a product without the clause that depends on this fact.

use serde_json::{Value, json};
use sluice_core::{
    gate::hook_call::HookCall,
    protocol::{Read, ReadPhase, ReadResult},
};
use sluice_crds::labels::annotation::PAUSED;

use crate::{
    flux::{KUBECONFIG, REQUESTED_AT, is_true},
    objects::{CHARTS, apis, chart, kustomization, release, source, upgrade},
    servers::Servers,
};

/// Defect of the processes in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The wanted version proves that it is delivered.
    ChartTrusted,
    /// `Ready` of the delivered object proves the wanted version.
    ReadyTrusted,
    /// A paused or suspended object is as good as any other, if its generation is observed.
    PauseUnseen,
    /// An object with `InstallOnce` is as good as any other.
    StrategyUnseen,
    /// A handled request of a reconcile proves the wanted version.
    RequestTrusted,
    /// A remediated HelmRelease proves the wanted version.
    RollbackTrusted,
    /// The applied revision of a Kustomization proves it, whatever its source has.
    SourceUnseen,
    /// An object that is delivered to another Cluster is as good as any other.
    BelongingUnseen,
    /// An existing definition proves its versions.
    DefinitionTrusted,
    /// An existing object proves what its expression says.
    ExpressionTrusted,
    /// Gates open on the reads of the plan.
    NotConfirmed,
    /// A judgement that is not recorded is a proof while Helm runs again.
    LatchUnrecorded,
    /// A hook is released from the cache of the ClusterUpgrade.
    ReleaseNotConfirmed,
    /// The labels of a request select no gate.
    LabelsUnread,
}

/// Whether the HelmReleaseProxy reports its current generation as ready.
fn is_ready(release: &Value) -> bool {
    let mut conditions = release["status"]["conditions"].as_array().into_iter().flatten();
    release["status"]["observedGeneration"] == release["metadata"]["generation"]
        && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns the HelmRelease as if its version were deployed.
fn deployed(mut release: Value) -> Value {
    let generation = release["metadata"]["generation"].clone();
    let version = release["spec"]["chart"]["spec"]["version"].clone();
    release["spec"]["suspend"] = json!(false);
    release["status"] = json!({
        "observedGeneration": generation, "lastAttemptedGeneration": generation, "lastAttemptedRevision": version,
        "lastAttemptedConfigDigest": "sha256:fine",
        "conditions": [
            {"type": "Released", "status": "True", "reason": "UpgradeSucceeded"},
            {"type": "Ready", "status": "True", "reason": "UpgradeSucceeded"},
        ],
        "history": [{
            "name": "cilium", "namespace": "kube-system", "version": 1, "status": "deployed", "chartName": "cilium",
            "chartVersion": version, "configDigest": "sha256:fine",
        }],
    });
    release
}

/// Returns the revision that the GitRepository would have if its tag were fetched.
fn wanted_revision(servers: &Servers) -> Value {
    let tag = servers
        .get(&source())
        .and_then(|source| source["spec"]["ref"]["tag"].as_str());
    json!(format!("{}@sha1:0", tag.unwrap_or_default()))
}

/// Returns the Kustomization as if the tag of its source were applied, or the source as if it were fetched.
fn applied(servers: &Servers, mut object: Value) -> Value {
    let (generation, revision) = (object["metadata"]["generation"].clone(), wanted_revision(servers));
    object["spec"]["suspend"] = json!(false);
    object["status"] = json!({
        "observedGeneration": generation, "artifact": {"revision": revision},
        "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Succeeded"}],
    });
    object
}

impl Defect {
    /// Returns an object of a kind as a leader reads it.
    pub(crate) fn seen(self, servers: &Servers, plural: &str, mut object: Value) -> Value {
        match plural {
            "helmchartproxies" => self.seen_of_caaph(servers, false, object),
            "helmreleaseproxies" => self.seen_of_caaph(servers, true, object),
            "helmreleases" if self.trusts(&object) => deployed(object),
            // What is said of the source is said by the Kustomization.
            "kustomizations" | "gitrepositories"
                if servers
                    .get(&kustomization())
                    .is_some_and(|found| self.trusts(found)) =>
            {
                applied(servers, object)
            }
            "gitrepositories" if self == Self::SourceUnseen => {
                let applied = servers
                    .get(&kustomization())
                    .map(|found| found["status"]["lastAppliedRevision"].clone());
                object["status"]["artifact"]["revision"] = applied.unwrap_or_default();
                object
            }
            "helmreleases" | "kustomizations" if self == Self::BelongingUnseen => {
                object["spec"]["kubeConfig"]["secretRef"]["name"] = json!(KUBECONFIG);
                object
            }
            "customresourcedefinitions" if self == Self::DefinitionTrusted => {
                object["spec"]["versions"] = apis(CHARTS.len() - 1);
                object
            }
            "backends" if self == Self::ExpressionTrusted => {
                object["status"] = json!({
                    "version": object["spec"]["version"], "observedGeneration": object["metadata"]["generation"],
                });
                object
            }
            _ => object,
        }
    }

    /// Whether a HelmRelease or a Kustomization proves the wanted version.
    fn trusts(self, object: &Value) -> bool {
        let status = &object["status"];
        let is_ready = is_true(object, "Ready");
        match self {
            Self::ChartTrusted => true,
            Self::ReadyTrusted => is_ready,
            Self::PauseUnseen => is_ready && status["observedGeneration"] == object["metadata"]["generation"],
            Self::RequestTrusted => {
                let requested = &object["metadata"]["annotations"][REQUESTED_AT];
                !requested.is_null() && status["lastHandledReconcileAt"] == *requested
            }
            Self::RollbackTrusted => is_true(object, "Remediated"),
            _ => false,
        }
    }

    /// Returns an object of CAAPH as a leader reads it.
    fn seen_of_caaph(self, servers: &Servers, is_release: bool, mut object: Value) -> Value {
        let wanted = servers
            .get(&chart())
            .map(|proxy| proxy["spec"]["version"].clone());
        match self {
            Self::ChartTrusted if is_release => {
                object["spec"]["version"] = wanted.unwrap_or_default();
                object["status"] = json!({
                    "status": "deployed", "observedGeneration": object["metadata"]["generation"],
                    "conditions": [{"type": "Ready", "status": "True"}],
                });
            }
            Self::ReadyTrusted if is_release => object["spec"]["version"] = wanted.unwrap_or_default(),
            Self::PauseUnseen => {
                if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
                    annotations.remove(PAUSED);
                }
            }
            Self::StrategyUnseen => object["spec"]["reconcileStrategy"] = json!("Continuous"),
            _ => {}
        }
        object
    }

    /// Returns the answer to a confirming read that a leader takes from its plan.
    pub(crate) fn planned(self, ask: &Read, answers: &[(Read, ReadResult)]) -> Option<ReadResult> {
        if self != Self::NotConfirmed {
            return None;
        }
        let mut plan = ask.clone();
        if let Read::Object(_, phase) | Read::Labelled { phase, .. } = &mut plan {
            *phase = ReadPhase::Plan;
        }
        let mut answers = answers.iter();
        let (_, planned) = answers.find(|(read, _)| *read == plan)?;
        Some(planned.clone())
    }

    /// Returns the caches of a leader with what it remembers of an earlier reconcile: the HelmReleaseProxy was ready.
    pub(crate) fn remembered(self, seen: &Servers, servers: &Servers) -> Servers {
        let mut shown = seen.clone();
        let ready = servers.get(&release()).filter(|release| is_ready(release));
        let (Self::LatchUnrecorded, Some(release), Some(mut upgrade_seen)) =
            (self, ready, seen.get(&upgrade()).cloned())
        else {
            return shown;
        };
        let checks = upgrade_seen.pointer_mut("/status/upgrade/checks");
        for check in checks.and_then(Value::as_array_mut).into_iter().flatten() {
            if check["name"] == "chart" {
                *check = json!({
                    "gate": check["gate"], "name": "chart", "state": "Proven", "version": release["spec"]["version"],
                    "uid": release["metadata"]["uid"], "generation": release["metadata"]["generation"],
                });
            }
        }
        shown.set(upgrade(), upgrade_seen);
        shown
    }

    /// Returns a call as a replica reads it.
    pub(crate) fn called(self, call: HookCall<'_>) -> HookCall<'_> {
        match self {
            Self::LabelsUnread => HookCall { labels: None, ..call },
            _ => call,
        }
    }
}
