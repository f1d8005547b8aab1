//! Conversion of a Cluster view to its protobuf message.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prost_types::Timestamp;
use sluice_core::{
    explanation::{Explanation, explain},
    text::one_line,
};
use sluice_crds::run::{Gate, GateOverride, Outcome, PackageRecord, PackageState, UpgradeRecord};
use sluice_proto::status::v1;

use super::view::ClusterView;

/// Longest message of a wait and longest reason of an override, in characters. Gates and packages have the whole messages.
const LONGEST_MESSAGE: usize = 256;

pub(super) fn cluster(view: ClusterView) -> v1::Cluster {
    v1::Cluster {
        namespace: view.cluster.namespace().to_owned(),
        name: view.cluster.name().to_owned(),
        uid: view.uid,
        tkr_label: view.tkr_label,
        managed: view.managed,
        upgrade: view.upgrade.map(|record| upgrade(record, view.since)),
        topology_version: view.topology_version,
        pending: view.pending,
    }
}

fn upgrade(record: UpgradeRecord, since: Option<Time>) -> v1::Upgrade {
    v1::Upgrade {
        waiting: explain(&record, since).as_ref().map(waiting),
        from: record.from.unwrap_or_default(),
        to: record.to,
        hop: record.hop.unwrap_or_default(),
        tkr: record.tkr.unwrap_or_default(),
        observed_cluster_generation: record.observed_cluster_generation,
        observed_bootstrap_generation: record.observed_bootstrap_generation,
        gates: record.gates.into_iter().map(gate).collect(),
        packages: record.packages.into_iter().map(package).collect(),
        started_at: record.started_at.as_ref().map(timestamp),
        ready_at: record.ready_at.as_ref().map(timestamp),
        released_at: record.released_at.as_ref().map(timestamp),
        completed_at: record.completed_at.as_ref().map(timestamp),
        outcome: match record.outcome {
            None => v1::Outcome::Unspecified,
            Some(Outcome::Completed) => v1::Outcome::Completed,
            Some(Outcome::Cancelled) => v1::Outcome::Cancelled,
            Some(Outcome::RolledBack) => v1::Outcome::RolledBack,
        }
        .into(),
    }
}

fn waiting(explanation: &Explanation<'_>) -> v1::Waiting {
    let (hook, version) = explanation
        .gate
        .map(|gate| (gate.hook.as_str().to_owned(), gate.version.clone()))
        .unwrap_or_default();
    v1::Waiting {
        hook,
        version,
        package: explanation
            .package
            .map(|package| package.name.clone())
            .unwrap_or_default(),
        reason: explanation.reason.to_owned(),
        text: explanation.text.to_owned(),
        message: one_line(explanation.message, LONGEST_MESSAGE),
        since: explanation.since.as_ref().map(timestamp),
    }
}

fn gate(gate: Gate) -> v1::Gate {
    v1::Gate {
        hook: gate.hook.as_str().to_owned(),
        version: gate.version,
        open: gate.open,
        reason: gate.reason,
        message: gate.message,
        overridden_by: gate.overridden_by.map(overridden_by),
    }
}

fn overridden_by(by: GateOverride) -> v1::Override {
    v1::Override {
        expires_at: Some(timestamp(&by.expires_at)),
        name: by.name,
        user: by.user,
        reason: one_line(&by.reason, LONGEST_MESSAGE),
    }
}

fn package(package: PackageRecord) -> v1::Package {
    v1::Package {
        name: package.name,
        version: package.version,
        state: match package.state {
            PackageState::Pending => v1::PackageState::Pending,
            PackageState::Applied => v1::PackageState::Applied,
            PackageState::Reconciling => v1::PackageState::Reconciling,
            PackageState::Ready => v1::PackageState::Ready,
            PackageState::Failed => v1::PackageState::Failed,
        }
        .into(),
        reason: package.reason,
        message: package.message,
    }
}

