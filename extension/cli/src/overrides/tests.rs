//! Tests of `sluice override` against an API server with fixed objects.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use clap::Parser;
use http::{Method, Request, Response};
use jiff::Timestamp;
use kube::{Client, Resource, client::Body};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::reasons::{GateReason, Overridable};
use sluice_crds::{
    lifecycle::{OverriddenGate, OverrideTarget, UpgradeOverride},
    run::{
        ClusterBootstrap, Gate, GateOverride, Hook, Outcome, PackageRecord, PackageState, SCHEMA, Swap,
        UpgradeRecord,
    },
};

use super::{
    create::{Planned, created, expiry, planned},
    list::{Document, listed},
    revoke::revoked,
    step::{NotHeld, held},
};
use crate::{
    arguments::{CreateOverrideArgs, GateArg},
    connection::Trouble,
    documents,
    reader::Reader,
};

const VERSION: &str = "v1.36.3+vmware.1";
const RELEASE: &str = "v1.36.3---vmware.1";
const UID: &str = "uid-of-the-cluster";

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    asked: CreateOverrideArgs,
}

fn parsed(words: &[&str]) -> Result<CreateOverrideArgs, clap::Error> {
    let first = ["create", "edge-1", "-n", "prod", "--reason", "CHG-4711"];
    CommandLine::try_parse_from(first.iter().chain(words)).map(|line| line.asked)
}

fn asked(more: &[&str]) -> CreateOverrideArgs {
    let words = ["--gate", "control-plane", "--expires-in", "4h"];
    parsed(&[&words[..], more].concat()).unwrap()
}

fn now() -> Timestamp {
    "2026-12-01T12:00:00.5Z".parse().unwrap()
}

fn gate(hook: Hook, reason: Option<GateReason>) -> Gate {
    Gate {
        hook,
        version: VERSION.to_owned(),
        open: reason.is_none(),
        reason: reason.map_or("", GateReason::as_str).to_owned(),
        message: reason.map_or("", |_| "metrics 1.2.0").to_owned(),
        overridden_by: None,
    }
}

fn package(name: &str, state: PackageState) -> PackageRecord {
    serde_json::from_value(json!({"name": name, "version": "1.2.0", "state": state})).unwrap()
}

/// Returns the record of a Cluster whose control plane waits, and whose workers wait for the control plane.
fn record(reason: Option<GateReason>) -> UpgradeRecord {
    UpgradeRecord {
        schema: SCHEMA,
        cluster_uid: UID.to_owned(),
        to: VERSION.to_owned(),
        hop: Some(VERSION.to_owned()),
        tkr: Some(RELEASE.to_owned()),
        gates: vec![
            gate(Hook::BeforeClusterUpgrade, None),
            gate(Hook::BeforeControlPlaneUpgrade, reason),
            gate(
                Hook::AfterControlPlaneUpgrade,
                Some(GateReason::ControlPlaneUpgrading),
            ),
            gate(
                Hook::BeforeWorkersUpgrade,
                Some(GateReason::ControlPlaneUpgrading),
            ),
        ],
        packages: vec![
            package("antrea", PackageState::Ready),
            package("calico", PackageState::Applied),
            package("metrics", PackageState::Failed),
        ],
        ..UpgradeRecord::default()
    }
}

fn swap(reason: Option<GateReason>) -> UpgradeRecord {
    let swap = Swap {
        version: "v1.35.4+vmware.1".to_owned(),
        to: "v1.35.4---vmware.2".to_owned(),
        open: reason.is_none(),
        reason: reason.map_or("", GateReason::as_str).to_owned(),
        ..Swap::default()
    };
    UpgradeRecord {
        swap: Some(swap),
        ..record(None)
    }
}

fn target(version: &str, release: &str) -> OverrideTarget {
    OverrideTarget {
        kubernetes_version: version.to_owned(),
        release: release.to_owned(),
    }
}

fn by(name: &str) -> GateOverride {
    GateOverride {
        name: name.to_owned(),
        uid: "uid".to_owned(),
        user: "bob".to_owned(),
        reason: "another".to_owned(),
        expires_at: now().into(),
    }
}

