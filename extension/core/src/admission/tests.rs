//! Table tests of the rules: refusals with their messages, and admitted objects.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::packages::bootstrap::PackageFacts;

pub(crate) mod agreement;
mod pinned;
mod updates;

/// A name as users write it, for a package of version `version`.
pub(crate) fn package(short: &str, version: &str) -> String {
    format!("{short}.example.com.{version}")
}

/// Existing objects: all packages named by [`package`] except `gone`, and AntreaConfigs and Secrets whose names do not begin with `no-`.
pub(crate) fn seen(lookup: &Lookup) -> LookupResult {
    let absent = |resource: &str| LookupResult::Absent {
        resource: resource.to_owned(),
    };
    match lookup {
        Lookup::Cluster(name) => match name.as_str() {
            "one" | "other" => LookupResult::Cluster {
                label: "v1.36.3---sluice.1".to_owned(),
                deleting: false,
                stopped: false,
                follows: None,
            },
            "going" => LookupResult::Cluster {
                label: "v1.36.3---sluice.1".to_owned(),
                deleting: true,
                stopped: false,
                follows: None,
            },
            "moving" => LookupResult::Cluster {
                label: "v1.36.3---sluice.1".to_owned(),
                deleting: false,
                stopped: true,
                follows: None,
            },
            _ => absent("clusters.cluster.x-k8s.io"),
        },
        Lookup::Package(name) => match name.split_once(".example.com.") {
            Some(("silent", _)) => LookupResult::Unknown("the API server does not answer".to_owned()),
            Some((short, version)) if short != "gone" && version != "0.0.0" => {
                LookupResult::Package(PackageFacts {
                    ref_name: format!("{short}.example.com"),
                    version: version.to_owned(),
                    ..PackageFacts::default()
                })
            }
            _ => absent("packages.data.packaging.carvel.dev"),
        },
        Lookup::Release(_) | Lookup::Template(_) | Lookup::TemplateNames => absent("releases"),
        Lookup::Secret(name) if name.starts_with("no-") => absent("secrets"),
        Lookup::Secret(name) => LookupResult::Secret {
            credential: name.starts_with("credential"),
        },
        Lookup::Provider { kind, .. } if kind == "Unserved" => LookupResult::NotServed,
        Lookup::Provider { kind, .. } if kind == "Wide" => LookupResult::ClusterScoped,
        Lookup::Provider { name, .. } if name.starts_with("no-") => {
            absent("calicoconfigs.cni.tanzu.vmware.com")
        }
        Lookup::Provider { .. } => LookupResult::Provider,
    }
}

/// Judges with the result of every lookup that the rules need.
pub(crate) fn judged(review: &Review) -> Verdict {
    let mut finished = Lookups::new();
    loop {
        match judge(review, "tkg-system", &finished) {
            Ok(verdict) => return verdict,
            Err(needed) => {
                assert!(
                    needed.iter().all(|lookup| !finished.contains_key(lookup)),
                    "{needed:?}"
                );
                finished.extend(needed.into_iter().map(|lookup| (lookup.clone(), seen(&lookup))));
            }
        }
    }
}

pub(crate) fn state(spec: &Value, annotations: &[(&str, &str)]) -> State {
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    State {
        spec: serde_json::from_value(spec.clone()).unwrap(),
        annotations: annotations.collect(),
    }
}

pub(crate) fn review(name: &str, old: Option<State>, new: State) -> Review {
    Review {
        kind: Kind::Bootstrap,
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
        owned: false,
        spec_missing: false,
        spec_differs: old.as_ref() != Some(&new),
        new,
        old,
    }
}

