//! Complete reconciles of one configuration.

mod server;

use std::{ops::RangeInclusive, time::Instant};

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_test_store::merge;

use super::*;
use server::{ACCOUNT, CLUSTER, CONFIG, LOGIN, Outcome, ROLE, VALUES, World, owner};

/// Resync together with the Cluster.
const SYNC: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_mins(10);
const SOON: RangeInclusive<Duration> = UNWATCHED..=UNWATCHED;

/// Returns a configuration that needs all objects, of which only a Secret exists.
fn everything() -> World {
    let mut world = World::new(&json!({"text": "a", "login": "login", "account": true}));
    let login = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"login": "eA=="},
        "metadata": {"ownerReferences": [owner("other", "other")]},
    });
    world.put(LOGIN, login);
    world
}

fn reconciled(world: &mut World) -> (Outcome, Effects) {
    world.reconcile().unwrap()
}

/// Returns the delay before the next reconcile.
fn after(outcome: &Outcome) -> Duration {
    let Ok(Done::RequeueAfter(after)) = outcome else {
        panic!("{outcome:?}");
    };
    *after
}

fn text(world: &World) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let encoded = world.get(VALUES).unwrap()["data"]["values.yaml"]
        .as_str()
        .unwrap();
    String::from_utf8(BASE64_STANDARD.decode(encoded).unwrap()).unwrap()
}

#[test]
fn everything_is_written_once_and_in_order() {
    let mut world = everything();
    let (outcome, after) = reconciled(&mut world);
    assert_eq!(
        outcome,
        Ok(Done::RequeueAfter(UNWATCHED)),
        "no watch shows the Secret"
    );
    assert_eq!(
        world.written,
        [
            "Patch CalicoConfig one",
            "Apply ClusterRole accounts",
            "Create Account one",
            "Patch Secret login",
            "Create Secret one-made-up-data-values",
            "PatchStatus CalicoConfig one",
        ]
    );
    assert_eq!(after.cluster, Some(("team-a".to_owned(), "one".to_owned())));
    assert_eq!(after.problem, Some(None));
    let mut sources: Vec<String> = after.sources.iter().map(ToString::to_string).collect();
    sources.sort();
    assert_eq!(
        sources,
        ["Account team-a/one", "Cluster team-a/one", "ClusterRole accounts"]
    );
    assert_eq!(world.reason(), Some("ValuesWritten"));
    assert_eq!(
        world.get(CONFIG).unwrap()["status"]["secretRef"],
        "one-made-up-data-values"
    );
    assert_eq!(text(&world), "login: eA==\ntext: a\n");

    let (outcome, _) = reconciled(&mut world);
    assert_eq!(outcome, Ok(Done::RequeueAfter(UNWATCHED)));
    assert_eq!(world.written, Vec::<String>::new());
    assert_eq!(world.read.len(), 2, "unwatched objects: {:?}", world.read);
}

#[test]
fn a_configuration_without_secrets_is_requeued_at_the_resync() {
    let mut world = World::new(&json!({"text": "a"}));
    assert!(SYNC.contains(&after(&reconciled(&mut world).0)));
    assert!(SYNC.contains(&after(&reconciled(&mut world).0)));
    assert_eq!(world.read, ["Secret one-made-up-data-values"]);
    assert_eq!(world.written, Vec::<String>::new());
}

/// Nothing depends on the credentials of a cold Cluster before its resync.
#[test]
fn unwatched_objects_are_read_soon_only_while_the_cluster_is_hot() {
    let mut world = everything();
    for (is_cold, then) in [(false, SOON), (true, SYNC), (false, SOON)] {
        world.is_cold = is_cold;
        let next = after(&reconciled(&mut world).0);
        assert!(then.contains(&next), "{next:?}");
    }
}

