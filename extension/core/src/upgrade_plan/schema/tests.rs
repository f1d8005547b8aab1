use std::{collections::BTreeMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use rstest::rstest;
use serde_json::json;

use super::{document::NotReadable, *};
use crate::{
    clock::Clock,
    protocol::{Interrupt, Object, Read, ReadResult},
    reasons::GateReason,
    reconcile::{self, cluster::LocalState},
    upgrade_plan::chain::Position,
};

/// A value and a field that no finding may show.
const SECRET: &str = "s3cr3t";

#[rstest]
#[case::matching(json!({"type": "object"}), json!({}), &[])]
#[case::other_type(
    json!({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}}),
    json!({"a": {"b": SECRET}}),
    &["a.b is not of type integer"]
)]
#[case::no_map(json!({"type": "string"}), json!({}), &["the document is not of type string"])]
#[case::items_once(
    json!({"properties": {"a": {"items": {"properties": {"b": {"type": "string"}}}}}}),
    json!({"a": [{"b": 1}, {"b": 2}, {"b": SECRET}]}),
    &["a[].b is not of type string"]
)]
#[case::others(
    json!({"properties": {"a": {"additionalProperties": {"type": "string"}}}}),
    json!({"a": {"s3cr3t": 1}}),
    &["a.* is not of type string"]
)]
#[case::unlisted(
    json!({"properties": {"a": {}}, "additionalProperties": false}),
    json!({"s3cr3t": 1, "s3cr3t-2": 1}),
    &["the document has a field that the schema does not list"]
)]
#[case::none_listed(
    json!({"properties": {"a": {"additionalProperties": false}}}),
    json!({"a": {"s3cr3t": 1}}),
    &["a has a field that the schema does not list"]
)]
#[case::open(json!({"properties": {"a": {}}}), json!({"s3cr3t": 1}), &[])]
#[case::lacking(
    json!({"required": ["a", "b"], "properties": {"a": {}, "b": {"default": 1}}}),
    json!({}),
    &["the document has no field a"]
)]
#[case::of_a_list(json!({"properties": {"a": {"enum": ["b", "c"]}}}), json!({"a": SECRET}), &["a is none of the listed values"])]
#[case::pattern(json!({"properties": {"a": {"pattern": "^[0-9]+$"}}}), json!({"a": SECRET}), &["a does not match the pattern"])]
#[case::boolean_limit(
    json!({"properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}}),
    json!({"a": 1}),
    &["a violates exclusiveMinimum"]
)]
#[case::any_of(
    json!({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}}),
    json!({"a": SECRET}),
    &["a violates anyOf"]
)]
#[case::below_all_of(
    json!({"allOf": [{"properties": {"a": {"type": "integer"}}}]}),
    json!({"a": SECRET}),
    &["a is not of type integer"]
)]
#[case::null(json!({"properties": {"a": {"type": "string"}}}), json!({"a": null}), &["a is not of type string"])]
#[case::nullable(json!({"properties": {"a": {"type": "string", "enum": ["b"], "nullable": true}}}), json!({"a": null}), &[])]
#[case::nullable_of_another_type(
    json!({"properties": {"a": {"type": "string", "nullable": true}}}),
    json!({"a": 1}),
    &["a is not of type null or string"]
)]
#[case::nullable_combination(
    json!({"properties": {"a": {"nullable": true, "oneOf": [{"type": "string"}]}}}),
    json!({"a": null}),
    &[]
)]
#[case::reference(
    json!({"properties": {"a/b": {"$ref": "#/definitions/c~1d"}}, "definitions": {"c/d": {"type": "integer"}}}),
    json!({"a/b": SECRET}),
    &["a/b is not of type integer"]
)]
#[case::keywords_as_fields(
    json!({"properties": {"properties": {"properties": {"items": {"type": "integer"}, "$ref": {"type": "integer"}}}}}),
    json!({"properties": {"items": SECRET, "$ref": SECRET}}),
    &["properties.$ref is not of type integer", "properties.items is not of type integer"]
)]
#[case::other_documents(json!({"format": "email", "$schema": "https://a.example.com", "id": "https://b.example.com"}), json!({}), &[])]
#[case::terminal(
    json!({"properties": {"a\u{1b}[31m": {"type": "integer"}}}),
    json!({"a\u{1b}[31m": SECRET}),
    &["a\\u{1b}[31m is not of type integer"]
)]
fn mismatches_name_fields_of_the_schema_alone(
    #[case] schema: Value,
    #[case] values: Value,
    #[case] expected: &[&str],
) {
    let mut found = mismatches(&schema, &values).unwrap();
    found.sort();
    assert_eq!(found, expected);
    assert!(!found.concat().contains(SECRET));
}