/// A valid ClusterBootstrap.
fn good() -> Value {
    json!({
        "kapp": {"refName": package("kapp-controller", "2.0.0")},
        "cni": {
            "refName": package("antrea", "2.0.0"),
            "valuesFrom": {"providerRef": {"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "one"}},
        },
        "csi": {"refName": package("vsphere-csi", "2.0.0"), "valuesFrom": {"inline": {}}},
        "additionalPackages": [
            {"refName": package("metrics", "2.0.0"), "valuesFrom": {"secretRef": "values"}},
            {"refName": package("foo", "2.0.0+vmware.1-tkg.2")},
        ],
    })
}

type Edit = fn(&mut Value);

fn edited(edit: Edit) -> Value {
    let mut spec = good();
    edit(&mut spec);
    spec
}

fn texts(verdict: &Verdict) -> (Vec<String>, &[String]) {
    (
        verdict.faults.iter().map(ToString::to_string).collect(),
        &verdict.warnings,
    )
}

#[rstest]
#[case::nil_cni(|spec: &mut Value| spec["cni"] = Value::Null, r#"spec.cni: Invalid value: "null": package can't be nil"#)]
#[case::nil_kapp(|spec: &mut Value| spec["kapp"] = Value::Null, r#"spec.kapp: Invalid value: "null": package can't be nil"#)]
#[case::package_absent(
    |spec: &mut Value| spec["csi"]["refName"] = "gone.example.com.1.0.0".into(),
    r#"spec.csi.refName: Invalid value: "gone.example.com.1.0.0": packages.data.packaging.carvel.dev "gone.example.com.1.0.0" not found"#
)]
#[case::no_name_of_a_package(
    |spec: &mut Value| spec["additionalPackages"][1]["refName"] = "../secrets".into(),
    r#"spec.additionalPackages[1].refName: Invalid value: "../secrets": no Package can have this name"#
)]
#[case::two_sources(
    |spec: &mut Value| spec["csi"]["valuesFrom"]["secretRef"] = "values".into(),
    r#"spec.csi.valuesFrom: Invalid value: "object": valuesFrom can't have more than one non-null subfield"#
)]
#[case::no_group(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"]["apiGroup"] = Value::Null,
    r#"spec.cni.valuesFrom.providerRef.apiGroup: Invalid value: "null": apiGroup can't be nil"#
)]
#[case::no_provider(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "CalicoConfig", "name": "no-one"}),
    r#"spec.cni.valuesFrom.providerRef.name: Invalid value: "no-one": calicoconfigs.cni.tanzu.vmware.com "no-one" not found"#
)]
#[case::kind_that_is_not_served(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "a.test", "kind": "Unserved", "name": "one"}),
    r#"spec.cni.valuesFrom.providerRef: Invalid value: "Unserved": unable to find server preferred resource a.test/Unserved"#
)]
#[case::kind_without_values(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "cluster.x-k8s.io", "kind": "Cluster", "name": "one"}),
    "spec.cni.valuesFrom.providerRef.kind: Invalid value: \"Cluster\": cluster.x-k8s.io/Cluster provides no values"
)]
#[case::a_cluster_bootstrap(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "run.tanzu.vmware.com", "kind": "ClusterBootstrap", "name": "one"}),
    "spec.cni.valuesFrom.providerRef.kind: Invalid value: \"ClusterBootstrap\": run.tanzu.vmware.com/ClusterBootstrap provides no values"
)]
#[case::a_release(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "run.tanzu.vmware.com", "kind": "TanzuKubernetesRelease", "name": "one"}),
    "run.tanzu.vmware.com/TanzuKubernetesRelease provides no values"
)]
#[case::cluster_scoped_kind(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "fleet.tanzu.vmware.com", "kind": "Wide", "name": "one"}),
    "spec.cni.valuesFrom.providerRef.kind: Invalid value: \"Wide\": fleet.tanzu.vmware.com/Wide is cluster-scoped and provides no values"
)]
#[case::no_name_of_a_provider(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"]["name"] = "one/status".into(),
    "no object can have this name"
)]
#[case::no_secret(
    |spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "no-values".into(),
    r#"spec.additionalPackages[0].valuesFrom.secretRef: Invalid value: "no-values": secrets "no-values" not found"#
)]
#[case::no_name_of_a_secret(
    |spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "a/b".into(),
    "no Secret can have this name"
)]
#[case::credential_by_type(
    |spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "credential".into(),
    "is a credential of Kubernetes or Cluster API"
)]
#[case::credential_of_this_cluster(
    |spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "one-kubeconfig".into(),
    "is a credential of Kubernetes or Cluster API"
)]
#[case::credential_of_another_cluster(
    |spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "other-etcd".into(),
    "is a credential of Kubernetes or Cluster API"
)]
#[case::the_same_package_twice(
    |spec: &mut Value| spec["additionalPackages"][1]["refName"] = package("metrics", "1.0.0").into(),
    "spec.additionalPackages[1].refName: Invalid value: \"metrics.example.com.1.0.0\": more than one additional packages share the same refName"
)]
#[case::one_short_name_in_two_fields(
    |spec: &mut Value| spec["additionalPackages"][1]["refName"] = package("vsphere-csi", "2.0.0").into(),
    "would be one PackageInstall, vsphere-csi"
)]
fn a_new_one_is_refused_with_field_value_and_reason(#[case] edit: Edit, #[case] says: &str) {
    let verdict = judged(&review("one", None, state(&edited(edit), &[])));
    let (faults, _) = texts(&verdict);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains(says), "{}", faults[0]);
}

