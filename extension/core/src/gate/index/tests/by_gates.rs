//! Decisions by gates beside those by packages, the reads that confirm a release, and the Clusters that gates hold.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use sluice_crds::{
    lifecycle::{ClusterUpgrade, GATE_SCHEMA, UpgradeGate},
    run::HeldGate,
};

use super::{
    confirmation::{BOOTSTRAP, confirmed, not_found},
    *,
};
use crate::{
    cache::stores::GateKinds,
    gate::confirmation::{Confirmation, NotConfirmed, Reads},
};

const UPGRADE: &str = "ClusterUpgrade team-a/one";

/// Hooks that gates hold.
const GATED: [Hook; 4] = [
    Hook::BeforeClusterUpgrade,
    Hook::BeforeControlPlaneUpgrade,
    Hook::AfterControlPlaneUpgrade,
    Hook::BeforeWorkersUpgrade,
];

/// A gate that selects every Cluster of its namespace.
fn gate(mode: &str) -> Arc<UpgradeGate> {
    let spec = json!({"mode": mode, "before": "ControlPlane", "checks": [], "clusterSelector": {}});
    object(Some("team-a"), "cni", &json!({}), &json!({"spec": spec}))
}

/// The ClusterUpgrade of a Cluster whose gates are open or closed.
fn upgrade(mode: &str, open: bool) -> Arc<ClusterUpgrade> {
    upgrade_with(mode, open, |_| {})
}

fn upgrade_with(mode: &str, open: bool, edit: impl FnOnce(&mut Value)) -> Arc<ClusterUpgrade> {
    let (reason, message) = if open {
        ("", "")
    } else {
        (
            "ChecksNotReady",
            "cni/agent: DaemonSet kube-system/cilium is not rolled out",
        )
    };
    let gate = |hook: Hook| json!({"hook": hook, "version": "v1.35.4", "open": open, "reason": reason, "message": message});
    let mut status = json!({
        "since": "2026-11-26T10:02:11Z",
        "upgrade": {
            "schema": GATE_SCHEMA, "clusterUID": "uid", "observedClusterGeneration": 1, "to": "v1.35.4",
            "gates": GATED.map(gate), "selected": [{"name": "cni", "uid": "uid", "generation": 1, "mode": mode}],
        },
    });
    edit(&mut status);
    object(Some("team-a"), "one", &json!({}), &json!({"status": status}))
}

/// A managed Cluster whose packages are ready before each gated hook.
fn managed() -> Given {
    let mut ready = bootstrap(&Value::Null);
    let status = Arc::make_mut(&mut ready).status.as_mut().unwrap();
    let record = status.upgrade.as_mut().unwrap();
    let open = record.gates[0].clone();
    record.gates = GATED
        .map(|hook| sluice_crds::run::Gate { hook, ..open.clone() })
        .into();
    Given {
        bootstraps: vec![ready],
        gate_kinds: Some(GateKinds::Listed),
        ..given()
    }
}

/// A managed Cluster, of which a gate selects and a record lists the gate.
fn gated(mode: &str, open: bool) -> Given {
    Given {
        gates: vec![gate(mode)],
        upgrades: vec![upgrade(mode, open)],
        ..managed()
    }
}

/// The objects without packages: none of their kinds is listed.
fn gates_only(given: Given) -> Given {
    Given {
        bootstraps: Vec::new(),
        releases: Vec::new(),
        templates: Vec::new(),
        without_packages: true,
        ..given
    }
}

fn call_of(hook: Hook) -> HookCall<'static> {
    HookCall {
        hook,
        first_step: None,
        ..call()
    }
}

fn unlabelled(hook: Hook) -> HookCall<'static> {
    HookCall {
        label: None,
        ..call_of(hook)
    }
}

fn message(given: &Given, call: &HookCall<'_>) -> Option<String> {
    let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
    match index(given).decide(call, &pace, false) {
        Decision::Release => None,
        Decision::Hold { message, .. } => Some(message),
    }
}

