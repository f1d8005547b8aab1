use std::cell::Cell;

use rstest::rstest;
use serde_json::{Map, Value, json};

use super::*;
use crate::reasons::CheckReason;

fn object() -> Value {
    json!({
        "metadata": {
            "name": "main", "namespace": "team-a", "generation": 3,
            "labels": {"app.kubernetes.io/name": "main"}, "annotations": {"a": "1", "b": "2"},
        },
        "spec": {"replicas": 2, "ports": [80, 443], "large": u64::MAX, "ratio": 0.5, "none": null},
        "status": {
            "ready": true, "version": "v1.18.2", "secret": "hunter2",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"}],
        },
    })
}

fn evaluated(text: &str, object: &Value) -> Result<bool, ExpressionError> {
    let cluster = json!({"metadata": {"name": "prod-1", "namespace": "team-a", "labels": {"cni": "cilium"}}});
    let variables = Variables {
        object,
        version: "v1.18.2",
        hop: "v1.35.4+vmware.1",
        cluster: Some(&cluster),
    };
    Expression::compile(text).unwrap().evaluate(&variables)
}

#[rstest]
#[case::version("object.status.version == version && object.status.ready")]
#[case::condition("object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')")]
#[case::namespace_as_written("object.metadata.namespace == 'team-a'")]
#[case::label("object.metadata.labels['app.kubernetes.io/name'] == 'main'")]
#[case::key("'cni' in cluster.labels && !('cni' in cluster.annotations)")]
#[case::cluster("cluster.name + '/' + cluster.namespace == 'prod-1/team-a'")]
#[case::hop("hop.version == 'v1.35.4+vmware.1' && hop.minor == '1.35'")]
#[case::absent_field("!has(object.status.phase)")]
#[case::optional_field("object.?status.?phase.orValue('none') == 'none'")]
#[case::optional_index("object[?'status'].hasValue() && !object.spec.ports[?7].hasValue()")]
#[case::optional_value("object.?status.ready.value()")]
#[case::optional_alternative("object.?a.or(object.?status).hasValue()")]
#[case::numbers(
    "object.spec.replicas == 2 && object.spec.ratio * 4.0 == 2.0 && object.spec.large == 18446744073709551615u"
)]
#[case::integers_are_signed("object.spec.replicas - 3 == -1")]
#[case::types(
    "type(object.spec.replicas) == int && type(object.metadata) == map && type(object.spec.ports) == list"
)]
#[case::conversions(
    "int('2') == 2 && string(object.spec.replicas) == '2' && double('1.5') == 1.5 && uint(2) == 2u && bool('true')"
)]
#[case::null("object.spec.none == null && dyn(1) == 1.0")]
#[case::list("object.spec.ports == [80, 443] && [80, 443] == object.spec.ports && 80 in object.spec.ports")]
#[case::sizes("size(object.spec.ports) == 2 && object.metadata.labels.size() == 1 && 'äöü'.size() == 3")]
#[case::macros(
    "object.spec.ports.map(p, p + 1) == [81, 444] && object.spec.ports.filter(p, p > 80) == [443]"
)]
#[case::one("object.spec.ports.exists_one(p, p == 80) && object.spec.ports.all(p, p > 0)")]
#[case::keys_in_order("object.metadata.annotations.map(k, object.metadata.annotations[k]) == ['1', '2']")]
#[case::nested("object.spec.ports.all(p, object.status.conditions.all(c, c.type != string(p)))")]
#[case::texts("object.status.version.startsWith('v1.') && version.endsWith('.2') && version.contains('18')")]
#[case::pattern(r"object.status.version.matches(r'^v\d+[.]\d+[.]\d+$')")]
#[case::pattern_of_macro("['v1', 'v2'].all(v, v.matches('^v[12]$')) && !'v3'.matches('^v[12]$')")]
#[case::condition_of_three("(object.status.ready ? 1 : 2) == 1")]
#[case::error_beside_true("object.status.phase == 'a' || object.status.ready")]
#[case::equal_maps("object.metadata.labels == object.metadata.labels && object == object")]
#[case::whole_index("object.spec.ports[1] == 443 && object.spec.ports[1.0] == 443")]
#[case::signs_in_quotes("'!-' != '-!' && 1 - -1 == 2 && !!true && 2 != -1")]
#[case::comment("true // the rest\n && true")]
fn an_expression_is_true(#[case] text: &str) {
    assert_eq!(evaluated(text, &object()), Ok(true), "{text}");
    assert_eq!(evaluated(&format!("!({text}\n)"), &object()), Ok(false), "{text}");
}

