//! Management packages that releases need.

use sluice_crds::foreign::{App, PackageInstall};

use super::*;

const NAME: &str = "v1.36.3";
const REF_NAME: &str = "tkg-clusterclass.example.com";
const REQUIRES: &str = "lifecycle.sluice.dev/requires";

fn requiring(requires: &str) -> TanzuKubernetesRelease {
    release(NAME, &json!({"metadata": {"annotations": {REQUIRES: requires}}}))
}

/// PackageInstall and App of one name.
#[derive(Clone)]
struct Pair {
    install: Value,
    app: Value,
}

/// Returns a package that is proven at this version.
fn pair(name: &str, version: &str) -> Pair {
    let succeeded = json!([{"type": "ReconcileSucceeded", "status": "True"}]);
    Pair {
        install: json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"name": name, "namespace": "tkg-system", "uid": format!("{name}-install"), "generation": 2},
            "spec": {
                "packageRef": {"refName": REF_NAME, "versionSelection": {"constraints": ">=0.1.0"}},
                "values": [{"secretRef": {"name": "values"}}],
            },
            "status": {"observedGeneration": 2, "version": version, "conditions": succeeded},
        }),
        app: json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {
                "name": name, "namespace": "tkg-system", "uid": format!("{name}-app"), "generation": 5,
                "annotations": {"packaging.carvel.dev/package-version": version},
                "ownerReferences": [{
                    "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall", "name": name,
                    "uid": format!("{name}-install"),
                }],
            },
            "spec": {},
            "status": {"observedGeneration": 5, "conditions": succeeded},
        }),
    }
}

fn packages(pairs: &[Pair]) -> ManagementPackages {
    let mut packages = ManagementPackages::default();
    for Pair { install, app } in pairs {
        let install: PackageInstall = serde_json::from_value(install.clone()).unwrap();
        packages.install(&install, true);
        if !app.is_null() {
            let app: App = serde_json::from_value(app.clone()).unwrap();
            packages.app(&app, true);
        }
    }
    packages
}

fn conditions(type_: &str) -> Value {
    json!([{"type": type_, "status": "True"}])
}

/// Returns the world of a release that requires at least 0.31.0, after this pair was observed.
fn world(pairs: &[Pair]) -> World {
    let mut world = World::of([requiring(&format!("{REF_NAME}>=0.31.0"))]);
    world.management_packages = packages(pairs);
    world.settle(then());
    world
}

fn is_excluded(world: &World) -> bool {
    let labels = world.releases[NAME].metadata.labels.as_ref().unwrap();
    labels.contains_key("incompatible")
}

#[test]
fn a_release_with_proven_packages_is_compatible() {
    for version in ["0.31.0", "0.31.1", "1.0.0", "0.31.0+vmware.1"] {
        let mut world = world(&[pair("tkg-clusterclass", version)]);
        assert_eq!(
            world.condition(NAME, "Compatible"),
            ("True".into(), String::new(), String::new())
        );
        assert_eq!(world.condition(NAME, "Ready").0, "True");
        assert!(!is_excluded(&world));
        let recorded = json!(world.releases[NAME].status.as_ref().unwrap().requirements);
        assert_eq!(recorded["requires"], format!("{REF_NAME}>=0.31.0"));
        assert_eq!(recorded["proven"][0]["version"], version);
        assert_eq!(recorded["proven"][0]["appGeneration"], 5);
        assert_eq!(world.management_packages.unmet(&world.releases[NAME]), None);
        assert_eq!(world.settle(now()), 0, "a resync writes nothing");
    }
}

type Edit = fn(&mut Pair);

