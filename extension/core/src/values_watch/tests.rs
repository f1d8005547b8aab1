use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{GroupVersionKind, ObjectMeta};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::protocol::{Key, SecretVersion, Server, Verb};

mod kinds;

/// Longer than the wait of a Cluster after its requeue.
const MOMENT: Duration = Duration::from_secs(1);

fn secrets() -> Watched {
    Watched::Secrets(None)
}

fn kind(name: &str) -> Watched {
    Watched::Kind(GroupKind {
        group: "fleet.test".to_owned(),
        kind: name.to_owned(),
    })
}

fn one() -> ClusterRef {
    ClusterRef::new("team-a", "one")
}

/// A Secret of Cluster `cluster` in this version.
fn secret(name: &str, cluster: &str, version: u32) -> ConfigMap {
    let meta = json!({
        "name": name, "namespace": "team-a", "uid": name, "resourceVersion": version.to_string(),
        "labels": {LABEL: cluster},
    });
    ConfigMap {
        metadata: serde_json::from_value(meta).unwrap(),
        ..ConfigMap::default()
    }
}

/// Returns the state of a management cluster with three Clusters.
fn values_watches() -> ValuesWatches {
    let mut values_watches = ValuesWatches::default();
    for name in ["one", "two", "three"] {
        values_watches.cluster(&cluster(name), true);
    }
    values_watches
}

/// A leader that has listed Secrets.
struct Leader {
    values_watches: ValuesWatches,
    now: Instant,
}

impl Leader {
    fn new(secrets: &[ConfigMap]) -> Self {
        let mut leader = Self::standby(secrets);
        leader.values_watches.lead();
        leader
    }

    fn standby(secrets: &[ConfigMap]) -> Self {
        let mut leader = Self {
            values_watches: values_watches(),
            now: Instant::now(),
        };
        leader.lists(secrets);
        leader
    }

    fn lists(&mut self, objects: &[ConfigMap]) {
        self.takes(&Brought::List);
        for object in objects {
            self.takes(&Brought::Listed(object));
        }
        self.takes(&Brought::Filled);
    }

    fn takes(&mut self, brought: &Brought<'_, ConfigMap>) {
        if let Some(gone) = self.values_watches.took(&secrets(), brought, self.now) {
            let all = ["one", "two", "three"].map(|name| ClusterRef::new("team-a", name));
            for cluster in gone.of(all) {
                self.values_watches.gone(cluster, self.now);
            }
        }
    }

    fn touches(&mut self, object: &ConfigMap) {
        self.takes(&Brought::Touched(object));
    }

    /// Writes an object as this process, with `written` as the result.
    fn writes(&mut self, verb: Verb, body: Value, written: &ConfigMap) {
        let write = Write {
            key: Key::of::<Secret>(Server::Management, Some("team-a"), "one"),
            verb,
            body,
            why: "",
        };
        let written = Object(serde_json::to_value(written).unwrap());
        self.values_watches.wrote(&write, &written, self.now);
    }

    /// Returns the Clusters that are requeued within [`MOMENT`].
    fn requeued(&mut self) -> Vec<String> {
        self.requeued_within(MOMENT)
    }

    /// Returns the Clusters that are requeued within `time`, polling at the reported times.
    fn requeued_within(&mut self, time: Duration) -> Vec<String> {
        let (until, mut requeued) = (self.now + time, Vec::new());
        loop {
            let next = self.values_watches.next(self.now);
            let is_done = next.requeued.is_empty();
            requeued.extend(next.requeued.iter().map(|cluster| cluster.name().to_owned()));
            match next.at {
                Some(at) if at <= until && (at > self.now || !is_done) => self.now = at.max(self.now),
                _ => break,
            }
        }
        self.now = until;
        requeued.sort();
        requeued
    }
}

#[test]
fn an_edit_requeues_the_cluster_that_the_label_names() {
    let (before, other) = (secret("a", "one", 1), secret("b", "two", 1));
    let mut leader = Leader::new(&[before, other.clone()]);
    assert_eq!(leader.requeued(), [""; 0], "what is there was there before");
    leader.touches(&secret("a", "one", 2));
    assert_eq!(leader.requeued(), ["one"]);
    leader.touches(&secret("new", "two", 3));
    assert_eq!(leader.requeued(), ["two"]);
    leader.takes(&Brought::Gone(&other));
    assert_eq!(leader.requeued(), ["two"]);
    leader.touches(&secret("a", "one", 2));
    assert_eq!(leader.requeued(), [""; 0], "the version is the same");
    assert_eq!(
        leader.values_watches.next(leader.now).at,
        None,
        "no action is due"
    );
}