#[test]
fn at_most_twenty_mismatches_are_named() {
    let names = (0..100).map(|name| format!("a{name}"));
    let properties: serde_json::Map<String, Value> =
        names.map(|name| (name, json!({"type": "integer"}))).collect();
    let values = properties.keys().map(|name| (name.clone(), json!(SECRET)));
    let values = Value::Object(values.collect());
    let found = mismatches(&json!({"properties": properties}), &values).unwrap();
    assert_eq!(found.len(), MOST);
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |schema, _| json!({"properties": {"a": schema}}))
}

/// Each definition takes the next one twice.
fn doubled(levels: usize) -> Value {
    let twice = |level: usize| {
        let next = json!({"$ref": format!("#/definitions/a{}", level + 1)});
        (format!("a{level}"), json!({"allOf": [next, next]}))
    };
    let mut definitions: serde_json::Map<String, Value> = (0..levels).map(twice).collect();
    definitions.insert(format!("a{levels}"), json!({}));
    json!({"$ref": "#/definitions/a0", "definitions": definitions})
}

#[rstest]
#[case::long(json!({"pattern": "a".repeat(1_000_000)}), json!({}), SchemaNotUsable::TooLong)]
#[case::long_pattern(json!({"pattern": "a".repeat(10_000)}), json!({}), SchemaNotUsable::TooMuchWork)]
#[case::patterns(json!({"allOf": vec![json!({"pattern": "a"}); 1_000]}), json!({}), SchemaNotUsable::TooMuchWork)]
#[case::deep(nested(300), json!({}), SchemaNotUsable::TooDeep)]
#[case::itself(json!({"$ref": "#"}), json!({}), SchemaNotUsable::TooDeep)]
#[case::cyclic(json!({"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}), json!({}), SchemaNotUsable::TooDeep)]
#[case::doubled(doubled(25), json!({}), SchemaNotUsable::TooMuchWork)]
#[case::url(json!({"$ref": "https://example.com/a.json"}), json!({}), SchemaNotUsable::Remote)]
#[case::file(json!({"items": {"$ref": "file:///etc/passwd"}}), json!({}), SchemaNotUsable::Remote)]
#[case::relative(json!({"not": {"$ref": "a.json#/b"}}), json!({}), SchemaNotUsable::Remote)]
#[case::number(json!({"$ref": 1}), json!({}), SchemaNotUsable::Remote)]
#[case::dangling(json!({"$ref": "#/definitions/a"}), json!({}), SchemaNotUsable::Dangling)]
#[case::copies(
    json!({"anyOf": vec![json!({"type": "string"}); 1_000]}),
    json!({"a": vec![json!(0); 1_000]}),
    SchemaNotUsable::TooMuchWork
)]
#[case::many(
    json!({"properties": {"a": {"items": {"type": "string"}}}}),
    json!({"a": vec![json!(0); 300_000]}),
    SchemaNotUsable::TooMuchWork
)]
#[case::long_path(
    json!({"additionalProperties": {"items": {"type": "string"}}}),
    json!({"a".repeat(500_000): vec![json!(0); 1_000]}),
    SchemaNotUsable::TooMuchWork
)]
fn a_schema_beyond_the_limits_is_not_used(
    #[case] schema: Value,
    #[case] values: Value,
    #[case] expected: SchemaNotUsable,
) {
    assert_eq!(mismatches(&schema, &values), Err(expected));
}

#[rstest]
#[case::unknown_type(json!({"type": "strong"}))]
#[case::no_object(json!(["a"]))]
#[case::list_of_items(json!({"items": [{}, {}]}))]
#[case::no_list(json!({"allOf": {}}))]
#[case::large_pattern(json!({"pattern": "((a{100}b){100}c){100}"}))]
#[case::pattern_that_looks_ahead(json!({"pattern": "^(?!a)b"}))]
#[case::no_pattern(json!({"pattern": "("}))]
fn an_invalid_schema_is_not_used(#[case] schema: Value) {
    let found = mismatches(&schema, &json!({}));
    assert!(matches!(found, Err(SchemaNotUsable::Invalid(_))), "{found:?}");
}