#[rustfmt::skip]
#[rstest]
#[case::too_old(|p: &mut Pair| *p = pair("one", "0.30.9"), "found 0.30.9 in PackageInstall tkg-system/one")]
#[case::no_version(|p: &mut Pair| { p.install["status"].as_object_mut().unwrap().remove("version"); }, "found no version")]
#[case::no_semantic_version(|p: &mut Pair| p.install["status"]["version"] = json!("newest"), "found newest")]
#[case::paused(|p: &mut Pair| p.install["spec"]["paused"] = json!(true), "found 0.31.0 in PackageInstall tkg-system/one: PackageInstall paused")]
#[case::canceled(|p: &mut Pair| p.install["spec"]["canceled"] = json!(true), "PackageInstall canceled")]
#[case::deleting(|p: &mut Pair| p.install["metadata"]["deletionTimestamp"] = json!("2026-11-01T00:00:00Z"), "PackageInstall terminating")]
#[case::not_observed(|p: &mut Pair| p.install["metadata"]["generation"] = json!(3), "has not reconciled it")]
#[case::reconciling(|p: &mut Pair| p.install["status"]["conditions"] = conditions("Reconciling"), "has not reconciled it")]
#[case::failing(|p: &mut Pair| p.install["status"]["conditions"] = conditions("ReconcileFailed"), "has not reconciled it")]
#[case::no_app(|p: &mut Pair| p.app = Value::Null, "has not reconciled it")]
#[case::app_of_another_version(|p: &mut Pair| p.app["metadata"]["annotations"]["packaging.carvel.dev/package-version"] = json!("0.30.0"), "has not reconciled it")]
#[case::app_of_another_owner(|p: &mut Pair| p.app["metadata"]["ownerReferences"] = json!([]), "App of another owner")]
#[case::app_not_observed(|p: &mut Pair| p.app["metadata"]["generation"] = json!(6), "has not reconciled it")]
#[case::app_failing(|p: &mut Pair| p.app["status"]["conditions"] = conditions("ReconcileFailed"), "has not reconciled it")]
#[case::app_paused(|p: &mut Pair| p.app["spec"]["paused"] = json!(true), "App paused")]
#[case::another_package(|p: &mut Pair| p.install["spec"]["packageRef"]["refName"] = json!("other.example.com"), "no PackageInstall")]
#[case::in_another_cluster(|p: &mut Pair| p.install["spec"]["cluster"] = json!({"namespace": "default"}), "no PackageInstall")]
#[case::with_releases(|p: &mut Pair| p.install["metadata"]["annotations"] = json!({"lifecycle.sluice.dev/tkr-package": "a"}), "no PackageInstall")]
fn a_release_waits_for_its_packages(#[case] edit: Edit, #[case] named: &str) {
    let mut one = pair("one", "0.31.0");
    edit(&mut one);
    let mut world = world(&[one]);
    let (status, reason, message) = world.condition(NAME, "Compatible");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "ManagementPackageNotReady"));
    assert!(message.contains(&format!("package {REF_NAME}: wanted >=0.31.0")), "{message}");
    assert!(message.contains(named), "{message}");
    assert!(is_excluded(&world));
    assert_eq!(world.condition(NAME, "Ready").1, "Incompatible");
    assert_eq!(world.evaluation().updates, Updates::default());
    let hold = world.management_packages.unmet(&world.releases[NAME]).unwrap();
    assert_eq!(hold, format!("TanzuKubernetesRelease {NAME}: {message}"));
    // Another PackageInstall of the package proves it.
    world.management_packages = packages(&[pair("one", "0.30.0"), pair("two", "0.31.2")]);
    world.settle(now());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
    assert!(!is_excluded(&world));
}

#[test]
fn an_absent_package_is_named() {
    let world = world(&[]);
    let message = world.condition(NAME, "Compatible").2;
    assert!(
        message.contains(REF_NAME) && message.contains("found no PackageInstall"),
        "{message}"
    );
}

