use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_test_store::merge;

use super::*;
use crate::releases::ReleaseEvent;
use crate::{
    clock::Clock,
    protocol::{Interrupt, Object, Read, ReadResult, Verb},
};

const NAMESPACE: &str = "tkg-system";
const NAME: &str = "tkr-vsphere.tanzu.vmware.com.1.35.4+vmware.1-tkg.1";
const INSTALL: &str = "tkr-vsphere.tanzu.vmware.com.1.35.4---vmware.1-tkg.1";

fn package(labels: &Value) -> Package {
    serde_json::from_value(json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": "package", "labels": labels},
        "spec": {"refName": "tkr-vsphere.tanzu.vmware.com", "version": "1.35.4+vmware.1-tkg.1", "template": {}},
    }))
    .unwrap()
}

fn bringing() -> Package {
    package(&json!({"run.tanzu.vmware.com/tkr-package": ""}))
}

/// The PackageInstall that Sluice creates, with `more` merged into it.
fn found(more: &Value) -> PackageInstall {
    let wanted = match TkrPackage::of(NAMESPACE, NAME, Some(&bringing()), None).install() {
        Some(Install::Create(install)) => install,
        other => panic!("{other:?}"),
    };
    let mut object = json!(*wanted);
    let more_of = json!({"metadata": {"uid": "install", "resourceVersion": "7", "generation": 1}});
    for more in [&more_of, more] {
        merge(&mut object, more);
    }
    serde_json::from_value(object).unwrap()
}

/// The writes of one reconcile if the API server has this Package.
fn writes(install: &Install, package: Option<&Package>) -> Vec<Write> {
    let began = Clock {
        now: jiff::Timestamp::UNIX_EPOCH,
        instant: std::time::Instant::now(),
    };
    let (mut known, mut written) = (Context::new(install, &(), began), Vec::new());
    loop {
        match Install::reconcile(&known, &mut ()) {
            Ok(_) => return written,
            Err(Interrupt::Need(asks)) => {
                for ask in asks {
                    let Read::Object(key, _) = &ask else {
                        panic!("{ask:?}")
                    };
                    assert_eq!((key.resource.kind.as_ref(), key.name.as_str()), ("Package", NAME));
                    let answer = package.map_or(ReadResult::Absent, |package| {
                        ReadResult::Found(Object(json!(package)))
                    });
                    known.record_answer(ask, answer);
                }
            }
            Err(Interrupt::Write(writes)) => {
                for write in writes {
                    written.push(write.clone());
                    known.record_outcome(write, Ok(Object(json!({}))));
                }
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

#[test]
fn a_package_that_brings_releases_is_installed_and_stays_when_it_is_removed() {
    let install = TkrPackage::of(NAMESPACE, NAME, Some(&bringing()), None).install();
    let written = writes(&install.unwrap(), None);
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].verb, Verb::Create);
    let expected = json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "metadata": {
            "name": INSTALL, "namespace": NAMESPACE,
            "annotations": {
                "lifecycle.sluice.dev/tkr-package": NAME,
                "ext.packaging.carvel.dev/ytt-paths-from-secret-name": "sluice-tkr-kapp-config",
            },
        },
        "spec": {
            "serviceAccountName": "sluice-tkr-installer",
            "noopDelete": true,
            "packageRef": {
                "refName": "tkr-vsphere.tanzu.vmware.com",
                "versionSelection": {"constraints": "1.35.4+vmware.1-tkg.1", "prereleases": {}},
            },
        },
    });
    assert_eq!(written[0].body, expected);
}

#[test]
fn nothing_is_written_twice() {
    let (package, found) = (bringing(), found(&json!({})));
    let turn = TkrPackage::of(NAMESPACE, NAME, Some(&package), Some(&found));
    assert!(turn.install().is_none());
    assert_eq!(turn.state(), InstallState::Underway);
    assert_eq!(
        ReleaseEvent::of_install(&found.metadata),
        ReleaseEvent::Package(NAME.to_owned())
    );
}

#[test]
fn packages_without_the_label_are_left_alone() {
    let other = package(&json!({"run.tanzu.vmware.com/tkr": ""}));
    let turn = TkrPackage::of(NAMESPACE, NAME, Some(&other), None);
    assert!(turn.install().is_none());
    assert_eq!(turn.state(), InstallState::Settled);
}

#[rstest]
#[case::uninstalls(json!({"spec": {"noopDelete": null}}), json!({"noopDelete": true}))]
#[case::rights(json!({"spec": {"serviceAccountName": "admin"}}), json!({"serviceAccountName": "sluice-tkr-installer"}))]
#[case::version(
    json!({"spec": {"packageRef": {"versionSelection": {"constraints": "1.0.0"}}}}),
    json!({"packageRef": {"versionSelection": {"constraints": "1.35.4+vmware.1-tkg.1"}}}),
)]
fn edits_are_reverted(#[case] edit: Value, #[case] back: Value) {
    let (package, found) = (bringing(), found(&edit));
    let install = TkrPackage::of(NAMESPACE, NAME, Some(&package), Some(&found)).install();
    let written = writes(&install.unwrap(), None);
    assert_eq!((written.len(), written[0].verb), (1, Verb::Patch));
    let expected = json!({"metadata": {"uid": "install", "resourceVersion": "7"}, "spec": back});
    assert_eq!(written[0].body, expected);
}