fn files(contents: &[&str]) -> Values {
    let named = contents.iter().enumerate();
    named
        .map(|(number, content)| (format!("{number}.yaml"), content.as_bytes().to_vec()))
        .collect()
}

#[rstest]
#[case::empty(&["{}\n"], json!({}))]
#[case::no_content(&["", "# nothing\n"], json!({}))]
#[case::inline(&["{\"a\":{\"b\":[1]}}\n"], json!({"a": {"b": [1]}}))]
#[case::directives(&["#@data/values\n#@overlay/match-child-defaults missing_ok=True\n---\na: 1\n"], json!({"a": 1}))]
#[case::later_files_win(
    &["a: {b: 1, c: 1}\nd: [1, 2]\n", "a: {b: 2}\nd: [3]\n"],
    json!({"a": {"b": 2, "c": 1}, "d": [3]})
)]
fn values_are_one_document(#[case] contents: &[&str], #[case] expected: Value) {
    assert_eq!(document(&files(contents)), Ok(expected));
}

#[rstest]
#[case::no_yaml(b"a: [s3cr3t\n".to_vec())]
#[case::two_documents(b"a: 1\n---\ns3cr3t: 2\n".to_vec())]
#[case::expanding(b"a: &s3cr3t [1]\nb: [*s3cr3t, *s3cr3t]\n".to_vec())]
#[case::deep(format!("a: {}s3cr3t", "[".repeat(300)).into_bytes())]
#[case::no_map(b"s3cr3t".to_vec())]
#[case::no_text(vec![0xff, 0xfe])]
#[case::long(format!("a: s3cr3t\n#{}", "a".repeat(1024 * 1024)).into_bytes())]
fn unreadable_values_are_not_quoted(#[case] content: Vec<u8>) {
    let is_long = content.len() > 1024 * 1024;
    let why = document(&BTreeMap::from([("values.yaml".to_owned(), content)])).unwrap_err();
    assert!(!why.to_string().contains(SECRET), "{why}");
    assert_eq!(why == NotReadable::TooLong, is_long);
}

fn spec(packages: &Value) -> ClusterBootstrapSpec {
    serde_json::from_value(json!({"additionalPackages": packages})).unwrap()
}

/// A Cluster whose ClusterBootstrap has these packages.
fn facts(current: &ClusterBootstrapSpec) -> Facts {
    let bootstrap = json!({"metadata": {"name": "one", "namespace": "team-a"}, "spec": current});
    Facts {
        bootstrap: Some(Arc::new(serde_json::from_value(bootstrap).unwrap())),
        ..reconcile::cluster::tests::facts()
    }
}

fn link(before: ClusterBootstrapSpec, after: ClusterBootstrapSpec) -> Link {
    Link {
        from: "v1.34.4".to_owned(),
        version: "v1.35.4".to_owned(),
        release: Ok("v1.35.4---sluice.1".to_owned()),
        hold: None,
        position: Position::Unmerged,
        needs: None,
        waits: None,
        is_cut: false,
        workers: true,
        before: Some(before),
        after: Some(after),
    }
}