#[rstest]
#[case::absent("object.status.phase == 'a'", "phase is missing; test it with has()")]
#[case::absent_key("object.metadata.labels['b'] == 'a'", "b is missing")]
#[case::element("object.spec.ports[7] == 1", "a list has no such element")]
#[case::string("object.status.version", "its result is of type string; compare it")]
#[case::optional("object.?status.?ready", "its result is of type optional_type")]
#[case::null("object.spec.none", "its result is of type null_type")]
#[case::operands(
    "object.spec.ports + 1 == 2",
    "add is not defined for the types of its operands"
)]
#[case::order(
    "object.status.version < 3",
    "found no matching overload for '_<_' applied to '(string, int)'"
)]
#[case::not_a_list("object.status.ready.all(x, x)", "a value is not of type iterable")]
#[case::division("object.spec.replicas / 0 == 1", "a division by zero")]
#[case::remainder("object.spec.replicas % 0 == 1", "a division by zero")]
#[case::overflow("object.spec.replicas + 9223372036854775807 > 0", "add overflows")]
#[case::negation("-(-9223372036854775807 - 1) > 0", "")]
#[case::conversion("int(object.status.version) == 1", "int fails for its argument")]
#[case::pattern_of_a_number("object.spec.replicas.matches('a')", "matches fails for its argument")]
#[case::value_of_none("object.?a.value() == 1", "")]
fn a_failing_expression_says_why(#[case] text: &str, #[case] expected: &str) {
    let error = evaluated(text, &object()).unwrap_err();
    assert_eq!(error.reason, CheckReason::ExpressionFailed);
    assert_eq!(error.message, "the expression fails");
    assert!(
        error.detail.starts_with(expected) && !error.detail.is_empty(),
        "{}",
        error.detail
    );
}

