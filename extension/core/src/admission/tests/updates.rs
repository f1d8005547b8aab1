//! Refused updates, and fields that an update does not change.

use super::*;

#[rstest]
#[case::another_package(
    |spec: &mut Value| spec["cni"] = json!({"refName": package("calico", "3.0.0")}),
    r#"spec.cni.refName: Invalid value: "calico.example.com.3.0.0": new package refName and old package refName should be the same"#
)]
#[case::another_csi(
    |spec: &mut Value| spec["csi"]["refName"] = package("aws-csi", "3.0.0").into(),
    "new package refName and old package refName should be the same"
)]
#[case::a_lower_version(
    |spec: &mut Value| spec["kapp"]["refName"] = package("kapp-controller", "1.9.0").into(),
    "spec.kapp.refName: Invalid value: \"kapp-controller.example.com.1.9.0\": package downgrade is not allowed, original version: 2.0.0"
)]
#[case::a_lower_build(
    |spec: &mut Value| spec["additionalPackages"][1]["refName"] = package("foo", "2.0.0+vmware.1-tkg.1").into(),
    "spec.additionalPackages[1].refName: Invalid value: \"foo.example.com.2.0.0+vmware.1-tkg.1\": package downgrade is not allowed"
)]
#[case::a_dropped_package(
    |spec: &mut Value| { spec["additionalPackages"].as_array_mut().unwrap().remove(0); },
    "spec.additionalPackages: Invalid value: \"metrics.example.com.2.0.0\": missing updated additional package"
)]
#[case::a_package_in_place_of_another(
    |spec: &mut Value| spec["additionalPackages"][1] = json!({"refName": package("bar", "1.0.0")}),
    "spec.additionalPackages: Invalid value: \"foo.example.com.2.0.0+vmware.1-tkg.2\": missing updated additional package"
)]
#[case::another_kind(
    |spec: &mut Value| spec["cni"]["valuesFrom"]["providerRef"]["kind"] = "CalicoConfig".into(),
    "spec.cni.valuesFrom.providerRef: Invalid value: \"cni.tanzu.vmware.com/CalicoConfig\": change to Group and Kind in ProviderRef is not allowed"
)]
#[case::no_provider_any_more(
    |spec: &mut Value| spec["cni"]["valuesFrom"] = json!({"inline": {}}),
    "spec.cni.valuesFrom: Invalid value: \"inline\": change from providerRef to other types of data value representation is not allowed"
)]
#[case::a_secret_instead_of_a_provider(
    |spec: &mut Value| spec["cni"]["valuesFrom"] = json!({"secretRef": "values"}),
    "change from providerRef to other types of data value representation is not allowed"
)]
#[case::no_cni_any_more(|spec: &mut Value| spec["cni"] = Value::Null, "package can't be nil")]
fn an_update_is_refused(#[case] edit: Edit, #[case] says: &str) {
    let verdict = judged(&review(
        "one",
        Some(state(&good(), &[])),
        state(&edited(edit), &[]),
    ));
    let (faults, _) = texts(&verdict);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains(says), "{}", faults[0]);
}

const KEEP: &str = annotation::KEEP_PACKAGE_VERSIONS;

#[rstest]
#[case::higher(|spec: &mut Value| spec["cni"]["refName"] = package("antrea", "2.1.0").into(), "", 0)]
#[case::a_higher_build(|spec: &mut Value| spec["additionalPackages"][1]["refName"] = package("foo", "2.0.0+vmware.1-tkg.10").into(), "", 0)]
#[case::added(|spec: &mut Value| spec["additionalPackages"].as_array_mut().unwrap().insert(0, json!({"refName": package("bar", "1.0.0")})), "", 0)]
#[case::in_another_order(|spec: &mut Value| spec["additionalPackages"].as_array_mut().unwrap().reverse(), "", 0)]
#[case::defaults_instead_of_a_provider(|spec: &mut Value| spec["cni"]["valuesFrom"] = Value::Null, "", 0)]
#[case::inline_instead_of_a_secret(|spec: &mut Value| spec["additionalPackages"][0]["valuesFrom"] = json!({"inline": {}}), "", 0)]
#[case::a_cpi(|spec: &mut Value| spec["cpi"] = json!({"refName": package("vsphere-cpi", "1.0.0")}), "", 0)]
#[case::another_policy(|spec: &mut Value| spec["upgradePolicy"] = json!({"onCancel": "Rollback"}), "", 0)]
#[case::no_csi(|spec: &mut Value| spec["csi"] = Value::Null, "", 1)]
#[case::no_csi_on_purpose(|spec: &mut Value| spec["csi"] = Value::Null, "vsphere-csi=none", 0)]
#[case::kept_at_a_lower_version(|spec: &mut Value| spec["cni"]["refName"] = package("antrea", "1.0.0").into(), "antrea=1.0.0", 0)]
#[case::left_out_on_purpose(|spec: &mut Value| { spec["additionalPackages"].as_array_mut().unwrap().remove(0); }, "metrics=none", 0)]
fn an_update_is_admitted(#[case] edit: Edit, #[case] keep: &str, #[case] warnings: usize) {
    let new = state(&edited(edit), &[(KEEP, keep)]);
    let verdict = judged(&review("one", Some(state(&good(), &[])), new));
    assert_eq!(
        (texts(&verdict).0, verdict.warnings.len()),
        (vec![], warnings),
        "{verdict:?}"
    );
}

