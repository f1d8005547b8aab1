use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::labels::label;

use super::*;
use crate::{
    names,
    upgrade_plan::{chain::Position, cluster::tests::facts},
};

/// Returns the facts of a Cluster with some versions of its Packages.
fn given() -> Facts {
    let mut facts = facts();
    let package = |name: &str, kapp_controller: Option<&str>| {
        let (short, version) = name.split_once(".x.").unwrap();
        let facts = PackageFacts {
            ref_name: format!("{short}.x"),
            version: version.to_owned(),
            kapp_controller: kapp_controller.map(str::to_owned),
            ..PackageFacts::default()
        };
        (name.to_owned(), facts)
    };
    let all = [
        package("kapp-controller.x.0.52.0", None),
        package("kapp-controller.x.0.53.1+a.1", Some("<0.1.0")),
        package("antrea.x.1.8.0", None),
        package("antrea.x.1.8.0+a.2", None),
        package("metrics.x.1.0.0", Some(">=0.53.0")),
        package("metrics.x.1.1.0", Some("<0.53.0")),
        package("metrics.x.1.2.0", Some("latest")),
    ];
    facts.catalogue = Arc::new(all.into());
    facts
}

/// Returns a spec with these packages.
fn spec(packages: &[&str]) -> ClusterBootstrapSpec {
    let mut spec = json!({});
    let mut additional = Vec::new();
    for name in packages {
        let package = json!({"refName": name});
        match names::short(name) {
            "kapp-controller" => spec["kapp"] = package,
            "antrea" => spec["cni"] = package,
            _ => additional.push(package),
        }
    }
    spec["additionalPackages"] = Value::Array(additional);
    serde_json::from_value(spec).unwrap()
}

const OLD: &str = "kapp-controller.x.0.52.0";
const NEW: &str = "kapp-controller.x.0.53.1+a.1";

#[rstest]
#[case::raised(&[OLD, "antrea.x.1.8.0"], &[NEW, "antrea.x.1.8.0+a.2"], &[])]
#[case::lowered(
    &[NEW, "antrea.x.1.8.0+a.2"], &[OLD, "antrea.x.1.8.0"],
    &["kapp-controller.x goes from 0.53.1+a.1 down to 0.52.0", "antrea.x goes from 1.8.0+a.2 down to 1.8.0"],
)]
#[case::missing(&["antrea.x.9.0.0"], &["antrea.x.1.8.0"], &[])]
#[case::added(&[OLD], &[NEW, "metrics.x.1.0.0"], &[])]
#[case::of_another_kapp_controller(
    &[OLD], &[NEW, "metrics.x.1.1.0"],
    &["Package metrics.x.1.1.0 allows kapp-controller <0.53.0, not 0.53.1+a.1"],
)]
#[case::of_this_kapp_controller(&[OLD], &[OLD, "metrics.x.1.1.0"], &[])]
fn findings_of_packages(#[case] before: &[&str], #[case] after: &[&str], #[case] expected: &[&str]) {
    let messages = messages(&given(), before, after);
    assert_eq!(messages, expected);
}

fn messages(facts: &Facts, before: &[&str], after: &[&str]) -> Vec<String> {
    let link = Link {
        from: "v1.34.4".to_owned(),
        version: "v1.35.4".to_owned(),
        release: Ok("v1.35.4---a.1".to_owned()),
        hold: None,
        position: Position::Unmerged,
        needs: None,
        waits: None,
        is_cut: false,
        workers: false,
        before: Some(spec(before)),
        after: Some(spec(after)),
    };
    let findings = findings(facts, &link).into_iter();
    findings
        .inspect(|finding| assert_eq!(finding.hop.as_deref(), Some("v1.35.4")))
        .map(|finding| finding.message)
        .collect()
}

#[test]
fn constraints_that_cannot_be_parsed_exclude_every_kapp_controller() {
    let messages = messages(&given(), &[OLD], &[OLD, "metrics.x.1.2.0"]);
    let [message] = messages.as_slice() else {
        panic!("{messages:?}");
    };
    let expected = "kappControllerVersionSelection of Package metrics.x.1.2.0 is not usable: ";
    assert!(message.starts_with(expected), "{message}");
}

/// The version of a kapp-controller that another client installs is not known.
#[test]
fn kapp_controller_of_another_client_excludes_nothing() {
    let mut facts = given();
    let cluster = Arc::make_mut(&mut facts.cluster);
    let labels = cluster.metadata.labels.get_or_insert_default();
    labels.insert(label::MANAGEMENT_CLUSTER.to_owned(), String::new());
    let messages = messages(&facts, &[OLD], &[NEW, "metrics.x.1.1.0"]);
    assert_eq!(messages, [""; 0]);
}
