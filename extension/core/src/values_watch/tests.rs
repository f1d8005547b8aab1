use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{GroupVersionKind, ObjectMeta};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::protocol::{Key, Server, Verb};

mod kinds;

/// Longer than a Cluster that was just woken waits.
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

/// Of a management cluster with three Clusters.
fn edits() -> Edits {
    let mut edits = Edits::default();
    for name in ["one", "two", "three"] {
        edits.cluster(&cluster(name), true);
    }
    edits
}

/// A leader that has listed Secrets.
struct Leader {
    edits: Edits,
    now: Instant,
}

impl Leader {
    fn new(secrets: &[ConfigMap]) -> Self {
        let mut leader = Self::standby(secrets);
        leader.edits.lead();
        leader
    }

    fn standby(secrets: &[ConfigMap]) -> Self {
        let mut leader = Self {
            edits: edits(),
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
        if let Some(gone) = self.edits.took(&secrets(), brought, self.now) {
            let all = ["one", "two", "three"].map(|name| ClusterRef::new("team-a", name));
            for cluster in gone.of(all) {
                self.edits.gone(cluster, self.now);
            }
        }
    }

    fn touches(&mut self, object: &ConfigMap) {
        self.takes(&Brought::Touched(object));
    }

    /// This process writes an object, which is in this version then.
    fn writes(&mut self, verb: Verb, body: Value, written: &ConfigMap) {
        let write = Write {
            key: Key::of::<Secret>(Server::Management, Some("team-a"), "one"),
            verb,
            body,
            why: "",
        };
        let written = Object(serde_json::to_value(written).unwrap());
        self.edits.wrote(&write, &written, self.now);
    }

    /// Who is woken until a moment from now.
    fn wakes(&mut self) -> Vec<String> {
        self.wakes_within(MOMENT)
    }

    /// Looks as often as it says itself that there is something to do.
    fn wakes_within(&mut self, time: Duration) -> Vec<String> {
        let (until, mut woken) = (self.now + time, Vec::new());
        loop {
            let next = self.edits.next(self.now);
            let is_done = next.woken.is_empty();
            woken.extend(next.woken.iter().map(|cluster| cluster.name().to_owned()));
            match next.at {
                Some(at) if at <= until && (at > self.now || !is_done) => self.now = at.max(self.now),
                _ => break,
            }
        }
        self.now = until;
        woken.sort();
        woken
    }
}

#[test]
fn an_edit_wakes_the_cluster_that_the_label_names() {
    let (before, other) = (secret("a", "one", 1), secret("b", "two", 1));
    let mut leader = Leader::new(&[before, other.clone()]);
    assert_eq!(leader.wakes(), [""; 0], "what is there was there before");
    leader.touches(&secret("a", "one", 2));
    assert_eq!(leader.wakes(), ["one"]);
    leader.touches(&secret("new", "two", 3));
    assert_eq!(leader.wakes(), ["two"]);
    leader.takes(&Brought::Gone(&other));
    assert_eq!(leader.wakes(), ["two"]);
    leader.touches(&secret("a", "one", 2));
    assert_eq!(leader.wakes(), [""; 0], "it is as it was");
    assert_eq!(leader.edits.next(leader.now).at, None, "nothing is to do at rest");
}

#[rstest]
#[case::no_label(json!({"name": "a", "namespace": "team-a"}))]
#[case::an_empty_one(json!({"name": "a", "namespace": "team-a", "labels": {LABEL: ""}}))]
#[case::no_namespace(json!({"name": "a", "labels": {LABEL: "one"}}))]
fn what_names_no_cluster_wakes_none(#[case] meta: Value) {
    let mut leader = Leader::new(&[]);
    leader.touches(&ConfigMap {
        metadata: serde_json::from_value::<ObjectMeta>(meta).unwrap(),
        ..ConfigMap::default()
    });
    assert_eq!(leader.wakes(), [""; 0]);
}

#[test]
fn a_list_after_a_break_wakes_only_those_of_which_something_was_edited() {
    let [a, b, c] = [("a", "one"), ("b", "two"), ("c", "three")].map(|(name, of)| secret(name, of, 1));
    let mut leader = Leader::new(&[a.clone(), b, c.clone()]);
    leader.lists(&[a.clone(), secret("b", "two", 2), c.clone()]);
    assert_eq!(leader.wakes(), ["two"]);
    leader.lists(&[a.clone(), secret("b", "two", 2), c.clone()]);
    assert_eq!(leader.wakes(), [""; 0]);
    leader.lists(&[a.clone(), c]);
    assert_eq!(leader.wakes(), ["two"], "one is gone");
    leader.lists(&[a, secret("d", "two", 5)]);
    assert_eq!(leader.wakes(), ["three", "two"], "one is gone, one is new");
}

#[test]
fn a_list_that_breaks_off_says_nothing_of_what_it_has_not_brought() {
    let (a, b) = (secret("a", "one", 1), secret("b", "two", 1));
    let mut leader = Leader::new(&[a.clone(), b.clone()]);
    leader.takes(&Brought::List);
    leader.takes(&Brought::Listed(&secret("a", "one", 2)));
    assert_eq!(leader.wakes(), ["one"]);
    leader.lists(&[secret("a", "one", 2), b]);
    assert_eq!(leader.wakes(), [""; 0]);
}

/// The first list is under way for long where there are many.
#[test]
fn what_is_edited_during_the_first_list_is_an_edit() {
    let mut leader = Leader::new(&[]);
    leader.edits = edits();
    leader.edits.lead();
    leader.takes(&Brought::List);
    leader.takes(&Brought::Listed(&secret("a", "one", 1)));
    leader.lists(&[secret("a", "one", 2), secret("b", "two", 1)]);
    assert_eq!(leader.wakes(), ["one"]);
}

#[test]
fn edits_that_come_together_wake_their_cluster_once() {
    let mut leader = Leader::new(&[]);
    for name in ["a", "b", "c"] {
        leader.touches(&secret(name, "one", 1));
    }
    assert_eq!(leader.wakes(), ["one"]);
}

#[rstest]
#[case::before_the_watch_shows_it(true)]
#[case::after_the_watch_has_shown_it(false)]
fn what_this_process_has_written_wakes_no_cluster(#[case] known_first: bool) {
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
        assert_eq!(leader.wakes(), [""; 0]);
    }
    if known_first {
        leader.writes(Verb::Delete, json!("a"), &ConfigMap::default());
    }
    leader.takes(&Brought::Gone(&secret("a", "one", 3)));
    if !known_first {
        leader.writes(Verb::Delete, json!("a"), &ConfigMap::default());
    }
    assert_eq!(leader.wakes(), [""; 0]);
}