const NOT_READY: Option<HoldReason> = Some(HoldReason::Gate(GateReason::ChecksNotReady));
const CLOSED: Option<HoldReason> = Some(HoldReason::Call(CallReason::GateClosed));
const UNRECORDED: Option<HoldReason> = Some(HoldReason::Call(CallReason::RecordNotFound));
const UNOBSERVED: Option<HoldReason> = Some(HoldReason::Call(CallReason::GatesNotObserved));

#[rstest]
#[case::both(true, true, None)]
#[case::packages(true, false, NOT_READY)]
#[case::gates(false, true, CLOSED)]
#[case::neither(false, false, CLOSED)]
fn a_release_needs_packages_and_gates(
    #[case] packages: bool,
    #[case] gates: bool,
    #[case] expected: Option<HoldReason>,
) {
    let mut given = gated("Enforce", gates);
    let status = Arc::make_mut(&mut given.bootstraps[0]).status.as_mut().unwrap();
    for gate in &mut status.upgrade.as_mut().unwrap().gates {
        gate.open = packages;
    }
    for hook in GATED {
        assert_eq!(reason(&given, &call_of(hook), false), expected, "{hook}");
    }
}

#[test]
fn a_hold_has_the_message_of_the_record() {
    let expected = "ChecksNotReady: cni/agent: DaemonSet kube-system/cilium is not rolled out";
    let given = gated("Enforce", false);
    for hook in GATED {
        assert_eq!(
            message(&given, &call_of(hook)).as_deref(),
            Some(expected),
            "{hook}"
        );
    }
}

/// Without gates and with a gate that is closed, all other hooks have the same response.
#[test]
fn gates_hold_four_hooks() {
    for hook in Hook::ALL.into_iter().filter(|hook| !GATED.contains(hook)) {
        for call in [call_of(hook), unlabelled(hook)] {
            let without = message(&managed(), &call);
            assert_eq!(message(&gated("Enforce", false), &call), without, "{hook}");
        }
        let only = gates_only(gated("Enforce", false));
        assert_eq!(
            reason(&only, &call_of(hook), false),
            None,
            "{hook} without packages"
        );
    }
}

/// The table of knowledge, for a managed Cluster, an unmanaged one, and an installation without packages.
#[rstest]
#[case::off(Given { gate_kinds: Some(GateKinds::Off), ..gated("Enforce", false) }, None)]
#[case::not_listed(
    Given { gate_kinds: Some(GateKinds::Unlisted("no rule".to_owned())), ..managed() },
    Some("Starting: no rule")
)]
#[case::no_gate(managed(), None)]
#[case::no_enforced_gate(gated("Audit", false), None)]
#[case::no_gate_that_selects(Given { gates: vec![elsewhere()], ..managed() }, None)]
#[case::no_gate_that_can_be_decoded(
    Given { undecodable: vec![undecodable("UpgradeGate", Some("team-a"), "cni", &json!({}))], ..managed() },
    Some(
        "ObjectUndecodable: UpgradeGate team-a/cni cannot be decoded: field spec: it is nested deeper than 127 levels; correct it or \
         delete it"
    )
)]
#[case::undecodable_gate_of_another_namespace(
    Given { undecodable: vec![undecodable("UpgradeGate", Some("team-b"), "cni", &json!({}))], ..managed() },
    None
)]
#[case::no_record(
    Given { gates: vec![gate("Enforce")], ..managed() },
    Some("RecordNotFound: Cluster not reconciled yet")
)]
#[case::listed_only_in_the_record(
    Given { gates: Vec::new(), ..gated("Enforce", false) },
    Some("ChecksNotReady: cni/agent: DaemonSet kube-system/cilium is not rolled out")
)]
#[case::open(gated("Enforce", true), None)]
fn knowledge_about_gates(#[case] given: Given, #[case] expected: Option<&str>) {
    for hook in GATED {
        assert_eq!(message(&given, &call_of(hook)).as_deref(), expected, "{hook}");
    }
    let only = gates_only(given);
    for hook in GATED {
        let said = message(&only, &unlabelled(hook));
        assert_eq!(said.as_deref(), expected, "{hook} without packages");
    }
    let unmanaged = Given {
        without_packages: false,
        ..changed(only, |cluster| cluster.metadata.labels = None)
    };
    for hook in GATED {
        let said = message(&unmanaged, &unlabelled(hook));
        assert_eq!(said.as_deref(), expected, "{hook} of an unmanaged Cluster");
    }
}

