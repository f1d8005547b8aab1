//! Releases that are confirmed by reads: the objects that are read, and the decision on them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource, core::Status};
use proptest::prelude::*;
use serde::Serialize;
use sluice_crds::lifecycle::{ClusterUpgrade, OverriddenGate};

use super::*;
use crate::{
    gate::confirmation::{Confirmation, NotConfirmed, ObjectRead, Reads, ReleaseObject},
    upgrade::overrides::tests::{EXPIRES, by, object as override_object},
};

/// Returns the response of an API server with these objects. `None` stands for a response that confirms nothing.
fn respond(server: &Given, object: &ReleaseObject) -> Result<ObjectRead, NotConfirmed> {
    let path = object.request()?.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (name, plural) = (parts[parts.len() - 1], parts[parts.len() - 2]);
    let namespace = (parts[3] == "namespaces").then(|| parts[4]);
    let text = match plural {
        "clusterbootstraps" => text::<ClusterBootstrap>(server, namespace, name),
        "clusters" => text::<Cluster>(server, namespace, name),
        "clusterclasses" => text::<ClusterClass>(server, namespace, name),
        "tanzukubernetesreleases" => text::<TanzuKubernetesRelease>(server, namespace, name),
        "clusterupgrades" => text::<ClusterUpgrade>(server, namespace, name),
        "upgradeoverrides" => text::<UpgradeOverride>(server, namespace, name),
        other => panic!("{other} is read"),
    };
    match text {
        Some(text) => object.found(&text),
        None => object.absent(&not_found(name, parts[1], plural)),
    }
}

fn text<K>(server: &Given, namespace: Option<&str>, name: &str) -> Option<String>
where
    K: Resource<DynamicType = ()> + Serialize,
    Given: Stored<K>,
{
    let found: Arc<K> = server.get(namespace, name)?;
    let mut object = serde_json::to_value(&*found).unwrap();
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    Some(object.to_string())
}

/// The status of kube-apiserver for an object that does not exist.
pub(super) fn not_found(name: &str, group: &str, plural: &str) -> Status {
    let details = json!({"name": name, "group": group, "kind": plural});
    Status::failure("not found", "NotFound")
        .with_code(404)
        .with_details(serde_json::from_value(details).unwrap())
}

/// Decides a call by `cached` objects, and confirms a release by those of `server`. Returns the paths that were read, too.
pub(super) fn confirmed(
    cached: &Given,
    server: &Given,
    call: &HookCall<'_>,
) -> (Vec<String>, Option<HoldReason>) {
    let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
    let (mut reads, mut paths) = (Reads::default(), Vec::new());
    for _ in 0..4 {
        match index(cached).confirm(call, &pace, false, &reads) {
            Confirmation::Decided(Decision::Release) => return (paths, None),
            Confirmation::Decided(Decision::Hold { reason, .. }) => return (paths, Some(reason)),
            Confirmation::Needs(objects) => {
                for object in objects {
                    paths.push(object.to_string());
                    match respond(server, &object) {
                        Ok(read) => reads.add(object, read),
                        Err(_) => return (paths, Some(HoldReason::Call(CallReason::ReleaseNotConfirmed))),
                    }
                }
            }
        }
    }
    panic!("it reads and reads: {paths:?}");
}

pub(super) const BOOTSTRAP: &str = "ClusterBootstrap team-a/one";
const CLUSTER: &str = "Cluster team-a/one";
const CLASS: &str = "ClusterClass team-a/class";
const RELEASE: &str = "TanzuKubernetesRelease v1.35.4---sluice.1";
const OVERRIDE: &str = "UpgradeOverride team-a/skip";

fn with_record() -> Given {
    Given {
        bootstraps: vec![bootstrap(&Value::Null)],
        ..given()
    }
}

/// Returns the objects with another record.
fn recorded(edit: impl FnOnce(&mut sluice_crds::run::UpgradeRecord)) -> Given {
    let mut given = with_record();
    let status = Arc::make_mut(&mut given.bootstraps[0]).status.as_mut().unwrap();
    edit(status.upgrade.as_mut().unwrap());
    given
}

/// Returns the objects with another ClusterBootstrap.
fn with_bootstrap(edit: impl FnOnce(&mut ClusterBootstrap)) -> Given {
    let mut given = with_record();
    edit(Arc::make_mut(&mut given.bootstraps[0]));
    given
}

