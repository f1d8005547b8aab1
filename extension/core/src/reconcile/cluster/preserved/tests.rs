//! Values of Secrets that the addons-manager wrote.

use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::run::ClusterBootstrapSpec;

use super::*;
use crate::{
    digest::DigestInputs,
    packages::bootstrap::{Catalogue, PackageFacts},
    reconcile::cluster::{
        LocalState,
        plan::{PlannedValues, plan},
        tests::{clock, facts},
    },
};

const PACKAGE: &str = "antrea.test.1.0.0";
const RELEASE: &str = "v1.35.4---a.1";

/// The document of the addons-manager, with all fields.
const TKGS: &str = "nodeSelector:\n    run.tanzu.vmware.com/tkr: v1.35.4---a.1\ndeployment:\n    updateStrategy: RollingUpdate\n    \
                    rollingUpdate:\n        maxUnavailable: 0\n        maxSurge: 1\ndaemonset:\n    updateStrategy: OnDelete\n";

/// The same for the Nodes of another release.
const OF_ANOTHER: &str = "nodeSelector:\n    run.tanzu.vmware.com/tkr: v1.34.4---a.1\ndeployment:\n    updateStrategy: RollingUpdate\n    \
                          rollingUpdate:\n        maxUnavailable: 0\n        maxSurge: 1\ndaemonset:\n    updateStrategy: OnDelete\n";

fn values(pairs: &[(&str, &str)]) -> Values {
    let pairs = pairs
        .iter()
        .map(|(key, content)| ((*key).to_owned(), content.as_bytes().to_vec()));
    pairs.collect()
}

/// Returns a package with these own values, on a Supervisor if its Nodes have a release.
fn planned(own: &[(&str, &str)], schema: &Value, release: Option<&str>) -> Planned {
    let mut facts = facts();
    let package = PackageFacts {
        ref_name: "antrea.test".to_owned(),
        version: "1.0.0".to_owned(),
        lacked: LackedFields::of(schema),
        ..PackageFacts::default()
    };
    facts.catalogue = Arc::new(Catalogue::from([(PACKAGE.to_owned(), package)]));
    let spec: ClusterBootstrapSpec = serde_json::from_value(json!({"cni": {"refName": PACKAGE}})).unwrap();
    let local = LocalState::default();
    let context = Context::new(&facts, &local, clock());
    let plan = plan(&context, &spec, DigestInputs::default(), None).unwrap();
    let mut planned = plan.planned.into_iter().next().unwrap();
    planned.on_supervisor = release.map(str::to_owned);
    planned.values = PlannedValues::Read(planned.completed(values(own)));
    planned
}

fn has_planned_values(planned: &Planned, found: Values) -> bool {
    has_values(planned, planned.values().unwrap(), found)
}

const OWN: (&str, &str) = ("values.yaml", "a: 1\n");
const EMPTY: (&str, &str) = ("values.yaml", "{}\n");
const SUPERVISOR: (&str, &str) = ("tkgs-values.yaml", TKGS);

#[rstest]
#[case::both_keys(&[OWN], &[OWN, SUPERVISOR], true)]
#[case::the_own_key_alone(&[OWN], &[OWN], false)]
#[case::other_own_values(&[OWN], &[("values.yaml", "a: 2\n"), SUPERVISOR], false)]
#[case::nodes_of_another_release(&[OWN], &[OWN, ("tkgs-values.yaml", OF_ANOTHER)], false)]
#[case::without_values(&[EMPTY], &[SUPERVISOR], true)]
#[case::with_empty_values(&[EMPTY], &[EMPTY, SUPERVISOR], true)]
#[case::own_values_where_none_are_planned(&[EMPTY], &[OWN, SUPERVISOR], false)]
#[case::unlike_yaml(&[OWN], &[OWN, ("tkgs-values.yaml", "nodeSelector: {}\n")], false)]
#[case::a_third_key(&[OWN], &[OWN, SUPERVISOR, ("more.yaml", "a: 1\n")], false)]
fn values_of_a_supervisor_have_both_keys(
    #[case] own: &[(&str, &str)],
    #[case] found: &[(&str, &str)],
    #[case] kept: bool,
) {
    let planned = planned(own, &Value::Null, Some(RELEASE));
    assert_eq!(has_planned_values(&planned, values(found)), kept);
}

/// The addons-manager knew no schema.
#[rstest]
#[case::some(json!({"openAPIv3": {"properties": {"daemonset": {}}}}))]
#[case::all(json!({"openAPIv3": {"additionalProperties": false}}))]
fn lacked_fields_may_be_there(#[case] schema: Value) {
    for own in [OWN, EMPTY] {
        let planned = planned(&[own], &schema, Some(RELEASE));
        assert!(
            has_planned_values(&planned, values(&[own, SUPERVISOR])),
            "{own:?}"
        );
        let exactly = planned.values().unwrap().clone();
        assert!(has_planned_values(&planned, exactly), "{own:?}");
    }
}

#[test]
fn elsewhere_values_for_a_supervisor_are_of_a_user() {
    let planned = planned(&[OWN], &Value::Null, None);
    assert!(has_planned_values(&planned, values(&[OWN])));
    assert!(!has_planned_values(&planned, values(&[OWN, SUPERVISOR])));
}