#[rstest]
#[case::whole(|_: &mut Value| {}, &[])]
#[case::without_csi(|spec: &mut Value| spec["csi"] = Value::Null, &[])]
#[case::a_secret_named_like_a_credential_of_no_cluster(
    |spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "nobody-ca".into(), &[]
)]
#[case::of_another_project(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "a.test", "kind": "Foo", "name": "one"}), &[]
)]
#[case::of_another_group_of_tanzu(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"] = json!({"apiGroup": "fleet.tanzu.vmware.com", "kind": "Foo", "name": "one"}), &[]
)]
#[case::not_looked_up(
    |spec: &mut Value| spec["csi"]["refName"] = package("silent", "1.0.0").into(),
    &["spec.csi.refName: \"silent.example.com.1.0.0\" was not looked up: the API server does not answer"]
)]
fn a_new_one_is_admitted(#[case] edit: Edit, #[case] warnings: &[&str]) {
    let verdict = judged(&review("one", None, state(&edited(edit), &[])));
    assert_eq!(
        texts(&verdict),
        (
            vec![],
            &warnings.iter().map(ToString::to_string).collect::<Vec<_>>()[..]
        )
    );
}

const UNMANAGED: (&str, &str) = (annotation::UNMANAGED_CNI, "");

#[test]
fn an_unmanaged_cni_is_left_out() {
    let with = judged(&review("one", None, state(&good(), &[UNMANAGED])));
    let (faults, _) = texts(&with);
    let says = "Spec.CNI should be empty if the clusterbootstrap is annotated to use unmanaged CNI.";
    assert!(faults.len() == 1 && faults[0].starts_with(says), "{faults:?}");
    let without = edited(|spec| spec["cni"] = Value::Null);
    assert_eq!(
        judged(&review("one", None, state(&without, &[UNMANAGED]))),
        Verdict::default()
    );
    // The annotation alone makes a difference.
    let old = state(&good(), &[]);
    let mut annotated = review("one", Some(old), state(&good(), &[UNMANAGED]));
    annotated.spec_differs = false;
    assert_eq!(judged(&annotated).faults.len(), 1);
}

#[test]
fn a_name_that_would_be_too_long_is_named() {
    let name = "c".repeat(240);
    let verdict = judged(&review(&name, None, state(&good(), &[])));
    let (faults, _) = texts(&verdict);
    assert!(
        faults[0].contains(&format!("name {name}-kapp-controller"))
            && faults[0].contains("Kubernetes takes 253"),
        "{faults:?}"
    );
}

