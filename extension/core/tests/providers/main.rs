//! Golden cases of every configuration kind: `cases/<kind>/<case>.yaml`, each a configuration, its Cluster, the objects
//! around it, and what has to come of them. The reference of what goes where is `docs/reference/providers.md`.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod case;
mod contract;
mod made_up;

use std::collections::BTreeMap;

use case::Evaluated;
use serde_json::Value;
use sluice_core::providers::Source;

#[test]
fn every_case_comes_out_as_written() {
    let mut wrong = Vec::new();
    for case in case::all() {
        let evaluated = case.evaluate();
        if let Err(difference) = case.expect.compare(&evaluated) {
            wrong.push(format!("{}: {difference}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A kind without a case would be a kind without a test.
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

/// What is read says what is watched, so it must be no more than what the result depends on.
#[test]
fn every_object_that_is_read_matters() {
    // These are looked for, and change nothing where they are absent.
    let optional = [
        "ConfigMap vmware-system-csi/csi-feature-states",
        "Service kube-system/kube-apiserver-lb-svc",
    ];
    for case in case::all() {
        let Evaluated { outcome, read } = case.evaluate();
        // A problem is one with or without what was looked at before it.
        if outcome.is_err() {
            continue;
        }
        for source in read {
            let without = case.without(&source).evaluate().outcome;
            let present = case.sources.iter().any(|object| case::is(object, &source));
            let harmless = optional.contains(&&*source.to_string()) || matches!(source, Source::Every { .. });
            assert!(
                !present || harmless || without != outcome,
                "{}: {source} was read and does not matter",
                case.name
            );
        }
    }
}

/// Objects that are not asked for cannot change anything: here everything of all other cases.
#[test]
fn nothing_else_matters() {
    let cases = case::all();
    let around: Vec<Value> = cases
        .iter()
        .flat_map(|case| case.sources.clone())
        .map(|mut object| {
            object["metadata"]["name"] = "somebody-else".into();
            object
        })
        .collect();
    // Zones are counted, whatever their names are.
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

/// A message goes into conditions, events and logs; none of them may hold a credential.
#[test]
fn no_problem_tells_a_credential() {
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
