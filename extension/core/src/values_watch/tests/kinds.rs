//! Selection of watched kinds, and retries after refusals.

use super::*;

/// Returns the ClusterBootstrap of a Cluster that takes values from objects of these groups and kinds.
fn bootstrap(name: &str, kinds: &[(&str, &str)]) -> ClusterBootstrap {
    let package = |(group, kind): &(&str, &str)| {
        let provider = json!({"apiGroup": group, "kind": kind, "name": name});
        json!({"refName": "foo.example.com.1.0.0", "valuesFrom": {"providerRef": provider}})
    };
    let packages: Vec<Value> = kinds.iter().map(package).collect();
    serde_json::from_value(json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"additionalPackages": packages},
    }))
    .unwrap()
}

/// Returns the state in which each of these Clusters takes values from these kinds of one group.
fn naming(clusters: &[(&str, &[&str])]) -> Edits {
    let mut edits = Edits::default();
    for (name, kinds) in clusters {
        let kinds: Vec<_> = kinds.iter().map(|kind| ("fleet.test", *kind)).collect();
        edits.cluster(&cluster(name), true);
        edits.bootstrap(&bootstrap(name, &kinds), true);
    }
    edits
}

fn watched(edits: &mut Edits, now: Instant) -> Vec<String> {
    let watched = edits.next(now).watched.into_iter();
    let kinds = watched.filter_map(|watched| match watched {
        Watched::Secrets(_) => None,
        Watched::Kind(kind) => Some(kind.kind),
    });
    kinds.collect()
}

#[rstest]
#[case::of_another_project("fleet.test", "FleetConfig", &["FleetConfig"])]
#[case::of_the_core_group("", "Secret", &[])]
#[case::of_ours("cni.tanzu.vmware.com", "AntreaConfig", &[])]
#[case::another_one_of_our_group("cni.tanzu.vmware.com", "OtherConfig", &[])]
#[case::of_cluster_api("cluster.x-k8s.io", "Cluster", &[])]
fn kinds_of_other_projects_are_watched(#[case] group: &str, #[case] kind: &str, #[case] expected: &[&str]) {
    let mut edits = Edits::default();
    edits.cluster(&cluster("one"), true);
    edits.bootstrap(&bootstrap("one", &[(group, kind)]), true);
    assert_eq!(watched(&mut edits, Instant::now()), expected);
}

#[test]
fn a_provider_without_a_group_is_of_the_core_group() {
    let mut bootstrap = bootstrap("one", &[("fleet.test", "Secret")]);
    let package = &mut bootstrap.spec.additional_packages[0];
    let by = package
        .values_from
        .as_mut()
        .unwrap()
        .provider_ref
        .as_mut()
        .unwrap();
    by.api_group = None;
    let mut edits = Edits::default();
    edits.cluster(&cluster("one"), true);
    edits.bootstrap(&bootstrap, true);
    assert_eq!(watched(&mut edits, Instant::now()), [""; 0]);
}

#[test]
fn a_kind_is_watched_while_a_managed_cluster_names_it() {
    let (mut edits, now) = (Edits::default(), Instant::now());
    let named = bootstrap("one", &[("fleet.test", "FleetConfig")]);
    edits.bootstrap(&named, true);
    assert_eq!(watched(&mut edits, now), [""; 0], "of no Cluster");
    edits.cluster(&cluster("one"), true);
    assert_eq!(watched(&mut edits, now), ["FleetConfig"]);
    edits.cluster(&cluster("two"), true);
    edits.bootstrap(&bootstrap("two", &[("fleet.test", "FleetConfig")]), true);
    edits.bootstrap(&bootstrap("one", &[]), true);
    assert_eq!(watched(&mut edits, now), ["FleetConfig"], "another one names it");
    edits.bootstrap(&bootstrap("two", &[("fleet.test", "FleetConfig")]), false);
    assert_eq!(watched(&mut edits, now), [""; 0]);
    edits.bootstrap(&named, true);
    assert_eq!(watched(&mut edits, now), ["FleetConfig"]);
    edits.cluster(&cluster("one"), false);
    assert_eq!(watched(&mut edits, now), [""; 0], "its Cluster is gone");
    let mut without_topology = cluster("one");
    without_topology.spec.topology = None;
    edits.cluster(&without_topology, true);
    assert_eq!(watched(&mut edits, now), [""; 0], "it is not managed");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("K{number:03}")).collect()
}