#[test]
fn unjudged_reviews_need_no_lookups() {
    let none = &Lookups::new();
    let same = review("one", Some(state(&good(), &[])), state(&good(), &[]));
    assert_eq!(judge(&same, "tkg-system", none), Ok(Verdict::default()));
    let going = review("going", Some(state(&good(), &[])), state(&json!({}), &[]));
    assert_eq!(judged(&going), Verdict::default(), "its Cluster is being deleted");
}

#[rstest]
#[case::good("tkg-system", |_: &mut Value| {}, &[])]
#[case::of_what_does_not_exist("tkg-system", |spec: &mut Value| spec["csi"]["refName"] = "gone.example.com.1.0.0".into(), &[])]
#[case::with_a_policy("tkg-system", |spec: &mut Value| spec["upgradePolicy"] = json!({"onCancel": "Rollback"}), &[])]
#[case::in_another_namespace("team-a", |_: &mut Value| {}, &["metadata.namespace: Invalid value: \"team-a\""])]
#[case::without_packages("tkg-system", |spec: &mut Value| { spec["cni"] = Value::Null; spec["kapp"] = Value::Null; }, &["spec.cni: Invalid value: \"null\": package can't be nil", "spec.kapp"])]
#[case::two_sources("tkg-system", |spec: &mut Value| spec["csi"]["valuesFrom"]["secretRef"] = "a".into(), &["spec.csi.valuesFrom"])]
#[case::no_group("tkg-system", |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"]["apiGroup"] = Value::Null, &["spec.cni.valuesFrom.providerRef.apiGroup"])]
fn a_template_is_judged_by_itself(#[case] namespace: &str, #[case] edit: Edit, #[case] says: &[&str]) {
    let template = Review {
        kind: Kind::Template,
        namespace: namespace.to_owned(),
        ..review("v1.36.3---sluice.1", None, state(&edited(edit), &[]))
    };
    let verdict = judge(&template, "tkg-system", &Lookups::new()).unwrap();
    let (faults, _) = texts(&verdict);
    assert_eq!(faults.len(), says.len(), "{faults:?}");
    assert!(
        faults.iter().zip(says).all(|(fault, says)| fault.contains(says)),
        "{faults:?}"
    );

    let update = Review {
        namespace: "tkg-system".to_owned(),
        spec_differs: true,
        old: Some(template.new.clone()),
        ..template
    };
    let verdict = judge(&update, "tkg-system", &Lookups::new()).unwrap();
    assert!(
        texts(&verdict).0[0].contains("ClusterBootstrapTemplate has immutable spec, update is not allowed")
    );
}

const FILL: &str = annotation::ADD_MISSING_FIELDS;

#[rstest]
#[case::another_label(&[(FILL, "v1")], None, &["write the same release in both"])]
#[case::another_release_than_before(
    &[(FILL, "v1.36.3---sluice.1")], Some("v1"), &["delete the ClusterBootstrap and apply it again"]
)]
#[case::one_that_was_completed(&[(FILL, "v1"), (annotation::RESOLVED_TKR, "v2")], None, &[])]
#[case::one_that_does_not_ask(&[], None, &[])]
fn a_partial_one_is_completed_from_the_release_of_its_cluster(
    #[case] annotations: &[(&str, &str)],
    #[case] before: Option<&str>,
    #[case] says: &[&str],
) {
    let before = before.map(|before| state(&json!({}), &[(FILL, before)]));
    let asked = review("one", before, state(&json!({}), annotations));
    let mut finished = Lookups::new();
    let completion = loop {
        match complete(&asked, &finished) {
            Ok(completion) => break completion,
            Err(needed) => finished.extend(needed.into_iter().map(|lookup| (lookup.clone(), seen(&lookup)))),
        }
    };
    let faults: Vec<String> = completion.faults.iter().map(ToString::to_string).collect();
    assert_eq!((faults.len(), completion.spec), (says.len(), None), "{faults:?}");
    assert!(
        faults.iter().zip(says).all(|(fault, says)| fault.contains(says)),
        "{faults:?}"
    );
}