/// A user waits for the effect of the credentials of a new Cluster, and no watch covers them.
#[rstest]
#[case::at_first(0, 7_500..=10_000)]
#[case::after_five_minutes(300, 22_500..=30_000)]
#[case::after_an_hour(3_600, 45_000..=60_000)]
fn missing_credentials_of_a_cold_cluster_are_read_with_growing_delays(
    #[case] seconds: i64,
    #[case] milliseconds: RangeInclusive<u128>,
) {
    let mut world = World::new(&json!({"text": "a", "login": "missing"}));
    world.is_cold = true;
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.reason(), Some("CredentialsNotFound"));
    world.now = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
    let next = after(&reconciled(&mut world).0);
    assert!(milliseconds.contains(&next.as_millis()), "{next:?}");
    world.is_cold = false;
    assert_eq!(reconciled(&mut world).0, Ok(Done::RequeueAfter(UNWATCHED)));
}

#[test]
fn owners_of_others_stay() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    let owners = |world: &World, place| {
        let owners = world.get(place).unwrap()["metadata"]["ownerReferences"].clone();
        let owners = owners.as_array().unwrap().clone();
        owners
            .into_iter()
            .map(|owner| owner["uid"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(owners(&world, LOGIN), ["other", "uid"]);
    assert_eq!(owners(&world, CONFIG), ["uid"]);
    world.edit(ACCOUNT, |account| {
        account["metadata"]["ownerReferences"] = json!([owner("other", "other")]);
        account["spec"]["may"] = json!(["write"]);
    });
    world.edit(VALUES, |secret| {
        secret["metadata"]["ownerReferences"] = json!([owner("other", "other")]);
    });
    reconciled(&mut world).0.unwrap();
    assert_eq!(
        world.written,
        ["Patch Account one", "Patch Secret one-made-up-data-values"]
    );
    assert_eq!(owners(&world, ACCOUNT), ["other", "infrastructure"]);
    assert_eq!(owners(&world, VALUES), ["other", "uid"]);
    assert_eq!(world.get(ACCOUNT).unwrap()["spec"]["may"], json!(["read"]));
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, Vec::<String>::new());
}

#[test]
fn a_secret_holds_the_values_and_nothing_else() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    world.edit(VALUES, |secret| {
        secret["data"] = json!({"values.yaml": "b2xk", "more.yaml": "b2xk"});
        secret["metadata"]["labels"]["theirs"] = json!("stays");
    });
    reconciled(&mut world).0.unwrap();
    let secret = world.get(VALUES).unwrap();
    assert!(secret["data"].get("more.yaml").is_none(), "{secret}");
    assert_eq!(secret["metadata"]["labels"]["theirs"], "stays");
    assert_eq!(text(&world), "login: eA==\ntext: a\n");
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, Vec::<String>::new());
}

/// The addons-manager added them to its copy of the Secret alone.
#[test]
fn values_for_a_supervisor_do_not_stay() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    world.edit(VALUES, |secret| {
        secret["data"]["tkgs-values.yaml"] = json!("b2xk");
    });
    reconciled(&mut world).0.unwrap();
    let secret = world.get(VALUES).unwrap();
    assert!(secret["data"].get("tkgs-values.yaml").is_none(), "{secret}");
    assert_eq!(text(&world), "login: eA==\ntext: a\n");
}

/// Another leader with newer state writes concurrently.
#[rstest]
#[case::changed(json!({"metadata": {"uid": "same"}, "data": {"values.yaml": "bmV3"}}), true)]
#[case::made_again(json!({"metadata": {"uid": "another"}, "data": {"values.yaml": "bmV3"}}), true)]
#[case::created(json!({"metadata": {}, "data": {"values.yaml": "bmV3"}}), false)]
fn a_write_since_the_read_stays(#[case] newer: Value, #[case] there: bool) {
    let mut world = everything();
    if there {
        world.put(
            VALUES,
            json!({"metadata": {"uid": "same"}, "data": {"values.yaml": "b2xk"}}),
        );
    }
    world.later = Some((VALUES, newer));
    let (outcome, _) = reconciled(&mut world);
    assert_eq!(outcome, Err(Some(409)));
    assert_eq!(world.get(VALUES).unwrap()["data"]["values.yaml"], "bmV3");
    assert_eq!(world.reason(), None, "the status reports no written values");
    // It is read again.
    reconciled(&mut world).0.unwrap();
    assert_eq!(text(&world), "login: eA==\ntext: a\n");
}