#[test]
fn at_most_sixteen_kinds_are_watched_and_the_excess_is_logged_once() {
    let (names, now) = (names(40), Instant::now());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut edits = naming(&[("one", &names), ("two", &names[30..])]);
    let next = edits.next(now);
    assert!(next.warning.is_some_and(|text| text.contains("40 kinds")));
    let first = watched(&mut edits, now);
    assert_eq!(first.len(), LIMIT);
    assert_eq!(first[6..], names[30..], "those that most Clusters name");
    edits.cluster(&cluster("three"), true);
    let third = bootstrap("three", &[("fleet.test", "K020"), ("fleet.test", "K021")]);
    edits.bootstrap(&third, true);
    assert_eq!(watched(&mut edits, now), first, "those that are watched stay so");
    assert_eq!(edits.next(now).warning, None);
    let few: Vec<_> = names[..3].iter().map(|kind| ("fleet.test", *kind)).collect();
    for name in ["one", "two", "three"] {
        edits.bootstrap(&bootstrap(name, &few), true);
    }
    assert_eq!(watched(&mut edits, now), names[..3]);
}

fn refused(edits: &mut Edits, kind: &Watched, now: Instant) -> Option<String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("fleet.test", "v1", "K"));
    edits.ended(kind, Ended::NeverReadable, &Trouble::Refused(403, resource), now)
}

#[test]
fn a_refused_kind_yields_its_place_until_its_retry() {
    let (names, now) = (names(17), Instant::now());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut edits = naming(&[("one", &names)]);
    assert_eq!(watched(&mut edits, now), names[..16]);
    assert!(refused(&mut edits, &kind("K003"), now).is_some());
    let others: Vec<&str> = names.iter().copied().filter(|name| *name != "K003").collect();
    assert_eq!(watched(&mut edits, now), others);
    let later = now + Duration::from_mins(10);
    assert_eq!(watched(&mut edits, later), others, "all places are taken");
    edits.troubled(&kind("K005"), later);
    let waiting = watched(&mut edits, later);
    assert!(
        !waiting.contains(&"K005".to_owned()) && waiting.contains(&"K003".to_owned()),
        "{waiting:?}"
    );
}

/// Tenants may name any number of them.
#[test]
fn unwatchable_kinds_do_not_block_others_for_long() {
    let (names, mut now) = (names(200), Instant::now());
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.push("Z");
    let mut edits = naming(&[("one", &names)]);
    let mut tries = 0;
    loop {
        let open = watched(&mut edits, now);
        if open.contains(&"Z".to_owned()) {
            break;
        }
        for name in open {
            tries += 1;
            refused(&mut edits, &kind(&name), now);
        }
        now += Duration::from_millis(100);
        assert!(tries < 1000, "it is never watched");
    }
    edits.readable(&kind("Z"));
    for _ in 0..100 {
        now += Duration::from_secs(10);
        for name in watched(&mut edits, now) {
            if name != "Z" {
                refused(&mut edits, &kind(&name), now);
            }
        }
        assert!(watched(&mut edits, now).contains(&"Z".to_owned()));
    }
}

#[test]
fn the_time_of_a_retry_is_reported() {
    let (mut edits, now) = (naming(&[("one", &["K"])]), Instant::now());
    edits.next(now);
    refused(&mut edits, &kind("K"), now);
    let at = edits.next(now).at.unwrap();
    assert!(at > now);
    assert_eq!(watched(&mut edits, at), ["K"]);
    assert_eq!(edits.next(at).at, None);
}

#[test]
fn observed_versions_survive_retries() {
    let (mut edits, now) = (naming(&[("one", &["K"])]), Instant::now());
    let take = |edits: &mut Edits, brought: &Brought<'_, ConfigMap>| {
        assert!(edits.took(&kind("K"), brought, now).is_none());
    };
    edits.lead();
    edits.next(now);
    let list = |edits: &mut Edits, version| {
        take(edits, &Brought::List);
        take(edits, &Brought::Listed(&secret("a", "one", version)));
        take(edits, &Brought::Filled);
    };
    list(&mut edits, 1);
    refused(&mut edits, &kind("K"), now);
    edits.next(now + Duration::from_mins(1));
    list(&mut edits, 2);
    assert_eq!(edits.next(now + Duration::from_mins(2)).woken, [one()]);
    assert!(edits.readable(&kind("K")).is_some());
}

#[test]
fn secrets_are_watched_in_each_named_namespace() {
    let namespaces = ["b", "a", "b"].map(str::to_owned);
    let watched = Edits::of(&namespaces).next(Instant::now()).watched;
    let expected = ["a", "b"].map(|namespace| Watched::Secrets(Some(namespace.to_owned())));
    assert_eq!(watched, BTreeSet::from(expected));
    let watched = Edits::default().next(Instant::now()).watched;
    assert_eq!(watched, BTreeSet::from([secrets()]));
}
