use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use sluice_crds::{foreign::MachineDeployment, labels::label};

use super::*;

/// Returns a MachineDeployment of a Cluster in namespace `ns`.
fn worker(name: &str, cluster: &str, version: u8) -> MachineDeployment {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("uid of {name}"), "resourceVersion": version.to_string(),
            "labels": {label::CAPI_CLUSTER_NAME: cluster},
        },
        "spec": {"template": {"spec": {"version": format!("v1.36.{version}")}}},
    }))
    .unwrap()
}

fn gone(listed: &Listed<MachineDeployment>) -> Vec<MachineDeployment> {
    listed.gone.iter().collect()
}

fn objects() -> Objects<MachineDeployment> {
    Objects::new(Arc::default())
}

fn undecodable(name: &str, cluster: &str, revision: &str, why: &str) -> Undecodable {
    let metadata = json!({
        "namespace": "ns", "name": name, "resourceVersion": revision, "labels": {label::CAPI_CLUSTER_NAME: cluster},
    });
    Undecodable {
        kind: "MachineDeployment".to_owned(),
        metadata: serde_json::from_value(metadata).unwrap(),
        class: None,
        why: why.to_owned(),
    }
}

#[test]
fn an_undecodable_object_replaces_the_object_of_its_name() {
    let mut objects = objects();
    let (good, odd) = (worker("one", "a", 1), undecodable("one", "a", "2", "deep"));
    objects.insert(&good);
    assert_eq!(
        objects.put_undecodable(&odd),
        (Change::Changed, Some(good.clone()))
    );
    assert_eq!(objects.get(Some("ns"), "one"), None, "it is out of date");
    assert!(objects.of_cluster("ns", "a").is_empty());
    assert_eq!(objects.undecodable(Some("ns"), "one").as_deref(), Some(&odd));
    assert_eq!(objects.undecodable_of("ns", "a").as_deref(), Some(&odd));
    assert_eq!(objects.undecodable_of("ns", "b"), None);
    let touched = undecodable("one", "a", "3", "deep");
    assert_eq!(objects.put_undecodable(&touched), (Change::Same, None));
    assert_eq!(objects.insert(&good), Change::Changed);
    assert_eq!(objects.undecodable(Some("ns"), "one"), None, "it was corrected");
    objects.put_undecodable(&odd);
    objects.remove(&odd.metadata);
    assert_eq!((objects.len(), objects.all_undecodable().count()), (0, 0));
}

#[test]
fn a_list_adds_and_removes_undecodable_objects() {
    let mut objects = objects();
    let odd = |name: &str, revision: &str| undecodable(name, "a", revision, "deep");
    objects.list();
    objects.insert(&worker("one", "a", 1));
    objects.put_undecodable(&odd("two", "1"));
    let first = objects.listed();
    assert_eq!(first.undecodable, [], "seen as it came");
    objects.list();
    assert_eq!(objects.put_undecodable(&odd("two", "2")), (Change::Same, None));
    assert_eq!(
        objects.put_undecodable(&odd("one", "2")),
        (Change::SetAside, None)
    );
    assert!(
        objects.get(Some("ns"), "one").is_some(),
        "nothing is seen before the list is over"
    );
    let second = objects.listed();
    assert_eq!(second.undecodable, [Arc::new(odd("one", "2"))]);
    assert_eq!(gone(&second), [worker("one", "a", 1)]);
    assert_eq!(second.undecodable_gone, []);
    objects.list();
    objects.insert(&worker("one", "a", 3));
    let third = objects.listed();
    assert_eq!(third.changed, [ClusterRef::new("ns", "one")]);
    let mut gone: Vec<_> = third
        .undecodable_gone
        .iter()
        .map(|object| object.reference())
        .collect();
    gone.sort();
    assert_eq!(gone, [ClusterRef::new("ns", "one"), ClusterRef::new("ns", "two")]);
    assert_eq!(objects.all_undecodable().count(), 0);
    objects.put_undecodable(&odd("two", "4"));
    objects.clear();
    assert_eq!(objects.all_undecodable().count(), 0);
}

/// A client edits an object between two pages of a list, or during a streamed list.
#[rstest]
#[case::corrected(&[false, true], true)]
#[case::damaged(&[true, false], false)]
#[case::damaged_again(&[false, true, false], false)]
#[case::corrected_again(&[true, false, true], true)]
fn the_last_occurrence_in_a_list_counts(
    #[case] brought: &[bool],
    #[case] is_decoded: bool,
    #[values(None, Some(true), Some(false))] before: Option<bool>,
) {
    let mut objects = objects();
    let put = |objects: &mut Objects<_>, is_decoded: bool, version: u8| {
        if is_decoded {
            objects.insert(&worker("one", "a", version));
        } else {
            let revision = version.to_string();
            objects.put_undecodable(&undecodable("one", "a", &revision, &format!("reason {version}")));
        }
    };
    objects.list();
    if let Some(before) = before {
        put(&mut objects, before, 1);
    }
    objects.listed();
    objects.list();
    for (version, is_decoded) in (2..).zip(brought) {
        put(&mut objects, *is_decoded, version);
    }
    let listed = objects.listed();
    let there = ClusterRef::new("ns", "one");
    assert_eq!(objects.get(Some("ns"), "one").is_some(), is_decoded);
    assert_eq!(objects.undecodable(Some("ns"), "one").is_some(), !is_decoded);
    // An object that is reported as deleted after its delivery is dropped.
    let expected_gone = usize::from(before == Some(true) && !is_decoded);
    assert_eq!(gone(&listed).len(), expected_gone, "{listed:?}");
    assert_eq!(listed.changed.contains(&there), is_decoded, "{listed:?}");
    assert_eq!(listed.undecodable.len(), usize::from(!is_decoded), "{listed:?}");
    let expected_gone = usize::from(before == Some(false) && is_decoded);
    assert_eq!(listed.undecodable_gone.len(), expected_gone, "{listed:?}");
}

