use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use sluice_crds::{
    foreign::{App, Cluster, MachineDeployment, PackageInstall},
    labels::label,
};

use super::*;

type Workers = Writer<MachineDeployment>;

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

fn decoded<K>(object: K) -> Item<K> {
    Item::Decoded(object)
}

fn odd<K>(object: Undecodable) -> Item<K> {
    Item::Undecodable(Box::new(object))
}

/// Summarizes changes: `+` new or changed, `-` gone, `?` undecodable, `!` corrected or deleted, each before the name, in order.
fn told<K: Cached>(changes: &[Change<K>]) -> Vec<String> {
    let mut all = Vec::new();
    let name = |meta: &ObjectMeta| meta.name.clone().unwrap_or_default();
    for change in changes {
        all.extend(change.changed().map(|object| format!("+{}", name(object.meta()))));
        all.extend(change.gone().map(|object| format!("-{}", name(object.meta()))));
        all.extend(
            change
                .undecodable()
                .map(|object| format!("?{}", name(&object.metadata))),
        );
        let corrected = change.undecodable_gone();
        all.extend(corrected.map(|object| format!("!{}", name(&object.metadata))));
    }
    all.sort();
    all
}

fn list<K: Cached>(writer: &mut Writer<K>, items: impl IntoIterator<Item = Item<K>>) -> Vec<String> {
    writer.apply(Event::Init);
    for item in items {
        assert!(writer.apply(Event::InitApply(item)).is_empty());
    }
    told(&writer.apply(Event::InitDone))
}

fn put<K: Cached>(writer: &mut Writer<K>, item: Item<K>) -> Vec<String> {
    told(&writer.apply(Event::Apply(item)))
}

fn delete<K: Cached>(writer: &mut Writer<K>, item: Item<K>) -> Vec<String> {
    told(&writer.apply(Event::Delete(item)))
}

/// A gate may depend on two objects. A watch shows changes in their order, a list in the order of names.
#[test]
fn changes_of_a_list_become_visible_together() {
    let cluster = |name: &str, paused: bool| -> Item<Cluster> {
        let meta = json!({"name": name, "namespace": "ns"});
        decoded(serde_json::from_value(json!({"metadata": meta, "spec": {"paused": paused}})).unwrap())
    };
    let mut writer = Writer::<Cluster>::default();
    let store = writer.store();
    let paused = || ["a", "b"].map(|name| store.get(Some("ns"), name).map(|cluster| cluster.spec.paused));
    writer.apply(Event::Init);
    writer.apply(Event::InitApply(cluster("a", false)));
    assert_eq!(paused(), [None, None]);
    assert!(!store.is_filled());
    writer.apply(Event::InitApply(cluster("b", false)));
    assert_eq!(told(&writer.apply(Event::InitDone)), ["+a", "+b"]);
    assert!(!store.is_filled(), "handlers copy its objects first");
    writer.set_filled();
    assert!(store.is_filled());
    // The first of these is interrupted.
    for _ in 0..2 {
        writer.apply(Event::Init);
        writer.apply(Event::InitApply(cluster("a", true)));
        assert_eq!(paused(), [Some(false), Some(false)], "a page of two");
    }
    writer.apply(Event::InitApply(cluster("b", true)));
    assert_eq!(told(&writer.apply(Event::InitDone)), ["+a", "+b"]);
    assert_eq!(paused(), [Some(true), Some(true)]);
}

#[test]
fn an_object_with_the_same_content_is_no_change() {
    let mut writer = Workers::default();
    let revised = |version, revision: &str| {
        let mut worker = worker("one", "a", version);
        worker.metadata.resource_version = Some(revision.to_owned());
        decoded(worker)
    };
    put(&mut writer, revised(1, "7"));
    // A restored etcd counts revisions as it did before.
    assert_eq!(put(&mut writer, revised(2, "7")), ["+one"]);
    assert_eq!(put(&mut writer, revised(2, "8")), [""; 0]);
    assert_eq!(list(&mut writer, [revised(2, "9")]), [""; 0]);
    let found = writer.store().get(Some("ns"), "one").unwrap();
    assert_eq!(
        found.metadata.resource_version.as_deref(),
        Some("9"),
        "writes name it"
    );
}