fn elsewhere() -> Arc<UpgradeGate> {
    let mut gate = gate("Enforce");
    Arc::make_mut(&mut gate).metadata.namespace = Some("team-b".to_owned());
    gate
}

#[test]
fn without_a_leader_no_gate_releases() {
    let call = unlabelled(Hook::BeforeWorkersUpgrade);
    let unmanaged = |mode| gates_only(gated(mode, true));
    assert_eq!(
        reason(&unmanaged("Enforce"), &call, true),
        Some(HoldReason::Call(CallReason::NoLeader))
    );
    assert_eq!(reason(&unmanaged("Audit"), &call, true), None);
}

/// A label that is removed does not pass the gate, whether the cache or the call shows it.
#[rstest]
#[case::not_observed(json!({"cni": "cilium"}), Some("{}"), UNOBSERVED)]
#[case::not_cached(json!({}), Some(r#"{"cni": "cilium"}"#), UNOBSERVED)]
#[case::everywhere(json!({}), Some("{}"), None)]
fn a_cluster_that_was_relabelled(
    #[case] cached: Value,
    #[case] labels: Option<&'static str>,
    #[case] expected: Option<HoldReason>,
) {
    let mut selecting = gate("Enforce");
    let selector = &mut Arc::make_mut(&mut selecting).spec.cluster_selector;
    selector.match_labels = Some([("cni".to_owned(), "cilium".to_owned())].into());
    let unlisted = upgrade_with("Enforce", true, |status| {
        status["upgrade"]["selected"] = json!([]);
    });
    let given = changed(
        gates_only(Given {
            gates: vec![selecting],
            upgrades: vec![unlisted],
            ..managed()
        }),
        |cluster| cluster.metadata.labels = serde_json::from_value(cached).unwrap(),
    );
    let call = HookCall {
        labels,
        ..unlabelled(Hook::BeforeControlPlaneUpgrade)
    };
    assert_eq!(reason(&given, &call, false), expected);
}

#[test]
fn without_packages_nothing_of_a_release_is_needed() {
    let only = gates_only(managed());
    assert!(!only.is_listed(StoredKind::ClusterBootstrap));
    assert_eq!(only.unlisted(), None);
    for hook in Hook::ALL {
        let call = call_of(hook);
        let expected = if GATED.contains(&hook) {
            vec![UPGRADE.to_owned()]
        } else {
            Vec::new()
        };
        assert_eq!(confirmed(&only, &only, &call), (expected, None), "{hook}");
    }
    assert_eq!(index(&only).hold_snapshot("team-a", "one"), None);
}

#[test]
fn without_packages_only_the_clusters_of_a_namespace_with_gates_wait_for_their_list() {
    let unlisted = |given| Given {
        unlisted: StoredKind::ALL.to_vec(),
        ..gates_only(given)
    };
    let call = unlabelled(Hook::BeforeControlPlaneUpgrade);
    assert_eq!(reason(&unlisted(managed()), &call, false), None);
    assert_eq!(
        message(&unlisted(gated("Enforce", true)), &call).as_deref(),
        Some("Starting: waiting for clusters.cluster.x-k8s.io to be listed")
    );
}

/// A gated Cluster that looks ungated.
#[test]
fn a_lookup_before_the_list_of_gates_releases_nothing() {
    let filling = Filling::with(gates_only(gated("Enforce", false)));
    let index = Index {
        stores: &filling,
        system_namespace: SYSTEM,
        hold_unresolved: true,
        note: |_: &str| None,
    };
    let call = unlabelled(Hook::BeforeWorkersUpgrade);
    let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
    let decision = index.decide(&call, &pace, false);
    assert!(
        matches!(decision, Decision::Hold { reason, .. } if Some(reason) == STARTING),
        "{decision:?}"
    );
}