/// An author may be allowed to gate a Cluster, but not to read the objects of it.
#[rstest]
#[case::key("object.metadata.labels[object.status.secret] == 'a'")]
#[case::index("object.spec.ports[object.status.secret] == 1")]
#[case::operands("object.status.secret + 1 == 2")]
#[case::conversion("int(object.status.secret) == 1")]
#[case::operands_of_maps("object.status - object.status == 1")]
#[case::result("object.status.secret")]
#[case::list_as_key("object.metadata.labels[[object.status.secret]] == 'a'")]
fn an_error_has_no_content_of_the_object(#[case] text: &str) {
    let error = evaluated(text, &object()).unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[rstest]
#[case::empty("", "does not compile: line 1, column 1")]
#[case::syntax("object.status ==", "does not compile: line 1, column 17")]
#[case::lines("true &&\n  )", "does not compile: line 2, column 3")]
#[case::quotes("object.status == 'a", "does not compile: ")]
#[case::reserved("namespace == 'a'", "does not compile: ")]
#[case::variable(
    "self.status.ready",
    "uses self; the variables are object, version, hop and cluster"
)]
#[case::variable_of_a_macro("object.list.all(c, true) && c", "uses c; ")]
#[case::absolute_name(".object.status", "uses .object; ")]
#[case::hidden(
    "object.list.all(version, version == 1)",
    "uses version as variable of a macro, which hides another"
)]
#[case::hidden_variable(
    "object.list.all(c, object.list.all(c, true))",
    "uses c as variable of a macro"
)]
#[case::hidden_type("object.list.all(int, true)", "uses int as variable of a macro")]
#[case::function(
    "object.list.sum() == 1",
    "calls .sum() with 0 arguments; the functions are size, "
)]
#[case::duration("duration('1h') == duration('60m')", "calls duration() with 1 arguments")]
#[case::optional_function("optional.of(1).hasValue()", "calls .of() with 1 arguments")]
#[case::global_matches("matches('a', 'b')", "calls matches() with 2 arguments")]
#[case::bytes("b'a' == b'a'", "has bytes")]
#[case::bytes_function("bytes('a') == bytes('a')", "calls bytes()")]
#[case::map("{'a': 1} == {'a': 1}", "makes a map or an object")]
#[case::made("a.b{c: 1} == 1", "makes a map or an object")]
#[case::signs_of_two_types("!-1.?b.orValue(object).exists_one(z, false)", "has ! before -")]
#[case::signs_of_two_types_apart("true || !! // a\n - 1 == 1", "has ! before -")]
#[case::signs_of_two_types_reversed("-!object.ready == 1", "has ! before -, or - before !")]
#[case::three_macros(
    "object.a.all(x, object.b.all(y, object.c.all(z, true)))",
    "has more than 2 macros such as exists() within each other"
)]
#[case::computed_pattern("version.matches(object.pattern)", "has matches() without a literal pattern")]
#[case::pattern("version.matches('(')", "has a pattern that does not compile: ")]
#[case::long_pattern(&format!("version.matches('{}')", "a".repeat(257)), "has a pattern of 257 bytes")]
#[case::huge_pattern(
    "version.matches('((a{99}){99}){99}')",
    "has a pattern that does not compile: "
)]
#[case::deep_pattern(&format!("version.matches('{}{}')", "(".repeat(40), ")".repeat(40)), "has a pattern that does not compile: ")]
#[case::many_patterns(&(0..9).map(|at| format!("version.matches('{at}')")).collect::<Vec<_>>().join(" && "), "has more than 8 patterns")]
#[case::long(&format!("version == '{}'", "a".repeat(2048)), "has 2061 bytes; write at most 2048")]
#[case::signs(&"!".repeat(1025), "has 1025 operators and other signs")]
#[case::nodes(&vec!["version == 'a'"; 101].join(" && "), "has 403 nodes; simplify it to at most 300")]
#[case::macros(&format!("{}.size() == 1", "object.list.map(x, x)".to_owned() + &".map(x, x)".repeat(40)), "has ")]
#[case::depth(&vec!["1"; 80].join(" + "), "is nested deeper than 64 levels")]
#[case::brackets(&format!("{}1{}", "[".repeat(40), "]".repeat(40)), "does not compile: ")]
#[case::fields(&format!("object{} == 1", ".a".repeat(80)), "is nested deeper than 64 levels")]
fn a_text_that_is_not_allowed_is_refused(#[case] text: &str, #[case] expected: &str) {
    let problem = Expression::compile(text).unwrap_err();
    assert!(problem.starts_with(expected), "{problem}");
    assert!(
        !problem.contains('\n') && problem.chars().count() < 512,
        "{problem}"
    );
}

#[test]
fn the_variables_of_an_expression_are_known() {
    let uses = |text: &str| {
        let expression = Expression::compile(text).unwrap();
        Variable::ALL.map(|variable| expression.uses(variable))
    };
    assert_eq!(uses("true"), [false; 4]);
    assert_eq!(
        uses("object.list.all(o, o == version)"),
        [true, true, false, false]
    );
    assert_eq!(uses("hop.minor == cluster.name"), [false, false, true, true]);
    // Fields and texts are no variables.
    assert_eq!(uses("object.version == 'cluster'"), [true, false, false, false]);
}

