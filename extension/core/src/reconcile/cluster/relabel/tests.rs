use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    labels::{annotation, finalizer},
    run::{ClusterBootstrap, ClusterBootstrapSpec, TanzuKubernetesRelease},
};

use super::*;
use crate::{
    cache::stores::Releases,
    reconcile::cluster::{
        Clock, Failure, LocalState, Object,
        tests::{clock, facts},
    },
};

const PINNED: &str = "v1.35.4---a.1";
const NEWEST: &str = "v1.35.4---a.2";

fn release(name: &str) -> (String, Arc<TanzuKubernetesRelease>) {
    let version = name.split("---").next();
    let release = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {"name": name},
        "spec": {"version": name.replace("---", "+"), "kubernetes": {"version": version}},
    });
    (
        name.to_owned(),
        Arc::new(serde_json::from_value(release).unwrap()),
    )
}

/// Returns the facts of a new Cluster on the newest release, whose ClusterBootstrap pins another one.
fn given() -> Facts {
    let mut bootstrap = ClusterBootstrap::new("one", ClusterBootstrapSpec::default());
    bootstrap.metadata.annotations =
        Some([(annotation::ADD_MISSING_FIELDS.to_owned(), PINNED.to_owned())].into());
    let mut given = Facts {
        label: NEWEST.to_owned(),
        follows_bootstrap: true,
        bootstrap: Some(Arc::new(bootstrap)),
        releases: Arc::new(Releases::from([release(PINNED), release(NEWEST)])),
        ..facts()
    };
    Arc::make_mut(&mut given.cluster).metadata.resource_version = Some("7".to_owned());
    given
}

fn edit_bootstrap(facts: &mut Facts, edit: impl FnOnce(&mut ClusterBootstrap)) {
    edit(Arc::make_mut(facts.bootstrap.as_mut().unwrap()));
}

/// Result of one reconcile.
struct Reconciled {
    outcome: Step<Option<Hold>>,
    patch: Option<Value>,
    local: LocalState,
}

impl Reconciled {
    /// Returns the message of the hold, and whether the label was patched.
    fn said(&self) -> (Option<&str>, bool) {
        let hold = self.outcome.as_ref().unwrap().as_ref();
        (hold.map(|hold| hold.message.as_str()), self.patch.is_some())
    }
}

/// Reconciles with this response to a patch.
fn reconciled(
    facts: &Facts,
    local: &LocalState,
    clock: Clock,
    response: &Result<Object, Failure>,
) -> Reconciled {
    let mut context = Context::new(facts, local, clock);
    let mut patch = None;
    loop {
        let mut effects = Effects::of(local);
        match relabel(&context, &mut effects) {
            Err(Interrupt::Write(writes)) => {
                for write in writes {
                    patch = Some(write.body.clone());
                    context.record_outcome(write, response.clone());
                }
            }
            outcome => {
                return Reconciled {
                    outcome,
                    patch,
                    local: effects.local,
                };
            }
        }
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an answer of the API server, as `refused`"
)]
fn labelled(release: &str) -> Result<Object, Failure> {
    Ok(Object(json!({"metadata": {"labels": {label::TKR: release}}})))
}

fn refused(code: u16, message: &str) -> Result<Object, Failure> {
    Err(Failure {
        code: Some(code),
        message: message.to_owned(),
        ..Failure::other(Server::Management, message)
    })
}

fn later(clock: Clock, seconds: u64) -> Clock {
    Clock {
        instant: clock.instant + Duration::from_secs(seconds),
        ..clock
    }
}

#[rstest]
#[case::of_a_new_cluster(|_: &mut Facts| {}, true)]
#[case::that_does_not_follow(|facts: &mut Facts| facts.follows_bootstrap = false, false)]
#[case::without_a_bootstrap(|facts: &mut Facts| facts.bootstrap = None, false)]
#[case::as_pinned(|facts: &mut Facts| facts.label = PINNED.to_owned(), false)]
#[case::of_another_version(|facts: &mut Facts| facts.topology.version = "v1.36.3".to_owned(), false)]
#[case::without_the_pinned_release(
    |facts: &mut Facts| drop(Arc::make_mut(&mut facts.releases).remove(PINNED)),
    false
)]
#[case::of_a_paused_cluster(|facts: &mut Facts| Arc::make_mut(&mut facts.cluster).spec.paused = true, false)]
#[case::with_leftovers(
    |facts: &mut Facts| {
        let finalizers = vec![finalizer::LEGACY_ADDON.to_owned()];
        Arc::make_mut(&mut facts.cluster).metadata.finalizers = Some(finalizers);
    },
    false
)]
#[case::of_a_completed_bootstrap(
    |facts: &mut Facts| edit_bootstrap(facts, |bootstrap| {
        let resolved = (annotation::RESOLVED_TKR.to_owned(), NEWEST.to_owned());
        bootstrap.metadata.annotations.get_or_insert_default().extend([resolved]);
    }),
    false
)]
#[case::of_an_adopted_bootstrap(
    |facts: &mut Facts| edit_bootstrap(facts, |bootstrap| {
        let owner = OwnerReference { kind: "Cluster".to_owned(), ..OwnerReference::default() };
        bootstrap.metadata.owner_references = Some(vec![owner]);
    }),
    false
)]
fn a_label_is_changed(#[case] edit: fn(&mut Facts), #[case] changes: bool) {
    let mut facts = given();
    edit(&mut facts);
    let first = reconciled(&facts, &LocalState::default(), clock(), &labelled(PINNED));
    assert_eq!(first.said(), (None, changes));
    let exactly = json!({"metadata": {"uid": null, "resourceVersion": "7", "labels": {label::TKR: PINNED}}});
    let patch = first.patch.map(|mut patch| {
        assert_eq!(patch["metadata"]["uid"].take(), "uid");
        patch
    });
    assert_eq!(patch, changes.then_some(exactly));
}

