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
    objects::{chart, release, upgrade},
    servers::Servers,
};

/// Defect of the processes in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The version of the HelmChartProxy proves the chart.
    ChartTrusted,
    /// `Ready` of the HelmReleaseProxy proves the version of the HelmChartProxy.
    ReadyTrusted,
    /// A paused object is as good as any other.
    PauseUnseen,
    /// An object with `InstallOnce` is as good as any other.
    StrategyUnseen,
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

impl Defect {
    /// Returns an object of a kind as a leader reads it.
    pub(crate) fn seen(self, servers: &Servers, plural: &str, mut object: Value) -> Value {
        let is_release = plural == "helmreleaseproxies";
        if !is_release && plural != "helmchartproxies" {
            return object;
        }
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
