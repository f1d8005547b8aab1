//! What functions of Cluster API decide about reported versions, and what Sluice decides about the same objects.
//!
//! `tests/go/upgrading` prints the tables, and a test of the harness runs it again and compares. Releases 1.11, 1.12 and 1.13 decide
//! alike.

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_crds::foreign::{MachineDeployment, MachinePool};

use super::{ControlPlaneFacts, Plan, WorkerFacts, progress};

const BEFORE_1_14: &str = include_str!("cluster_api/before_1_14.jsonl");
const SINCE_1_14: &str = include_str!("cluster_api/since_1_14.jsonl");

/// Decision of Cluster API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum State {
    /// It is created, and takes no version yet.
    Provisioning,
    /// Nothing follows yet.
    Upgrading,
    /// The next version may follow.
    Finished,
    /// The version cannot be parsed, which stops the topology controller.
    Error,
}

/// Line of a table.
#[derive(Debug, Deserialize)]
struct Row {
    kind: String,
    desired: String,
    #[serde(default)]
    nodes: Vec<String>,
    status: Value,
    state: State,
}

impl Row {
    fn object(&self) -> Value {
        json!({
            "metadata": {"name": "one", "generation": 1},
            "spec": {"replicas": self.nodes.len(), "template": {"spec": {"version": self.desired}}},
            "status": self.status,
        })
    }
}

fn rows(table: &str, kind: &str) -> Vec<Row> {
    let rows = table
        .lines()
        .map(|line| serde_json::from_str::<Row>(line).unwrap());
    let rows: Vec<Row> = rows.filter(|row| row.kind == kind).collect();
    assert!(!rows.is_empty(), "{kind}");
    rows
}

/// The release of Cluster API is unknown, so each of them has to be finished.
#[test]
fn a_control_plane_is_settled_if_no_release_of_cluster_api_waits() {
    let (earlier, newest) = (
        rows(BEFORE_1_14, "ControlPlane"),
        rows(SINCE_1_14, "ControlPlane"),
    );
    assert_eq!(earlier.len(), newest.len());
    for (earlier, newest) in earlier.iter().zip(&newest) {
        assert_eq!(
            (&earlier.desired, &earlier.status),
            (&newest.desired, &newest.status)
        );
        let states = [earlier.state, newest.state];
        let waits = states.contains(&State::Upgrading) || states.contains(&State::Error);
        let object = json!({"spec": {"version": newest.desired}, "status": newest.status});
        let facts = ControlPlaneFacts::in_object(&object);
        let found = progress(Some(&facts), &[], &newest.desired, &Plan::Direct, None);
        assert_eq!(
            found.settled_at().is_some(),
            !waits && states.contains(&State::Finished),
            "{object} {states:?}"
        );
    }
}

#[test]
fn a_deployment_rolls_while_cluster_api_waits_and_not_once_all_machines_are_up_to_date() {
    for table in [BEFORE_1_14, SINCE_1_14] {
        for row in rows(table, "MachineDeployment") {
            let deployment: MachineDeployment = serde_json::from_str(&row.object().to_string()).unwrap();
            let is_replaced = row.status["upToDateReplicas"] == row.status["replicas"];
            assert!(is_replaced || row.state != State::Finished, "{row:?}");
            let facts = WorkerFacts::of(&deployment).unwrap();
            assert_eq!(facts.rolling, row.state != State::Finished, "{row:?}");
        }
    }
}

#[test]
fn a_pool_that_reports_versions_rolls_while_cluster_api_waits() {
    for row in rows(SINCE_1_14, "MachinePool") {
        let pool: MachinePool = serde_json::from_str(&row.object().to_string()).unwrap();
        let facts = WorkerFacts::of(&pool).unwrap();
        assert!(!facts.versions.is_empty(), "{row:?}");
        assert_eq!(facts.rolling, row.state != State::Finished, "{row:?}");
    }
}

/// Before 1.14 the status of a pool is the same whatever its Nodes report. Cluster API reads the Nodes and calls no hook meanwhile.
#[test]
fn a_pool_that_reports_no_versions_rolls_until_it_has_its_replicas() {
    let rows = rows(BEFORE_1_14, "MachinePool");
    for row in &rows {
        let with = |state: State| {
            rows.iter()
                .any(|other| other.status == row.status && other.state == state)
        };
        assert!(with(State::Upgrading) && with(State::Finished), "{row:?}");
        let mut pool: MachinePool = serde_json::from_str(&row.object().to_string()).unwrap();
        assert!(!WorkerFacts::of(&pool).unwrap().rolling, "{row:?}");
        pool.spec.replicas = pool.spec.replicas.map(|replicas| replicas + 1);
        if let Some(status) = &mut pool.status {
            status.up_to_date_replicas = pool.spec.replicas;
        }
        assert!(WorkerFacts::of(&pool).unwrap().rolling, "{row:?}");
    }
}