#[test]
fn expressions_are_equal_by_text() {
    let compiled = |text: &str| Expression::compile(text).unwrap();
    assert_eq!(compiled("true"), compiled("true"));
    assert_ne!(compiled("true"), compiled("true "));
    assert_eq!(compiled("true").metered(&Meter::default()), compiled("true"));
    assert_eq!(compiled("true ").text(), "true ");
}

#[test]
fn a_cluster_that_was_not_read_is_no_empty_one() {
    let object = object();
    let variables = Variables {
        object: &object,
        version: "",
        hop: "v1.35.4",
        cluster: None,
    };
    let evaluated = |text: &str| Expression::compile(text).unwrap().evaluate(&variables);
    assert_eq!(evaluated("version == ''"), Ok(true));
    let error = evaluated("cluster.name == 'a' || true").unwrap_err();
    assert_eq!(error.detail, "the Cluster was not read");
}

fn cost_of(text: &str, object: &Value) -> Cost {
    let expression = Expression::compile(text).unwrap();
    expression.cost(&Variables {
        object,
        version: "",
        hop: "",
        cluster: None,
    })
}

#[rstest]
#[case::nodes("object.a == 1", 4)]
#[case::condition("object.a == 1 ? object.a : 2", 8)]
// object.list and the start of the result, then the condition and the step for each of ten elements, then the result.
#[case::elements("object.list.all(x, x == 1)", 1 + 2 + 1 + 10 * (2 + 2 + 3) + 1 - 1 + 1)]
#[case::absent_list("object.none.all(x, x == 1)", 5)]
#[case::text("object.text.all(x, x == 1)", 5)]
fn steps_are_nodes_times_elements(#[case] text: &str, #[case] expected: u64) {
    let list: Vec<u8> = (0..10).collect();
    let object = json!({"a": 1, "list": list, "text": "abc"});
    assert_eq!(cost_of(text, &object).steps, expected, "{text}");
}

/// The evaluator makes a value of each element of a list that is read, and of each key and field of a map.
#[rstest]
#[case::element("object.list[0] == 1", 100)]
#[case::elements("object.list[0] == object.list[1] && object.?list[2].hasValue()", 100)]
#[case::field("object.map.a == 1", 200)]
#[case::optional_field("object.map.?b.hasValue() || has(object.map.a)", 200)]
#[case::key("'a' in object.map", 200)]
#[case::both("object.map.a == object.list[0]", 300)]
fn a_list_or_map_that_is_read_counts_once(#[case] text: &str, #[case] values: u64) {
    let bytes = |length: u32| {
        let map: Map<String, Value> = (0..length).map(|at| (at.to_string(), json!(1))).collect();
        let list: Vec<u32> = (0..length).collect();
        cost_of(text, &json!({"list": list, "map": map})).bytes
    };
    let each = (bytes(1_100) - bytes(1_000)) / values;
    assert!(each > 50 && each < 500, "{each}");
}

#[test]
fn steps_of_nested_macros_multiply() {
    let steps = |length: usize| {
        let list = vec![1; length];
        cost_of(
            "object.list.all(x, object.list.all(y, x == y))",
            &json!({"list": list}),
        )
        .steps
    };
    let (once, twice) = (steps(100), steps(200));
    assert!(once > 3 * 100 * 100 && once < 12 * 100 * 100, "{once}");
    assert!(twice > 39 * once / 10 && twice < 4 * once, "{twice}");
}

