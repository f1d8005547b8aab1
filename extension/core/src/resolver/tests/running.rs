//! Entries of running versions stay, others change; a resolution waits for unknown versions and is bounded.

use super::*;

/// A large Cluster of a tenant must not delay the reviews of others.
#[test]
fn a_resolution_has_bounds() {
    let world = World::new();
    let pools = |count: usize, selector: &dyn Fn(usize) -> String| {
        let pool = |index| {
            let annotations = json!({"annotations": {annotation::RESOLVE_OS_IMAGE: selector(index)}});
            json!({"name": format!("pool-{index}"), "class": "default", "metadata": annotations})
        };
        (0..count).map(pool).collect::<Value>()
    };
    let ubuntu = |_| "os-name=ubuntu".to_owned();
    let refusal = |pools: &Value| world.refusal(None, &new("v1", pools));
    let says = refusal(&pools(2_001, &ubuntu));
    assert!(
        says.contains("a topology of more than 2000 pools is not resolved"),
        "{says}"
    );
    let says = refusal(&pools(1, &|_| "a".repeat(1_025)));
    assert!(
        says.contains("a selector has 1024 bytes at most") && says.len() < 400,
        "{says}"
    );
    let says = refusal(&pools(100, &|index| {
        format!("os-name=ubuntu,!{}", format!("{index:04}").repeat(15))
    }));
    assert!(
        says.contains("have more than 4096 bytes together") && says.len() < 4_000,
        "{} bytes",
        says.len()
    );
    let mut selecting = new("v1", &json!([]));
    selecting["metadata"]["annotations"][annotation::RESOLVE_TKR] = json!("a".repeat(1_025));
    let says = world.refusal(None, &selecting);
    assert!(
        says.contains("a selector has 1024 bytes at most") && says.len() < 400,
        "{says}"
    );

    let none = |index| {
        if index == 99 {
            "none".to_owned()
        } else {
            ubuntu(index)
        }
    };
    let says = refusal(&pools(100, &none));
    assert!(says.contains("pool-7 and 92 more], query:"), "{says}");
    assert!(
        says.contains("has no OSImage for machineDeployments[pool-99]"),
        "{says}"
    );
    assert!(says.len() < 600, "{} bytes", says.len());
    let unknown = |index| json!({"name": format!("pool-{index}"), "class": "none"});
    let faults = world
        .resolve(None, &new("v1", &(0..100).map(unknown).collect::<Value>()))
        .faults;
    assert_eq!(faults.len(), 8);

    let many = cluster(&new("v1", &pools(100, &none)));
    let topology = many.spec.topology.as_ref().unwrap();
    let parts = part::parts(topology, world.class.as_ref().unwrap()).unwrap();
    assert_eq!(
        (parts.all.len(), parts.selectors.len()),
        (101, 2),
        "each selector is compared once"
    );
}

/// Entries depend on the class, so no Cluster is stored unresolved while its class is unknown.
#[test]
fn a_class_that_is_not_known_yet_is_waited_for() {
    let world = World::new();
    let stored = world.made("v1.35", &json!([]));
    let unknown = |old: Option<&Value>, new: &Value| {
        let asked = Asked {
            old: old.map(cluster),
            new: cluster(new),
        };
        let known = ResolverInputs {
            class: Ok(None),
            ..world.known()
        };
        resolve(&asked, known)
    };
    let class = Err(Unknown::Class("class".to_owned()));
    assert_eq!(unknown(Some(&stored), &stored), class);
    let mut without_label = stored.clone();
    without_label["metadata"] = json!({"name": "one", "namespace": "ns"});
    assert_eq!(
        unknown(Some(&without_label), &without_label),
        class,
        "it has TKR_DATA"
    );
    let mut labelled = new("v1.35.4", &json!([]));
    labelled["metadata"] =
        json!({"name": "one", "namespace": "ns", "labels": {label::TKR: "v1.35.4---a.10"}});
    assert_eq!(unknown(None, &labelled), class);
    labelled["metadata"] = json!({"name": "one", "namespace": "ns"});
    assert_eq!(
        unknown(None, &labelled),
        Ok(Resolution::default()),
        "hooks hold it if the class asks"
    );
}

#[rstest]
#[case::asks(true)]
#[case::asks_for_nothing(false)]
fn a_class_that_cannot_be_decoded_is_named(#[case] asks: bool) {
    let mut class = undecodable("ClusterClass", Some("ns"), "class", &json!({}));
    let annotations = asks.then(|| (annotation::RESOLVE_TKR.to_owned(), String::new()));
    Arc::make_mut(&mut class).metadata.annotations = Some(annotations.into_iter().collect());
    let world = World::new();
    let mut plain = new("v1.35.4", &json!([]));
    plain["metadata"]["annotations"] = json!({});
    let asked = Asked {
        old: None,
        new: cluster(&plain),
    };
    let known = ResolverInputs {
        class: Err(&class),
        ..world.known()
    };
    let faults = resolve(&asked, known).unwrap().faults;
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), usize::from(asks), "{said:?}");
    assert!(
        said.iter()
            .all(|said| said.contains("ClusterClass ns/class cannot be decoded")),
        "{said:?}"
    );
}