#[test]
fn the_step_that_is_held_is_the_target() {
    let unproven = Some(GateReason::PackagesNotReady);
    let step = held(&record(unproven), GateArg::ControlPlane, false);
    assert_eq!(step, Ok(target(VERSION, RELEASE)));
    let machines = held(&swap(unproven), GateArg::Machines, false);
    assert_eq!(machines, Ok(target("v1.35.4+vmware.1", "v1.35.4---vmware.2")));
    // The gate of the next step is listed with a hold that no override passes.
    let mut next = record(unproven);
    let held_by_workers = gate(
        Hook::BeforeControlPlaneUpgrade,
        Some(GateReason::ControlPlaneUpgrading),
    );
    next.gates.insert(
        0,
        Gate {
            version: "v1.37.0".to_owned(),
            ..held_by_workers
        },
    );
    let step = held(&next, GateArg::ControlPlane, false);
    assert_eq!(step, Ok(target(VERSION, RELEASE)));
}

#[test]
fn every_reason_is_passed_as_the_table_of_reasons_says() {
    for &reason in GateReason::ALL {
        let passes = |every| {
            let by_hook = held(&record(Some(reason)), GateArg::ControlPlane, every).is_ok();
            let by_swap = held(&swap(Some(reason)), GateArg::Machines, every).is_ok();
            assert_eq!(by_hook, by_swap, "{}", reason.as_str());
            by_hook
        };
        let expected = match reason.overridable() {
            Overridable::Never => (false, false),
            Overridable::Package => (true, true),
            Overridable::Every => (false, true),
        };
        assert_eq!((passes(false), passes(true)), expected, "{}", reason.as_str());
    }
}

#[test]
fn a_gate_that_is_not_held_is_refused() {
    let unproven = Some(GateReason::PackagesNotReady);
    let open = held(&record(None), GateArg::ControlPlane, true);
    assert_eq!(open, Err(NotHeld::Open("control-plane")));
    let mut overridden = record(None);
    overridden.gates[1].overridden_by = Some(by("earlier"));
    let open = held(&overridden, GateArg::ControlPlane, true);
    assert_eq!(
        open,
        Err(NotHeld::Overridden("control-plane", "earlier".to_owned()))
    );
    let workers = held(&record(unproven), GateArg::Workers, true);
    assert!(
        matches!(workers, Err(NotHeld::NotOverridable("workers", ..))),
        "{workers:?}"
    );
    let no_gate = UpgradeRecord {
        gates: Vec::new(),
        ..record(None)
    };
    let no_gate = held(&no_gate, GateArg::Workers, true);
    assert_eq!(no_gate, Err(NotHeld::NoGate("workers")));
    let ended = UpgradeRecord {
        outcome: Some(Outcome::Cancelled),
        ..record(unproven)
    };
    assert_eq!(held(&ended, GateArg::ControlPlane, true), Err(NotHeld::Ended));
    let unknown = UpgradeRecord {
        tkr: None,
        ..record(unproven)
    };
    let unknown = held(&unknown, GateArg::ControlPlane, true);
    assert_eq!(unknown, Err(NotHeld::ReleaseUnknown("control-plane")));
    let no_swap = held(&record(unproven), GateArg::Machines, true);
    assert_eq!(no_swap, Err(NotHeld::NoGate("machines")));
    let open_swap = held(&swap(None), GateArg::Machines, true);
    assert_eq!(open_swap, Err(NotHeld::Open("machines")));
}

#[rstest]
#[case::in_hours(&["--expires-in", "4h"], Some("2026-12-01T16:00:00.5Z"))]
#[case::in_seven_days(&["--expires-in", "168h"], Some("2026-12-08T12:00:00.5Z"))]
#[case::later(&["--expires-in", "168h1s"], None)]
#[case::at_once(&["--expires-in", "0s"], None)]
#[case::at_a_time(&["--expires-at", "2026-12-01T19:00:00+01:00"], Some("2026-12-01T18:00:00Z"))]
#[case::in_the_past(&["--expires-at", "2026-12-01T12:00:00Z"], None)]
#[case::after_seven_days(&["--expires-at", "2026-12-08T12:00:01Z"], None)]
fn an_override_expires_within_seven_days(#[case] words: &[&str], #[case] expected: Option<&str>) {
    let first = ["--gate", "workers", "--all-packages"];
    let asked = parsed(&[&first[..], words].concat()).unwrap();
    let expires = expiry(&asked, now());
    assert_eq!(
        expires.as_ref().ok(),
        expected.map(|time| time.parse::<Timestamp>().unwrap()).as_ref()
    );
    assert!(matches!(expires, Ok(_) | Err(Trouble::Flag(_))));
}