/// kapp-controller resyncs the same App, and fails or is at it. Another version, App or generation is another proof. Until it is there,
/// gates hold; the release changes only if kapp-controller does not just deploy that generation.
#[test]
fn a_failed_resync_withdraws_nothing() {
    let proven = || world(&[pair("one", "0.31.0")]);
    let resyncs: [Edit; 4] = [
        |p| p.app["status"]["conditions"] = conditions("ReconcileFailed"),
        |p| {
            p.app["status"]["conditions"] = conditions("ReconcileFailed");
            p.install["status"]["conditions"] = conditions("ReconcileFailed");
        },
        |p| p.app["status"]["conditions"] = conditions("Reconciling"),
        |p| {
            p.app["status"]["conditions"] = conditions("Reconciling");
            p.app["status"]["consecutiveReconcileFailures"] = json!(2);
            p.install["status"]["conditions"] = conditions("Reconciling");
        },
    ];
    for (number, edit) in resyncs.into_iter().enumerate() {
        let mut resynced = pair("one", "0.31.0");
        edit(&mut resynced);
        let mut world = proven();
        world.management_packages = packages(&[resynced.clone()]);
        assert_eq!(world.settle(now()), 0, "{number}");
        assert_eq!(
            world.management_packages.unmet(&world.releases[NAME]),
            None,
            "{number}"
        );
        for field in ["uid", "generation"] {
            let mut other = resynced.clone();
            other.app["metadata"][field] = if field == "uid" { json!("other") } else { json!(6) };
            other.app["status"]["observedGeneration"] = other.app["metadata"]["generation"].clone();
            let mut world = proven();
            world.management_packages = packages(&[other]);
            let held = world.management_packages.unmet(&world.releases[NAME]);
            assert!(held.is_some(), "{number} {field}");
            if number >= 2 && field == "generation" {
                assert_eq!(world.settle(now()), 0, "{number} {field}");
                continue;
            }
            world.settle(now());
            let (status, reason, _) = world.condition(NAME, "Compatible");
            assert_eq!(
                (status.as_str(), reason.as_str()),
                ("False", "ManagementPackageNotReady"),
                "{number} {field}"
            );
            let recorded = json!(world.releases[NAME].status.as_ref().unwrap().requirements);
            assert_eq!(recorded["proven"], Value::Null, "{number} {field}");
        }
    }
}

/// Returns the states of a package during its upgrade from 0.31.0 to 0.31.2 by another App generation, in their order.
fn upgrade() -> Vec<Pair> {
    let mut steps = vec![pair("one", "0.31.0")];
    let mut next = |edit: Edit| {
        let mut step = steps.last().unwrap().clone();
        edit(&mut step);
        steps.push(step);
    };
    next(|p| p.install["metadata"]["generation"] = json!(3));
    next(|p| {
        p.install["status"]["observedGeneration"] = json!(3);
        p.install["status"]["version"] = json!("0.31.2");
    });
    next(|p| {
        p.app["metadata"]["generation"] = json!(6);
        p.app["metadata"]["annotations"]["packaging.carvel.dev/package-version"] = json!("0.31.2");
    });
    next(|p| p.install["status"]["conditions"] = conditions("Reconciling"));
    next(|p| {
        p.app["status"] = json!({"observedGeneration": 6, "conditions": conditions("Reconciling")});
    });
    steps
}

fn in_cluster(label: &str) -> Cluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {
            "name": "one", "namespace": "team-a", "uid": "uid", "labels": {"run.tanzu.vmware.com/tkr": label},
        },
    }))
    .unwrap()
}

/// Neither the release nor its Clusters change twice with each upgrade of a package. Gates hold meanwhile.
#[test]
fn an_upgrade_of_a_proven_package_changes_no_release() {
    let mut world = world(&[pair("one", "0.31.0")]);
    let offers = world.offers();
    for (number, step) in upgrade().into_iter().enumerate() {
        world.management_packages = packages(&[step]);
        assert_eq!(world.settle(now()), 0, "{number}");
        assert!(world.offers().is_same_for_clusters(&offers), "{number}");
        let held = world.management_packages.unmet(&world.releases[NAME]).is_some();
        assert_eq!(held, number > 0, "{number}");
    }
    world.management_packages = packages(&[pair("one", "0.31.2")]);
    world.settle(now());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
    assert_eq!(world.management_packages.unmet(&world.releases[NAME]), None);
}

