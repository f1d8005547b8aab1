use rstest::rstest;
use sluice_test_store::merge;

use super::*;

fn owner_of(name: &str) -> Owner {
    Owner {
        name: name.to_owned(),
        namespace: "tenant".to_owned(),
        uid: format!("uid-of-{name}"),
    }
}

fn wanted(place: Place<'_>) -> PackageInstall {
    let antrea = Install {
        name: "one-antrea",
        place,
        ref_name: "antrea.test",
        version: "2.0.0",
        values: "one-antrea-data-values-0a",
        sync_period: "10m0s",
    };
    install(&owner_of("one"), &antrea)
}

/// The desired object as an API server returns it, edited by others.
fn object(place: Place<'_>, edit: impl Fn(&mut Value)) -> Value {
    let mut object = json!(wanted(place));
    object["metadata"]["uid"] = json!("uid");
    object["metadata"]["resourceVersion"] = json!("7");
    edit(&mut object);
    object
}

fn found(object: &Value) -> PackageInstall {
    serde_json::from_value(object.clone()).unwrap()
}

const WORKLOAD: Place<'static> = Place::Workload("system");

#[rstest]
#[case::as_written(|_: &mut Value| {})]
#[case::paused(|object: &mut Value| object["spec"]["paused"] = json!(true))]
#[case::canceled(|object: &mut Value| object["spec"]["canceled"] = json!(true))]
#[case::of_a_newer_kapp_controller(|object: &mut Value| object["spec"]["newer"] = json!({"a": [1]}))]
#[case::annotated(|object: &mut Value| object["metadata"]["annotations"]["theirs"] = json!("yes"))]
#[case::with_a_finalizer(|object: &mut Value| object["metadata"]["finalizers"] = json!(["finalizers.packageinstall"]))]
#[case::with_a_status(|object: &mut Value| object["status"] = json!({"observedGeneration": 3}))]
fn foreign_content_causes_no_write(#[case] edit: fn(&mut Value)) {
    for place in [WORKLOAD, Place::Management] {
        assert_eq!(update(&wanted(place), &found(&object(place, edit))), None);
    }
}

#[rstest]
#[case::version(|object: &mut Value| object["spec"]["packageRef"]["versionSelection"]["constraints"] = json!("1.0.0"))]
#[case::prereleases(|object: &mut Value| {
    object["spec"]["packageRef"]["versionSelection"]["prereleases"] = json!({"identifiers": ["rc"]});
})]
#[case::no_prereleases(|object: &mut Value| {
    object["spec"]["packageRef"]["versionSelection"].as_object_mut().unwrap().remove("prereleases");
})]
#[case::values(|object: &mut Value| object["spec"]["values"] = json!([{"secretRef": {"name": "other"}}, {}]))]
#[case::key_of_the_values(|object: &mut Value| object["spec"]["values"][0]["secretRef"]["key"] = json!("one.yaml"))]
#[case::no_values(|object: &mut Value| drop(object["spec"].as_object_mut().unwrap().remove("values")))]
#[case::sync_period(|object: &mut Value| object["spec"]["syncPeriod"] = json!("1h0m0s"))]
#[case::target(|object: &mut Value| object["spec"]["cluster"]["namespace"] = json!("elsewhere"))]
#[case::account(|object: &mut Value| object["spec"]["serviceAccountName"] = json!("other"))]
#[case::package(|object: &mut Value| object["spec"]["packageRef"] = json!({"refName": "other.test"}))]
#[case::annotation(|object: &mut Value| object["metadata"]["annotations"] = json!({}))]
#[case::everything(|object: &mut Value| object["spec"] = json!({}))]
fn an_edited_object_is_restored_and_keeps_foreign_content(#[case] edit: fn(&mut Value)) {
    let theirs = |object: &mut Value| {
        object["spec"]["paused"] = json!(true);
        object["spec"]["newer"] = json!({"a": [1]});
        object["metadata"]["annotations"]["theirs"] = json!("yes");
        object["metadata"]["labels"] = json!({"theirs": "yes"});
        object["metadata"]["finalizers"] = json!(["theirs"]);
        object["status"] = json!({"observedGeneration": 3});
    };
    for place in [WORKLOAD, Place::Management] {
        let mut server = object(place, |object| {
            edit(object);
            theirs(object);
        });

        let patch = update(&wanted(place), &found(&server)).unwrap();
        assert_eq!(patch["metadata"]["uid"], "uid");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        merge(&mut server, &patch);

        assert_eq!(server, object(place, theirs));
    }
}