/// Returns the reason and message of each finding, and the reads. Secret `there` has values, and every Package the schema.
fn found(facts: &Facts, link: &Link, values: bool) -> (Vec<(FindingReason, String)>, Vec<String>) {
    let package = json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "metadata": {"name": "antrea.1.9.0"},
        "spec": {
            "refName": "antrea", "version": "1.9.0",
            "valuesSchema": {"openAPIv3": {"properties": {"replicas": {"type": "integer"}}}},
        },
    });
    let package: Arc<Package> = Arc::new(serde_json::from_value(package).unwrap());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some("there".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "values.yaml".to_owned(),
            ByteString(b"replicas: s3cr3t\n".to_vec()),
        )])),
        ..Secret::default()
    };
    let local = LocalState::default();
    let clock = Clock {
        now: Timestamp::UNIX_EPOCH,
        instant: Instant::now(),
    };
    let mut context = Context::new(facts, &local, clock);
    let mut reads = Vec::new();
    loop {
        let needs = match findings(
            &context,
            link,
            Scope {
                schemas: true,
                values,
            },
        ) {
            Ok(findings) => {
                assert!(
                    findings
                        .iter()
                        .all(|finding| finding.hop.as_deref() == Some("v1.35.4"))
                );
                let found = findings
                    .into_iter()
                    .map(|finding| (finding.reason, finding.message));
                return (found.collect(), reads);
            }
            Err(Interrupt::Need(needs)) => needs,
            Err(stop) => panic!("{stop:?}"),
        };
        for read in context.unanswered(needs).unwrap() {
            let answer = match &read {
                Read::Package(_) => ReadResult::Package(Arc::clone(&package)),
                Read::Object(key, _) if key.name == "there" => {
                    ReadResult::Found(Object(serde_json::to_value(&secret).unwrap()))
                }
                _ => ReadResult::Absent,
            };
            match &read {
                Read::Package(name) => reads.push(format!("Package {name}")),
                Read::Object(key, _) => reads.push(key.to_string()),
                other => panic!("{other:?}"),
            }
            context.record_answer(read, answer);
        }
    }
}

fn of_inline(package: &str, replicas: &Value) -> Value {
    json!([{"refName": package, "valuesFrom": {"inline": {"replicas": replicas}}}])
}

fn of_secret(package: &str, secret: &str) -> Value {
    json!([{"refName": package, "valuesFrom": {"secretRef": secret}}])
}

const MISMATCH: (FindingReason, &str) = (
    FindingReason::Warning(WarningReason::ValuesNotInSchema),
    "values of Package antrea.1.9.0 do not match its valuesSchema: replicas is not of type integer",
);

#[rstest]
#[case::matching(of_inline("antrea.1.9.0", &json!(3)), false, &[], &["Package antrea.1.9.0"])]
#[case::inline(of_inline("antrea.1.9.0", &json!(SECRET)), false, &[MISMATCH], &["Package antrea.1.9.0"])]
#[case::defaults(json!([{"refName": "antrea.1.9.0"}]), true, &[], &[])]
#[case::secret(of_secret("antrea.1.9.0", "there"), false, &[], &[])]
#[case::secret_that_is_read(
    of_secret("antrea.1.9.0", "there"), true, &[MISMATCH], &["Package antrea.1.9.0", "Secret team-a/there"]
)]
#[case::missing_secret(
    of_secret("antrea.1.9.0", "missing"),
    true,
    &[(
        FindingReason::Gate(GateReason::ValuesNotFound),
        "Secret team-a/missing with the values of package antrea.1.9.0 (valuesFrom.secretRef) does not exist",
    )],
    &["Package antrea.1.9.0", "Secret team-a/missing"]
)]
fn values_are_compared_with_the_package_of_the_step(
    #[case] packages: Value,
    #[case] values: bool,
    #[case] expected: &[(FindingReason, &str)],
    #[case] expected_reads: &[&str],
) {
    let mut before = packages.clone();
    before[0]["refName"] = json!("antrea.1.8.0");
    let (before, after) = (spec(&before), spec(&packages));
    let (found, mut reads) = found(&facts(&before), &link(before.clone(), after), values);
    reads.sort();
    let found: Vec<(FindingReason, &str)> = found
        .iter()
        .map(|(reason, message)| (*reason, message.as_str()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(reads, expected_reads);
}

#[test]
fn later_steps_compare_what_they_change() {
    let facts = facts(&spec(&of_inline("antrea.1.8.0", &json!(SECRET))));
    let at = |package: &str| spec(&of_inline(package, &json!(SECRET)));
    let (unchanged, reads) = found(&facts, &link(at("antrea.1.9.0"), at("antrea.1.9.0")), true);
    assert_eq!((unchanged, reads), (Vec::new(), Vec::new()));
    let (changed, _) = found(&facts, &link(at("antrea.1.8.5"), at("antrea.1.9.0")), true);
    assert_eq!(changed.len(), 1);
}

#[test]
fn values_that_a_step_creates_are_not_read() {
    let before = spec(&json!([]));
    let after = spec(&of_secret("antrea.1.9.0", "one-antrea-package"));
    let (found, reads) = found(&facts(&before), &link(before.clone(), after), true);
    assert_eq!((found, reads), (Vec::new(), Vec::new()));
}