/// A recorded proof says nothing about a higher requirement, about a failed upgrade, nor about an unproven package.
#[test]
fn progress_alone_makes_no_release_compatible() {
    let steps = upgrade();
    let progress = steps.last().unwrap();
    let status = |world: &mut World, pair: &Pair| {
        world.management_packages = packages(std::slice::from_ref(pair));
        world.settle(now());
        world.condition(NAME, "Compatible").0
    };
    assert_eq!(status(&mut world(&[]), progress), "False", "never proven");
    let mut failed = progress.clone();
    failed.app["status"]["conditions"] = conditions("ReconcileFailed");
    let mut upgraded = world(&[pair("one", "0.31.0")]);
    assert_eq!(status(&mut upgraded, progress), "True");
    assert_eq!(status(&mut upgraded, &failed), "False");
    assert_eq!(
        status(&mut upgraded, progress),
        "False",
        "kapp-controller tries again"
    );
    let mut raised = world(&[pair("one", "0.31.0")]);
    let release = Arc::make_mut(raised.releases.get_mut(NAME).unwrap());
    let requires = (REQUIRES.to_owned(), format!("{REF_NAME}>=0.32.0"));
    release.metadata.annotations = Some(BTreeMap::from([requires]));
    assert_eq!(status(&mut raised, progress), "False", "another requirement");
}

/// The found version would rewrite all Clusters of a release.
#[test]
fn clusters_do_not_show_the_found_version() {
    let [older, newer] = ["0.30.0", "0.30.1"].map(|version| world(&[pair("one", version)]));
    assert!(older.offers().is_same_for_clusters(&newer.offers()));
    let cluster = in_cluster(NAME);
    let write = older.offers().of_cluster(&cluster, None).unwrap();
    let writes = carry_out(&write, now(), &json!(cluster));
    let message = &writes[0].body["status"]["conditions"][1]["message"];
    let expected =
        format!("package {REF_NAME}: wanted >=0.31.0, TanzuKubernetesRelease {NAME} says what was found");
    assert_eq!(*message, json!(expected));
}

/// The proof of each PackageInstall is recorded: one that was not the first proves the package when the first is gone.
#[test]
fn a_second_proof_outlasts_a_failed_resync() {
    let mut world = world(&[pair("one", "0.31.0"), pair("two", "0.31.2")]);
    let recorded = |world: &World| {
        let status = world.releases[NAME].status.as_ref().unwrap();
        let proven = &status.requirements.as_ref().unwrap().proven;
        let versions = proven.iter().map(|proven| proven.version.clone());
        versions.collect::<Vec<_>>()
    };
    assert_eq!(recorded(&world), ["0.31.0", "0.31.2"]);
    assert_eq!(world.settle(now()), 0, "a resync writes nothing");
    let mut failing = pair("two", "0.31.2");
    failing.install["status"]["conditions"] = conditions("ReconcileFailed");
    failing.app["status"]["conditions"] = conditions("ReconcileFailed");
    world.management_packages = packages(&[failing]);
    world.settle(now());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
    assert_eq!(recorded(&world), ["0.31.2"]);
    assert_eq!(world.management_packages.unmet(&world.releases[NAME]), None);
}

/// The definition limits the record.
#[test]
fn recorded_proofs_are_limited() {
    let mut world = World::of([requiring(&format!("{REF_NAME}>=0.31.0,other.example.com>=1.0.0"))]);
    let mut pairs: Vec<Pair> = (0..20)
        .map(|number| pair(&format!("many-{number:02}"), "0.31.0"))
        .collect();
    let mut other = pair("other", "1.0.0");
    other.install["spec"]["packageRef"]["refName"] = json!("other.example.com");
    pairs.push(other);
    world.management_packages = packages(&pairs);
    world.settle(then());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
    let status = world.releases[NAME].status.as_ref().unwrap();
    let proven = &status.requirements.as_ref().unwrap().proven;
    assert_eq!(proven.len(), 16);
    let of: Vec<&str> = proven[..2].iter().map(|proven| proven.package.as_str()).collect();
    assert_eq!(of, [REF_NAME, "other.example.com"]);
    assert_eq!(world.settle(now()), 0);
}

/// A proof of the version before does not count for the next one, although kapp-controller repeats the old success.
#[test]
fn an_upgrade_of_the_package_needs_its_own_proof() {
    let mut world = World::of([requiring(&format!("{REF_NAME}=0.32.0"))]);
    let mut old = pair("one", "0.31.0");
    world.management_packages = packages(&[old.clone()]);
    world.settle(then());
    assert_eq!(world.condition(NAME, "Compatible").0, "False");
    old.install["status"]["version"] = json!("0.32.0");
    world.management_packages = packages(&[old]);
    world.settle(now());
    assert_eq!(
        world.condition(NAME, "Compatible").0,
        "False",
        "the App is at 0.31.0"
    );
    world.management_packages = packages(&[pair("one", "0.32.0")]);
    world.settle(now());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
}

