//! CustomResourceDefinition: the API server accepts it, and it serves the expected version.
//!
//! Helm installs the definitions of a chart and never upgrades them. Only a definition of the kinds itself says which versions are served.

use super::clause::{Clause, Judge, Seen, of_check};
use super::common::{BELONGS, EXISTS, EXPRESSION, NAMED, NOT_DELETING, OBSERVED_IF_REPORTED, TYPED};
use super::object::{Type, condition, detail, elements, flag, text};
use super::verdict::Verdict;
use crate::reasons::CheckReason;

pub(super) static JUDGE: Judge = Judge {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    delivers: false,
    fields: &[
        ("/spec/versions", Type::Versions),
        ("/status/observedGeneration", Type::Number),
    ],
    clauses: &[
        EXISTS,
        TYPED,
        NAMED,
        BELONGS,
        NOT_DELETING,
        Clause {
            name: "served",
            met: |seen| {
                let Some(expected) = seen.expected.version else {
                    return true;
                };
                let mut versions = elements(seen.object(), "/spec/versions");
                versions.any(|version| text(version, "/name") == Some(expected) && flag(version, "/served"))
            },
            objection: |seen| {
                let message = format!("{} does not serve version {}", seen.name(), seen.version());
                Verdict::waiting(CheckReason::NotServed, message)
            },
        },
        // Newer API servers report the generation.
        OBSERVED_IF_REPORTED,
        Clause {
            name: "names accepted",
            met: |seen| condition(seen.object(), "NamesAccepted", "True").is_some(),
            objection: |seen| unserved(seen, "the names of its kinds are not accepted"),
        },
        Clause {
            name: "established",
            met: |seen| condition(seen.object(), "Established", "True").is_some(),
            objection: |seen| unserved(seen, "it is not established"),
        },
        EXPRESSION,
    ],
    proving: of_check,
};

fn unserved(seen: &Seen<'_>, cause: &str) -> Verdict {
    let message = format!("{} is not served: {cause}", seen.name());
    let conditions = [("NamesAccepted", "False"), ("Established", "False")];
    Verdict::waiting(CheckReason::NotServed, message).with_detail(detail(seen.object(), &conditions))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gates::judge::cases::{
        OBJECT, Without, Wrong, custom_resource_definition, each_clause_is_needed,
    };

    #[rustfmt::skip]
    const WRONG: &[Wrong] = &[
        ("served", |given| given.version = Some("v3"), CheckReason::NotServed, Without::Proven),
        ("served", |given| given.version = Some("v1"), CheckReason::NotServed, Without::Proven),
        ("served", |given| given.version = Some(""), CheckReason::NotServed, Without::Proven),
        ("served", |given| given.set("/spec/versions/1", "served", json!(null)), CheckReason::NotServed, Without::Proven),
        ("served", |given| given.set("/spec", "versions", json!([])), CheckReason::NotServed, Without::Proven),
        ("typed", |given| given.set("/spec/versions/0", "served", json!("true")), CheckReason::NotObserved, Without::Proven),
        ("observed", |given| given.set("/status", "observedGeneration", json!(2)), CheckReason::NotObserved, Without::Proven),
        ("names accepted", |given| given.set("/status/conditions/0", "status", json!("False")), CheckReason::NotServed, Without::Proven),
        ("established", |given| given.set("/status/conditions/1", "status", json!("False")), CheckReason::NotServed, Without::Proven),
        ("established", |given| given.set("/status/conditions/1", "status", json!("Unknown")), CheckReason::NotServed, Without::Proven),
        ("established", |given| given.set("/status/conditions/1", "type", json!("Ready")), CheckReason::NotServed, Without::Proven),
    ];

    #[test]
    fn each_clause_of_a_definition_is_needed() {
        each_clause_is_needed(custom_resource_definition, &[OBJECT, WRONG].concat());
    }

    #[test]
    fn a_version_that_is_no_longer_served_is_named() {
        let mut given = custom_resource_definition();
        given.version = Some("v1");
        assert_eq!(
            given.message(),
            "CustomResourceDefinition cilium does not serve version v1"
        );
        given.version = None;
        assert_eq!(given.judged().reason(), None, "it is established");
    }

    #[test]
    fn most_api_servers_report_no_generation() {
        let mut given = custom_resource_definition();
        given.remove("/status", "observedGeneration");
        assert_eq!(given.judged().reason(), None);
    }

    #[test]
    fn the_condition_of_a_conflict_is_the_detail() {
        let mut given = custom_resource_definition();
        let conflict = json!({
            "type": "NamesAccepted", "status": "False", "reason": "PluralConflict", "message": "in use",
        });
        given.set("/status", "conditions", json!([conflict]));
        assert_eq!(
            given.message(),
            "CustomResourceDefinition cilium is not served: the names of its kinds are not accepted"
        );
        assert_eq!(given.detail(), "NamesAccepted=False (PluralConflict): in use");
    }
}