#[rstest]
#[case::no_package(&["--gate", "workers", "--expires-in", "4h"])]
#[case::some_and_all(&["--gate", "workers", "--expires-in", "4h", "--package", "a", "--all-packages"])]
#[case::star(&["--gate", "workers", "--expires-in", "4h", "--package", "*"])]
#[case::no_expiry(&["--gate", "workers", "--package", "a"])]
#[case::two_expiries(&["--gate", "workers", "--package", "a", "--expires-in", "4h", "--expires-at", "2026-12-01T18:00:00Z"])]
#[case::no_gate(&["--package", "a", "--expires-in", "4h"])]
#[case::hook_as_gate(&["--gate", "BeforeWorkersUpgrade", "--package", "a", "--expires-in", "4h"])]
#[case::version_without_release(&["--gate", "workers", "--package", "a", "--expires-in", "4h", "--to-version", "v1"])]
#[case::release_without_version(&["--gate", "workers", "--package", "a", "--expires-in", "4h", "--release", "v1"])]
fn a_wrong_command_line_is_refused(#[case] words: &[&str]) {
    assert!(parsed(words).is_err());
}

/// Responses by path, and the requests that change something.
#[derive(Clone, Default)]
struct Server {
    objects: BTreeMap<String, Value>,
    /// Fields that admission fills in.
    filled_in: Option<Value>,
    changes: Arc<Mutex<Vec<(Method, String, Value)>>>,
}

impl Server {
    fn put<K: Resource<DynamicType = ()>>(&mut self, mut object: Value) {
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        object["metadata"]["namespace"] = json!("prod");
        let list = K::url_path(&(), Some("prod"));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.objects.insert(format!("{list}/{name}"), object.clone());
        let listed = self.objects.entry(list).or_insert_with(|| {
            json!({"kind": format!("{}List", K::kind(&())), "apiVersion": K::api_version(&()), "metadata": {}, "items": []})
        });
        listed["items"].as_array_mut().unwrap().push(object);
    }

    fn with(record: &UpgradeRecord) -> Self {
        let mut server = Self {
            filled_in: Some(json!("alice")),
            ..Self::default()
        };
        let bootstrap =
            json!({"metadata": {"name": "edge-1", "uid": "b"}, "spec": {}, "status": {"upgrade": record}});
        server.put::<ClusterBootstrap>(bootstrap);
        server
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let answer = move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn reader(&self) -> Reader {
        Reader::new(self.client())
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let body = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let path = head.uri.path().to_owned();
        let found = match head.method {
            Method::GET => self.objects.get(&path).cloned(),
            Method::POST => Some(self.admitted(body.clone())),
            _ => Some(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
        };
        if head.method != Method::GET {
            self.changes.lock().unwrap().push((head.method, path, body));
        }
        let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "not found"});
        let code = if found.is_some() { 200 } else { 404 };
        let text = found.unwrap_or(missing).to_string();
        let response = Response::builder().status(code);
        response.body(Body::from(text.into_bytes())).unwrap()
    }

    fn admitted(&self, mut object: Value) -> Value {
        object["metadata"]["uid"] = json!("new");
        object["metadata"]["creationTimestamp"] = json!("2026-12-01T12:00:00Z");
        if let Some(user) = &self.filled_in {
            object["spec"]["requestedBy"] = user.clone();
        }
        object
    }
}

async fn planned_by(server: &Server, asked: &CreateOverrideArgs) -> Result<Planned, Trouble> {
    let expires = expiry(asked, now()).unwrap();
    planned(&server.reader(), "prod", asked, (now(), expires)).await
}

