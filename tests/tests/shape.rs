//! How much of the product reads, watches, writes and reports, and how much can be tested without doing so. `make shape` prints it.
#![expect(clippy::expect_used, reason = "a test that cannot read its inputs has failed")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use sluice_tests::sources::{Source, of_product};

/// What reads, watches, writes and reports.
const EDGE: &str = "reads, watches, writes, reports";

/// Every module of the binary, in the part that it belongs to.
#[rustfmt::skip]
const PARTS: [(&str, &[&str]); 5] = [
    (EDGE, &[
        "contract", "control_plane", "controllers", "events", "freshness", "index", "kind_watch", "retrigger", "remote", "runner", "stores", "watch",
    ]),
    ("serves", &["health", "metrics", "serve", "telemetry"]),
    ("keeps in memory, and gives turns", &["news", "queue", "store", "sweep", "triggers"]),
    ("leads", &["fence", "leader", "leadership"]),
    ("starts, and makes clients", &["bounded", "cli", "clock", "layer", "lib", "lock", "main", "pool", "run", "streamed"]),
];

/// The crates without I/O, by the beginning of their paths.
const PURE: [&str; 3] = ["core/src/", "crds/src/", "hooks/src/"];

/// So many lines [`EDGE`] has at most.
const MOST: usize = 3_200;

/// So many of a thousand lines are of [`PURE`] at least.
const LEAST_PURE: usize = 750;

/// What [`EDGE`] does not name: reasons to hold, states of packages, gates and annotations. What to make of them is decided in
/// sluice-core.
const DECIDED: [&str; 8] = [
    "HoldReason",
    "GateReason",
    "CallReason",
    "PackageReason",
    "PackageState",
    "Hook",
    "gates",
    "annotation",
];

/// Events and metrics say reasons.
const SAYS: [&str; 2] = ["events.rs", "metrics.rs"];

const COUNTED: &str =
    "Lines of product code, with comments and empty lines; without items and modules under #[cfg(test)].";

/// The module of `extension/src` that a file belongs to; none of a file elsewhere.
fn module(path: &str) -> Option<&str> {
    let first = path.split('/').next().unwrap_or_default();
    let elsewhere = PURE.iter().any(|pure| path.starts_with(pure));
    (!elsewhere).then(|| first.trim_end_matches(".rs"))
}

fn is_of(part: &str, path: &str) -> bool {
    let modules = PARTS.iter().filter(|(name, _)| *name == part);
    let mut modules = modules.flat_map(|(_, modules)| *modules);
    module(path).is_some_and(|of| modules.any(|module| *module == of))
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
    for (part, _) in PARTS {
        let of = || sources.iter().filter(|source| is_of(part, &source.path));
        let most = if part == EDGE {
            format!(" of {MOST} at most")
        } else {
            String::new()
        };
        let _never = write!(table, "\n{:6}  {part}{most}\n", lines(of()));
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
        "\n{pure} of {all} lines are in crates without I/O: {} of 1000, {LEAST_PURE} at least",
        pure * 1000 / all
    );
    table
}

/// Lines of [`EDGE`].
fn edge(sources: &[Source]) -> usize {
    lines(sources.iter().filter(|source| is_of(EDGE, &source.path)))
}

/// What is wrong with the shape of the product, of which [`EDGE`] has so many lines at most.
fn complaints(sources: &[Source], most: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let Source { path, .. } = source;
        if let Some(module) = module(path) {
            let parts = PARTS.iter().filter(|(_, modules)| modules.contains(&module));
            if parts.count() != 1 {
                complaints.push(format!(
                    "{path}: module {module} is not in one of PARTS, or in several"
                ));
            }
        }
        let says = path.rsplit('/').next().is_some_and(|file| SAYS.contains(&file));
        if is_of(EDGE, path) && !says {
            let named = DECIDED.iter().filter(|name| source.count(name) > 0);
            complaints.extend(named.map(|name| format!("{path} names {name}: decide in sluice-core")));
        }
        if has_nested_results(source) {
            complaints.push(format!(
                "{path}: Result<Result<_, _>, _>; give one of them a variant"
            ));
        }
    }
    let edge = edge(sources);
    if edge > most {
        complaints.push(format!(
            "{edge} lines in what {EDGE}, {most} at most: decide in sluice-core"
        ));
    }
    let (pure, all) = pure_of_all(sources);
    if pure * 1000 < all * LEAST_PURE {
        complaints.push(format!(
            "{pure} of {all} lines are in crates without I/O, {LEAST_PURE} of 1000 at least: decide in sluice-core"
        ));
    }
    complaints
}