#[rstest]
#[case::the_owner("CalicoConfig", 1)]
#[case::a_role("ClusterRole", 2)]
#[case::an_account("Account", 3)]
#[case::the_values("Secret", 4)]
fn nothing_is_written_after_a_refusal(#[case] kind: &'static str, #[case] writes: usize) {
    let mut world = everything();
    world.refuses = Some((kind, 403));
    assert_eq!(reconciled(&mut world).0, Err(Some(403)));
    assert_eq!(world.written.len(), writes, "{:?}", world.written);
    assert_eq!(world.reason(), None);
    world.refuses = None;
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.reason(), Some("ValuesWritten"));
}

#[test]
fn obsolete_objects_are_deleted() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    world.edit(CONFIG, |config| config["spec"]["account"] = json!(false));
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, ["Delete Account one"]);
    assert!(world.get(ACCOUNT).is_none());
    assert!(world.get(ROLE).is_some(), "other Clusters need it");
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, Vec::<String>::new());
}

#[test]
fn a_crash_after_any_write_converges() {
    let mut edited = everything();
    reconciled(&mut edited).0.unwrap();
    edited.edit(CONFIG, |config| {
        config["spec"] = json!({"text": "b", "login": "login"});
    });
    for begin in [everything(), edited] {
        let mut undisturbed = begin.clone();
        reconciled(&mut undisturbed).0.unwrap();
        let writes = undisturbed.written.len();
        assert!(writes > 1);
        for made in 0..writes {
            let mut world = begin.clone();
            world.ends_after = Some(made);
            assert!(world.reconcile().is_none(), "it ends");
            world.ends_after = None;
            reconciled(&mut world).0.unwrap();
            assert_eq!(world.end(), undisturbed.end(), "after {made} writes");
            reconciled(&mut world).0.unwrap();
            assert_eq!(world.written, Vec::<String>::new(), "after {made} writes");
        }
    }
}

#[rstest]
#[case::no_cluster(|world: &mut World| world.edit(CONFIG, |config| {
    config["metadata"]["ownerReferences"] = json!([owner("gone", "uid")]);
}), "ClusterNotFound", SYNC)]
#[case::another_cluster_of_the_name(|world: &mut World| world.edit(CONFIG, |config| {
    config["metadata"]["ownerReferences"] = json!([owner("one", "earlier")]);
}), "ClusterNotFound", SYNC)]
#[case::no_credentials(|world: &mut World| world.edit(CONFIG, |config| {
    config["spec"]["login"] = json!("missing");
}), "CredentialsNotFound", SOON)]
#[case::a_spec_of_another_release(|world: &mut World| world.edit(CONFIG, |config| {
    config["spec"] = json!({});
}), "ConfigUnreadable", SYNC)]
#[case::a_kind_of_the_cluster_that_cannot_be_read(|world: &mut World| {
    world.unwatchable = Some("Infrastructure");
    world.edit(CONFIG, |config| config["spec"] = json!({"text": "a", "infrastructure": true}));
}, "ControlPlaneKindUnreadable", SYNC)]
fn a_problem_is_reported_and_values_stay(
    #[case] wrong: fn(&mut World),
    #[case] reason: &str,
    #[case] then: RangeInclusive<Duration>,
) {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    wrong(&mut world);
    let (outcome, effects) = reconciled(&mut world);
    assert!(then.contains(&after(&outcome)), "{outcome:?}");
    let problem = effects.problem.flatten().unwrap();
    assert_eq!(problem.reason.as_str(), reason);
    assert_eq!(world.written, ["PatchStatus CalicoConfig one"]);
    assert_eq!(world.reason(), Some(reason));
    let status = &world.get(CONFIG).unwrap()["status"];
    assert_eq!(status["secretRef"], "one-made-up-data-values");
    assert_eq!(status["message"], problem.message);
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, Vec::<String>::new());
}