#[test]
fn an_object_without_a_namespace_is_not_one_of_any_namespace() {
    let mut writer = Workers::default();
    let mut everywhere = worker("one", "a", 1);
    everywhere.metadata.namespace = None;
    put(&mut writer, decoded(everywhere));
    assert_eq!(writer.store().get(Some("ns"), "one"), None);
    assert!(writer.store().get(None, "one").is_some());
}

#[test]
fn a_recreated_object_is_a_change() {
    let mut writer = Workers::default();
    let (one, mut other) = (worker("one", "a", 1), worker("one", "a", 1));
    other.metadata.uid = Some("another".to_owned());
    put(&mut writer, decoded(one));
    assert_eq!(put(&mut writer, decoded(other)), ["+one"]);
    let missing = writer.store().missing(["another", "uid of one"].into_iter());
    assert_eq!(missing, ["uid of one"]);
}

#[test]
fn an_undecodable_object_replaces_the_object_of_its_name() {
    let mut writer = Workers::default();
    let store = writer.store();
    let deep = |revision: &str| odd(undecodable("one", "a", revision, "deep"));
    put(&mut writer, decoded(worker("one", "a", 1)));
    assert_eq!(put(&mut writer, deep("2")), ["-one", "?one"]);
    assert_eq!(store.get(Some("ns"), "one"), None, "it is out of date");
    assert!(store.of_cluster("ns", "a").is_empty());
    assert!(store.undecodable(Some("ns"), "one").is_some());
    assert!(store.first_undecodable().is_some());
    assert!(store.undecodable_of("ns", "a").is_some());
    assert_eq!(store.undecodable_of("ns", "b"), None);
    assert_eq!(put(&mut writer, deep("3")), [""; 0]);
    assert_eq!(put(&mut writer, decoded(worker("one", "a", 1))), ["!one", "+one"]);
    assert_eq!(store.first_undecodable(), None);
    put(&mut writer, deep("4"));
    assert_eq!(delete(&mut writer, deep("5")), ["!one"]);
    assert_eq!(store.all_names(), []);
    assert_eq!(store.first_undecodable(), None);
}

/// A client edits an object between two pages of a list, or during a streamed list.
#[rstest]
#[case::corrected(&[false, true], true)]
#[case::damaged(&[true, false], false)]
#[case::damaged_again(&[false, true, false], false)]
#[case::corrected_again(&[true, false, true], true)]
fn the_last_occurrence_in_a_list_counts(
    #[case] listed: &[bool],
    #[case] is_decoded: bool,
    #[values(None, Some(true), Some(false))] before: Option<bool>,
) {
    let mut writer = Workers::default();
    let item = |version: u8, is_decoded: bool| {
        if is_decoded {
            return decoded(worker("one", "a", version));
        }
        let revision = version.to_string();
        odd(undecodable("one", "a", &revision, &format!("reason {version}")))
    };
    list(&mut writer, before.map(|before| item(1, before)));
    let items: Vec<_> = (2..)
        .zip(listed)
        .map(|(version, listed)| item(version, *listed))
        .collect();
    let told = list(&mut writer, items);
    let expected: &[&str] = match (before, is_decoded) {
        (None | Some(true), true) => &["+one"],
        (Some(false), true) => &["!one", "+one"],
        (None | Some(false), false) => &["?one"],
        (Some(true), false) => &["-one", "?one"],
    };
    assert_eq!(told, expected);
    let store = writer.store();
    assert_eq!(store.get(Some("ns"), "one").is_some(), is_decoded);
    assert_eq!(store.undecodable(Some("ns"), "one").is_some(), !is_decoded);
}

#[test]
fn a_deletion_tells_the_cached_object() {
    let mut writer = Workers::default();
    put(&mut writer, decoded(worker("one", "a", 1)));
    assert_eq!(delete(&mut writer, decoded(worker("one", "b", 2))), ["-one"]);
    assert!(writer.store().of_cluster("ns", "a").is_empty());
    assert_eq!(
        delete(&mut writer, decoded(worker("one", "b", 2))),
        [""; 0],
        "unknown"
    );
    put(&mut writer, decoded(worker("one", "a", 1)));
    writer.clear();
    assert_eq!(writer.store().all_names(), []);
    assert!(writer.store().of_cluster("ns", "a").is_empty());
}