#[rstest]
#[case::no_label(json!({"name": "a", "namespace": "team-a"}))]
#[case::an_empty_one(json!({"name": "a", "namespace": "team-a", "labels": {LABEL: ""}}))]
#[case::no_namespace(json!({"name": "a", "labels": {LABEL: "one"}}))]
fn an_object_without_a_cluster_requeues_none(#[case] meta: Value) {
    let mut leader = Leader::new(&[]);
    leader.touches(&ConfigMap {
        metadata: serde_json::from_value::<ObjectMeta>(meta).unwrap(),
        ..ConfigMap::default()
    });
    assert_eq!(leader.requeued(), [""; 0]);
}

#[test]
fn a_list_after_an_interruption_requeues_only_clusters_with_edits() {
    let [a, b, c] = [("a", "one"), ("b", "two"), ("c", "three")].map(|(name, of)| secret(name, of, 1));
    let mut leader = Leader::new(&[a.clone(), b, c.clone()]);
    leader.lists(&[a.clone(), secret("b", "two", 2), c.clone()]);
    assert_eq!(leader.requeued(), ["two"]);
    leader.lists(&[a.clone(), secret("b", "two", 2), c.clone()]);
    assert_eq!(leader.requeued(), [""; 0]);
    leader.lists(&[a.clone(), c]);
    assert_eq!(leader.requeued(), ["two"], "one is gone");
    leader.lists(&[a, secret("d", "two", 5)]);
    assert_eq!(leader.requeued(), ["three", "two"], "one is gone, one is new");
}

#[test]
fn an_incomplete_list_deletes_nothing() {
    let (a, b) = (secret("a", "one", 1), secret("b", "two", 1));
    let mut leader = Leader::new(&[a.clone(), b.clone()]);
    leader.takes(&Brought::List);
    leader.takes(&Brought::Listed(&secret("a", "one", 2)));
    assert_eq!(leader.requeued(), ["one"]);
    leader.lists(&[secret("a", "one", 2), b]);
    assert_eq!(leader.requeued(), [""; 0]);
}

/// With many objects the first list takes long.
#[test]
fn an_edit_during_the_first_list_counts() {
    let mut leader = Leader::new(&[]);
    leader.values_watches = values_watches();
    leader.values_watches.lead();
    leader.takes(&Brought::List);
    leader.takes(&Brought::Listed(&secret("a", "one", 1)));
    leader.lists(&[secret("a", "one", 2), secret("b", "two", 1)]);
    assert_eq!(leader.requeued(), ["one"]);
}

#[test]
fn simultaneous_edits_requeue_their_cluster_once() {
    let mut leader = Leader::new(&[]);
    for name in ["a", "b", "c"] {
        leader.touches(&secret(name, "one", 1));
    }
    assert_eq!(leader.requeued(), ["one"]);
}

#[rstest]
#[case::before_the_watch_shows_it(true)]
#[case::after_the_watch_has_shown_it(false)]
fn own_writes_requeue_no_cluster(#[case] known_first: bool) {
    let mut leader = Leader::new(&[]);
    let (made, patched) = (secret("a", "one", 1), secret("a", "one", 2));
    let precondition = json!({"metadata": {"resourceVersion": "1"}});
    for (verb, body, object) in [
        (Verb::Create, json!({}), &made),
        (Verb::Patch, precondition, &patched),
    ] {
        if known_first {
            leader.writes(verb, body, object);
            leader.touches(object);
        } else {
            leader.touches(object);
            leader.writes(verb, body, object);
        }
        assert_eq!(leader.requeued(), [""; 0]);
    }
    if known_first {
        leader.writes(Verb::Delete, json!("a"), &ConfigMap::default());
    }
    leader.takes(&Brought::Gone(&secret("a", "one", 3)));
    if !known_first {
        leader.writes(Verb::Delete, json!("a"), &ConfigMap::default());
    }
    assert_eq!(leader.requeued(), [""; 0]);
}

#[test]
fn an_edit_beside_an_own_write_requeues_its_cluster() {
    let mut leader = Leader::new(&[]);
    leader.touches(&secret("a", "one", 1));
    leader.touches(&secret("b", "one", 2));
    leader.writes(Verb::Create, json!({}), &secret("a", "one", 1));
    assert_eq!(leader.requeued(), ["one"]);
    leader.touches(&secret("a", "one", 3));
    leader.writes(
        Verb::Patch,
        json!({"metadata": {"labels": {}}}),
        &secret("a", "one", 3),
    );
    assert_eq!(
        leader.requeued_within(Duration::from_secs(1)),
        ["one"],
        "another client may have edited it before"
    );
}

