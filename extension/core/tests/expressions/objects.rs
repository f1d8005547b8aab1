//! Random objects.

use serde_json::{Map, Value, json};

/// Keys of objects, which the texts name.
pub(crate) const KEYS: &[&str] = &[
    "a",
    "b",
    "list",
    "map",
    "text",
    "status",
    "conditions",
    "type",
    "metadata",
    "name",
    "namespace",
    "x.y/z",
    "é",
];

/// Returns the Cluster.
pub(crate) fn cluster() -> Value {
    json!({"metadata": {"name": "prod-1", "namespace": "team-a", "labels": {"a": "b"}, "annotations": {}}})
}

/// Returns an object: mostly of the usual shape, at times of another or large.
pub(crate) fn object(random: &mut fastrand::Rng) -> Value {
    match random.u8(0..20) {
        0 => value(random, 6),
        1 => match random.u8(0..4) {
            0 => long(),
            _ => large(random),
        },
        2 => deep(random.usize(0..120)),
        _ => usual(random),
    }
}

fn condition(random: &mut fastrand::Rng) -> Value {
    let type_ = ["Ready", "Available", "é"][random.usize(0..3)];
    let status = ["True", "False"][random.usize(0..2)];
    json!({"type": type_, "status": status})
}

fn usual(random: &mut fastrand::Rng) -> Value {
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "team-a", "generation": 3, "labels": {"a": "b"}},
        "status": {
            "conditions": (0..random.usize(0..6)).map(|_| condition(random)).collect::<Vec<_>>(),
        },
    });
    for key in KEYS {
        if random.bool() {
            object[*key] = value(random, 3);
        }
    }
    if random.bool() {
        object["list"] = (0..random.usize(0..8)).map(|_| value(random, 1)).collect();
    }
    object
}

fn value(random: &mut fastrand::Rng, depth: usize) -> Value {
    let kinds = if depth == 0 { 6 } else { 8 };
    match random.usize(0..kinds) {
        0 => Value::Null,
        1 => random.bool().into(),
        2 => [0, 1, -1, 2, i64::MAX, i64::MIN][random.usize(0..6)].into(),
        3 => [0.0, 1.0, 1.5, -1.5, 1e308, 9_007_199_254_740_992.0][random.usize(0..6)].into(),
        4 => u64::MAX.into(),
        5 => text(random).into(),
        6 => (0..random.usize(0..5))
            .map(|_| value(random, depth - 1))
            .collect(),
        _ => {
            let keys = (0..random.usize(0..5)).map(|_| KEYS[random.usize(0..KEYS.len())].to_owned());
            let keys: Vec<String> = keys.collect();
            let map: Map<String, Value> = keys
                .into_iter()
                .map(|key| (key, value(random, depth - 1)))
                .collect();
            Value::Object(map)
        }
    }
}

fn text(random: &mut fastrand::Rng) -> String {
    let texts = [
        "",
        "a",
        "b",
        "True",
        "Ready",
        "v1.18.2",
        "é€😀",
        "1",
        "-1",
        "1e3",
        "true",
        "\u{0}\n'\"",
    ];
    let text = texts[random.usize(0..texts.len())];
    match random.u8(0..12) {
        0 => text.repeat(random.usize(0..200)),
        _ => text.to_owned(),
    }
}

/// Returns an object with long lists, maps and texts.
fn large(random: &mut fastrand::Rng) -> Value {
    let length = [10, 100, 1_000, 10_000, 40_000][random.usize(0..5)];
    json!({
        "list": (0..length).map(|_| value(random, 0)).collect::<Vec<_>>(),
        "map": (0..length).map(|at| (format!("key-{at}"), value(random, 0))).collect::<Map<_, _>>(),
        "text": "aé".repeat(length * random.usize(1..8)),
        "conditions": vec![json!([]); length],
        "a": {"b": vec![vec![1; 20]; length / 20]},
    })
}

/// Returns an object with about half of the elements that an expression may read.
pub(crate) fn long() -> Value {
    json!({"list": vec![""; 75_000], "conditions": vec![1; 500], "text": "aa".repeat(10_000)})
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!([]), |inner, _| json!({"a": inner}))
}