/// The author of a configuration may lack permission to read Secrets.
#[rstest]
#[case::of_cluster_api("login", "cluster.x-k8s.io/secret", Some("login"))]
#[case::of_a_service_account("login", "kubernetes.io/service-account-token", Some("login"))]
#[case::of_a_node_that_joins("login", "bootstrap.kubernetes.io/token", Some("login"))]
#[case::named_after_its_cluster("one-ca", "Opaque", Some("one-ca"))]
#[case::named_after_another_cluster("two-ca", "Opaque", Some("two-ca"))]
#[case::named_like_one_of_no_cluster("three-ca", "Opaque", None)]
fn values_contain_no_credential_of_kubernetes(
    #[case] name: &'static str,
    #[case] type_: &str,
    #[case] refused: Option<&str>,
) {
    let mut world = World::new(&json!({"text": "a", "login": name}));
    world.put(("Cluster", "team-a", "two"), json!({"metadata": {}, "spec": {}}));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": type_, "data": {"login": "eA=="}});
    world.put(("Secret", "team-a", name), secret);
    let problem = reconciled(&mut world).1.problem.flatten();
    assert_eq!(problem.is_some(), refused.is_some(), "{problem:?}");
    assert_eq!(world.get(VALUES).is_some(), refused.is_none());
    if let (Some(problem), Some(name)) = (problem, refused) {
        assert_eq!(problem.reason.as_str(), "CredentialsNotAllowed");
        assert!(
            problem.message.contains(&format!("Secret team-a/{name}")),
            "{problem}"
        );
    }
}

#[test]
fn an_unserved_kind_has_no_objects_and_is_read_again() {
    let mut world = World::new(&json!({"text": "a", "infrastructure": true}));
    world.unserved = Some("Infrastructure");
    assert_eq!(reconciled(&mut world).0, Ok(Done::RequeueAfter(UNWATCHED)));
}

#[rstest]
#[case::unwatchable(|world: &mut World| world.unwatchable = Some("Account"))]
#[case::unserved(|world: &mut World| world.unserved = Some("Account"))]
fn an_unreadable_required_object_is_a_failure(#[case] away: fn(&mut World)) {
    let mut world = everything();
    away(&mut world);
    let (outcome, _) = reconciled(&mut world);
    assert_eq!(outcome, Err(None));
    assert!(world.get(VALUES).is_none(), "{:?}", world.written);
}

#[rstest]
#[case::deleted(Done::AwaitChange, |world: &mut World| world.edit(CLUSTER, |cluster| {
    cluster["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
}))]
#[case::deleted_and_paused(Done::AwaitChange, |world: &mut World| world.edit(CLUSTER, |cluster| {
    cluster["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    cluster["spec"]["paused"] = json!(true);
}))]
#[case::a_template(Done::Forget, |world: &mut World| world.edit(CONFIG, |config| {
    config["metadata"]["annotations"] = json!({annotation::TEMPLATE_CONFIG: ""});
}))]
#[case::a_deleted_configuration(Done::Forget, |world: &mut World| world.edit(CONFIG, |config| {
    config["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
}))]
fn deleted_objects_and_templates_are_left_alone(#[case] done: Done, #[case] rest: fn(&mut World)) {
    let mut world = everything();
    rest(&mut world);
    let (outcome, after) = reconciled(&mut world);
    assert_eq!(outcome, Ok(done));
    assert_eq!((world.written.len(), world.read.len()), (0, 0));
    assert_eq!(after.problem, None);
    assert_eq!(
        after.sources.len(),
        usize::from(done == Done::AwaitChange),
        "its Cluster"
    );
}

/// Pauses or resumes the Cluster.
fn pause(world: &mut World, paused: bool) {
    world.edit(CLUSTER, |cluster| cluster["spec"]["paused"] = json!(paused));
}

/// Asserts that the configuration reports the pause as the reason for missing values, once, and that nothing else is written.
fn reports_paused(world: &mut World) {
    let (outcome, effects) = reconciled(world);
    assert_eq!(outcome, Ok(Done::AwaitChange));
    assert_eq!(world.written, ["PatchStatus CalicoConfig one"]);
    assert_eq!(world.reason(), Some("ClusterPaused"));
    let problem = effects.problem.flatten().unwrap();
    let status = &world.get(CONFIG).unwrap()["status"];
    assert_eq!(status["message"], problem.message);
    assert_eq!(status["conditions"][0]["message"], problem.message);
    let sources: Vec<String> = effects.sources.iter().map(ToString::to_string).collect();
    assert_eq!(sources, ["Cluster team-a/one"], "a change requeues");
    assert_eq!(reconciled(world).0, Ok(Done::AwaitChange));
    assert_eq!((world.written.len(), world.read.len()), (0, 0));
}