#[rstest]
#[case::long_list(
    "object.list.all(x, x >= 0 && x < 100000)",
    20_000,
    Some("it would take more than 100000 steps")
)]
#[case::short_list("object.list.all(x, x >= 0 && x < 100000)", 2_000, None)]
#[case::square(
    "object.list.all(x, object.list.all(y, x == x))",
    150,
    Some("it would take more than 100000 steps")
)]
#[case::small_square("object.list.all(x, object.list.all(y, x == x))", 50, None)]
#[case::products(
    "object.list.map(x, object.list).map(x, x + x).map(x, x + x).size() > 0",
    500,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::doubled_text(
    "[object.text].map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).map(x, x + x).size() == 1",
    1_000,
    None
)]
#[case::doubled_often(&format!("[object.text]{}.size() == 1", ".map(x, x + x)".repeat(20)), 10, Some("it would "))]
#[case::doubled_lists(&format!("[object.list]{}.size() == 1", ".map(x, x + x)".repeat(20)), 10, Some("it would "))]
#[case::doubled_levels(&format!("[1]{}.size() == 1", ".map(x, [x, x])".repeat(20)), 0, Some("it would compare and copy more than 16 MiB"))]
#[case::pattern(
    "object.text.matches('.{0,60}b')",
    100_000,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::short_pattern("!object.text.matches('b')", 25_000, None)]
#[case::list_as_element(
    "object.list in object.list",
    3_000,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::numbers_and_list(
    "object.list.all(x, x != object.list)",
    3_000,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::long_key(
    "object.list.all(x, !hop[?object.text].hasValue())",
    9_000,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::searches(
    "object.list.all(x, !object.text.contains('b'))",
    5_000,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::comparisons(
    "object.list.all(x, object.list == object.list)",
    3_000,
    Some("it would compare and copy more than 16 MiB")
)]
#[case::error(
    "object.list.exists(x, object.list + 1 == x) || true",
    3_000,
    Some("it would compare and copy more than 16 MiB")
)]
fn an_expression_that_costs_too_much_is_not_evaluated(
    #[case] text: &str,
    #[case] length: usize,
    #[case] expected: Option<&str>,
) {
    let list: Vec<usize> = (0..length).collect();
    let object = json!({"list": list, "text": "a".repeat(length)});
    match (evaluated(text, &object), expected) {
        (Ok(result), None) => assert!(result),
        (Err(error), Some(expected)) => {
            assert_eq!(error.reason, CheckReason::ExpressionTooCostly);
            assert_eq!(error.message, "the expression costs too much");
            assert!(error.detail.starts_with(expected), "{}", error.detail);
        }
        (result, _) => panic!("{result:?}"),
    }
}

thread_local! {
    static COPIES: Cell<u64> = const { Cell::new(0) };
}

/// Counts a copy of a list or map of an object.
pub(super) fn copied() {
    COPIES.set(COPIES.get() + 1);
}

/// The evaluator has its own ways to lists that nothing else refers to, such as those of optionals.
#[rstest]
#[case::field(75_000, "object.list[0] == []")]
#[case::optional_field(75_000, "object.?list[0].hasValue()")]
#[case::optional_key(75_000, "object[?'list'][0].hasValue()")]
#[case::optional_element(75_000, "object.?list[?0].hasValue()")]
#[case::absent_element(75_000, "!object.?list[75000].hasValue()")]
#[case::field_of_a_list(75_000, "!object.?list.a.hasValue()")]
#[case::optional_field_of_a_list(75_000, "!object.?list.?a.hasValue()")]
#[case::value(75_000, "object.?list.value()[0] == []")]
#[case::other_value(50_000, "object.?list.orValue([])[0] == object.?none.orValue(object.list)[0]")]
#[case::alternative(75_000, "object.?none.or(object.?list)[0].hasValue()")]
#[case::condition(50_000, "(object.few[0] == 0 ? object.?list : object.?none)[0].hasValue()")]
#[case::any_type(75_000, "dyn(object.?list)[0].hasValue()")]
#[case::often(
    50_000,
    "object.few.all(x, object.?list[0].hasValue() && object.?list.value()[1] == [])"
)]
#[case::size(50_000, "object.?list.value().size() == 50000 && size(object.list) == 50000")]
#[case::type_(50_000, "type(object.?list.value()) == list && !has(object.none)")]
#[case::conversion(50_000, "string(object.list) == '' || true")]
#[case::map(
    75_000,
    "object.?map['1'].hasValue() && object.?map.value()['1'] == [] && !object.?map.a.hasValue()"
)]
#[case::maps_often(
    50_000,
    "object.few.all(x, object.?map[string(x)].hasValue() && string(x) in object.map)"
)]
// The bound of each of these has the length of the list.
#[case::error(
    7_500,
    "object.list[object.few] == [] || object.?list[object.few] == [] || true"
)]
#[case::computed_element(7_500, "object.few.exists(x, object.?list[x].hasValue())")]
#[case::lists_of_lists(
    7_500,
    "[object.list, object.list][1][0] == [] && ([object.list] + [object.list])[1][0] == []"
)]
fn a_long_list_is_not_copied(#[case] length: usize, #[case] text: &str) {
    let map: Map<String, Value> = (0..9_000).map(|at| (at.to_string(), json!([]))).collect();
    let few: Vec<u32> = (0..10).collect();
    let object = json!({"list": vec![json!([]); length], "map": map, "few": few});
    let steps = cost_of(text, &object).steps;
    COPIES.set(0);
    assert_eq!(evaluated(text, &object), Ok(true));
    let copies = COPIES.get();
    assert!(copies <= steps, "{copies} copies in {steps} steps");
}