/// The cache of this replica lacks gate and record. A gate that is in force is in the record.
#[rstest]
#[case::no_cluster_upgrade(Vec::new(), None)]
#[case::open(vec![upgrade("Enforce", true)], None)]
#[case::closed(vec![upgrade("Enforce", false)], NOT_READY)]
#[case::audit(vec![upgrade("Audit", false)], None)]
#[case::unreadable(vec![upgrade_with("Enforce", false, |status| status["upgrade"]["schema"] = json!("x"))], UNRECORDED)]
fn a_release_is_confirmed_by_the_cluster_upgrade(
    #[case] upgrades: Vec<Arc<ClusterUpgrade>>,
    #[case] expected: Option<HoldReason>,
) {
    let with = |given: Given| Given {
        upgrades: upgrades.clone(),
        ..given
    };
    for hook in GATED {
        let call = call_of(hook);
        let read = confirmed(&managed(), &with(managed()), &call);
        assert_eq!(
            read,
            (vec![BOOTSTRAP.to_owned(), UPGRADE.to_owned()], expected),
            "{hook}"
        );
        let read = confirmed(&gates_only(managed()), &with(gates_only(managed())), &call);
        assert_eq!(
            read,
            (vec![UPGRADE.to_owned()], expected),
            "{hook} without packages"
        );
    }
    let unmanaged = || changed(given_without_release(), |cluster| cluster.metadata.labels = None);
    let read = confirmed(
        &unmanaged(),
        &with(unmanaged()),
        &unlabelled(Hook::BeforeWorkersUpgrade),
    );
    assert_eq!(read, (vec![BOOTSTRAP.to_owned(), UPGRADE.to_owned()], expected));
}

fn given_without_release() -> Given {
    Given {
        bootstraps: Vec::new(),
        releases: Vec::new(),
        ..managed()
    }
}

/// The record is read from the API server, and the gate is cached.
#[rstest]
#[case::as_cached(|_: &mut Given| {}, None)]
#[case::closed(|server: &mut Given| server.upgrades = vec![upgrade("Enforce", false)], NOT_READY)]
#[case::deleted(|server: &mut Given| server.upgrades.clear(), UNRECORDED)]
#[case::older_than_the_gate(
    |server: &mut Given| server.upgrades = vec![upgrade_with("Enforce", true, |status| {
        status["upgrade"]["selected"][0]["generation"] = json!(0);
    })],
    UNOBSERVED
)]
#[case::older_than_the_cluster(
    |server: &mut Given| server.upgrades = vec![upgrade_with("Enforce", true, |status| {
        status["upgrade"]["observedClusterGeneration"] = json!(0);
    })],
    Some(HoldReason::Call(CallReason::ClusterNotObserved))
)]
fn an_open_gate_is_confirmed(#[case] edit: fn(&mut Given), #[case] expected: Option<HoldReason>) {
    let (cached, mut server) = (gated("Enforce", true), gated("Enforce", true));
    edit(&mut server);
    let (paths, reason) = confirmed(&cached, &server, &call_of(Hook::BeforeControlPlaneUpgrade));
    assert_eq!(
        (paths, reason),
        (vec![BOOTSTRAP.to_owned(), UPGRADE.to_owned()], expected)
    );
}

#[test]
fn a_hold_reads_nothing_and_neither_do_gates_that_are_off() {
    let call = call_of(Hook::BeforeControlPlaneUpgrade);
    let held = gated("Enforce", false);
    assert_eq!(confirmed(&held, &held, &call), (Vec::new(), NOT_READY));
    let off = || Given {
        gate_kinds: Some(GateKinds::Off),
        ..gated("Enforce", false)
    };
    assert_eq!(
        confirmed(&off(), &off(), &call),
        (vec![BOOTSTRAP.to_owned()], None)
    );
    let off = gates_only(off());
    assert_eq!(confirmed(&off, &off, &call), (Vec::new(), None));
}

