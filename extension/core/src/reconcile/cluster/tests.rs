//! Shared fixtures of the tests of a reconcile.

mod admitted;
mod refusal;
mod rollback;

use std::time::Instant;

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    packages::build::Owner,
    schedule::SyncPeriod,
    upgrade::hop::{ControlPlanePhase, Plan, Progress, UpgradeDirection},
};

pub(crate) fn clock() -> Clock {
    Clock {
        now: Timestamp::UNIX_EPOCH,
        instant: Instant::now(),
    }
}

/// Returns the progress of an upgrade from v1.35.4 whose control plane may have `taken` v1.36.3.
pub(crate) fn to_v36(taken: bool) -> Progress {
    Progress {
        phase: ControlPlanePhase::Settled {
            version: "v1.35.4".to_owned(),
        },
        hop: "v1.36.3".to_owned(),
        direction: UpgradeDirection::Forward,
        taken,
    }
}

/// Returns the facts of a Cluster without other objects.
pub(crate) fn facts() -> Facts {
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": "one", "namespace": "team-a", "uid": "uid"},
        "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
    });
    let cluster: sluice_crds::foreign::Cluster = serde_json::from_value(cluster).unwrap();
    Facts {
        overrides: None,
        undecodable_release: None,
        server_now: None,
        management_uid: Some("management".into()),
        gate_in_force: None,
        settings: Settings {
            system_namespace: "system".to_owned(),
            extension_configs: Vec::new(),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: Instant::now(),
            },
            deletion_limit: Duration::from_mins(10),
        },
        owner: Owner {
            name: "one".to_owned(),
            namespace: "team-a".to_owned(),
            uid: "uid".to_owned(),
        },
        label: String::new(),
        topology: cluster.spec.topology.clone().unwrap(),
        cluster: cluster.into(),
        follows_bootstrap: false,
        bootstrap: None,
        control_plane: None,
        unknown: None,
        workers: Vec::new(),
        plan: Plan::Direct,
        own_steps: None,
        class: None,
        made_of: None,
        images: None,
        releases: std::sync::Arc::default(),
        catalogue: std::sync::Arc::default(),
        management_packages: std::sync::Arc::default(),
    }
}