/// A controller may write a heartbeat.
#[test]
fn endless_edits_requeue_their_cluster_with_growing_delays() {
    let mut leader = Leader::new(&[]);
    let mut requeued = Vec::new();
    for version in 0..600 {
        leader.touches(&secret("a", "one", version));
        requeued.push(leader.requeued_within(Duration::from_secs(1)).len());
    }
    let first: usize = requeued[..20].iter().sum();
    let last: usize = requeued[300..].iter().sum();
    assert!((10..=12).contains(&first), "{first}");
    assert!((29..=31).contains(&last), "every ten seconds: {last}");
    leader.touches(&secret("b", "two", 1));
    assert!(leader.requeued().contains(&"two".to_owned()), "no other waits");
    leader.requeued_within(Duration::from_mins(2));
    leader.touches(&secret("a", "one", 1000));
    assert_eq!(leader.requeued(), ["one"], "the debt is repaid");
}

#[test]
fn a_series_of_edits_by_a_user_is_not_delayed() {
    let mut leader = Leader::new(&[]);
    for version in 0..9 {
        leader.touches(&secret("a", "one", version));
        assert_eq!(leader.requeued_within(Duration::from_secs(1)), ["one"]);
    }
}

#[test]
fn edits_of_many_clusters_requeue_a_hundred_per_second() {
    let mut leader = Leader::new(&[]);
    for number in 0..500 {
        leader
            .values_watches
            .cluster(&cluster(&format!("c{number}")), true);
        leader.touches(&secret(&number.to_string(), &format!("c{number}"), 1));
    }
    let first = leader.requeued_within(Duration::from_secs(1)).len();
    assert!((90..=110).contains(&first), "{first}");
    assert_eq!(first + leader.requeued_within(Duration::from_secs(5)).len(), 500);
}

/// A tenant may label any number of objects with any names.
#[test]
fn labels_of_missing_clusters_delay_no_cluster() {
    let mut leader = Leader::new(&[secret("a", "one", 1)]);
    for number in 0..10_000 {
        leader.touches(&secret(&number.to_string(), &format!("c{number}"), 1));
    }
    leader.touches(&secret("a", "one", 2));
    assert_eq!(leader.requeued(), ["one"]);
}

/// The previous leader may have ended before it requeued the Cluster.
#[test]
fn the_next_leader_requeues_for_recent_edits() {
    let mut standby = Leader::standby(&[secret("a", "one", 1)]);
    standby.touches(&secret("b", "two", 1));
    assert_eq!(standby.requeued_within(Duration::from_mins(5)), [""; 0]);
    standby.touches(&secret("a", "one", 2));
    assert_eq!(standby.requeued_within(Duration::from_secs(20)), [""; 0]);
    standby.values_watches.lead();
    assert_eq!(standby.requeued(), ["one"]);
}

/// Returns version 1 of a Secret that is in the list of a new leader.
fn listed() -> SecretVersion {
    SecretVersion {
        namespace: "team-a".to_owned(),
        name: "a".to_owned(),
        uid: "a".to_owned(),
        resource_version: "1".to_owned(),
    }
}

/// Returns Secret `a` with this metadata instead.
fn edited(field: &str, value: Value) -> ConfigMap {
    let mut object = serde_json::to_value(secret("a", "one", 2)).unwrap();
    object["metadata"][field] = value;
    serde_json::from_value(object).unwrap()
}