/// A held upgrade to a release whose packages never become ready. A repaired release may replace it, because no machine runs it.
#[test]
fn a_held_upgrade_moves_to_another_release_of_the_version() {
    let mut world = World::new();
    let stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let (held, _) = world.becomes(Some(&stored), &bumped);
    world.release("v1.36.3", 12, &["ubuntu", "photon"]);
    let mut repaired = held.clone();
    repaired["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.12");

    // The versions have to be looked up, once.
    let asked = Asked {
        old: Some(cluster(&held)),
        new: cluster(&repaired),
    };
    let not_looked_up = ResolverInputs {
        running: None,
        ..world.known()
    };
    assert_eq!(resolve(&asked, not_looked_up), Err(Unknown::Running));
    world.runs("v1.35.4");
    let (after, warnings) = world.becomes(Some(&held), &repaired);
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.12-ubuntu");
    assert_eq!(override_of(&after, 1, "v1.36.3"), "v1.36.3---a.12-photon");
    assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
    assert_eq!(override_of(&after, 1, "v1.35.4"), "v1.35.4---a.10-photon");
    assert_eq!(override_of(&after, 0, "v1.36.3"), Value::Null);
    assert_eq!(warnings, Vec::<String>::new());

    world.runs("v1.36.3");
    let (after, warnings) = world.becomes(Some(&held), &repaired);
    assert_eq!((after, warnings.len()), (repaired.clone(), 1), "machines run it");
    assert!(
        warnings[0]
            .contains("then Sluice replaces the machines of v1.36.3, which are made of v1.36.3---a.11"),
        "{warnings:?}"
    );

    // Before any machine exists.
    let (new, _) = world.becomes(None, &new("v1.36.3+a.11", &json!([])));
    let mut moved = new.clone();
    moved["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.12");
    assert_eq!(
        common(&world.becomes(Some(&new), &moved).0, "v1.36.3"),
        "v1.36.3---a.12-ubuntu"
    );
}