/// Action of a server.
#[derive(Clone, Debug)]
enum Action {
    Put(u8, u8, u8),
    Remove(u8),
    List(BTreeMap<u8, u8>),
    /// List that ends before its last page.
    Interrupted(BTreeMap<u8, u8>),
}

fn action() -> impl Strategy<Value = Action> {
    let list = || proptest::collection::btree_map(0..12u8, 0..3u8, 0..12);
    prop_oneof![
        6 => (0..12u8, 0..3u8, any::<u8>()).prop_map(|(name, cluster, version)| Action::Put(name, cluster, version)),
        2 => (0..12u8).prop_map(Action::Remove),
        1 => list().prop_map(Action::List),
        1 => list().prop_map(Action::Interrupted),
    ]
}

proptest! {
    /// Behaves like a map of objects, with and without a Cluster.
    #[test]
    fn the_store_is_as_the_server(actions in proptest::collection::vec(action(), 0..60)) {
        let (mut writer, mut server) = (Workers::default(), BTreeMap::new());
        let store = writer.store();
        let object = |name: u8, cluster: u8, version| worker(&name.to_string(), &format!("c{cluster}"), version);
        for action in actions {
            match action {
                Action::Put(name, cluster, version) => {
                    let object = object(name, cluster, version);
                    put(&mut writer, decoded(object.clone()));
                    server.insert(name, object);
                }
                Action::Remove(name) => {
                    if let Some(object) = server.remove(&name) {
                        delete(&mut writer, decoded(object));
                    }
                }
                Action::Interrupted(listed) => {
                    writer.apply(Event::Init);
                    for (name, cluster) in listed {
                        writer.apply(Event::InitApply(decoded(object(name, cluster, 7))));
                    }
                }
                Action::List(listed) => {
                    let now: BTreeMap<_, _> = listed.into_iter().map(|(name, cluster)| (name, object(name, cluster, 7))).collect();
                    let mut expected: Vec<_> = server.keys().filter(|name| !now.contains_key(name)).map(|name| format!("-{name}")).collect();
                    let is_news = |name: &u8, object: &MachineDeployment| server.get(name).is_none_or(|before| object != before);
                    expected.extend(now.iter().filter(|(name, object)| is_news(name, object)).map(|(name, _)| format!("+{name}")));
                    expected.sort();
                    prop_assert_eq!(list(&mut writer, now.values().cloned().map(decoded)), expected);
                    server = now;
                }
            }
            prop_assert_eq!(store.names().len(), server.len());
            for name in 0..12u8 {
                let found = store.get(Some("ns"), &name.to_string());
                prop_assert_eq!(found.as_deref(), server.get(&name));
            }
            for cluster in 0..3u8 {
                let cluster = format!("c{cluster}");
                let mut found: Vec<_> = store.of_cluster("ns", &cluster).into_iter().map(|object| object.metadata.name.clone()).collect();
                found.sort();
                let of_cluster = |object: &&MachineDeployment| MachineDeployment::cluster_of(&object.metadata).as_ref() == Some(&cluster);
                let mut expected: Vec<_> = server.values().filter(of_cluster).map(|object| object.metadata.name.clone()).collect();
                expected.sort();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

/// Returns whether a store of this kind returns the same parsed object again.
fn is_kept_parsed<K: Cached + serde::de::DeserializeOwned + 'static>() -> bool {
    let object = json!({"metadata": {"namespace": "ns", "name": "one", "resourceVersion": "1"}, "spec": {}});
    let mut writer = Writer::<K>::default();
    list(&mut writer, [decoded(serde_json::from_value(object).unwrap())]);
    let read = || writer.store().get(Some("ns"), "one").unwrap();
    Arc::ptr_eq(&read(), &read())
}

/// Parsed objects take several times their compressed size, and each workload cluster has stores of its own.
#[test]
fn stores_of_workload_clusters_keep_no_parsed_objects() {
    assert!(is_kept_parsed::<Cluster>());
    assert!(!is_kept_parsed::<PackageInstall>());
    assert!(!is_kept_parsed::<App>());
}