#[rstest]
#[case::as_it_was_listed(|_: &mut Leader| {}, true)]
#[case::another_secret_is_edited(|leader: &mut Leader| leader.touches(&secret("b", "one", 2)), true)]
#[case::it_is_edited(|leader: &mut Leader| leader.touches(&secret("a", "one", 2)), false)]
#[case::it_gets_another_cluster(|leader: &mut Leader| leader.touches(&secret("a", "two", 2)), false)]
#[case::its_label_is_emptied(|leader: &mut Leader| leader.touches(&edited("labels", json!({LABEL: ""}))), false)]
#[case::it_is_created_again(
    |leader: &mut Leader| {
        leader.takes(&Brought::Gone(&secret("a", "one", 1)));
        leader.touches(&edited("uid", json!("another")));
    },
    false
)]
#[case::it_is_deleted(|leader: &mut Leader| leader.takes(&Brought::Gone(&secret("a", "one", 1))), false)]
#[case::it_is_deleted_during_an_interruption(|leader: &mut Leader| leader.lists(&[]), false)]
#[case::a_list_is_in_progress(|leader: &mut Leader| leader.takes(&Brought::List), false)]
#[case::the_list_shows_it_again(|leader: &mut Leader| leader.lists(&[secret("a", "one", 1)]), true)]
#[case::the_watch_has_no_data(|leader: &mut Leader| leader.values_watches.troubled(&secrets(), leader.now), false)]
#[case::the_watch_ends(
    |leader: &mut Leader| drop(leader.values_watches.ended(&secrets(), &Trouble::Passing, leader.now)),
    false
)]
#[case::all_watches_end(|leader: &mut Leader| leader.values_watches.interrupted(), false)]
fn a_watch_shows_the_last_version_of_a_secret(#[case] event: fn(&mut Leader), #[case] shows: bool) {
    let mut leader = Leader::new(&[secret("a", "one", 1)]);
    assert!(!leader.values_watches.shows(&listed()), "it is not readable yet");
    leader.values_watches.readable(&secrets());
    assert!(leader.values_watches.shows(&listed()));
    event(&mut leader);
    assert_eq!(leader.values_watches.shows(&listed()), shows);
    leader.values_watches.readable(&secrets());
    leader.lists(&[secret("a", "one", 1)]);
    assert!(leader.values_watches.shows(&listed()), "it is listed again");
}

#[rstest]
#[case::another_version(SecretVersion { resource_version: "2".to_owned(), ..listed() })]
#[case::another_uid(SecretVersion { uid: "another".to_owned(), ..listed() })]
#[case::another_name(SecretVersion { name: "b".to_owned(), ..listed() })]
#[case::another_namespace(SecretVersion { namespace: "team-b".to_owned(), ..listed() })]
fn a_watch_shows_no_other_secret(#[case] other: SecretVersion) {
    let mut leader = Leader::new(&[secret("a", "one", 1)]);
    leader.values_watches.readable(&secrets());
    assert!(!leader.values_watches.shows(&other));
}

#[rstest]
#[case::of_the_namespace("team-a", true)]
#[case::of_another_one("team-b", false)]
fn a_secret_is_shown_by_the_watch_of_its_namespace(#[case] namespace: &str, #[case] shows: bool) {
    let mut values_watches = ValuesWatches::of(&[namespace.to_owned()]);
    let watched = Watched::Secrets(Some(namespace.to_owned()));
    for brought in [
        Brought::List,
        Brought::Listed(&secret("a", "one", 1)),
        Brought::Filled,
    ] {
        values_watches.took(&watched, &brought, Instant::now());
    }
    values_watches.readable(&watched);
    assert_eq!(values_watches.shows(&listed()), shows);
}

#[test]
fn an_object_takes_24_bytes() {
    assert_eq!(Versions::SIZE, 24);
}

fn cluster(name: &str) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"name": name, "namespace": "team-a", "uid": name},
        "spec": {"topology": {"classRef": {"name": "class"}, "version": "v1.35.4"}},
    }))
    .unwrap()
}

proptest! {
    /// With any interruption at any time, exactly the Clusters with a changed Secret are requeued.
    #[test]
    fn a_list_reveals_edits(
        before in proptest::collection::btree_map(0_u8..8, 0_u32..3, 0..8),
        after in proptest::collection::btree_map(0_u8..8, 0_u32..3, 0..8),
        broken_off in 0_usize..8,
    ) {
        const CLUSTERS: [&str; 3] = ["one", "two", "three"];
        let of = |name: &u8| CLUSTERS[usize::from(*name) % 3];
        let objects = |all: &BTreeMap<u8, u32>| -> Vec<ConfigMap> {
            all.iter().map(|(name, version)| secret(&name.to_string(), of(name), *version)).collect()
        };
        let mut leader = Leader::new(&objects(&before));
        let after_objects = objects(&after);
        leader.takes(&Brought::List);
        for object in after_objects.iter().take(broken_off) {
            leader.takes(&Brought::Listed(object));
        }
        leader.lists(&after_objects);
        let names: BTreeSet<&u8> = before.keys().chain(after.keys()).collect();
        let edited: BTreeSet<&str> =
            names.into_iter().filter(|name| before.get(*name) != after.get(*name)).map(of).collect();
        let requeued = leader.requeued();
        prop_assert_eq!(requeued, { let mut all: Vec<&str> = edited.into_iter().collect(); all.sort_unstable(); all });
    }
}