/// Result of every lookup in a catalogue with releases v1, v2 and v3. An upgrade from v1 to v3 has passed v2, which alone lists `extra`.
fn cataloged(lookup: &Lookup) -> LookupResult {
    let release = |packages: &[&str]| LookupResult::Release {
        kubernetes: "v1.36.3".to_owned(),
        packages: packages.iter().map(|name| (*name).to_owned()).collect(),
    };
    let spec = |additional: &[&str]| {
        let additional: Vec<_> = additional.iter().map(|name| json!({"refName": name})).collect();
        let spec = json!({
            "kapp": {"refName": "kapp.x.1"}, "cni": {"refName": "antrea.x.1"}, "additionalPackages": additional,
        });
        LookupResult::Template(Box::new(serde_json::from_value(spec).unwrap()))
    };
    match lookup {
        Lookup::Release(name) if name == "v1" => release(&["metrics-server.x.1", "new.x.1"]),
        Lookup::Release(name) if name == "v3" => release(&["new.x.3"]),
        Lookup::Template(name) if name == "v1" => spec(&["old.x.1", "metrics-server.x.1"]),
        Lookup::Template(name) if name == "v2" => spec(&["extra.x.1"]),
        Lookup::Template(name) if name == "v3" => spec(&["late.x.3", "metrics-exporter.x.3"]),
        Lookup::TemplateNames => LookupResult::TemplateNames(["v1", "v2", "v3"].map(str::to_owned).into()),
        other => seen(other),
    }
}

/// Completes with the result of every lookup that is needed, and returns the lookups.
fn completed(review: &Review) -> (Completion, Vec<Lookup>) {
    let mut finished = Lookups::new();
    loop {
        match complete(review, &finished) {
            Ok(completion) => return (completion, finished.into_keys().collect()),
            Err(needed) => {
                finished.extend(
                    needed
                        .into_iter()
                        .map(|lookup| (lookup.clone(), cataloged(&lookup))),
                );
            }
        }
    }
}

/// The stored ClusterBootstrap of an adopted Cluster.
fn adopted(additional: &[&str]) -> Value {
    let additional: Vec<_> = additional.iter().map(|name| json!({"refName": name})).collect();
    json!({
        "kapp": {"refName": "kapp.x.3"}, "cni": {"refName": "antrea.x.3"}, "additionalPackages": additional,
    })
}

/// A review of `file`, applied to a ClusterBootstrap with these additional packages that was upgraded from v1 to v3.
fn applied_again(additional: &[&str], file: &Value) -> Review {
    let marks = [(FILL, "v1"), (annotation::RESOLVED_TKR, "v3")];
    let old = state(&adopted(additional), &marks);
    let mut again = review("one", Some(old), state(file, &marks));
    again.owned = true;
    again
}

fn filled(completion: &Completion) -> Option<ClusterBootstrapSpec> {
    assert_eq!(completion.faults, Vec::new());
    completion.spec.as_ref().map(|completed| completed.filled.clone())
}

/// The templates are those of the recorded release and of the annotation; others are read only if these lack a package.
#[rstest]
#[case::of_the_recorded_release(&["late.x.3"], false)]
#[case::of_the_annotation(&["old.x.1"], false)]
#[case::of_a_release_between(&["old.x.1", "late.x.3", "extra.x.1"], true)]
fn packages_of_earlier_releases_come_back(#[case] additional: &[&str], #[case] reads_others: bool) {
    let again = applied_again(additional, &json!({"kapp": {"refName": "kapp*"}}));
    let (completion, lookups) = completed(&again);
    assert_eq!(filled(&completion), Some(state(&adopted(additional), &[]).spec));
    let template = |name: &str| Lookup::Template(name.to_owned());
    let mut expected = vec![Lookup::Release("v3".to_owned()), template("v1"), template("v3")];
    if reads_others {
        expected.extend([Lookup::TemplateNames, template("v2")]);
    }
    expected.sort();
    assert_eq!(lookups, expected);
}