#[test]
fn a_list_replaces_the_content() {
    let mut objects = objects();
    let (one, two, again) = (
        worker("one", "a", 1),
        worker("two", "a", 1),
        worker("two", "a", 2),
    );
    objects.list();
    assert_eq!(objects.insert(&one), Change::Changed);
    assert_eq!(objects.insert(&two), Change::Changed);
    assert_eq!(gone(&objects.listed()), []);
    objects.list();
    assert_eq!(objects.insert(&two), Change::Same);
    assert_eq!(objects.len(), 2, "nothing is gone before the list is over");
    assert_eq!(gone(&objects.listed()), [one]);
    assert_eq!(objects.insert(&again), Change::Changed);
    assert_eq!(objects.get(Some("ns"), "two"), Some(again));
    assert_eq!(objects.get(Some("ns"), "one"), None);
    objects.clear();
    assert!(objects.is_empty() && objects.iter().next().is_none());
}

#[test]
fn an_object_that_moves_to_another_cluster_is_found_there_only() {
    let mut objects = objects();
    objects.insert(&worker("one", "a", 1));
    let moved = worker("one", "b", 2);
    objects.insert(&moved);
    assert_eq!(objects.of_cluster("ns", "a"), []);
    assert_eq!(objects.of_cluster("ns", "b"), std::slice::from_ref(&moved));
    assert_eq!(objects.of_cluster("other", "b"), []);
    assert_eq!(objects.get(Some("ns"), "one"), Some(moved.clone()));
    objects.remove(&moved.metadata);
    assert!(objects.is_empty() && objects.placed.is_empty(), "{objects:?}");
}

#[test]
fn a_recreated_object_is_a_change() {
    let mut objects = objects();
    let (one, mut other) = (worker("one", "a", 1), worker("one", "a", 1));
    other.metadata.uid = Some("another".to_owned());
    objects.insert(&one);
    assert_eq!(objects.insert(&other), Change::Changed);
    assert_eq!(
        objects.missing(["another", "uid of one"].into_iter()),
        ["uid of one"]
    );
}

/// Action of a server, in the order of watches and lists.
#[derive(Clone, Debug)]
enum Event {
    Put(u8, u8, u8),
    Remove(u8),
    List(BTreeMap<u8, u8>),
    /// List that ends before its last page.
    Interrupted(BTreeMap<u8, u8>),
}

fn event() -> impl Strategy<Value = Event> {
    let list = || proptest::collection::btree_map(0..12u8, 0..3u8, 0..12);
    prop_oneof![
        6 => (0..12u8, 0..3u8, any::<u8>()).prop_map(|(name, cluster, version)| Event::Put(name, cluster, version)),
        2 => (0..12u8).prop_map(Event::Remove),
        1 => list().prop_map(Event::List),
        1 => list().prop_map(Event::Interrupted),
    ]
}

proptest! {
    /// Behaves like a map of whole objects.
    #[test]
    fn objects_are_as_the_server_has_them(events in proptest::collection::vec(event(), 0..60)) {
        let (mut objects, mut server) = (objects(), HashMap::new());
        let object = |name: u8, cluster: u8, version| worker(&name.to_string(), &format!("c{cluster}"), version);
        for event in events {
            match event {
                Event::Put(name, cluster, version) => {
                    let object = object(name, cluster, version);
                    objects.insert(&object);
                    server.insert(name, object);
                }
                Event::Remove(name) => {
                    if let Some(object) = server.remove(&name) {
                        objects.remove(&object.metadata);
                    }
                }
                Event::Interrupted(listed) => {
                    objects.list();
                    for (name, cluster) in listed {
                        let object = object(name, cluster, 7);
                        if objects.insert(&object) != Change::SetAside {
                            server.insert(name, object);
                        }
                    }
                    // The next list starts immediately.
                    objects.aside = None;
                }
                Event::List(listed) => {
                    objects.list();
                    let before = std::mem::take(&mut server);
                    for (name, cluster) in listed {
                        let object = object(name, cluster, 7);
                        objects.insert(&object);
                        server.insert(name, object);
                    }
                    let mut gone: Vec<_> = objects.listed().gone.iter().map(|gone| gone.metadata.name.clone()).collect();
                    gone.sort();
                    let mut expected: Vec<_> = before.iter().filter(|(name, _)| !server.contains_key(name))
                        .map(|(_, object)| object.metadata.name.clone()).collect();
                    expected.sort();
                    prop_assert_eq!(gone, expected);
                }
            }
            prop_assert_eq!(objects.len(), server.len());
            prop_assert_eq!(objects.names().count(), server.len());
            for name in 0..12u8 {
                let found = objects.get(Some("ns"), &name.to_string());
                prop_assert_eq!(found.as_ref(), server.get(&name));
            }
            for cluster in 0..3u8 {
                let cluster = format!("c{cluster}");
                let mut found = objects.of_cluster("ns", &cluster);
                found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                let mut expected: Vec<_> = server.values().filter(|object| object.cluster().as_ref() == Some(&cluster)).cloned().collect();
                expected.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                prop_assert_eq!(found, expected);
            }
        }
    }
}