#[rstest]
#[case::as_cached(with_record(), None)]
#[case::gate_closed(recorded(|record| record.gates[0].open = false), Some(HoldReason::Call(CallReason::GateClosed)))]
#[case::another_version(recorded(|record| record.gates[0].version = "v1.34.4".into()), Some(HoldReason::Call(CallReason::VersionNotPlanned)))]
#[case::another_target(recorded(|record| record.to = "v1.36.3".into()), Some(HoldReason::Call(CallReason::RecordTargetMismatch)))]
#[case::another_cluster(recorded(|record| record.cluster_uid = "another".into()), Some(HoldReason::Call(CallReason::RecordUIDMismatch)))]
#[case::older(recorded(|record| record.observed_cluster_generation = 0), Some(HoldReason::Call(CallReason::ClusterNotObserved)))]
#[case::another_label(recorded(|record| record.label = "v1.34.4".into()), Some(HoldReason::Call(CallReason::LabelNotObserved)))]
#[case::another_schema(recorded(|record| record.schema += 1), Some(HoldReason::Call(CallReason::RecordSchemaUnknown)))]
#[case::edited(with_bootstrap(|bootstrap| bootstrap.metadata.generation = Some(2)), Some(HoldReason::Call(CallReason::BootstrapNotObserved)))]
#[case::without_record(with_bootstrap(|bootstrap| bootstrap.status = None), Some(HoldReason::Call(CallReason::RecordNotFound)))]
#[case::deleted(given(), Some(HoldReason::Call(CallReason::RecordNotFound)))]
fn an_open_gate_is_confirmed_by_the_cluster_bootstrap(
    #[case] server: Given,
    #[case] expected: Option<HoldReason>,
) {
    let (paths, reason) = confirmed(&with_record(), &server, &call());
    assert_eq!((paths, reason), (vec![BOOTSTRAP.to_owned()], expected));
}

/// Returns the objects with an override that has opened the gate.
fn overridden() -> Given {
    let step = ("v1.35.4", LABEL);
    let skip = override_object("skip", OverriddenGate::ControlPlane, step, &["*"]);
    Given {
        overrides: vec![Arc::new(skip)],
        ..recorded(|record| record.gates[0].overridden_by = Some(by("skip")))
    }
}

/// Returns the same with another override.
fn with_override(edit: impl FnOnce(&mut UpgradeOverride)) -> Given {
    let mut given = overridden();
    edit(Arc::make_mut(&mut given.overrides[0]));
    given
}

fn without_override() -> Given {
    Given {
        overrides: Vec::new(),
        ..overridden()
    }
}

/// Returns the call at this second by the clock of the replica.
fn call_at(second: i64) -> HookCall<'static> {
    HookCall {
        clock: Timestamp::from_second(second).ok(),
        ..call()
    }
}

const REVOKED: Option<HoldReason> = Some(HoldReason::Call(CallReason::OverrideRevoked));

#[rstest]
#[case::as_cached(overridden(), None)]
#[case::proven_since(with_record(), None)]
#[case::another_one_of_the_name(with_override(|of| of.metadata.uid = Some("another".into())), REVOKED)]
#[case::being_deleted(with_override(|of| of.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))), REVOKED)]
#[case::deleted(without_override(), REVOKED)]
fn the_override_of_a_gate_is_confirmed(#[case] server: Given, #[case] expected: Option<HoldReason>) {
    let (paths, reason) = confirmed(&overridden(), &server, &call_at(EXPIRES - 1));
    assert_eq!(
        (paths, reason),
        (vec![BOOTSTRAP.to_owned(), OVERRIDE.to_owned()], expected)
    );
}

/// The cached gate is open by a proof.
#[rstest]
#[case::as_cached(overridden(), None)]
#[case::deleted(without_override(), REVOKED)]
fn an_override_that_only_the_read_record_names_is_confirmed(
    #[case] server: Given,
    #[case] expected: Option<HoldReason>,
) {
    let cached = Given {
        overrides: overridden().overrides,
        ..with_record()
    };
    let (paths, reason) = confirmed(&cached, &server, &call_at(EXPIRES - 1));
    assert_eq!(
        (paths, reason),
        (vec![BOOTSTRAP.to_owned(), OVERRIDE.to_owned()], expected)
    );
    let (paths, reason) = confirmed(&with_record(), &server, &call_at(EXPIRES - 1));
    assert_eq!(
        (paths, reason),
        (vec![BOOTSTRAP.to_owned()], REVOKED),
        "not in the cache"
    );
}

#[test]
fn an_override_expires_by_the_clock_of_the_replica() {
    let expired = Some(HoldReason::Call(CallReason::OverrideExpired));
    for call in [call_at(EXPIRES), call()] {
        assert_eq!(
            confirmed(&overridden(), &overridden(), &call),
            (Vec::new(), expired)
        );
    }
}