#[rstest]
#[case::at_least("a.example.com>=1.0.0", None)]
#[case::equal("a.example.com=1.0.0", None)]
#[case::several(" a.example.com>=1.0.0 , b.example.com = 2.0.0+vmware.1-tkg.1 ", None)]
#[case::empty("", Some("requirement \"\""))]
#[case::trailing_comma("a.example.com>=1.0.0,", Some("requirement \"\""))]
#[case::no_operator("a.example.com", Some("a.example.com"))]
#[case::no_package(">=1.0.0", Some(">=1.0.0"))]
#[case::no_version("a.example.com>=", Some("a.example.com>="))]
#[case::no_semantic_version("a.example.com>=1.0", Some("1.0"))]
#[case::below("a.example.com<=1.0.0", Some("<="))]
#[case::above("a.example.com>1.0.0", Some(">1.0.0"))]
#[case::double("a.example.com==1.0.0", Some("==1.0.0"))]
#[case::reversed("a.example.com=>1.0.0", Some("=>1.0.0"))]
#[case::range("a.example.com>=1.0.0 <2.0.0", Some("<2.0.0"))]
#[case::upper_case("A.example.com>=1.0.0", Some("A.example.com"))]
fn malformed_requirements(#[case] requires: &str, #[case] fault: Option<&str>) {
    let mut world = World::of([requiring(requires)]);
    world.settle(then());
    let (status, reason, message) = world.condition(NAME, "Valid");
    match fault {
        None => assert_eq!(status, "True", "{message}"),
        Some(named) => {
            assert_eq!(
                (status.as_str(), reason.as_str()),
                ("False", "RequirementInvalid")
            );
            assert!(message.contains(REQUIRES) && message.contains(named), "{message}");
            let hold = world.management_packages.unmet(&world.releases[NAME]);
            assert!(hold.is_some_and(|hold| hold.contains(&message)));
        }
    }
    assert_eq!(world.settle(now()), 0);
}

#[test]
fn the_number_of_requirements_is_limited() {
    let list = |count: usize| vec!["a.example.com>=1.0.0"; count].join(",");
    for (count, valid) in [(16, "True"), (17, "False")] {
        let mut world = World::of([requiring(&list(count))]);
        world.settle(then());
        let (status, reason, message) = world.condition(NAME, "Valid");
        assert_eq!(status, valid, "{reason}: {message}");
    }
}

/// The order of packages includes build metadata (addons-manager §6.6).
#[rstest]
#[case(">=0.31.0+vmware.2", "0.31.0+vmware.10", true)]
#[case(">=0.31.0+vmware.2", "0.31.0+vmware.1", false)]
#[case(">=0.31.0", "0.31.0-rc.1", false)]
#[case("=0.31.0", "0.31.0", true)]
#[case("=0.31.0", "v0.31.0", true)]
#[case("=0.31.0", "0.31.1", false)]
#[case("=0.31.0", "0.31.0+vmware.1", false)]
fn versions_are_compared(#[case] wanted: &str, #[case] found: &str, #[case] met: bool) {
    let mut world = World::of([requiring(&format!("{REF_NAME}{wanted}"))]);
    world.management_packages = packages(&[pair("one", found)]);
    world.settle(then());
    assert_eq!(world.condition(NAME, "Compatible").0 == "True", met);
}

#[test]
fn every_requirement_must_be_met() {
    let both = format!("{REF_NAME}>=0.31.0,other.example.com>=1.0.0");
    let mut world = World::of([requiring(&both)]);
    let mut other = pair("other", "1.0.0");
    other.install["spec"]["packageRef"]["refName"] = json!("other.example.com");
    world.management_packages = packages(&[pair("one", "0.31.0")]);
    world.settle(then());
    let message = world.condition(NAME, "Compatible").2;
    assert!(message.contains("other.example.com"), "{message}");
    world.management_packages = packages(&[pair("one", "0.31.0"), other]);
    world.settle(now());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
}