/// The path is not served without the definition of ClusterUpgrades.
#[test]
fn only_a_status_that_names_the_cluster_upgrade_is_its_absence() {
    let only = gates_only(managed());
    let call = call_of(Hook::BeforeControlPlaneUpgrade);
    let pace = Pace::of("uid", &Counted::default(), 600, Duration::ZERO);
    let object = match index(&only).confirm(&call, &pace, false, &Reads::default()) {
        Confirmation::Needs(objects) => objects.into_iter().next().unwrap(),
        Confirmation::Decided(decision) => panic!("{decision:?}"),
    };
    assert_eq!(object.to_string(), UPGRADE);
    let absent = not_found("one", "lifecycle.sluice.dev", "clusterupgrades");
    assert!(object.absent(&absent).is_ok());
    let of_path = kube::core::Status::failure("404 page not found", "NotFound").with_code(404);
    assert_eq!(object.absent(&of_path).err(), Some(NotConfirmed::Failed));
}

/// Whether a Cluster is held with a record, by its gates.
fn is_held(given: &Given) -> Option<bool> {
    index(given).held("team-a", "one").map(|held| held.recorded)
}

#[test]
fn clusters_are_held_by_their_cluster_upgrade() {
    let with = |upgrade| {
        gates_only(Given {
            upgrades: vec![upgrade],
            ..managed()
        })
    };
    let edited = |edit: fn(&mut Value)| with(upgrade_with("Enforce", false, edit));
    assert_eq!(is_held(&with(upgrade("Enforce", false))), Some(true));
    assert_eq!(
        is_held(&with(upgrade("Enforce", true))),
        None,
        "no gate is closed"
    );
    assert_eq!(
        is_held(&with(upgrade("Audit", false))),
        None,
        "Audit holds nothing"
    );
    let over = edited(|status: &mut Value| status["upgrade"]["outcome"] = json!("Completed"));
    assert_eq!(is_held(&over), None, "its upgrade is over");
    let of_another = edited(|status: &mut Value| status["upgrade"]["clusterUID"] = json!("another"));
    assert_eq!(is_held(&of_another), None);
    let off = Given {
        gate_kinds: Some(GateKinds::Off),
        ..with(upgrade("Enforce", false))
    };
    assert_eq!(is_held(&off), None);
    let gone = Given {
        clusters: Vec::new(),
        ..with(upgrade("Enforce", false))
    };
    assert_eq!(is_held(&gone), None);
}

#[test]
fn a_cluster_that_packages_and_gates_hold_progresses_with_either() {
    let standing = |given: &Given| index(given).held("team-a", "one").map(|held| held.standing);
    let both = gated("Enforce", false);
    let mut packages = gated("Enforce", false);
    let status = Arc::make_mut(&mut packages.bootstraps[0])
        .status
        .as_mut()
        .unwrap();
    status.upgrade.as_mut().unwrap().gates[0].open = false;
    let gates = Given {
        upgrades: vec![upgrade_with("Enforce", false, |status| {
            status["upgrade"]["hop"] = json!("v1.35.4");
        })],
        ..gated("Enforce", false)
    };
    assert!(standing(&both).is_some());
    assert_eq!(standing(&both), standing(&gated("Enforce", false)));
    assert_ne!(standing(&both), standing(&packages));
    assert_ne!(standing(&both), standing(&gates));
    assert_ne!(standing(&both), standing(&managed()), "the gates hold it, too");
}

#[test]
fn the_hold_of_a_gate_is_measured() {
    let snapshot = |edit: fn(&mut Value)| {
        let given = gates_only(Given {
            upgrades: vec![upgrade_with("Enforce", false, edit)],
            ..managed()
        });
        index(&given).hold_snapshot("team-a", "one").unwrap()
    };
    let held = snapshot(|_: &mut Value| {});
    let since: Timestamp = "2026-11-26T10:02:11Z".parse().unwrap();
    let expected = HeldGate {
        hook: Hook::BeforeClusterUpgrade,
        version: "v1.35.4".to_owned(),
        since: Time(since),
        cause: None,
    };
    assert_eq!((held.gates, held.past_deadline), (vec![expected], false));
    let of_cluster_api = snapshot(|status: &mut Value| {
        for gate in status["upgrade"]["gates"].as_array_mut().unwrap() {
            gate["reason"] = json!("ControlPlaneUpgrading");
        }
    });
    assert!(of_cluster_api.gates.is_empty());
    let condition = |value: &str| {
        json!([{
            "type": "DeadlineExceeded", "status": value, "reason": "DeadlineExceeded", "message": "",
            "lastTransitionTime": "2026-11-26T11:02:11Z",
        }])
    };
    for (value, expected) in [("True", true), ("False", false)] {
        let given = gates_only(Given {
            upgrades: vec![upgrade_with("Enforce", false, |status| {
                status["conditions"] = condition(value);
            })],
            ..managed()
        });
        let snapshot = index(&given).hold_snapshot("team-a", "one").unwrap();
        assert_eq!(snapshot.past_deadline, expected, "{value}");
    }
}