#[test]
fn an_override_that_cannot_be_read_confirms_nothing() {
    let (given, call) = (overridden(), call_at(EXPIRES - 1));
    let pace = Pace::of("uid", &Counted::default(), 600, Duration::ZERO);
    let bootstrap = of_call();
    let mut reads = Reads::default();
    let read = respond(&given, &bootstrap).unwrap();
    reads.add(bootstrap, read);
    let Confirmation::Needs(left) = index(&given).confirm(&call, &pace, false, &reads) else {
        panic!("it is decided without the override");
    };
    let left: Vec<ReleaseObject> = left.into_iter().collect();
    assert_eq!((left.len(), left[0].to_string().as_str()), (1, OVERRIDE));
    let Decision::Hold { reason, .. } = left[0].not_confirmed() else {
        panic!("it is released");
    };
    assert_eq!(reason, HoldReason::Call(CallReason::ReleaseNotConfirmed));
}

#[test]
fn a_hold_reads_nothing() {
    let closed = recorded(|record| record.gates[0].open = false);
    let (paths, reason) = confirmed(&closed, &with_record(), &call());
    assert_eq!(
        (paths, reason),
        (Vec::new(), Some(HoldReason::Call(CallReason::GateClosed)))
    );
}

/// Returns a Cluster without a label, without a ClusterBootstrap and without a request for a release.
fn unlabelled() -> Given {
    unresolved(false, false)
}

#[rstest]
#[case::as_cached(unlabelled(), None)]
#[case::with_bootstrap(Given { bootstraps: with_record().bootstraps, ..unlabelled() }, Some(HoldReason::Gate(GateReason::TKRLabelRemoved)))]
#[case::own_request(unresolved(true, false), Some(HoldReason::Gate(GateReason::TKRNotResolved)))]
#[case::request_of_the_class(unresolved(false, true), Some(HoldReason::Gate(GateReason::TKRNotResolved)))]
#[case::without_cluster(Given { clusters: Vec::new(), ..unlabelled() }, Some(HoldReason::Call(CallReason::ClusterNotObserved)))]
#[case::without_class(Given { classes: Vec::new(), ..unlabelled() }, Some(HoldReason::Call(CallReason::ClusterNotObserved)))]
#[case::another_cluster(changed(unlabelled(), |cluster| cluster.metadata.uid = Some("another".into())), Some(HoldReason::Call(CallReason::ClusterNotObserved)))]
#[case::older(changed(unlabelled(), |cluster| cluster.metadata.generation = Some(0)), Some(HoldReason::Call(CallReason::ClusterNotObserved)))]
fn an_unmanaged_cluster_is_confirmed(#[case] server: Given, #[case] expected: Option<HoldReason>) {
    let unlabelled_call = HookCall {
        label: None,
        ..call()
    };
    let (paths, reason) = confirmed(&unlabelled(), &server, &unlabelled_call);
    assert_eq!(paths, [BOOTSTRAP, CLUSTER, CLASS]);
    assert_eq!(reason, expected);
}

/// The cached class is read beside the Cluster, and another one after it.
#[test]
fn the_class_that_the_cluster_names_is_read() {
    let with_classes = |asks: bool| {
        let mut given = unlabelled();
        let mut another = Arc::clone(&given.classes[0]);
        let meta = &mut Arc::make_mut(&mut another).metadata;
        meta.name = Some("another".to_owned());
        if asks {
            let key = annotation::RESOLVE_TKR.to_owned();
            meta.annotations
                .get_or_insert_default()
                .insert(key, String::new());
        }
        given.classes.push(another);
        given
    };
    let server = changed(with_classes(true), |cluster| {
        let reference: ClassRef = serde_json::from_value(json!({"name": "another"})).unwrap();
        cluster.spec.topology.as_mut().unwrap().class_ref = Some(reference);
    });
    let unlabelled_call = HookCall {
        label: None,
        ..call()
    };
    let (paths, reason) = confirmed(&with_classes(false), &server, &unlabelled_call);
    assert_eq!(paths, [BOOTSTRAP, CLUSTER, CLASS, "ClusterClass team-a/another"]);
    assert_eq!(reason, Some(HoldReason::Gate(GateReason::TKRNotResolved)));
}

#[test]
fn later_hooks_of_an_unmanaged_cluster_need_only_the_cluster_bootstrap() {
    for hook in [Hook::BeforeWorkersUpgrade, Hook::BeforeClusterDelete] {
        let unlabelled_call = HookCall {
            hook,
            label: None,
            ..call()
        };
        let (paths, reason) = confirmed(&unlabelled(), &unlabelled(), &unlabelled_call);
        assert_eq!((paths, reason), (vec![BOOTSTRAP.to_owned()], None));
    }
}