#[test]
fn an_edit_beside_what_this_process_has_written_wakes_its_cluster() {
    let mut leader = Leader::new(&[]);
    leader.touches(&secret("a", "one", 1));
    leader.touches(&secret("b", "one", 2));
    leader.writes(Verb::Create, json!({}), &secret("a", "one", 1));
    assert_eq!(leader.wakes(), ["one"]);
    leader.touches(&secret("a", "one", 3));
    leader.writes(
        Verb::Patch,
        json!({"metadata": {"labels": {}}}),
        &secret("a", "one", 3),
    );
    assert_eq!(
        leader.wakes_within(Duration::from_secs(1)),
        ["one"],
        "another client may have edited it before"
    );
}

/// It may be the work of a controller that writes a heartbeat.
#[test]
fn an_object_that_is_edited_without_end_wakes_its_cluster_ever_more_rarely() {
    let mut leader = Leader::new(&[]);
    let mut woken = Vec::new();
    for version in 0..600 {
        leader.touches(&secret("a", "one", version));
        woken.push(leader.wakes_within(Duration::from_secs(1)).len());
    }
    let first: usize = woken[..20].iter().sum();
    let last: usize = woken[300..].iter().sum();
    assert!((10..=12).contains(&first), "{first}");
    assert!((29..=31).contains(&last), "every ten seconds: {last}");
    leader.touches(&secret("b", "two", 1));
    assert!(leader.wakes().contains(&"two".to_owned()), "no other one waits");
    leader.wakes_within(Duration::from_mins(2));
    leader.touches(&secret("a", "one", 1000));
    assert_eq!(leader.wakes(), ["one"], "all is made up for");
}

#[test]
fn a_user_who_edits_one_thing_after_the_other_waits_for_nothing() {
    let mut leader = Leader::new(&[]);
    for version in 0..9 {
        leader.touches(&secret("a", "one", version));
        assert_eq!(leader.wakes_within(Duration::from_secs(1)), ["one"]);
    }
}

#[test]
fn edits_of_many_clusters_wake_a_hundred_in_a_second() {
    let mut leader = Leader::new(&[]);
    for number in 0..500 {
        leader.edits.cluster(&cluster(&format!("c{number}")), true);
        leader.touches(&secret(&number.to_string(), &format!("c{number}"), 1));
    }
    let first = leader.wakes_within(Duration::from_secs(1)).len();
    assert!((90..=110).contains(&first), "{first}");
    assert_eq!(first + leader.wakes_within(Duration::from_secs(5)).len(), 500);
}

/// A tenant may label any number of objects with any names.
#[test]
fn labels_that_name_no_cluster_keep_none_waiting() {
    let mut leader = Leader::new(&[secret("a", "one", 1)]);
    for number in 0..10_000 {
        leader.touches(&secret(&number.to_string(), &format!("c{number}"), 1));
    }
    leader.touches(&secret("a", "one", 2));
    assert_eq!(leader.wakes(), ["one"]);
}

/// The leader before it may have ended without acting on it.
#[test]
fn the_next_leader_wakes_for_what_was_edited_a_moment_ago() {
    let mut standby = Leader::standby(&[secret("a", "one", 1)]);
    standby.touches(&secret("b", "two", 1));
    assert_eq!(standby.wakes_within(Duration::from_mins(5)), [""; 0]);
    standby.touches(&secret("a", "one", 2));
    assert_eq!(standby.wakes_within(Duration::from_secs(20)), [""; 0]);
    standby.edits.lead();
    assert_eq!(standby.wakes(), ["one"]);
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
    /// Whatever breaks, and whenever: a Cluster of which a Secret is another one than before is woken, and no other one is.
    #[test]
    fn a_list_says_what_was_edited(
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
        let woken = leader.wakes();
        prop_assert_eq!(woken, { let mut all: Vec<&str> = edited.into_iter().collect(); all.sort_unstable(); all });
    }
}