fn listing(version: &str) -> Sources {
    let config_map = json!({
        "metadata": {"name": "more", "namespace": "tkg-system"}, "data": {"tkrVersions": format!("[{version}]")},
    });
    Sources {
        additional: vec![serde_json::from_value(config_map).unwrap()],
        ..Sources::default()
    }
}

#[test]
fn an_additional_list_overrides_requirements() {
    let mut world = world(&[]);
    assert!(is_excluded(&world));
    world.compatibility = Compatibility::of(&listing(NAME));
    world.settle(now());
    assert_eq!(world.condition(NAME, "Compatible").0, "True");
    assert!(!is_excluded(&world));
    assert_eq!(world.management_packages.unmet(&world.releases[NAME]), None);
    assert_eq!(world.settle(now()), 0);
    // Without the list the requirement counts again.
    world.compatibility = Compatibility::of(&Sources::default());
    world.settle(now());
    assert!(is_excluded(&world));
    assert!(world.management_packages.unmet(&world.releases[NAME]).is_some());
}

/// A source that cannot be read may still list the release.
#[test]
fn an_unreadable_source_withdraws_no_override() {
    let unreadable = |text: &str| {
        let mut sources = listing("v1.35.4");
        let mut malformed = sources.additional[0].clone();
        malformed.metadata.name = Some("malformed".to_owned());
        malformed.data = Some(BTreeMap::from([("tkrVersions".to_owned(), text.to_owned())]));
        sources.additional.push(malformed);
        Compatibility::of(&sources)
    };
    for compatibility in [Compatibility::unreadable("tkg-system"), unreadable("[v1.36.3")] {
        let mut listed = world(&[]);
        listed.compatibility = Compatibility::of(&listing(NAME));
        listed.settle(now());
        listed.compatibility = compatibility.clone();
        listed.settle(now());
        let recorded = listed.releases[NAME].status.as_ref().unwrap();
        assert!(recorded.requirements.as_ref().unwrap().overridden);
        assert_eq!(listed.condition(NAME, "Compatible").0, "True");
        assert!(!is_excluded(&listed));
        assert_eq!(listed.management_packages.unmet(&listed.releases[NAME]), None);

        // Neither does it list a release that was not listed before.
        let mut unlisted = world(&[]);
        unlisted.compatibility = compatibility;
        unlisted.settle(now());
        assert_eq!(
            unlisted.condition(NAME, "Compatible").1,
            "ManagementPackageNotReady"
        );
        assert!(
            unlisted
                .management_packages
                .unmet(&unlisted.releases[NAME])
                .is_some()
        );
    }
    // Once every source is read, its answer counts.
    let mut world = world(&[]);
    world.compatibility = Compatibility::of(&listing(NAME));
    world.settle(now());
    world.compatibility = unreadable("[v1.36.9]");
    world.settle(now());
    assert!(is_excluded(&world));
}

/// Returns `bom-metadata` that lists this version for the management cluster.
fn bom(version: &str, annotations: &Value) -> ConfigMap {
    let data =
        format!("managementClusterVersions: [{{version: v2.5.2, supportedKubernetesVersions: [{version}]}}]");
    let mut bom: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "bom-metadata", "namespace": "tkg-system", "annotations": annotations},
    }))
    .unwrap();
    let data = k8s_openapi::ByteString(data.into_bytes());
    bom.binary_data = Some(BTreeMap::from([("compatibility".to_owned(), data)]));
    bom
}