/// A user applies an old manifest, without the annotation and without the additions.
#[test]
fn a_cluster_that_asks_no_more_keeps_its_entries() {
    let world = World::new();
    let stored = world.made(
        "v1.35",
        &json!([{"name": "a", "class": "default"}, {"name": "b", "class": "photon"}]),
    );
    let mut plain = stored.clone();
    plain["metadata"]["annotations"] = json!({});
    assert_eq!(
        world.resolve(Some(&stored), &plain),
        Resolution::default(),
        "it changes nothing"
    );

    let drops: [fn(&mut Value); 4] = [
        |topology| topology["variables"] = json!([]),
        |topology| topology["variables"][0]["value"]["v1.35.4"]["osImageRef"]["name"] = json!("old"),
        |topology| {
            topology["workers"]["machineDeployments"][1]
                .as_object_mut()
                .unwrap()
                .remove("variables");
        },
        |topology| {
            let old = json!([{"name": "TKR_DATA", "value": {"v1.35.4": {"osImageRef": {"name": "old"}}}}]);
            topology["workers"]["machineDeployments"][0]["variables"] = json!({"overrides": old});
            topology["controlPlane"]["variables"] = json!({"overrides": old});
        },
    ];
    // With the annotation, or after its removal.
    for before in [&stored, &plain] {
        for drop in &drops {
            let mut applied = plain.clone();
            drop(&mut applied["spec"]["topology"]);
            let (after, warnings) = world.becomes(Some(before), &applied);
            assert_eq!(common(&after, "v1.35.4"), "v1.35.4---a.10-ubuntu");
            assert_eq!(override_of(&after, 1, "v1.35.4"), "v1.35.4---a.10-photon");
            for part in [
                &after["spec"]["topology"]["workers"]["machineDeployments"][0],
                &after["spec"]["topology"]["controlPlane"],
            ] {
                let own = image_of(&part["variables"]["overrides"], "v1.35.4");
                assert!(own.is_null() || own == "v1.35.4---a.10-ubuntu", "{own}");
            }
            assert!(
                warnings[0].contains("together with annotation lifecycle.sluice.dev/edit-tkr-data"),
                "{warnings:?}"
            );
        }
    }
    // Users may change entries of an intermediate version, and of versions that no machine runs.
    let mut pinned = plain.clone();
    pinned["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] = json!({"labels": {label::TKR: "x"}});
    assert_eq!(world.resolve(Some(&pinned), &plain), Resolution::default());
    let mut empty = plain.clone();
    empty["spec"]["topology"]["variables"] = json!([]);
    let mut running = World::new();
    running.runs("v1.34.1");
    assert_eq!(
        override_of(&running.becomes(Some(&plain), &empty).0, 1, "v1.35.4"),
        "v1.35.4---a.10-photon"
    );
    assert_eq!(
        common(&running.becomes(Some(&plain), &empty).0, "v1.35.4"),
        Value::Null
    );
    // Sluice does not manage the entries of a Cluster that never had a release.
    plain["metadata"]["labels"] = json!({});
    empty["metadata"]["labels"] = json!({});
    assert_eq!(world.resolve(Some(&plain), &empty), Resolution::default());
}

#[test]
fn a_control_plane_has_the_entries_of_its_cluster() {
    let world = World::new();
    let of_its_own = |value: Value| {
        let mut own = new("v1.35", &json!([]));
        own["spec"]["topology"]["controlPlane"]["variables"] =
            json!({"overrides": [{"name": "TKR_DATA", "value": value}]});
        own
    };
    let refusal = world.refusal(None, &of_its_own(json!([1])));
    let field = "spec.topology.controlPlane.variables.overrides[TKR_DATA]";
    assert!(refusal.contains(field), "{refusal}");
    let odd = json!({"v1.35.4": {"osImageRef": {"name": "odd"}}});
    let (after, warnings) = world.becomes(None, &of_its_own(odd.clone()));
    assert_eq!(after["spec"]["topology"]["controlPlane"], json!({}));
    assert!(warnings[0].contains("not of its own"), "{warnings:?}");

    // An entry from before the webhook stays, and is completed like that of a pool.
    let mut stored = world.made("v1.35", &json!([]));
    stored["spec"]["topology"]["controlPlane"]["variables"] =
        json!({"overrides": [{"name": "TKR_DATA", "value": odd}]});
    let mut bumped = stored.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    let mut without = bumped.clone();
    without["spec"]["topology"]
        .as_object_mut()
        .unwrap()
        .remove("controlPlane");
    for bumped in [&bumped, &without] {
        let (after, _) = world.becomes(Some(&stored), bumped);
        let own = &after["spec"]["topology"]["controlPlane"]["variables"]["overrides"];
        assert_eq!(image_of(own, "v1.35.4"), "odd");
        assert_eq!(image_of(own, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    }
}

/// A backup is older than the catalogue: its release is deactivated, deleted, or has other images.
#[test]
fn a_cluster_that_is_restored_needs_no_release_that_can_be_taken() {
    let mut world = World::new();
    let pools = json!([{"name": "b", "class": "photon"}]);
    let (stored, _) = world.becomes(None, &new("v1.35", &pools));
    world.images.clear();
    let (after, warnings) = world.becomes(None, &stored);
    assert_eq!(after, stored);
    assert!(
        warnings[0].contains("v1.35.4---a.10, which has no OSImage for controlPlane"),
        "{warnings:?}"
    );
    world.label("v1.35.4---a.10", label::DEACTIVATED);
    assert_eq!(world.becomes(None, &stored).0, stored);
    world.releases.remove("v1.35.4---a.10");
    assert_eq!(world.becomes(None, &stored).0, stored);
    let mut other = stored.clone();
    other["metadata"]["labels"][label::TKR] = json!("v1.35.4---a.8");
    assert!(
        world.refusal(None, &other).contains("does not exist"),
        "the entry names another release"
    );
}

#[test]
fn a_restored_label_is_reported() {
    let world = World::new();
    let stored = world.made("v1.35", &json!([]));
    let mut removed = stored.clone();
    removed["metadata"]["labels"] = json!({});
    let (after, warnings) = world.becomes(Some(&stored), &removed);
    assert_eq!(after, stored);
    assert!(warnings[0].contains("restored, because"), "{warnings:?}");
}

/// A version that was set while no replica was reachable has no entry, and a pin has no image. No machine uses either.
#[test]
fn unused_versions_are_completed() {
    let mut world = World::new();
    world.release("v1.36.3", 12, &["ubuntu", "photon"]);
    world.runs("v1.35.4");
    let stored = world.made("v1.35", &json!([{"name": "b", "class": "photon"}]));
    let mut missed = stored.clone();
    missed["spec"]["topology"]["version"] = json!("v1.36.3");
    let mut labelled = missed.clone();
    labelled["metadata"]["labels"][label::TKR] = json!("v1.36.3---a.11");
    let (after, warnings) = world.becomes(Some(&missed), &labelled);
    assert_eq!(common(&after, "v1.36.3"), "v1.36.3---a.11-ubuntu");
    assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");
    assert_eq!(warnings, Vec::<String>::new());

    let mut pinned = stored.clone();
    pinned["spec"]["topology"]["variables"][0]["value"]["v1.36.3"] =
        json!({"labels": {label::TKR: "v1.36.3---a.11"}});
    let mut bumped = pinned.clone();
    bumped["spec"]["topology"]["version"] = json!("v1.36");
    for before in [&stored, &pinned] {
        let (after, _) = world.becomes(Some(before), &bumped);
        assert_eq!(
            common(&after, "v1.36.3"),
            "v1.36.3---a.11-ubuntu",
            "explicit beats newest"
        );
        assert_eq!(override_of(&after, 0, "v1.36.3"), "v1.36.3---a.11-photon");
    }
}