#[rstest]
#[case::in_the_spec(
    json!({"spec": {"paused": true}}),
    "Cluster team-a/one is paused by spec.paused: set it to false, and CalicoConfig team-a/one gets its values"
)]
#[case::by_annotation(
    json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}),
    "Cluster team-a/one is paused by annotation cluster.x-k8s.io/paused: remove it, and CalicoConfig team-a/one gets its values"
)]
#[case::by_both(
    json!({"spec": {"paused": true}, "metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}),
    "Cluster team-a/one is paused by spec.paused and annotation cluster.x-k8s.io/paused: set the one to false and remove \
     the other, and CalicoConfig team-a/one gets its values"
)]
fn a_configuration_without_values_reports_the_pause(#[case] paused: Value, #[case] message: &str) {
    let mut world = everything();
    world.edit(CLUSTER, |cluster| merge(cluster, &paused));
    reports_paused(&mut world);
    assert_eq!(world.get(CONFIG).unwrap()["status"]["message"], message);
    world.edit(CLUSTER, |cluster| {
        cluster["spec"]["paused"] = json!(false);
        cluster["metadata"]["annotations"] = json!({});
    });
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.reason(), Some("ValuesWritten"));
    assert_eq!(text(&world), "login: eA==\ntext: a\n");
}

#[test]
fn a_configuration_edited_in_a_pause_keeps_its_values_and_reports_it() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    pause(&mut world, true);
    world.edit(CONFIG, |config| {
        config["spec"]["text"] = json!("b");
        config["metadata"]["generation"] = json!(2);
    });
    reports_paused(&mut world);
    assert_eq!(text(&world), "login: eA==\ntext: a\n");
    assert_eq!(
        world.get(CONFIG).unwrap()["status"]["secretRef"],
        "one-made-up-data-values"
    );
    pause(&mut world, false);
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.reason(), Some("ValuesWritten"));
    assert_eq!(text(&world), "login: eA==\ntext: b\n");
}

/// An earlier problem may be resolved in the meantime, and no reconcile observes it.
#[test]
fn a_configuration_with_a_problem_waits_for_the_end_of_a_pause() {
    let mut world = World::new(&json!({"text": "a", "login": "missing"}));
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.reason(), Some("CredentialsNotFound"));
    pause(&mut world, true);
    reports_paused(&mut world);
    pause(&mut world, false);
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.reason(), Some("CredentialsNotFound"));
}

#[test]
fn a_configuration_whose_values_are_current_is_left_alone_in_a_pause() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    pause(&mut world, true);
    let (outcome, effects) = reconciled(&mut world);
    assert_eq!(outcome, Ok(Done::AwaitChange));
    assert_eq!((world.written.len(), world.read.len()), (0, 0));
    assert_eq!(effects.problem, None);
    assert_eq!(world.reason(), Some("ValuesWritten"));
}

/// Objects of an earlier release are deleted with the Cluster, and would outlive the object that they belong to.
#[test]
fn owners_of_an_earlier_release_are_removed() {
    let mut world = everything();
    reconciled(&mut world).0.unwrap();
    world.edit(ACCOUNT, |account| {
        account["metadata"]["ownerReferences"] = json!([owner("one", "uid"), owner("other", "other")]);
    });
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, ["Patch Account one"]);
    let owners = world.get(ACCOUNT).unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!(
        owners,
        json!([owner("other", "other"), owner("one", "infrastructure")])
    );
    reconciled(&mut world).0.unwrap();
    assert_eq!(world.written, Vec::<String>::new());
}

#[test]
fn debug_output_of_a_configuration_omits_its_content() {
    let config = json!({"metadata": {"name": "one", "namespace": "ns"}, "spec": {"password": "canary"}});
    let config = Configuration {
        kind: crate::providers::kinds().remove(0),
        object: Arc::new(serde_json::from_value(config).unwrap()),
        sync_period: SyncPeriod {
            length: Duration::ZERO,
            since: Instant::now(),
        },
        is_hot: false,
    };
    assert!(!format!("{config:?}").contains("canary"));
}