#[test]
fn an_annotation_that_cannot_be_read_keeps_nothing() {
    let lower = edited(|spec| spec["cni"]["refName"] = package("antrea", "1.0.0").into());
    let verdict = judged(&review(
        "one",
        Some(state(&good(), &[])),
        state(&lower, &[(KEEP, "antrea")]),
    ));
    let (faults, _) = texts(&verdict);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].starts_with(&format!(
            "metadata.annotations[{KEEP}]: Invalid value: \"antrea\""
        )),
        "{faults:?}"
    );
}

/// A ClusterBootstrap with many missing objects.
fn broken() -> Value {
    edited(|spec| {
        spec["csi"]["refName"] = "gone.example.com.1.0.0".into();
        spec["additionalPackages"][0] =
            json!({"refName": "lost.example.com.0.0.0", "valuesFrom": {"secretRef": "no-values"}});
        spec["cni"]["valuesFrom"]["providerRef"]["name"] = "no-one".into();
    })
}

/// Stored faults and missing objects do not block the correction of another field.
#[rstest]
#[case::another_field(|spec: &mut Value| spec["kapp"]["refName"] = package("kapp-controller", "3.0.0").into(), "", &[])]
#[case::inline_values(|spec: &mut Value| spec["csi"]["valuesFrom"]["inline"] = json!({"a": 1}), "", &[])]
#[case::another_field_wrongly(|spec: &mut Value| spec["kapp"]["refName"] = package("kapp-controller", "1.0.0").into(), "", &["downgrade"])]
#[case::what_is_gone(|spec: &mut Value| spec["csi"]["refName"] = "gone.example.com.1.1.0".into(), "", &["not found"])]
#[case::another_package(|spec: &mut Value| spec["csi"]["refName"] = package("vsphere-csi", "1.0.0").into(), "", &["set \"gone=none\" in annotation"])]
#[case::another_package_on_purpose(|spec: &mut Value| spec["csi"]["refName"] = package("vsphere-csi", "1.0.0").into(), "gone=none", &[])]
#[case::dropped(|spec: &mut Value| { spec["additionalPackages"].as_array_mut().unwrap().remove(0); }, "", &["set \"lost=none\" in annotation"])]
#[case::dropped_on_purpose(|spec: &mut Value| { spec["additionalPackages"].as_array_mut().unwrap().remove(0); }, "lost=none", &[])]
#[case::another_dropped_beside_it(|spec: &mut Value| { spec["additionalPackages"].as_array_mut().unwrap().remove(1); }, "", &["missing updated additional package"])]
fn unchanged_fields_may_name_missing_objects(#[case] edit: Edit, #[case] keep: &str, #[case] says: &[&str]) {
    let mut spec = broken();
    edit(&mut spec);
    let verdict = judged(&review(
        "one",
        Some(state(&broken(), &[])),
        state(&spec, &[(KEEP, keep)]),
    ));
    let (faults, _) = texts(&verdict);
    assert_eq!(faults.len(), says.len(), "{faults:?}");
    assert!(
        faults.iter().zip(says).all(|(fault, says)| fault.contains(says)),
        "{faults:?}"
    );
}

/// The name of a missing Package identifies its package.
#[test]
fn a_package_is_identified_by_its_name() {
    let old = edited(|spec| spec["cni"]["refName"] = package("antrea", "0.0.0").into());
    let verdict = judged(&review("one", Some(state(&old, &[])), state(&good(), &[])));
    assert_eq!(verdict, Verdict::default(), "the old one is gone");
    for (name, refused) in [
        ("antrea.example.com.0.0.0", false),
        ("gone.example.com.9.0.0", true),
    ] {
        let mut new = good();
        new["cni"] = json!({"refName": name});
        let verdict = judged(&review(
            "moving",
            Some(state(&good(), &[])),
            state(&new, &[(KEEP, "antrea=0.0.0")]),
        ));
        let swapped = texts(&verdict)
            .0
            .iter()
            .any(|fault| fault.contains("should be the same"));
        assert_eq!(
            swapped, refused,
            "{name} while the Cluster is paused: {verdict:?}"
        );
    }
}

/// A release may list a package in another field than its predecessor.
#[test]
fn a_package_may_move_to_another_field() {
    let moved = edited(|spec| {
        let metrics = spec["additionalPackages"].as_array_mut().unwrap().remove(0);
        spec["cpi"] = metrics;
    });
    let verdict = judged(&review("one", Some(state(&good(), &[])), state(&moved, &[])));
    let says =
        "spec.cpi: upgrades are held while the release has metrics.example.com in spec.additionalPackages";
    assert_eq!(texts(&verdict), (vec![], &[says.to_owned()][..]));
    let lower = {
        let mut lower = moved;
        lower["cpi"]["refName"] = package("metrics", "1.0.0").into();
        lower
    };
    let verdict = judged(&review("one", Some(state(&good(), &[])), state(&lower, &[])));
    assert!(
        texts(&verdict).0[0].starts_with("spec.cpi.refName"),
        "{verdict:?}"
    );
}