#[rstest]
#[case::as_cached(Given { releases: vec![legacy()], ..given() }, None)]
#[case::not_legacy(given(), Some(HoldReason::Call(CallReason::RecordNotFound)))]
#[case::gone(Given { releases: Vec::new(), ..given() }, Some(HoldReason::Gate(GateReason::TKRNotFound)))]
#[case::with_bootstrap(Given { releases: vec![legacy()], ..with_record() }, Some(HoldReason::Gate(GateReason::TKRLegacy)))]
fn a_legacy_release_is_confirmed(#[case] server: Given, #[case] expected: Option<HoldReason>) {
    let cached = Given {
        releases: vec![legacy()],
        ..given()
    };
    let (paths, reason) = confirmed(&cached, &server, &call());
    assert_eq!(paths, [BOOTSTRAP, RELEASE]);
    assert_eq!(reason, expected);
}

#[rstest]
#[case::as_cached(custom(given()), None)]
#[case::annotation_removed(given(), Some(HoldReason::Call(CallReason::RecordNotFound)))]
#[case::another_cluster(changed(custom(given()), |cluster| cluster.metadata.uid = Some("another".into())), Some(HoldReason::Call(CallReason::RecordNotFound)))]
fn a_custom_cluster_is_confirmed(#[case] server: Given, #[case] expected: Option<HoldReason>) {
    let created = HookCall {
        hook: Hook::BeforeClusterCreate,
        first_step: None,
        ..call()
    };
    let (paths, reason) = confirmed(&custom(given()), &server, &created);
    assert_eq!((paths, reason), (vec![CLUSTER.to_owned()], expected));

    // An open gate in the cache replaces no read.
    let mut open = custom(with_record());
    let status = Arc::make_mut(&mut open.bootstraps[0]).status.as_mut().unwrap();
    status.upgrade.as_mut().unwrap().gates[0].hook = Hook::BeforeClusterCreate;
    let (paths, reason) = confirmed(&open, &server, &created);
    let read = if expected.is_none() {
        vec![CLUSTER]
    } else {
        vec![CLUSTER, BOOTSTRAP]
    };
    assert_eq!(
        (paths, reason),
        (read.into_iter().map(str::to_owned).collect(), expected)
    );
}

#[rstest]
#[case::nothing_there(given(), None)]
#[case::something_there(with_record(), Some(HoldReason::Call(CallReason::VersionNotPlanned)))]
fn a_deletion_with_nothing_to_uninstall_is_confirmed(
    #[case] server: Given,
    #[case] expected: Option<HoldReason>,
) {
    let deleted = HookCall {
        hook: Hook::BeforeClusterDelete,
        ..call()
    };
    let (paths, reason) = confirmed(&given(), &server, &deleted);
    assert_eq!((paths, reason), (vec![BOOTSTRAP.to_owned()], expected));
}

#[test]
fn a_deletion_past_its_limit_and_an_initialized_control_plane_need_no_read() {
    let late = HookCall {
        hook: Hook::BeforeClusterDelete,
        deleted_at: Some(Timestamp::UNIX_EPOCH),
        now: Some(Timestamp::UNIX_EPOCH + Duration::from_secs(601)),
        ..call()
    };
    let initialized = HookCall {
        hook: Hook::AfterControlPlaneInitialized,
        ..call()
    };
    for call in [late, initialized] {
        assert_eq!(confirmed(&with_record(), &given(), &call), (Vec::new(), None));
    }
}

fn of_call() -> ReleaseObject {
    let pace = Pace::of("uid", &Counted::default(), 600, Duration::ZERO);
    match index(&with_record()).confirm(&call(), &pace, false, &Reads::default()) {
        Confirmation::Needs(objects) => objects.into_iter().next().unwrap(),
        Confirmation::Decided(decision) => panic!("{decision:?}"),
    }
}