/// The release of the annotation is looked up only to decide between several stored packages.
#[test]
fn an_ambiguous_wildcard_means_that_of_the_annotation() {
    let stored = ["metrics-exporter.x.3", "metrics-server.x.3"];
    let file = json!({"kapp": {"refName": "kapp*"}, "additionalPackages": [{"refName": "metrics*"}]});
    let (completion, lookups) = completed(&applied_again(&stored, &file));
    assert_eq!(filled(&completion), Some(state(&adopted(&stored), &[]).spec));
    assert!(lookups.contains(&Lookup::Release("v1".to_owned())), "{lookups:?}");
}

/// A ClusterBootstrap that the addons-manager has adopted records no release.
#[test]
fn without_a_record_the_release_is_that_of_the_annotation() {
    let mut again = applied_again(&[], &json!({"additionalPackages": [{"refName": "new*"}]}));
    for state in again.old.iter_mut().chain([&mut again.new]) {
        state.annotations.remove(annotation::RESOLVED_TKR);
    }
    let (completion, _) = completed(&again);
    assert_eq!(filled(&completion), Some(state(&adopted(&["new.x.1"]), &[]).spec));
    assert!(completion.restored_annotations.is_empty(), "{completion:?}");
}

#[test]
fn a_new_wildcard_of_a_deleted_release_is_refused() {
    let mut again = applied_again(&[], &json!({"additionalPackages": [{"refName": "new*"}]}));
    for state in again.old.iter_mut().chain([&mut again.new]) {
        let deleted = (annotation::RESOLVED_TKR.to_owned(), "v2".to_owned());
        state.annotations.extend([deleted]);
    }
    let faults = completed(&again).0.faults;
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "spec.additionalPackages[0].refName: Invalid value: \"new*\": TanzuKubernetesRelease v2 does not exist; write the whole \
             name of a Package"
        ]
    );
}

/// A replacement of an adopted object with a file from Git has neither owner nor record.
#[rstest]
#[case::partial(false, &[(FILL, "v1")], Some("v3"))]
#[case::whole(true, &[(FILL, "v1")], Some("v3"))]
#[case::empty_record(true, &[(FILL, "v1"), (annotation::RESOLVED_TKR, "")], Some("v3"))]
#[case::with_its_record(false, &[(FILL, "v1"), (annotation::RESOLVED_TKR, "v3")], None)]
#[case::without_the_request(true, &[], None)]
fn a_record_that_is_replaced_comes_back(
    #[case] whole: bool,
    #[case] annotations: &[(&str, &str)],
    #[case] release: Option<&str>,
) {
    let file = if whole {
        adopted(&["late.x.3"])
    } else {
        json!({"kapp": {"refName": "kapp*"}})
    };
    let mut replaced = applied_again(&["late.x.3"], &file);
    replaced.new = state(&file, annotations);
    let (completion, _) = completed(&replaced);
    assert_eq!(completion.faults, Vec::new());
    let added = release.map(|release| (annotation::RESOLVED_TKR, release.to_owned()));
    assert_eq!(completion.restored_annotations, Vec::from_iter(added));
}