#[test]
fn an_object_of_more_than_a_mebibyte_is_not_evaluated() {
    // `{"a":""}` takes eight bytes.
    let object = |length: usize| json!({"a": "x".repeat(length - 8)});
    assert_eq!(evaluated("object.a != ''", &object(MAX_OBJECT)), Ok(true));
    let error = evaluated("object.a != ''", &object(MAX_OBJECT + 1)).unwrap_err();
    assert_eq!(error.reason, CheckReason::ExpressionTooCostly);
    assert_eq!(
        error.detail,
        "the object has more than 1 MiB; check another object"
    );
}

#[test]
fn an_object_that_is_deeper_than_json_of_an_api_server_costs_too_much() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    assert_eq!(evaluated("object == object", &deep(100)), Ok(true));
    let error = evaluated("object == object", &deep(200)).unwrap_err();
    assert_eq!(error.reason, CheckReason::ExpressionTooCostly);
}

#[test]
fn the_expressions_of_a_judgement_have_a_limit_together() {
    let list: Vec<u32> = (0..8_000).collect();
    let (object, meter) = (json!({"list": list}), Meter::default());
    let expression = Expression::compile("object.list.all(x, x >= 0) && version != ''").unwrap();
    let variables = |version| Variables {
        object: &object,
        version,
        hop: "",
        cluster: None,
    };
    let size = serde_json::to_string(&object).unwrap().len() / 16;
    let steps = expression.cost(&variables("1")).steps + u64::try_from(size).unwrap();
    let affordable = usize::try_from(200_000 / steps).unwrap();
    assert!(affordable > 1, "{affordable}");
    let results: Vec<_> = (0..40)
        .map(|_| expression.metered(&meter).evaluate(&variables("1")))
        .collect();
    let paid = results.iter().filter(|result| **result == Ok(true)).count();
    assert_eq!(paid, affordable);
    let error = results[39].clone().unwrap_err();
    assert_eq!(error.reason, CheckReason::ExpressionTooCostly);
    assert!(
        error
            .detail
            .starts_with("the expressions of all gates of the Cluster"),
        "{}",
        error.detail
    );
    // A cheap expression is still evaluated, and the next judgement has a new budget.
    let cheap = Expression::compile("version == '1'").unwrap();
    let small = Variables {
        object: &json!({}),
        ..variables("1")
    };
    assert_eq!(cheap.metered(&meter).evaluate(&small), Ok(true));
    assert_eq!(
        expression.metered(&Meter::default()).evaluate(&variables("1")),
        Ok(true)
    );
}