fn timestamp(time: &Time) -> Timestamp {
    Timestamp {
        seconds: time.0.as_second(),
        nanos: 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_core::{cluster::ClusterRef, reasons::PackageReason};

    use super::*;

    #[test]
    fn every_field_of_a_record_has_its_place() {
        let record: UpgradeRecord = serde_json::from_value(json!({
            "schema": 1, "clusterUID": "uid", "observedClusterGeneration": 7, "observedBootstrapGeneration": 12,
            "label": "r", "from": "v1", "to": "v3", "hop": "v2", "tkr": "r2", "outcome": "Cancelled",
            "gates": [
                {"hook": "BeforeClusterUpgrade", "version": "v2", "open": false, "reason": "PackagesNotReady", "message": "m"},
                {"hook": "BeforeWorkersUpgrade", "version": "v2", "open": true, "overriddenBy": {
                    "name": "metrics", "uid": "u", "user": "ada", "reason": "o\u{1b}", "expiresAt": "2026-01-01T00:00:05Z",
                }},
            ],
            "packages": [{"name": "antrea", "version": "1.0.0", "state": "Failed", "reason": "AppFailed", "message": "n"}],
            "startedAt": "2026-01-01T00:00:00Z", "readyAt": "2026-01-01T00:00:01Z",
            "releasedAt": "2026-01-01T00:00:02Z", "completedAt": "2026-01-01T00:00:03Z",
        }))
        .unwrap();
        let at = |second: i64| {
            Some(Timestamp {
                seconds: 1_767_225_600 + second,
                nanos: 0,
            })
        };
        let message = cluster(ClusterView {
            cluster: ClusterRef::new("ns", "one"),
            uid: "uid".to_owned(),
            tkr_label: "r".to_owned(),
            managed: true,
            upgrade: Some(record),
            topology_version: "v4".to_owned(),
            pending: true,
            since: Some(Time("2026-01-01T00:00:04Z".parse().unwrap())),
        });
        let wanted = v1::Upgrade {
            from: "v1".to_owned(),
            to: "v3".to_owned(),
            hop: "v2".to_owned(),
            tkr: "r2".to_owned(),
            observed_cluster_generation: 7,
            observed_bootstrap_generation: 12,
            gates: vec![
                v1::Gate {
                    hook: "BeforeClusterUpgrade".to_owned(),
                    version: "v2".to_owned(),
                    open: false,
                    reason: "PackagesNotReady".to_owned(),
                    message: "m".to_owned(),
                    overridden_by: None,
                },
                v1::Gate {
                    hook: "BeforeWorkersUpgrade".to_owned(),
                    version: "v2".to_owned(),
                    open: true,
                    overridden_by: Some(v1::Override {
                        name: "metrics".to_owned(),
                        user: "ada".to_owned(),
                        reason: "o\\u{1b}".to_owned(),
                        expires_at: at(5),
                    }),
                    ..v1::Gate::default()
                },
            ],
            packages: vec![v1::Package {
                name: "antrea".to_owned(),
                version: "1.0.0".to_owned(),
                state: v1::PackageState::Failed.into(),
                reason: "AppFailed".to_owned(),
                message: "n".to_owned(),
            }],
            started_at: at(0),
            ready_at: at(1),
            released_at: at(2),
            completed_at: at(3),
            outcome: v1::Outcome::Cancelled.into(),
            waiting: Some(v1::Waiting {
                hook: "BeforeClusterUpgrade".to_owned(),
                version: "v2".to_owned(),
                package: "antrea".to_owned(),
                reason: "AppFailed".to_owned(),
                text: PackageReason::AppFailed.text().to_owned(),
                message: "n".to_owned(),
                since: at(4),
            }),
        };
        assert_eq!(
            message,
            v1::Cluster {
                namespace: "ns".to_owned(),
                name: "one".to_owned(),
                uid: "uid".to_owned(),
                tkr_label: "r".to_owned(),
                managed: true,
                upgrade: Some(wanted),
                topology_version: "v4".to_owned(),
                pending: true,
            }
        );
    }
}