#[tokio::test]
async fn the_manifest_is_that_of_the_step_that_is_held() {
    let server = Server::with(&record(Some(GateReason::PackagesNotReady)));
    let asked = asked(&["--package", "metrics,antrea", "--package", "metrics"]);
    let Planned { object, unproven } = planned_by(&server, &asked).await.unwrap();
    assert_eq!(unproven, ["calico"], "neither named nor proven");
    let manifest: Value = serde_saphyr::from_str(&documents::yaml(&object).unwrap()).unwrap();
    let expected = json!({
        "apiVersion": "lifecycle.sluice.dev/v1alpha1",
        "kind": "UpgradeOverride",
        "metadata": {"name": "edge-1-control-plane-20261201120000", "namespace": "prod"},
        "spec": {
            "clusterName": "edge-1",
            "clusterUID": UID,
            "target": {"kubernetesVersion": VERSION, "release": RELEASE},
            "gate": "ControlPlane",
            "packages": ["antrea", "metrics"],
            "reason": "CHG-4711",
            "expiresAt": "2026-12-01T16:00:00Z",
        },
    });
    assert_eq!(manifest, expected);
    assert!(server.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_step_that_the_user_names_need_not_be_held() {
    let server = Server::with(&record(None));
    let words = [
        "--all-packages",
        "--to-version",
        "v1.37.0",
        "--release",
        "v1.37.0---vmware.1",
        "--name",
        "mine",
    ];
    let planned = planned_by(&server, &asked(&words)).await.unwrap();
    let spec = &planned.object.spec;
    assert_eq!(spec.target, target("v1.37.0", "v1.37.0---vmware.1"));
    assert_eq!(spec.packages, ["*"]);
    assert_eq!(planned.object.metadata.name.as_deref(), Some("mine"));
}

#[rstest]
#[case::no_bootstrap(Server::default(), &["--all-packages"], "Cluster prod/edge-1 has no ClusterBootstrap")]
#[case::not_held(Server::with(&record(None)), &["--all-packages"], "the gate is open")]
#[case::other_schema(
    Server::with(&UpgradeRecord { schema: SCHEMA + 1, ..record(None) }),
    &["--all-packages"],
    "another version of Sluice"
)]
#[tokio::test]
async fn without_a_held_gate_there_is_no_manifest(
    #[case] server: Server,
    #[case] words: &[&str],
    #[case] said: &str,
) {
    let refused = planned_by(&server, &asked(words)).await.unwrap_err();
    assert!(matches!(refused, Trouble::NotAnswered(_)), "{refused:?}");
    assert!(refused.to_string().contains(said), "{refused}");
}

#[tokio::test]
async fn an_unknown_package_is_wrong_usage() {
    let server = Server::with(&record(Some(GateReason::PackagesNotReady)));
    let refused = planned_by(&server, &asked(&["--package", "metrics,metric"])).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Trouble::Flag(_)), "{refused:?}");
    assert!(
        refused.to_string().starts_with("--package metric is none of "),
        "{refused}"
    );
}

#[rstest]
#[case::completed(Some("alice"), true)]
#[case::without_webhook(None, false)]
#[tokio::test]
async fn a_created_override_must_have_an_effect(#[case] user: Option<&str>, #[case] has_effect: bool) {
    let mut server = Server::with(&record(Some(GateReason::PackagesNotReady)));
    server.filled_in = user.map(|user| json!(user));
    let Planned { object, .. } = planned_by(&server, &asked(&["--package", "metrics"]))
        .await
        .unwrap();
    let stored = created(server.client(), "prod", &object, now()).await;
    assert_eq!(stored.is_ok(), has_effect, "{stored:?}");
    let changes = server.changes.lock().unwrap();
    let [(method, path, body)] = &changes[..] else {
        panic!("{changes:?}");
    };
    let expected = UpgradeOverride::url_path(&(), Some("prod"));
    assert_eq!((method, path), (&Method::POST, &expected));
    assert_eq!(body["spec"]["clusterUID"], UID);
}