/// Delay of a call after two hours, in which nothing has changed since the first count, and of the call after `edit`.
fn delays(given: impl Fn() -> Given, edit: fn(&mut Given)) -> (u32, u32) {
    let (mut counting, held) = (Counting::default(), given());
    let later = STUCK_AFTER * 12;
    for now in [Duration::ZERO, later] {
        let mut changed = Uncounted::default();
        changed.one(ClusterRef::new("team-a", "one"));
        counting.count(now, changed, Vec::new, |cluster| {
            index(&held).hold_snapshot(cluster.namespace(), cluster.name())
        });
    }
    let counted = counting.counted(later);
    let delay = |given: &Given| {
        let pace = Pace::of("uid", &counted, 600, later);
        match index(given).decide(&call_of(Hook::BeforeControlPlaneUpgrade), &pace, false) {
            Decision::Hold { retry_after, .. } => retry_after.seconds(),
            Decision::Release => panic!("released"),
        }
    };
    let mut edited = given();
    edit(&mut edited);
    (delay(&held), delay(&edited))
}

#[rstest]
#[case::by_gates_only(|| gates_only(gated("Enforce", false)))]
#[case::by_gates_after_its_packages(|| gated("Enforce", false))]
#[case::by_packages_as_well(|| {
    let mut both = gated("Enforce", false);
    let status = Arc::make_mut(&mut both.bootstraps[0]).status.as_mut().unwrap();
    for gate in &mut status.upgrade.as_mut().unwrap().gates {
        gate.open = false;
        gate.reason = "PackagesNotReady".into();
    }
    both
})]
fn a_cluster_that_gates_hold_without_progress_is_asked_rarely(#[case] given: fn() -> Given) {
    let (stuck, moved) = delays(given, |given| {
        given.upgrades = vec![upgrade_with("Enforce", false, |status| {
            let proven = json!({"gate": "cni", "name": "agent", "state": "Proven"});
            status["upgrade"]["checks"] = json!([proven]);
        })];
    });
    assert!(stuck > 200, "{stuck} s");
    assert_eq!(moved, 1, "a check was proven");
}

/// States of the API server, in each of which the record lists the gates that are in force.
const STATES: [fn() -> Given; 7] = [
    managed,
    || gated("Enforce", true),
    || gated("Enforce", false),
    || gated("Audit", false),
    || Given {
        gates: Vec::new(),
        ..gated("Enforce", false)
    },
    || Given {
        upgrades: vec![upgrade_with("Enforce", true, |status| {
            status["upgrade"]["observedClusterGeneration"] = json!(0);
        })],
        ..gated("Enforce", true)
    },
    || Given {
        upgrades: vec![upgrade_with("Enforce", true, |status| {
            status["upgrade"]["gates"] = json!([]);
        })],
        ..gated("Enforce", true)
    },
];

proptest! {
    /// Whatever is cached, a confirmed release is also a release of a cache that is current.
    #[test]
    fn what_is_confirmed_would_be_released_by_a_current_cache(
        cached in 0..STATES.len(),
        server in 0..STATES.len(),
        hook in prop::sample::select(&Hook::ALL[..]),
        with_packages: bool,
    ) {
        let of = |given: Given| if with_packages { given } else { gates_only(given) };
        let (cached, server) = (of(STATES[cached]()), of(STATES[server]()));
        let call = call_of(hook);
        let (_, held) = confirmed(&cached, &server, &call);
        if held.is_none() {
            prop_assert_eq!(reason(&server, &call, false), None);
        }
    }
}