#[test]
fn a_pause_is_a_users() {
    let (package, found) = (bringing(), found(&json!({"spec": {"paused": true}})));
    assert!(
        TkrPackage::of(NAMESPACE, NAME, Some(&package), Some(&found))
            .install()
            .is_none()
    );
}

#[rstest]
#[case::gone(None, true)]
#[case::without_the_label(Some(package(&json!({}))), true)]
#[case::there_after_all(Some(bringing()), false)]
fn the_package_install_goes_with_its_package(#[case] read: Option<Package>, #[case] removed: bool) {
    let found = found(&json!({}));
    let install = TkrPackage::of(NAMESPACE, NAME, None, Some(&found)).install();
    let written = writes(&install.unwrap(), read.as_ref());
    let deletions = written
        .iter()
        .filter(|write| write.verb == Verb::Delete && write.body == "install" && write.key.name == INSTALL);
    assert_eq!(
        (written.len(), deletions.count()),
        (usize::from(removed), usize::from(removed))
    );
}

#[test]
fn one_that_was_edited_to_uninstall_is_put_back_before_it_is_removed() {
    let found = found(&json!({"spec": {"noopDelete": null}}));
    let install = TkrPackage::of(NAMESPACE, NAME, None, Some(&found)).install();
    let written = writes(&install.unwrap(), None);
    let expected =
        json!({"metadata": {"uid": "install", "resourceVersion": "7"}, "spec": {"noopDelete": true}});
    assert_eq!((written.len(), written[0].verb), (1, Verb::Patch));
    assert_eq!(written[0].body, expected);
}

#[rstest]
#[case::without_our_mark(json!({"metadata": {"annotations": {"lifecycle.sluice.dev/tkr-package": null}}}))]
#[case::of_another_package(json!({"metadata": {"annotations": {"lifecycle.sluice.dev/tkr-package": "other.1.0.0"}}}))]
fn a_package_install_of_others_is_left_alone(#[case] edit: Value) {
    let (package, found) = (bringing(), found(&edit));
    for package in [None, Some(&package)] {
        let turn = TkrPackage::of(NAMESPACE, NAME, package, Some(&found));
        assert!(turn.install().is_none());
    }
    let InstallState::Failed(fault) = TkrPackage::of(NAMESPACE, NAME, Some(&package), Some(&found)).state()
    else {
        panic!("it is not said");
    };
    assert_eq!(fault.reason, InstallReason::PackageInstallNotOurs);
    assert!(fault.message.contains(INSTALL), "{}", fault.message);
    assert_eq!(
        ReleaseEvent::of_install(&found.metadata),
        ReleaseEvent::Install(INSTALL.to_owned())
    );
}

#[test]
fn one_that_is_being_deleted_is_waited_for() {
    let (package, found) = (
        bringing(),
        found(&json!({"metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"}})),
    );
    for package in [None, Some(&package)] {
        assert!(
            TkrPackage::of(NAMESPACE, NAME, package, Some(&found))
                .install()
                .is_none()
        );
    }
}

#[test]
fn one_that_is_being_deleted_uninstalls_nothing() {
    let found = found(
        &json!({"metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"}, "spec": {"noopDelete": null}}),
    );
    for package in [None, Some(&bringing())] {
        let install = TkrPackage::of(NAMESPACE, NAME, package, Some(&found)).install();
        let written = writes(&install.unwrap(), None);
        assert_eq!((written.len(), written[0].verb), (1, Verb::Patch));
        assert_eq!(written[0].body["spec"], json!({"noopDelete": true}));
    }
}

#[test]
fn a_failed_deletion_is_reported() {
    let found = found(&json!({
        "metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"},
        "status": {"conditions": [{"type": "DeleteFailed", "status": "True"}], "usefulErrorMessage": "kapp: Error: no"},
    }));
    for package in [None, Some(&bringing())] {
        let InstallState::Failed(fault) = TkrPackage::of(NAMESPACE, NAME, package, Some(&found)).state()
        else {
            panic!("it is not said");
        };
        assert_eq!(fault.reason, InstallReason::TKRPackageFailed);
        assert!(fault.message.contains("kapp: Error: no"), "{}", fault.message);
    }
}

