//! Golden cases of every configuration kind: `cases/<kind>/<case>.yaml`, each with a configuration, its Cluster, its sources and the
//! expected result. `docs/reference/providers.md` is the reference of all fields.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod case;
mod contract;
mod made_up;

use std::collections::BTreeMap;

use case::Evaluated;
use serde_json::Value;
use sluice_core::providers::Source;

#[test]
fn every_case_has_its_expected_result() {
    let mut wrong = Vec::new();
    for case in case::all() {
        let evaluated = case.evaluate();
        if let Err(difference) = case.expect.compare(&evaluated) {
            wrong.push(format!("{}: {difference}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A kind without a case has no test.
#[test]
fn every_kind_has_a_minimal_and_a_full_case() {
    let mut of_kind: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for case in case::all() {
        let kind = case.kind().resource.kind;
        of_kind.entry(kind).or_default().push(case.name);
    }
    for kind in case::table() {
        let kind = kind.resource.kind;
        let cases = of_kind.get(&kind).unwrap_or_else(|| panic!("{kind} has no case"));
        for wanted in ["minimal", "full"] {
            assert!(
                cases.iter().any(|case| case.contains(wanted)),
                "{kind} has no {wanted} case: {cases:?}"
            );
        }
    }
}

/// The controller watches each object that it reads, so the result must depend on each.
#[test]
fn the_result_depends_on_every_read_object() {
    // Optional objects: their absence changes nothing.
    let optional = [
        "ConfigMap vmware-system-csi/csi-feature-states",
        "Service kube-system/kube-apiserver-lb-svc",
    ];
    for case in case::all() {
        let Evaluated { outcome, read } = case.evaluate();
        // A problem may not depend on earlier reads.
        if outcome.is_err() {
            continue;
        }
        for source in read {
            let without = case.without(&source).evaluate().outcome;
            let present = case.sources.iter().any(|object| case::is(object, &source));
            let harmless = optional.contains(&&*source.to_string()) || matches!(source, Source::Every { .. });
            assert!(
                !present || harmless || without != outcome,
                "{}: the result does not depend on {source}",
                case.name
            );
        }
    }
}

/// Adds the sources of all other cases under another name.
#[test]
fn the_result_depends_on_no_other_object() {
    let cases = case::all();
    let around: Vec<Value> = cases
        .iter()
        .flat_map(|case| case.sources.clone())
        .map(|mut object| {
            object["metadata"]["name"] = "somebody-else".into();
            object
        })
        .collect();
    // Zones are counted regardless of their names.
    let around: Vec<Value> = around
        .into_iter()
        .filter(|object| object["kind"] != "AvailabilityZone")
        .collect();
    for case in &cases {
        let mut more = case.clone();
        more.sources.extend(around.iter().cloned());
        assert_eq!(more.evaluate().outcome, case.evaluate().outcome, "{}", case.name);
    }
}

/// Conditions, events and logs contain the message, and none may contain a credential.
#[test]
fn no_problem_contains_a_credential() {
    for case in case::all() {
        if let Err(problem) = case.evaluate().outcome {
            assert!(
                !problem.message.contains(case::CANARY),
                "{}: {problem}",
                case.name
            );
        }
    }
}
