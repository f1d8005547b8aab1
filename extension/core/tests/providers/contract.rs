//! Contract of all kinds.

use std::collections::BTreeSet;

use sluice_core::providers::{Reason, kinds};

#[test]
fn every_configuration_kind_of_the_definitions_is_in_the_table() {
    let defined: BTreeSet<String> = sluice_crds::crds()
        .into_iter()
        .map(|crd| crd.spec.names.kind)
        .filter(|kind| kind.ends_with("Config"))
        .collect();
    let known: BTreeSet<String> = kinds().into_iter().map(|kind| kind.resource.kind).collect();
    assert_eq!(known, defined);
}

#[test]
fn reasons_are_spelled_once() {
    let spelled: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(spelled.len(), Reason::ALL.len());
}
