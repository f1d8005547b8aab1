//! Selection of watched kinds, and retries after refusals.

use kube::core::ApiResource;

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
fn naming(clusters: &[(&str, &[&str])]) -> ValuesWatches {
    let mut values_watches = ValuesWatches::default();
    for (name, kinds) in clusters {
        let kinds: Vec<_> = kinds.iter().map(|kind| ("fleet.test", *kind)).collect();
        values_watches.cluster(&cluster(name), true);
        values_watches.bootstrap(&bootstrap(name, &kinds), true);
    }
    values_watches
}

fn watched(values_watches: &mut ValuesWatches, now: Instant) -> Vec<String> {
    let watched = values_watches.next(now).watched.into_iter();
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
#[case::another_one_of_our_group("cni.tanzu.vmware.com", "OtherConfig", &["OtherConfig"])]
#[case::of_another_group_of_tanzu("fleet.tanzu.vmware.com", "FleetConfig", &["FleetConfig"])]
#[case::a_cluster_bootstrap("run.tanzu.vmware.com", "ClusterBootstrap", &[])]
#[case::a_release("run.tanzu.vmware.com", "TanzuKubernetesRelease", &[])]
#[case::of_cluster_api("cluster.x-k8s.io", "Cluster", &[])]
fn kinds_of_other_projects_are_watched(#[case] group: &str, #[case] kind: &str, #[case] expected: &[&str]) {
    let mut values_watches = ValuesWatches::default();
    values_watches.cluster(&cluster("one"), true);
    values_watches.bootstrap(&bootstrap("one", &[(group, kind)]), true);
    assert_eq!(watched(&mut values_watches, Instant::now()), expected);
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
    let mut values_watches = ValuesWatches::default();
    values_watches.cluster(&cluster("one"), true);
    values_watches.bootstrap(&bootstrap, true);
    assert_eq!(watched(&mut values_watches, Instant::now()), [""; 0]);
}

#[test]
fn a_kind_is_watched_while_a_managed_cluster_names_it() {
    let (mut values_watches, now) = (ValuesWatches::default(), Instant::now());
    let named = bootstrap("one", &[("fleet.test", "FleetConfig")]);
    values_watches.bootstrap(&named, true);
    assert_eq!(watched(&mut values_watches, now), [""; 0], "of no Cluster");
    values_watches.cluster(&cluster("one"), true);
    assert_eq!(watched(&mut values_watches, now), ["FleetConfig"]);
    values_watches.cluster(&cluster("two"), true);
    values_watches.bootstrap(&bootstrap("two", &[("fleet.test", "FleetConfig")]), true);
    values_watches.bootstrap(&bootstrap("one", &[]), true);
    assert_eq!(
        watched(&mut values_watches, now),
        ["FleetConfig"],
        "another one names it"
    );
    values_watches.bootstrap(&bootstrap("two", &[("fleet.test", "FleetConfig")]), false);
    assert_eq!(watched(&mut values_watches, now), [""; 0]);
    values_watches.bootstrap(&named, true);
    assert_eq!(watched(&mut values_watches, now), ["FleetConfig"]);
    values_watches.cluster(&cluster("one"), false);
    assert_eq!(watched(&mut values_watches, now), [""; 0], "its Cluster is gone");
    let mut without_topology = cluster("one");
    without_topology.spec.topology = None;
    values_watches.cluster(&without_topology, true);
    assert_eq!(watched(&mut values_watches, now), [""; 0], "it is not managed");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("K{number:03}")).collect()
}

#[test]
fn at_most_sixteen_kinds_are_watched_and_the_excess_is_logged_once() {
    let (names, now) = (names(40), Instant::now());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut values_watches = naming(&[("one", &names), ("two", &names[30..])]);
    let next = values_watches.next(now);
    assert!(next.warning.is_some_and(|text| text.contains("40 kinds")));
    let first = watched(&mut values_watches, now);
    assert_eq!(first.len(), LIMIT);
    assert_eq!(first[6..], names[30..], "those that most Clusters name");
    values_watches.cluster(&cluster("three"), true);
    let third = bootstrap("three", &[("fleet.test", "K020"), ("fleet.test", "K021")]);
    values_watches.bootstrap(&third, true);
    assert_eq!(
        watched(&mut values_watches, now),
        first,
        "those that are watched stay so"
    );
    assert_eq!(values_watches.next(now).warning, None);
    let few: Vec<_> = names[..3].iter().map(|kind| ("fleet.test", *kind)).collect();
    for name in ["one", "two", "three"] {
        values_watches.bootstrap(&bootstrap(name, &few), true);
    }
    assert_eq!(watched(&mut values_watches, now), names[..3]);
}

