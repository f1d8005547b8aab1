//! A reconcile never holds an admitted ClusterBootstrap for a rule that admission checks.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use sluice_crds::{
    labels::{annotation, label},
    run::ClusterBootstrapSpec,
};

use super::{super::plan::plan, *};
use crate::{
    admission::{
        Lookup, LookupResult, State,
        tests::{
            agreement::{annotations, catalogue, spec},
            judged, package, review, seen, state,
        },
    },
    digest::DigestInputs,
    names::parse_string_for_label,
    packages::bootstrap::{CREDENTIAL_TYPES, KeptVersions, packages, too_many, unmanaged_conflict},
    reasons::GateReason,
};

/// Reasons of the rules that admission checks.
const RULES: [GateReason; 9] = [
    GateReason::PackageNotFound,
    GateReason::PackageDuplicated,
    GateReason::PackagesTooMany,
    GateReason::ValuesNotFound,
    GateReason::ValuesSourceAmbiguous,
    GateReason::ValuesSecretRefused,
    GateReason::UnmanagedCNIConflict,
    GateReason::NameTooLong,
    GateReason::KeptVersionsInvalid,
];

/// Returns the response of the API server, from the same objects as those of admission.
fn answer(read: &Read, spec: &ClusterBootstrapSpec) -> ReadResult {
    let lookup = match read {
        Read::Object(key, _) => match key.resource.kind.as_ref() {
            "Secret" => Lookup::Secret(key.name.clone()),
            "Cluster" => Lookup::Cluster(key.name.clone()),
            kind => Lookup::Provider {
                group: key.resource.group.to_string(),
                kind: kind.to_owned(),
                name: key.name.clone(),
            },
        },
        Read::Served { kind, .. } if kind == "Unserved" => return ReadResult::Absent,
        Read::Served { group, kind } => {
            let resource = Resource {
                group: group.clone().into(),
                version: "v1".into(),
                kind: kind.clone().into(),
                plural: format!("{}s", kind.to_lowercase()).into(),
            };
            return match kind.as_str() {
                "Wide" => ReadResult::ServedClusterWide(resource),
                _ => ReadResult::Served(resource),
            };
        }
        other => panic!("{other:?} is read"),
    };
    let cni = spec.cni.as_ref().map_or("", |cni| cni.ref_name.as_str());
    let metadata = json!({"name": "any", "namespace": "team-a", "uid": "any", "labels": {
        label::PACKAGE_NAME: parse_string_for_label(cni),
    }});
    let found = |rest: serde_json::Value| {
        let mut object = json!({"metadata": metadata});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        ReadResult::Found(Object(object))
    };
    match seen(&lookup) {
        LookupResult::Secret { credential: true } => found(json!({"type": CREDENTIAL_TYPES[0]})),
        LookupResult::Secret { .. } => found(json!({"type": "Opaque"})),
        LookupResult::Cluster { .. } => found(json!({"spec": {}})),
        LookupResult::Provider => found(json!({"kind": "Foo", "status": {"secretRef": "values"}})),
        _ => ReadResult::Absent,
    }
}

/// Returns the first problem that a reconcile finds with `state` of the Cluster `name`.
fn held(name: &str, state: &State) -> Option<Hold> {
    if let Some(hold) = too_many(&state.spec, "ClusterBootstrap") {
        return Some(hold);
    }
    let unmanaged = state.annotations.contains_key(annotation::UNMANAGED_CNI);
    if let Some(hold) = unmanaged_conflict("one", &state.spec, unmanaged) {
        return Some(hold);
    }
    let kept = state.annotations.get(annotation::KEEP_PACKAGE_VERSIONS);
    if let Err(hold) = KeptVersions::parse(kept.map_or("", String::as_str)) {
        return Some(hold);
    }
    let names: Vec<String> = packages(&state.spec)
        .into_iter()
        .map(|(_, package)| package.ref_name.clone())
        .collect();
    let facts = Facts {
        catalogue: Arc::new(catalogue(&names)),
        owner: Owner {
            name: name.to_owned(),
            ..facts().owner
        },
        ..facts()
    };
    let local = LocalState::default();
    let mut context = Context::new(&facts, &local, clock());
    loop {
        match plan(&context, &state.spec, DigestInputs::default(), None) {
            Ok(plan) => return plan.problem,
            Err(Interrupt::Need(asks)) => {
                for read in asks {
                    let answer = answer(&read, &state.spec);
                    context.record_answer(read, answer);
                }
            }
            Err(stop) => return stop.held().ok(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 100_000, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn an_admitted_bootstrap_is_never_held_for_a_rule_of_admission(
        mut spec in spec(),
        annotations in annotations(),
        length in prop_oneof![4 => Just(3_usize), 1 => 195_usize..235],
        more in prop_oneof![9 => Just(0), 1 => 120..140],
    ) {
        let name = "c".repeat(length);
        let added = (0..more).map(|number| json!({"refName": package(&format!("many-{number}"), "1.0.0")}));
        spec["additionalPackages"].as_array_mut().unwrap().extend(added);
        let state = state(&spec, &annotations);
        let verdict = judged(&review(&name, None, state.clone()));
        prop_assume!(verdict.faults.is_empty());
        prop_assert_eq!(held(&name, &state).filter(|hold| RULES.contains(&hold.reason)), None);
    }
}
