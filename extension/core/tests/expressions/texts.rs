//! Random texts of expressions.

use super::objects::KEYS;

/// Expressions of the kinds that users write, and some that once were costly.
pub(crate) const KNOWN: &[&str] = &[
    "object.status.version == version && object.status.ready",
    "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
    "object.metadata.namespace == cluster.namespace && hop.minor == '1.35'",
    "object.?status.?ready.orValue(false) || has(object.a.b) && 'a' in object.metadata.labels",
    "object.list.all(x, object.list.exists(y, x == y))",
    "object.list.map(x, [x, x]).filter(x, x.size() > 0).size() == object.list.size()",
    "object.text.matches('^v[0-9]+[.](a|b)*$') ? object.text.startsWith('v') : string(object.a).contains('1')",
    "[object.text].map(x, x + x).map(x, x + x).map(x, x + x).exists(x, x.size() > 10)",
    "object.map.all(k, object.map[k] != null) && int(object.a) / int(object.b) > 1",
    "[object.list, [object]] == [object.list, [object]]",
    "object.list.exists_one(x, type(x) == int) && dyn(object.a) < 2.5",
    "[0, 1u, 2.0, -1, 0x1F].all(n, n in object.list) != !true",
    "object.list.all(x, object.?list[0].hasValue())",
    "object.conditions.all(x, object.?list[0].hasValue() && object[?'list'][1].hasValue())",
    "object.?list.?a.hasValue() || object.?list.orValue([])[0] == object.?list.value()[1]",
    "object.conditions.exists(x, hop[?object.text].hasValue() || object.text.contains(object.text + 'b'))",
];

const TOKENS: &[&str] = &[
    "object",
    "version",
    "hop",
    "cluster",
    "x",
    "a",
    ".",
    ".?",
    "[",
    "[?",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "?",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    " in ",
    "'a'",
    "\"b\"",
    "r'\\d'",
    "b'x'",
    "'''",
    "1",
    "2u",
    "1.5",
    "1e9",
    "true",
    "null",
    "has(",
    "size(",
    ".all(x,",
    ".map(x,",
    ".exists(y,",
    ".matches('",
    "é",
    "\u{0}",
    "\\",
    "@",
    "`",
    "//",
    "\n",
    "😀",
    "optional.none()",
];

/// Returns a text: by a grammar, from tokens, or with changes of another one.
pub(crate) fn text(random: &mut fastrand::Rng) -> String {
    match random.u8(0..20) {
        0..9 => {
            let depth = random.usize(1..6);
            boolean(random, depth, &mut Vec::new())
        }
        9..14 => mutated(random),
        14..17 => {
            let text = mutated(random);
            format!(
                "{text} {} {}",
                ["&&", "||", "==", "?"][random.usize(0..4)],
                mutated(random)
            )
        }
        17 => repeated(random),
        _ => (0..random.usize(0..80))
            .map(|_| TOKENS[random.usize(0..TOKENS.len())])
            .collect(),
    }
}

/// Returns a known text with some characters removed, doubled, or replaced by tokens.
fn mutated(random: &mut fastrand::Rng) -> String {
    let known = KNOWN[random.usize(0..KNOWN.len())];
    let mut letters: Vec<String> = known.chars().map(String::from).collect();
    for _ in 0..random.usize(0..4) {
        let at = random.usize(0..letters.len());
        match random.u8(0..4) {
            0 => letters[at].clear(),
            1 => TOKENS[random.usize(0..TOKENS.len())].clone_into(&mut letters[at]),
            2 => {
                let to = random.usize(at..letters.len());
                let copied = letters[at..=to].concat();
                letters[at].push_str(&copied);
            }
            _ => letters[at].push_str(TOKENS[random.usize(0..TOKENS.len())]),
        }
    }
    letters.concat()
}

/// Returns a part that is repeated up to and beyond the limits.
fn repeated(random: &mut fastrand::Rng) -> String {
    let times = random.usize(1..700);
    let (before, part, middle, after) = [
        ("", "(", "true", ")"),
        ("", "[", "", "]"),
        ("", "{1:", "1", "}"),
        ("", "!", "true", ""),
        ("", "- ", "1", ""),
        ("", "!-", "1", ""),
        ("", "true ? ", "1", " : 2"),
        ("", "true ? 1 : ", "1", ""),
        ("", "true && ", "true", ""),
        ("", "false || true && ", "true", ""),
        ("", "1 + ", "1", ""),
        ("object", "[0]", "", ""),
        ("object", ".a", "", ""),
        ("object", ".?a", "", ""),
        ("object.list", ".map(x, x)", "", ""),
        ("object.list", ".map(x, x + x)", ".size() == 0", ""),
        ("['ab']", ".map(x, x + x)", ".size() == 0", ""),
        ("[1]", ".map(x, [x, x])", ".size() == 0", ""),
        ("", "object.list.all(x, ", "true", ")"),
        ("", "dyn(", "true", ")"),
        ("", "object.text.size(", ")", ""),
        ("object.text == '", "é", "'", ""),
        ("object.text.matches('", "(a*)", "')", ""),
        ("object.text.matches('a", "{9}", "')", ""),
        ("", "1 in ", "[1]", ""),
        ("", "object == ", "object", ""),
        ("[", "object, ", "object].size() == 0", ""),
    ][random.usize(0..27)];
    format!("{before}{}{middle}{}", part.repeat(times), after.repeat(times))
}