/// Proven packages are a source like an additional ConfigMap. Only data that lists all compatible releases outweighs them.
#[rstest]
#[case::no_source(None, &[], "True")]
#[case::additional_source(None, &["[v1.35.4]"], "True")]
#[case::malformed_additional_source(None, &["[v1.35.4"], "True")]
#[case::bom(Some(false), &[], "False")]
#[case::bom_and_additional_source(Some(false), &["[v1.35.4]"], "False")]
#[case::frozen_bom(Some(true), &[], "True")]
#[case::frozen_bom_and_additional_source(Some(true), &["[v1.35.4]"], "True")]
fn only_maintained_data_outweighs_proven_packages(
    #[case] frozen: Option<bool>,
    #[case] additional: &[&str],
    #[case] compatible: &str,
) {
    let annotations = |frozen| {
        if frozen {
            json!({"lifecycle.sluice.dev/frozen": ""})
        } else {
            json!({})
        }
    };
    let additional = additional.iter().map(|text| {
        let mut config_map = listing("v1.35.4").additional.remove(0);
        config_map.data = Some(BTreeMap::from([("tkrVersions".to_owned(), (*text).to_owned())]));
        config_map
    });
    let sources = Sources {
        bom: frozen.map(|frozen| bom("v1.35.4", &annotations(frozen))),
        additional: additional.collect(),
        management_version: Some("v2.5.2".to_owned()),
    };
    let mut proven = world(&[pair("one", "0.31.0")]);
    proven.compatibility = Compatibility::of(&sources);
    proven.settle(now());
    let found = proven.condition(NAME, "Compatible");
    assert_eq!(found.0, compatible, "{found:?}");
    // Without the proof, no source but a list of the version makes it compatible.
    let mut waits = world(&[]);
    waits.compatibility = Compatibility::of(&sources);
    waits.settle(now());
    assert_eq!(waits.condition(NAME, "Compatible").1, "ManagementPackageNotReady");
}

#[test]
fn unreadable_sources_may_outweigh_proven_packages() {
    let mut world = world(&[pair("one", "0.31.0")]);
    world.compatibility = Compatibility::unreadable("tkg-system");
    world.settle(now());
    let (status, reason, _) = world.condition(NAME, "Compatible");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("Unknown", "CompatibilityDataInvalid")
    );
}

#[test]
fn the_record_ends_with_the_annotation() {
    let mut world = world(&[pair("one", "0.31.0")]);
    let release = Arc::make_mut(world.releases.get_mut(NAME).unwrap());
    release.metadata.annotations = None;
    world.settle(now());
    assert_eq!(world.releases[NAME].status.as_ref().unwrap().requirements, None);
    assert_eq!(world.condition(NAME, "Compatible").1, "NoCompatibilityData");
    assert_eq!(world.settle(now()), 0);
}

/// Unfilled stores prove neither the presence nor the absence of a package.
#[test]
fn unlisted_packages_leave_a_release_unchanged() {
    let world = world(&[pair("one", "0.31.0")]);
    let blind = Evaluation::of(Facts {
        releases: &world.releases,
        images: Some(&world.images),
        packages: Some(&world.packages),
        compatibility: Some(&world.compatibility),
        management_packages: None,
    });
    assert!(blind.of_release(&world.releases[NAME], now()).is_none());
}

/// The condition of a Cluster is that of the release in its label.
#[test]
fn a_cluster_has_the_compatibility_of_its_release() {
    let said = |world: &World, label: &str| {
        let cluster = in_cluster(label);
        let write = world.offers().of_cluster(&cluster, None).unwrap();
        let writes = carry_out(&write, now(), &json!(cluster));
        let condition = &writes[0].body["status"]["conditions"][1];
        assert_eq!(condition["type"], "ReleaseCompatible");
        [&condition["status"], &condition["reason"]].map(|text| text.as_str().unwrap().to_owned())
    };
    let waits = world(&[]);
    assert_eq!(said(&waits, NAME), ["False", "ManagementPackageNotReady"]);
    assert_eq!(said(&waits, "v1.36.9"), ["Unknown", "ReleaseNotFound"]);
    let met = world(&[pair("one", "0.31.0")]);
    assert_eq!(said(&met, NAME), ["True", "ReleaseCompatible"]);
    let mut unlisted = World::of([release(NAME, &json!({}))]);
    unlisted.compatibility = Compatibility::of(&listing("v1.35.4"));
    assert_eq!(said(&unlisted, NAME), ["False", "Incompatible"]);
    assert!(
        !met.offers().is_same_for_clusters(&waits.offers()),
        "Clusters are checked again"
    );
}