/// A file in Git has no snapshot. Only the rollback of the same Cluster depends on an edited one.
#[rstest]
#[case::replaced(Some("{}"), None, Some("{}"))]
#[case::edited(Some("{}"), Some("[]"), None)]
#[case::added(None, Some("{}"), None)]
#[case::without(None, None, None)]
fn a_snapshot_that_is_replaced_comes_back(
    #[case] before: Option<&'static str>,
    #[case] after: Option<&'static str>,
    #[case] restored: Option<&'static str>,
) {
    let requests: [&[(&str, &str)]; 2] = [&[], &[(FILL, "v1"), (annotation::RESOLVED_TKR, "v3")]];
    for request in requests {
        let annotated = |snapshot: Option<&'static str>| {
            let snapshot = snapshot.map(|snapshot| (annotation::ROLLBACK_TO, snapshot));
            let annotations: Vec<_> = request.iter().copied().chain(snapshot).collect();
            state(&adopted(&[]), &annotations)
        };
        let mut replaced = review("one", Some(annotated(before)), annotated(after));
        replaced.spec_differs = false;
        let (completion, lookups) = completed(&replaced);
        let restored = restored.map(|snapshot| (annotation::ROLLBACK_TO, snapshot.to_owned()));
        assert_eq!(completion.restored_annotations, Vec::from_iter(restored));
        assert_eq!((completion.spec, lookups), (None, Vec::new()));
        let verdict = judge(&replaced, "tkg-system", &Lookups::new());
        assert_eq!(verdict, Ok(Verdict::default()));
    }
}

/// A snapshot that is too large is cut when a review is read.
#[test]
fn a_snapshot_that_cannot_be_read_does_not_come_back() {
    use crate::packages::bootstrap::LARGEST_SNAPSHOT;

    for (length, comes_back) in [(LARGEST_SNAPSHOT, true), (LARGEST_SNAPSHOT + 1, false)] {
        let snapshot = "x".repeat(length);
        let stored = state(&adopted(&[]), &[(annotation::ROLLBACK_TO, snapshot.as_str())]);
        let replaced = review("one", Some(stored), state(&adopted(&[]), &[]));
        let (completion, _) = completed(&replaced);
        assert_eq!(
            !completion.restored_annotations.is_empty(),
            comes_back,
            "{length}"
        );
    }
}

#[rstest]
#[case::additional_package(
    |spec: &mut Value| drop(spec["additionalPackages"].as_array_mut().unwrap().remove(0)),
    &[r#"spec.additionalPackages: late.x.3 was filled in and stays; to leave it out set "late=none" in annotation lifecycle.sluice.dev/keep-package-versions"#]
)]
#[case::required_field(
    |spec: &mut Value| spec["cni"] = Value::Null,
    &["spec.cni: antrea.x.3 was filled in and stays, because the field is required"]
)]
#[case::partial_file(|spec: &mut Value| *spec = json!({"kapp": {"refName": "kapp*"}}), &[])]
#[case::unchanged(|_: &mut Value| {}, &[])]
fn edits_without_effect_are_warned_of(#[case] edit: Edit, #[case] says: &[&str]) {
    let mut file = adopted(&["late.x.3"]);
    edit(&mut file);
    let (completion, _) = completed(&applied_again(&["late.x.3"], &file));
    assert_eq!(completion.warnings, says);
}

/// A Cluster is paused during a move, and an object that it owns was stored before.
#[test]
fn faults_during_a_move_are_warnings() {
    let absent = edited(|spec| {
        spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "no-values".into();
        spec["csi"]["refName"] = "gone.example.com.1.0.0".into();
    });
    let credential =
        edited(|spec| spec["additionalPackages"][0]["valuesFrom"]["secretRef"] = "credential".into());
    for (name, owned, spec, faults, warnings) in [
        ("one", false, &absent, 2, 0),
        ("moving", false, &absent, 0, 2),
        ("absent", true, &absent, 0, 2),
        ("moving", false, &credential, 1, 0),
        ("absent", true, &credential, 0, 1),
    ] {
        let moved = Review {
            owned,
            ..review(name, None, state(spec, &[]))
        };
        let verdict = judged(&moved);
        assert_eq!(
            (verdict.faults.len(), verdict.warnings.len()),
            (faults, warnings),
            "{name}: {verdict:?}"
        );
    }
    let mut update = review("one", Some(state(&good(), &[])), state(&credential, &[]));
    update.owned = true;
    assert_eq!(
        judged(&update).faults.len(),
        1,
        "an owner says nothing about an edit"
    );
}