fn refused(values_watches: &mut ValuesWatches, kind: &Watched, now: Instant) -> Option<String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("fleet.test", "v1", "K"));
    values_watches.ended(kind, &Trouble::Refused(403, resource), now)
}

#[test]
fn a_refused_kind_yields_its_place_until_its_retry() {
    let (names, now) = (names(17), Instant::now());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut values_watches = naming(&[("one", &names)]);
    assert_eq!(watched(&mut values_watches, now), names[..16]);
    assert!(refused(&mut values_watches, &kind("K003"), now).is_some());
    let others: Vec<&str> = names.iter().copied().filter(|name| *name != "K003").collect();
    assert_eq!(watched(&mut values_watches, now), others);
    let later = now + Duration::from_mins(10);
    assert_eq!(
        watched(&mut values_watches, later),
        others,
        "all places are taken"
    );
    values_watches.troubled(&kind("K005"), later);
    let waiting = watched(&mut values_watches, later);
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
    let mut values_watches = naming(&[("one", &names)]);
    let mut tries = 0;
    loop {
        let open = watched(&mut values_watches, now);
        if open.contains(&"Z".to_owned()) {
            break;
        }
        for name in open {
            tries += 1;
            refused(&mut values_watches, &kind(&name), now);
        }
        now += Duration::from_millis(100);
        assert!(tries < 1000, "it is never watched");
    }
    values_watches.readable(&kind("Z"));
    for _ in 0..100 {
        now += Duration::from_secs(10);
        for name in watched(&mut values_watches, now) {
            if name != "Z" {
                refused(&mut values_watches, &kind(&name), now);
            }
        }
        assert!(watched(&mut values_watches, now).contains(&"Z".to_owned()));
    }
}

#[test]
fn the_time_of_a_retry_is_reported() {
    let (mut values_watches, now) = (naming(&[("one", &["K"])]), Instant::now());
    values_watches.next(now);
    refused(&mut values_watches, &kind("K"), now);
    let at = values_watches.next(now).at.unwrap();
    assert!(at > now);
    assert_eq!(watched(&mut values_watches, at), ["K"]);
    assert_eq!(values_watches.next(at).at, None);
}

#[test]
fn observed_versions_survive_retries() {
    let (mut values_watches, now) = (naming(&[("one", &["K"])]), Instant::now());
    let take = |values_watches: &mut ValuesWatches, brought: &Brought<'_, ConfigMap>| {
        assert!(values_watches.took(&kind("K"), brought, now).is_none());
    };
    values_watches.lead();
    values_watches.next(now);
    let list = |values_watches: &mut ValuesWatches, version| {
        take(values_watches, &Brought::List);
        take(values_watches, &Brought::Listed(&secret("a", "one", version)));
        take(values_watches, &Brought::Filled);
    };
    list(&mut values_watches, 1);
    refused(&mut values_watches, &kind("K"), now);
    values_watches.next(now + Duration::from_mins(1));
    list(&mut values_watches, 2);
    assert_eq!(
        values_watches.next(now + Duration::from_mins(2)).requeued,
        [one()]
    );
    assert!(values_watches.readable(&kind("K")).is_some());
}

#[test]
fn secrets_are_watched_in_each_named_namespace() {
    let namespaces = ["b", "a", "b"].map(str::to_owned);
    let watched = ValuesWatches::of(&namespaces).next(Instant::now()).watched;
    let expected = ["a", "b"].map(|namespace| Watched::Secrets(Some(namespace.to_owned())));
    assert_eq!(watched, BTreeSet::from(expected));
    let watched = ValuesWatches::default().next(Instant::now()).watched;
    assert_eq!(watched, BTreeSet::from([secrets()]));
}