type Scope = Vec<&'static str>;

fn boolean(random: &mut fastrand::Rng, depth: usize, scope: &mut Scope) -> String {
    if depth == 0 {
        return [
            "true",
            "false",
            "object.status.ready",
            "has(object.a)",
            "version == 'v1.18.2'",
        ][random.usize(0..5)]
        .to_owned();
    }
    let depth = depth - 1;
    match random.u8(0..12) {
        0 => format!(
            "({} && {})",
            boolean(random, depth, scope),
            boolean(random, depth, scope)
        ),
        1 => format!(
            "({} || {})",
            boolean(random, depth, scope),
            boolean(random, depth, scope)
        ),
        2 => format!("!{}", boolean(random, depth, scope)),
        3..6 => {
            let operator = ["==", "!=", "<", "<=", ">", ">=", "in"][random.usize(0..7)];
            format!(
                "({} {operator} {})",
                any(random, depth, scope),
                any(random, depth, scope)
            )
        }
        6..9 => {
            let (range, name) = (
                any(random, depth, scope),
                ["all", "exists", "exists_one"][random.usize(0..3)],
            );
            macro_(random, depth, scope, &range, name)
        }
        9 => {
            let function = ["startsWith", "endsWith", "contains"][random.usize(0..3)];
            format!(
                "{}.{function}({})",
                any(random, depth, scope),
                any(random, depth, scope)
            )
        }
        10 => format!(
            "{}.matches('{}')",
            any(random, depth, scope),
            ["^v", "a+b?", "(a|b)*c", "[0-9]{2,9}$", "."][random.usize(0..5)]
        ),
        _ => format!(
            "({} ? {} : {})",
            boolean(random, depth, scope),
            boolean(random, depth, scope),
            boolean(random, depth, scope)
        ),
    }
}

fn macro_(random: &mut fastrand::Rng, depth: usize, scope: &mut Scope, range: &str, name: &str) -> String {
    let variable = ["x", "y", "z", "c"][random.usize(0..4)];
    scope.push(variable);
    let body = if name == "map" {
        any(random, depth, scope)
    } else {
        boolean(random, depth, scope)
    };
    scope.pop();
    format!("{range}.{name}({variable}, {body})")
}

fn any(random: &mut fastrand::Rng, depth: usize, scope: &mut Scope) -> String {
    if depth == 0 || random.u8(0..3) == 0 {
        return path(random, scope);
    }
    let depth = depth - 1;
    match random.u8(0..14) {
        0..3 => {
            let operator = ["+", "-", "*", "/", "%"][random.usize(0..5)];
            format!(
                "({} {operator} {})",
                any(random, depth, scope),
                any(random, depth, scope)
            )
        }
        3 => format!("[{}, {}]", any(random, depth, scope), any(random, depth, scope)),
        4..6 => format!("{}[{}]", any(random, depth, scope), any(random, depth, scope)),
        6 => {
            let function =
                ["size", "int", "uint", "double", "string", "bool", "dyn", "type"][random.usize(0..8)];
            format!("{function}({})", any(random, depth, scope))
        }
        7..10 => {
            let (range, name) = (any(random, depth, scope), ["map", "filter"][random.usize(0..2)]);
            macro_(random, depth, scope, &range, name)
        }
        10 => format!(
            "{}.?{}.orValue({})",
            any(random, depth, scope),
            KEYS[random.usize(0..9)],
            any(random, depth, scope)
        ),
        11 => format!(
            "({} ? {} : {})",
            boolean(random, depth, scope),
            any(random, depth, scope),
            any(random, depth, scope)
        ),
        12 => format!("-{}", any(random, depth, scope)),
        _ => format!(
            "{}[?{}].hasValue()",
            any(random, depth, scope),
            any(random, depth, scope)
        ),
    }
}

fn path(random: &mut fastrand::Rng, scope: &Scope) -> String {
    let literals = [
        "1",
        "0",
        "-1",
        "2u",
        "1.5",
        "9223372036854775807",
        "'a'",
        "'é'",
        "'Ready'",
        "\"v1.18.2\"",
        "null",
        "true",
        "[]",
        "[1, 'a']",
        "version",
        "hop.minor",
        "cluster.labels",
        "object",
        "object.list",
        "object.map",
        "object.text",
        "object.status.conditions",
        "object.status.conditions",
        "object.list",
        "int",
        "size(object.list)",
        "object.metadata.generation",
        "object.metadata.name",
        "[1, 2, 3]",
        "['a', 'b']",
        "object.list.size()",
        "string(object.metadata.generation)",
    ];
    match random.u8(0..8) {
        0..4 => literals[random.usize(0..literals.len())].to_owned(),
        4..6 if !scope.is_empty() => {
            let variable = scope[random.usize(0..scope.len())];
            match random.u8(0..3) {
                0 => format!("{variable}.{}", KEYS[random.usize(0..9)]),
                _ => variable.to_owned(),
            }
        }
        _ => {
            let fields = (0..random.usize(1..4)).map(|_| KEYS[random.usize(0..9)]);
            let path: Vec<&str> = std::iter::once("object").chain(fields).collect();
            path.join(".")
        }
    }
}