fn failed(words: &str) -> InstallFault {
    let (package, found) = (
        bringing(),
        found(&json!({"status": {
            "conditions": [{"type": "ReconcileFailed", "status": "True", "message": "Error (see .status.usefulErrorMessage for details)"}],
            "usefulErrorMessage": words,
        }})),
    );
    match TkrPackage::of(NAMESPACE, NAME, Some(&package), Some(&found)).state() {
        InstallState::Failed(fault) => fault,
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[case::owned(
    "kapp: Error: Ownership errors:\n- Resource 'osimage/noble (run.tanzu.vmware.com/v1alpha3) cluster' is already associated with a \
     different app 'tkr-a.test.1.0.0.app' namespace: tkg-system (label 'kapp.k14s.io/app=1764000000')",
    InstallReason::OwnedByAnotherApp,
    "App tkg-system/tkr-a.test.1.0.0 already owns an object"
)]
#[case::owned_by_an_app_without_a_record(
    "kapp: Error: Ownership errors:\n- Resource 'osimage/noble (run.tanzu.vmware.com/v1alpha3) cluster' is already associated with a \
     different label 'kapp.k14s.io/app=1764000000'",
    InstallReason::OwnedByAnotherApp,
    "App with label kapp.k14s.io/app=1764000000 already owns an object"
)]
#[case::forbidden(
    "kapp: Error: update clusterrole/a (rbac.authorization.k8s.io/v1) cluster:\n  Creating resource: clusterroles \"a\" is forbidden: User \
     \"system:serviceaccount:tkg-system:sluice-tkr-installer\" cannot create resource",
    InstallReason::RightMissing,
    "bind a Role for it to ServiceAccount sluice-tkr-installer"
)]
#[case::owned_by_a_repository(
    "kapp: Error: Ownership errors:\n- Resource 'package/a.test.1.0.0 (data.packaging.carvel.dev/v1alpha1) namespace: tkg-system' is already \
     associated with a different app 'releases.pkgr' namespace: tkg-system (label 'kapp.k14s.io/app=1764000000')",
    InstallReason::OwnedByAnotherApp,
    "PackageRepository tkg-system/releases already owns an object"
)]
#[case::over_a_quota(
    "kapp: Error: create secret/a (v1) namespace: tkg-system:\n  Creating resource: secrets \"a\" is forbidden: exceeded quota: q",
    InstallReason::TKRPackageFailed,
    "exceeded quota: q"
)]
#[case::broken(
    "vendir: Error: Syncing directory '0':\n  Fetching: 404",
    InstallReason::TKRPackageFailed,
    "Syncing directory '0': Fetching: 404"
)]
fn messages_of_kapp_controller_are_classified(
    #[case] words: &str,
    #[case] reason: InstallReason,
    #[case] says: &str,
) {
    let fault = failed(words);
    assert_eq!(fault.reason, reason);
    assert!(fault.message.contains(says), "{}", fault.message);
    assert!(
        fault.message.contains(&format!("{NAMESPACE}/{NAME}")),
        "{}",
        fault.message
    );
    assert!(!fault.message.contains('\n'), "one line");
}

#[test]
fn an_event_takes_as_much_as_the_api_server_does() {
    let fault = failed(&"ä".repeat(2000));
    assert!(
        (900..=1024).contains(&fault.message.len()),
        "{}",
        fault.message.len()
    );
}

#[test]
fn only_the_observed_generation_is_installed() {
    let package = bringing();
    for (observed, state) in [(1, InstallState::Settled), (0, InstallState::Underway)] {
        let found = found(&json!({"status": {
            "conditions": [{"type": "ReconcileSucceeded", "status": "True"}], "observedGeneration": observed,
        }}));
        assert_eq!(
            TkrPackage::of(NAMESPACE, NAME, Some(&package), Some(&found)).state(),
            state
        );
    }
}

#[rstest]
#[case::plain("tkr.test.1.0.0", "tkr.test.1.0.0")]
#[case::build(NAME, INSTALL)]
fn names_are_those_of_packages(#[case] package: &str, #[case] install: &str) {
    assert_eq!(TkrPackage::install_name(package), install);
}

#[rstest]
#[case::upper("tkr.test.1.0.0-RC1")]
#[case::underscore("tkr_a.test.1.0.0")]
#[case::dash_before_a_dot("tkr.test.1.0.0-a-.b")]
#[case::already_spelled_so("tkr.test.1.0.0---vmware.1")]
fn names_that_cannot_be_are_digests(#[case] package: &str) {
    let name = TkrPackage::install_name(package);
    assert!(name.starts_with("tkr-package-"), "{name}");
    assert!(is_object_name(&name));
}

proptest! {
    #[test]
    fn each_package_has_a_name_of_its_own(one in "[a-zA-Z0-9._+-]{1,20}", other in "[a-zA-Z0-9._+-]{1,20}") {
        let names = [&one, &other].map(|name| TkrPackage::install_name(name));
        prop_assert_eq!(one == other, names[0] == names[1]);
        for name in &names {
            prop_assert!(is_object_name(name) && name.split('.').all(is_object_name));
        }
    }

    #[test]
    fn long_names_leave_room(package in "[a-z]{190,253}") {
        prop_assert!(TkrPackage::install_name(&package).len() <= 200);
    }
}