fn stored(name: &str, cluster: &str, conditions: &Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": "2026-12-01T11:00:00Z"},
        "spec": {
            "clusterName": cluster,
            "clusterUID": UID,
            "target": {"kubernetesVersion": VERSION, "release": RELEASE},
            "gate": OverriddenGate::ControlPlane,
            "packages": ["antrea", "metrics"],
            "reason": "CHG-4711\u{1b}[2J",
            "expiresAt": "2026-12-01T12:00:00Z",
            "requestedBy": "alice\u{1b}[2J",
        },
        "status": {"conditions": conditions},
    })
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "why", "lastTransitionTime": "2026-12-01T11:00:00Z"})
}

#[tokio::test]
async fn a_list_shows_conditions_and_expiry() {
    let mut server = Server::default();
    let used = json!([
        condition("Accepted", "False", "Expired"),
        condition("Used", "True", "GateOpened")
    ]);
    server.put::<UpgradeOverride>(stored("one", "edge-1", &used));
    server.put::<UpgradeOverride>(stored("two", "edge-2", &json!([])));
    server.put::<UpgradeOverride>(
        json!({"metadata": {"name": "odd", "uid": "odd"}, "spec": {"gate": "Never"}}),
    );
    let mut reader = server.reader();
    let of_one = listed(&mut reader, Some("prod"), Some("edge-1")).await.unwrap();
    let undecodable = reader.take_undecodable();
    let document = Document::of(&of_one, &undecodable, now());
    let lines = document.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    for part in [
        "prod",
        "one",
        "edge-1",
        "ControlPlane",
        "antrea,metrics",
        "False (Expired)",
        "True",
        "(expired)",
    ] {
        assert!(lines[1].contains(part), "{part}: {lines:?}");
    }
    assert!(lines[2].starts_with("NOT DECODED  prod/odd: "), "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
    let json: Value = serde_json::from_str(&documents::json(&document).unwrap()).unwrap();
    let mut row = json["overrides"][0].clone();
    assert_eq!(row["reason"].take(), "CHG-4711\u{1b}[2J", "JSON keeps the text");
    row.as_object_mut().unwrap().remove("reason");
    let expected = json!({
        "namespace": "prod", "name": "one", "uid": "uid-of-one", "cluster": "edge-1", "gate": "ControlPlane",
        "kubernetesVersion": VERSION, "release": RELEASE, "packages": ["antrea", "metrics"],
        "requestedBy": "alice\u{1b}[2J", "expiresAt": "2026-12-01T12:00:00Z", "expired": true,
        "accepted": {"status": "False", "reason": "Expired", "message": "why"},
        "used": {"status": "True", "reason": "GateOpened", "message": "why"},
    });
    assert_eq!(row, expected);
    assert_eq!(json["notDecoded"][0]["name"], "odd");
    let all = listed(&mut reader, Some("prod"), None).await.unwrap();
    assert_eq!(all.len(), 2);
}

#[tokio::test]
async fn only_the_override_that_was_read_is_deleted() {
    let mut server = Server::default();
    let used = json!([condition("Used", "True", "GateOpened")]);
    server.put::<UpgradeOverride>(stored("one", "edge-1", &used));
    server.put::<UpgradeOverride>(stored("two", "edge-1", &json!([])));
    let unknown = revoked(server.client(), "prod", "three").await;
    assert!(matches!(unknown, Err(Trouble::NotAnswered(_))), "{unknown:?}");
    assert!(server.changes.lock().unwrap().is_empty());
    let [used, unused] = [
        revoked(server.client(), "prod", "one").await.unwrap(),
        revoked(server.client(), "prod", "two").await.unwrap(),
    ];
    assert!(used.contains("closes again") && !unused.contains("closes again"));
    let changes = server.changes.lock().unwrap();
    let list = UpgradeOverride::url_path(&(), Some("prod"));
    for ((method, path, body), name) in changes.iter().zip(["one", "two"]) {
        assert_eq!((method, path), (&Method::DELETE, &format!("{list}/{name}")));
        assert_eq!(body["preconditions"], json!({"uid": format!("uid-of-{name}")}));
    }
    assert_eq!(changes.len(), 2);
}
