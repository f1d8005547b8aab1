//! How much of the product reads, watches, writes and reports, and how much can be tested without doing so. `make shape` prints it.
#![expect(clippy::expect_used, reason = "a test that cannot read its inputs has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::iter;
use std::sync::LazyLock;

use sluice_tests::sources::{Source, of_product};

/// What reads, watches, writes and reports: every module of the binary that is in none of [`PARTS`].
const EDGE: &str = "reads, watches, writes, reports";

/// Modules of the binary that do not read or write, by their purpose.
#[rustfmt::skip]
const PARTS: [(&str, &[&str]); 5] = [
    ("serves", &["server", "status", "telemetry"]),
    ("reads a status service", &["cli"]),
    ("queues", &["queue"]),
    ("leads", &["leader"]),
    ("starts, and makes clients", &["app", "clock", "flags", "kube_client", "lib", "lock", "main"]),
];

/// The crates without I/O, by the beginning of their paths.
const PURE: [&str; 3] = ["core/src/", "crds/src/", "hooks/src/"];

/// What [`EDGE`] does not name: reasons to hold, states of packages, gates and annotations. What to make of them is decided in
/// sluice-core.
const DECIDED: [&str; 9] = [
    "HoldReason",
    "GateReason",
    "CallReason",
    "PackageReason",
    "CheckReason",
    "PackageState",
    "Hook",
    ". gates",
    "annotation",
];

/// Events and metrics contain reasons.
const SAYS: [&str; 2] = ["events.rs", "metrics.rs"];

const COUNTED: &str =
    "Lines of product code, with comments and empty lines; without items and modules under #[cfg(test)].";

/// The module of `extension/src` that a file belongs to; none of a file elsewhere.
fn module(path: &str) -> Option<&str> {
    let first = path.split('/').next().unwrap_or_default();
    let elsewhere = PURE.iter().any(|pure| path.starts_with(pure));
    (!elsewhere).then(|| first.trim_end_matches(".rs"))
}

/// The part of the product that a file of the binary is in; none of a file elsewhere.
fn part(path: &str) -> Option<&'static str> {
    let module = module(path)?;
    let named = PARTS.iter().find(|(_, modules)| modules.contains(&module));
    Some(named.map_or(EDGE, |(part, _)| part))
}

fn lines<'a>(sources: impl IntoIterator<Item = &'a Source>) -> usize {
    sources.into_iter().map(|source| source.lines).sum()
}

/// Lines without I/O, and all.
fn pure_of_all(sources: &[Source]) -> (usize, usize) {
    let pure = sources.iter().filter(|source| module(&source.path).is_none());
    (lines(pure), lines(sources))
}

/// What `make shape` prints.
fn table(sources: &[Source]) -> String {
    let mut table = format!("{COUNTED}\n");
    for name in iter::once(EDGE).chain(PARTS.map(|(name, _)| name)) {
        let of = || sources.iter().filter(|source| part(&source.path) == Some(name));
        let _never = write!(table, "\n{:6}  {name}\n", lines(of()));
        let files: BTreeMap<&str, usize> = of().map(|source| (source.path.as_str(), source.lines)).collect();
        for (path, lines) in files {
            let _never = writeln!(table, "{lines:12}  {path}");
        }
    }
    let _never = writeln!(table);
    for pure in PURE {
        let of = sources.iter().filter(|source| source.path.starts_with(pure));
        let _never = writeln!(table, "{:6}  {pure}", lines(of));
    }
    let (pure, all) = pure_of_all(sources);
    let _never = writeln!(
        table,
        "\n{pure} of {all} lines are in crates without I/O: {} of 1000",
        pure * 1000 / all
    );
    table
}

/// Violations of the shape of the product.
fn complaints(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let Source { path, .. } = source;
        let says = path.rsplit('/').next().is_some_and(|file| SAYS.contains(&file));
        if part(path) == Some(EDGE) && !says {
            let named = DECIDED.iter().filter(|name| source.count(name) > 0);
            complaints.extend(named.map(|name| format!("{path} names {name}: decide in sluice-core")));
        }
        if has_nested_results(source) {
            complaints.push(format!(
                "{path}: Result<Result<_, _>, _>; give one of them a variant"
            ));
        }
    }
    complaints
}

/// Whether a result has another one as its first parameter, regardless of the paths to both.
fn has_nested_results(source: &Source) -> bool {
    source.tokens.windows(2).enumerate().any(|(at, pair)| {
        let inner = &source.tokens[at + 2..];
        let path = inner
            .chunks(2)
            .take_while(|pair| pair.get(1).is_some_and(|second| second == "::"));
        *pair == ["Result", "<"] && inner.get(2 * path.count()).is_some_and(|first| first == "Result")
    })
}

static PRODUCT: LazyLock<Vec<Source>> = LazyLock::new(|| of_product().expect("the sources"));

#[test]
fn the_product_has_its_shape() {
    println!("{}", table(&PRODUCT));
    let complaints = complaints(&PRODUCT);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Violations after `planted` is added to one of the files of the product, or to a new one.
fn with(path: &str, planted: &str) -> Vec<String> {
    let mut sources = PRODUCT.clone();
    let planted = Source::of(path, planted);
    match sources.iter_mut().find(|source| source.path == path) {
        Some(source) => source.tokens.extend(planted.tokens),
        None => sources.push(planted),
    }
    complaints(&sources)
}

#[test]
fn decisions_in_modules_with_io_are_detected() {
    for planted in [
        "use sluice_core::reasons::HoldReason;",
        "fn hold() { Hold::new(GateReason::TKRNotFound, text) }",
        "use sluice_core::reasons::hold::{CallReason as Other};",
        "fn ready(package: &PackageRecord) -> bool { package.state == PackageState::Ready }",
        "fn first(hook: Hook) -> bool { hook == Hook::BeforeClusterUpgrade }",
        "fn open(record: &UpgradeRecord) -> bool { record.gates.iter().all(|gate| gate.open) }",
        "fn custom(cluster: &Cluster) -> bool { cluster.annotations().contains_key(annotation::CUSTOM) }",
    ] {
        for path in [
            "hooks.rs",
            "controllers/bootstrap/mod.rs",
            "workload/mod.rs",
            "new.rs",
        ] {
            assert!(
                with(path, planted).concat().contains("decide in"),
                "{path}: {planted}"
            );
        }
        for path in [
            "events.rs",
            "controllers/providers/metrics.rs",
            "server/serve/mod.rs",
            "core/src/reasons/hold.rs",
        ] {
            assert_eq!(with(path, planted), Vec::<String>::new(), "{path}");
        }
    }
    for plain in [
        "// HoldReason",
        "fn f() { \"gates\" }",
        "#[cfg(test)]\nuse sluice_crds::run::Hook;",
    ] {
        assert_eq!(with("hooks.rs", plain), Vec::<String>::new(), "{plain}");
    }
}

#[test]
fn nested_results_are_noticed() {
    for nested in [
        "Result<Result<u8, Hold>, Error>",
        "kube::Result<Result<u8, Hold>>",
        "Result<core::result::Result<u8, A>, B>",
    ] {
        for path in ["cache/watch.rs", "core/src/reasons/hold.rs"] {
            let planted = format!("fn ask() -> {nested} {{}}");
            assert!(
                with(path, &planted).concat().contains("Result"),
                "{path}: {nested}"
            );
        }
    }
    for plain in ["Result<Vec<Result<u8, A>>, B>", "Result<A, Result<u8, B>>"] {
        assert_eq!(
            with("cache/watch.rs", &format!("type A = {plain};")),
            Vec::<String>::new()
        );
    }
}