#[test]
fn an_owner_that_is_missing_is_added_to_the_others() {
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "other"});
    let server = object(Place::Management, |object| {
        object["metadata"]["ownerReferences"] = json!([other]);
    });

    let patch = update(&wanted(Place::Management), &found(&server)).unwrap();

    let owners = json!([other, owner(&owner_of("one"), false)]);
    let expected = json!({"metadata": {"uid": "uid", "resourceVersion": "7", "ownerReferences": owners}});
    assert_eq!(patch, expected);
}

#[test]
fn a_new_version_patches_nothing_else() {
    let server = object(WORKLOAD, |object| {
        object["spec"]["packageRef"]["versionSelection"]["constraints"] = json!("1.0.0");
        object["spec"]["values"] = json!([{"secretRef": {"name": "one-antrea-data-values-00"}}]);
    });
    let expected = json!({
        "metadata": {"uid": "uid", "resourceVersion": "7"},
        "spec": {
            "packageRef": {"versionSelection": {"constraints": "2.0.0"}},
            "values": [{"secretRef": {"name": "one-antrea-data-values-0a"}}],
        },
    });
    assert_eq!(update(&wanted(WORKLOAD), &found(&server)), Some(expected));
}

const DOWNGRADABLE: &str = "packaging.carvel.dev/downgradable";

/// kapp-controller deploys no version lower than the last attempted one without an annotation.
#[rstest]
#[case::lower("2.0.1", None, Some(json!(FIELD_MANAGER)))]
#[case::lower_build("2.0.0+vmware.2", None, Some(json!(FIELD_MANAGER)))]
#[case::lower_and_annotated("2.0.1", Some(FIELD_MANAGER), None)]
#[case::lower_and_annotated_by_a_user("2.0.1", Some(""), None)]
#[case::done("2.0.0", Some(FIELD_MANAGER), Some(Value::Null))]
#[case::higher("1.9.0", Some(FIELD_MANAGER), Some(Value::Null))]
#[case::done_and_annotated_by_a_user("2.0.0", Some(""), None)]
#[case::the_same("2.0.0", None, None)]
#[case::never_tried("", None, None)]
fn a_lower_version_is_let_through(
    #[case] tried: &str,
    #[case] annotated: Option<&str>,
    #[case] patched: Option<Value>,
) {
    for place in [WORKLOAD, Place::Management] {
        let server = object(place, |object| {
            if !tried.is_empty() {
                object["status"] = json!({"lastAttemptedVersion": tried});
            }
            if let Some(value) = annotated {
                object["metadata"]["annotations"][DOWNGRADABLE] = json!(value);
            }
        });
        let found = found(&server);
        assert!(specs_match(&found, &wanted(place)));
        let metadata = |patched: &Value| json!({"metadata": {"uid": "uid", "resourceVersion": "7", "annotations": {DOWNGRADABLE: patched}}});
        assert_eq!(
            update(&wanted(place), &found),
            patched.as_ref().map(metadata),
            "{tried}"
        );
    }
}

#[test]
fn a_lower_version_is_let_through_as_it_is_asked_for() {
    let server = object(WORKLOAD, |object| {
        object["spec"]["packageRef"]["versionSelection"]["constraints"] = json!("2.1.0");
        object["status"] = json!({"lastAttemptedVersion": "2.1.0"});
    });
    assert!(!specs_match(&found(&server), &wanted(WORKLOAD)));
    let expected = json!({
        "metadata": {"uid": "uid", "resourceVersion": "7", "annotations": {DOWNGRADABLE: FIELD_MANAGER}},
        "spec": {"packageRef": {"versionSelection": {"constraints": "2.0.0"}}},
    });
    assert_eq!(update(&wanted(WORKLOAD), &found(&server)), Some(expected));
}