/// Whether a result has another one as its first parameter, whatever paths lead to both.
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
    let complaints = complaints(&PRODUCT, MOST);
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What is wrong with `planted` in one of the files of the product, or in a new one. There is room for a few lines.
fn with(path: &str, planted: &str) -> Vec<String> {
    let mut sources = PRODUCT.clone();
    let planted = Source::of(path, planted);
    match sources.iter_mut().find(|source| source.path == path) {
        Some(source) => {
            source.lines += planted.lines;
            source.tokens.extend(planted.tokens);
        }
        None => sources.push(planted),
    }
    complaints(&sources, edge(&PRODUCT) + 10)
}

#[test]
fn a_module_without_a_part_is_noticed() {
    assert_eq!(with("remote/new.rs", "fn pure() {}"), Vec::<String>::new());
    assert_eq!(with("core/src/new.rs", "fn pure() {}"), Vec::<String>::new());
    for path in ["new.rs", "new/mod.rs", "remotes.rs"] {
        assert!(with(path, "fn pure() {}").concat().contains("PARTS"), "{path}");
    }
}

#[test]
fn too_many_lines_are_noticed() {
    let many = "fn more() {}\n".repeat(MOST);
    assert!(with("watch.rs", &many).concat().contains("at most"));
    assert!(with("serve/mod.rs", &many).concat().contains("at least"));
    assert_eq!(with("core/src/lib.rs", &many), Vec::<String>::new());
    let tests = format!("#[cfg(test)]\nmod more {{\n{many}}}");
    assert_eq!(with("watch.rs", &tests), Vec::<String>::new());
}

#[test]
fn decisions_in_what_reads_and_writes_are_noticed() {
    for planted in [
        "use sluice_core::hold::HoldReason;",
        "fn hold() { Hold::new(GateReason::TKRNotFound, text) }",
        "use sluice_core::hold::{CallReason as Other};",
        "fn ready(package: &PackageRecord) -> bool { package.state == PackageState::Ready }",
        "fn first(hook: Hook) -> bool { hook == Hook::BeforeClusterUpgrade }",
        "fn open(record: &UpgradeRecord) -> bool { record.gates.iter().all(|gate| gate.open) }",
        "fn custom(cluster: &Cluster) -> bool { cluster.annotations().contains_key(annotation::CUSTOM) }",
    ] {
        for path in ["index.rs", "controllers/bootstrap/mod.rs", "remote/mod.rs"] {
            assert!(
                with(path, planted).concat().contains("decide in"),
                "{path}: {planted}"
            );
        }
        for path in [
            "events.rs",
            "controllers/providers/metrics.rs",
            "serve/mod.rs",
            "core/src/hold.rs",
        ] {
            assert_eq!(with(path, planted), Vec::<String>::new(), "{path}");
        }
    }
    for plain in [
        "// HoldReason",
        "fn f() { \"gates\" }",
        "#[cfg(test)]\nuse sluice_crds::run::Hook;",
    ] {
        assert_eq!(with("index.rs", plain), Vec::<String>::new(), "{plain}");
    }
}

#[test]
fn nested_results_are_noticed() {
    for nested in [
        "Result<Result<u8, Hold>, Error>",
        "kube::Result<Result<u8, Hold>>",
        "Result<core::result::Result<u8, A>, B>",
    ] {
        for path in ["watch.rs", "core/src/hold.rs"] {
            let planted = format!("fn ask() -> {nested} {{}}");
            assert!(
                with(path, &planted).concat().contains("Result"),
                "{path}: {nested}"
            );
        }
    }
    for plain in ["Result<Vec<Result<u8, A>>, B>", "Result<A, Result<u8, B>>"] {
        assert_eq!(
            with("watch.rs", &format!("type A = {plain};")),
            Vec::<String>::new()
        );
    }
}