/// A GitOps tool may apply a manifest with another label.
#[test]
fn a_label_that_is_set_again_stays() {
    let (mut facts, clock) = (given(), clock());
    let first = reconciled(&facts, &LocalState::default(), clock, &labelled(PINNED));
    let behind = reconciled(&facts, &first.local, later(clock, 1), &labelled(PINNED));
    assert_eq!(
        behind.said(),
        (None, false),
        "the cache does not show the change yet"
    );

    Arc::make_mut(&mut facts.cluster).metadata.resource_version = Some("9".to_owned());
    let again = reconciled(&facts, &behind.local, later(clock, 600), &labelled(PINNED));
    let (message, patched) = again.said();
    assert!(!patched);
    assert!(
        message.is_some_and(|message| message.contains("write the same release in both")),
        "{message:?}"
    );
}

/// The webhook of another component may do so.
#[test]
fn a_label_that_a_webhook_restores_stays() {
    let (facts, clock) = (given(), clock());
    let first = reconciled(&facts, &LocalState::default(), clock, &labelled(NEWEST));
    let (message, patched) = first.said();
    assert!(patched && message.is_some(), "{message:?}");
    let again = reconciled(&facts, &first.local, later(clock, 600), &labelled(NEWEST));
    assert_eq!(again.said(), (message, false));
}

#[test]
fn a_refused_change_is_held_and_retried_later() {
    let (facts, clock) = (given(), clock());
    let denied = refused(
        422,
        "admission webhook \"resolver\" denied the request: could not resolve, query: {version v1.35.4}, result: \
         TanzuKubernetesRelease v1.35.4---a.1 is not selected by \"a\"",
    );
    let first = reconciled(&facts, &LocalState::default(), clock, &denied);
    let hold = first.outcome.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(hold.reason, GateReason::MissingFieldsNotFilled);
    assert_eq!(
        hold.message,
        "ClusterBootstrap one pins TanzuKubernetesRelease v1.35.4---a.1, but label run.tanzu.vmware.com/tkr of the Cluster says \
         \"v1.35.4---a.2\" and cannot be changed: TanzuKubernetesRelease v1.35.4---a.1 is not selected by \"a\""
    );
    let soon = reconciled(&facts, &first.local, later(clock, 29), &labelled(PINNED));
    assert_eq!(soon.said(), (first.said().0, false));
    let retried = reconciled(&facts, &soon.local, later(clock, 30), &labelled(PINNED));
    assert_eq!(retried.said(), (None, true));
}

#[rstest]
#[case::written_by_another_client(409, "")]
#[case::no_response_of_the_server(503, "")]
fn another_failure_ends_the_reconcile(#[case] code: u16, #[case] message: &str) {
    let failed = reconciled(&given(), &LocalState::default(), clock(), &refused(code, message));
    assert!(
        matches!(&failed.outcome, Err(Interrupt::Failed(failure)) if failure.code == Some(code)),
        "{:?}",
        failed.outcome
    );
    assert!(failed.local.relabelling.is_none());
}

#[test]
fn a_webhook_that_cannot_be_called_is_named() {
    let uncalled = refused(
        500,
        "Internal error occurred: failed calling webhook \"one.example.com\": no such host",
    );
    let reconciled = reconciled(&given(), &LocalState::default(), clock(), &uncalled);
    let hold = reconciled.outcome.unwrap().unwrap();
    assert_eq!(hold.reason, GateReason::WebhookUnavailable);
    assert!(
        hold.message.contains("Cluster team-a/one") && hold.message.contains("one.example.com"),
        "{}",
        hold.message
    );
}