/// The cost is computed by a walk through the object, and the object is converted, whatever the expression reads of it.
#[test]
fn a_large_object_is_evaluated_a_few_times_in_a_judgement() {
    let object = json!({"a": "x".repeat(MAX_OBJECT - 8)});
    let meter = Meter::default();
    let expression = Expression::compile("!has(object.status) && version != ''").unwrap();
    let mut evaluated = 0;
    for _check in 0..16 {
        let metered = expression.metered(&meter);
        for row in 0..8 {
            let variables = Variables {
                object: &object,
                version: &row.to_string(),
                hop: "",
                cluster: None,
            };
            match metered.evaluate(&variables) {
                Ok(result) => evaluated += usize::from(result),
                Err(error) => assert_eq!(error.reason, CheckReason::ExpressionTooCostly),
            }
        }
    }
    assert_eq!(evaluated, 3);
}

/// They are copied for each evaluation.
#[test]
fn labels_and_annotations_of_the_cluster_cost_steps() {
    let (object, text) = (json!({}), "x".repeat(256 * 1024));
    let cluster = json!({"metadata": {"name": "one", "annotations": {"a": text}}});
    let expression = Expression::compile("cluster.name == version").unwrap();
    let meter = Meter::default();
    let evaluated = (0..100).filter(|_| {
        let variables = Variables {
            object: &object,
            version: "one",
            hop: "",
            cluster: Some(&cluster),
        };
        expression.metered(&meter).evaluate(&variables) == Ok(true)
    });
    let evaluated = evaluated.count();
    assert!((2..20).contains(&evaluated), "{evaluated}");
}

#[test]
fn an_expression_is_evaluated_once_per_version_and_judgement() {
    let list: Vec<u32> = (0..8_000).collect();
    let object = json!({"list": list});
    let metered = Expression::compile("object.list.all(x, x >= 0) && version == '1'")
        .unwrap()
        .metered(&Meter::default());
    for _ in 0..100 {
        for (version, expected) in [("1", true), ("2", false)] {
            let variables = Variables {
                object: &object,
                version,
                hop: "",
                cluster: None,
            };
            assert_eq!(metered.evaluate(&variables), Ok(expected));
        }
    }
}

/// Parser, checks, evaluation and deallocation need a stack for each level of brackets, operators and values.
#[test]
fn no_text_overflows_a_small_stack() {
    let repeated = |before: &str, part: &str, middle: &str, after: &str| {
        (1..700)
            .step_by(23)
            .map(|times| format!("{before}{}{middle}{}", part.repeat(times), after.repeat(times)))
            .collect::<Vec<_>>()
    };
    let texts: Vec<String> = [
        repeated("", "(", "true", ")"),
        repeated("", "(true || ", "true", ")"),
        repeated("", "[", "", "]"),
        repeated("", "!-", "true", ""),
        repeated("", "!(", "true", ")"),
        repeated("", "true ? ", "true", " : true"),
        repeated("", "true ? true : ", "true", ""),
        repeated("", "true && ", "true", ""),
        repeated("", "1 + ", "1 == 1", ""),
        repeated("", "1 in ", "[1]", ""),
        repeated("object", "[0]", "", ""),
        repeated("object", ".a", "", ""),
        repeated("object.list", ".map(x, x)", "", ""),
        repeated("", "object.list.all(x, ", "true", ")"),
        repeated("", "dyn(", "true", ")"),
        repeated("", "{1: ", "1", "}"),
        repeated("", "object == ", "object", ""),
    ]
    .concat();
    let deep = (0..120).fold(json!(1), |inner, _| json!({"a": inner, "list": [1]}));
    let evaluate = move || {
        let mut accepted = 0;
        for text in &texts {
            if Expression::compile(text).is_ok() {
                accepted += 1;
                let _ = evaluated(text, &deep);
            }
        }
        accepted
    };
    let stack = if cfg!(debug_assertions) { 4096 } else { 512 };
    let thread = std::thread::Builder::new()
        .stack_size(stack * 1024)
        .spawn(evaluate);
    let accepted = thread.unwrap().join().unwrap();
    assert!(accepted > 50, "{accepted}");
}