/// An API server that starts, a proxy, or a broken connection may return anything.
#[rstest]
#[case::empty("")]
#[case::html("<html>busy</html>")]
#[case::half(
    r#"{"apiVersion":"run.tanzu.vmware.com/v1alpha3","kind":"ClusterBootstrap","metadata":{"name":"one""#
)]
#[case::another_kind(r#"{"apiVersion":"run.tanzu.vmware.com/v1alpha3","kind":"ClusterBootstrapList","metadata":{"name":"one","namespace":"team-a"},"spec":{}}"#)]
#[case::another_version(r#"{"apiVersion":"run.tanzu.vmware.com/v1","kind":"ClusterBootstrap","metadata":{"name":"one","namespace":"team-a"},"spec":{}}"#)]
#[case::another_name(r#"{"apiVersion":"run.tanzu.vmware.com/v1alpha3","kind":"ClusterBootstrap","metadata":{"name":"two","namespace":"team-a"},"spec":{}}"#)]
#[case::another_namespace(r#"{"apiVersion":"run.tanzu.vmware.com/v1alpha3","kind":"ClusterBootstrap","metadata":{"name":"one","namespace":"team-b"},"spec":{}}"#)]
#[case::status(r#"{"apiVersion":"v1","kind":"Status","metadata":{},"status":"Success"}"#)]
fn another_response_confirms_nothing(#[case] text: &str) {
    assert_eq!(of_call().found(text).err(), Some(NotConfirmed::Invalid));
}

#[test]
fn an_undecodable_object_holds_with_its_field() {
    let deep = ["[".repeat(300), "]".repeat(300)].concat();
    let text = format!(
        r#"{{"apiVersion":"run.tanzu.vmware.com/v1alpha3","kind":"ClusterBootstrap","metadata":{{"name":"one","namespace":"team-a"}},"spec":{deep}}}"#
    );
    let object = of_call();
    let mut reads = Reads::default();
    reads.add(object.clone(), object.found(&text).unwrap());
    let pace = Pace::of("uid", &Counted::default(), 600, Duration::ZERO);
    let decided = index(&with_record()).confirm(&call(), &pace, false, &reads);
    let Confirmation::Decided(Decision::Hold { reason, .. }) = decided else {
        panic!("{decided:?}");
    };
    assert_eq!(reason, HoldReason::Gate(GateReason::ObjectUndecodable));
}

/// A path that is not served, as while an API server starts, proves nothing.
#[test]
fn only_a_status_that_names_the_object_is_its_absence() {
    let (object, group) = (of_call(), "run.tanzu.vmware.com");
    let right = not_found("one", group, "clusterbootstraps");
    assert!(object.absent(&right).is_ok());
    let wrong = [
        not_found("two", group, "clusterbootstraps"),
        not_found("one", "example.com", "clusterbootstraps"),
        not_found("one", group, "clusters"),
        Status {
            details: None,
            ..right.clone()
        },
        Status {
            code: 410,
            ..right.clone()
        },
        Status {
            reason: "Forbidden".into(),
            ..right
        },
        Status::failure("404 page not found", "Failed to parse error data").with_code(404),
    ];
    for status in wrong {
        assert_eq!(
            object.absent(&status).err(),
            Some(NotConfirmed::Failed),
            "{status:?}"
        );
    }
}

#[rstest]
#[case::up("..")]
#[case::path("one/status")]
#[case::query("one?resourceVersion=0")]
#[case::empty("")]
fn a_name_that_no_object_has_is_not_requested(#[case] name: &'static str) {
    let other = HookCall {
        name,
        label: None,
        hook: Hook::BeforeWorkersUpgrade,
        ..call()
    };
    let (_, reason) = confirmed(&given(), &given(), &other);
    assert_eq!(reason, Some(HoldReason::Call(CallReason::ReleaseNotConfirmed)));
}

/// Returns one of several states of the API server.
fn states() -> impl Strategy<Value = usize> {
    0..STATES.len()
}

const STATES: [fn() -> Given; 12] = [
    given,
    with_record,
    || recorded(|record| record.gates[0].open = false),
    || recorded(|record| record.observed_cluster_generation = 0),
    || with_bootstrap(|bootstrap| bootstrap.metadata.generation = Some(2)),
    unlabelled,
    || unresolved(true, false),
    || unresolved(false, true),
    || Given {
        releases: vec![legacy()],
        ..given()
    },
    || custom(given()),
    overridden,
    without_override,
];

proptest! {
    /// Whatever is cached, a confirmed release is also a release of a cache that is current. The age of a cache does not matter.
    #[test]
    fn what_is_confirmed_would_be_released_by_a_current_cache(
        cached in states(),
        server in states(),
        is_labelled: bool,
        hook in prop::sample::select(&Hook::ALL[..]),
    ) {
        let call = HookCall { hook, label: is_labelled.then_some(LABEL), ..call_at(EXPIRES - 1) };
        let (cached, server) = (STATES[cached](), STATES[server]());
        let (_, held) = confirmed(&cached, &server, &call);
        if held.is_none() {
            prop_assert_eq!(reason(&server, &call, false), None);
        }
    }
}
