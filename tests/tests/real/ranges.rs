//! Version ranges of Packages: the product allows the versions that kapp-controller accepts.
//!
//! `SEED` is the random seed of the ranges.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::iter;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use serde::Deserialize;
use serde_json::json;
use sluice_core::version::range::Range;
use sluice_tests::components;

/// Number of random ranges.
const RANGES: usize = 8000;

/// Ranges that random ones rarely contain.
const KNOWN: [&str; 8] = [
    "",
    " ",
    "1.34.0 || || 1.35.4",
    "|| 1.35.4",
    "1.35.4 ||",
    "1.x.x",
    ">1.-1.x",
    "1.9223372036854775807.x",
];

/// Versions as API servers and kapp-controller report them, and texts that are none.
const VERSIONS: [&str; 34] = [
    "v0.35.4",
    "v1.0.0",
    "v1.0.4",
    "v1.1.0",
    "v1.33.0",
    "v1.33.4",
    "v1.34.0",
    "v1.34.1",
    "v1.34.4",
    "v1.34.9",
    "v1.35.0",
    "v1.35.1",
    "v1.35.4",
    "v1.35.4+vmware.1",
    "v1.35.4-eks-abc",
    "v1.35.9",
    "v1.36.0-rc.1",
    "v1.36.0",
    "v1.36.1",
    "v1.37.0",
    "v2.0.0",
    "v2.35.4",
    "v18446744073709551615.0.0",
    "1.35.4",
    "1.35",
    "2",
    " v01.035.04 ",
    "v1.35.4+01",
    "v1.35.4-rc.01",
    "v1.35.4+99999999999999999999",
    "v1.35+k0s",
    "vv1.35.4",
    "latest",
    "",
];

/// What kapp-controller says about a range: a letter for each version.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    valid: bool,
    kubernetes: String,
    kapp_controller: String,
}

#[test]
fn ranges_allow_what_kapp_controller_accepts() -> Result<()> {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(7);
    let mut random = Rng::with_seed(seed);
    let ranges: Vec<String> = KNOWN
        .iter()
        .map(|&known| known.to_owned())
        .chain(iter::repeat_with(|| range(&mut random)).take(RANGES))
        .collect();
    let mut invalid = 0;
    let mut letters = BTreeMap::<char, usize>::new();
    for (text, answer) in ranges.iter().zip(answers(&ranges)?) {
        let range = Range::parse(text);
        ensure!(
            range.is_ok() == answer.valid,
            "{text:?} of seed {seed}: {range:?}, but {answer:?}"
        );
        let Ok(range) = range else {
            invalid += 1;
            continue;
        };
        for selection in [&answer.kubernetes, &answer.kapp_controller] {
            ensure!(selection.len() == VERSIONS.len(), "{answer:?}");
            for (version, letter) in VERSIONS.iter().zip(selection.chars()) {
                *letters.entry(letter).or_default() += 1;
                ensure!(
                    range.allows(version) == (letter == 'y'),
                    "{version:?} in {text:?} of seed {seed}: {letter} for kapp-controller, and {range:?}"
                );
            }
        }
    }
    let some = RANGES / 10..RANGES * 9 / 10;
    ensure!(some.contains(&invalid), "{invalid} ranges are invalid");
    // Accepted, excluded, after a panic, and of an API server whose version is unreadable.
    ensure!(letters.keys().eq(&['n', 'p', 'u', 'y']), "{letters:?}");
    Ok(())
}

fn answers(ranges: &[String]) -> Result<Vec<Answer>> {
    let program = components::ranges()?;
    let questions = serde_json::to_vec(&json!({"ranges": ranges, "versions": VERSIONS.as_slice()}))?;
    let mut input: File = tempfile::tempfile().context("create a file for the questions")?;
    input.write_all(&questions)?;
    input.rewind()?;
    let output = Command::new(&program)
        .stdin(input)
        .output()
        .context("run the program")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).context("read its output")?;
    let answers = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<_>, _>>()?;
    ensure!(
        answers.len() == ranges.len(),
        "{} answers for {} ranges",
        answers.len(),
        ranges.len()
    );
    Ok(answers)
}

/// A range of a few comparisons, about half of which have something odd.
fn range(random: &mut Rng) -> String {
    let mut text = String::new();
    for index in 0..random.usize(1..=4) {
        if index > 0 {
            text += pick(
                random,
                &[" ", " || "],
                &[
                    "  ", "||", ", ", " || || ", " = ", " > ", " ! ", " x ", " | ", "\n",
                ],
            );
        }
        text += pick(
            random,
            &["", "=", "==", "!", "!=", "<", "<=", ">", ">="],
            &["~", "^", "~>", "=>", "<>", ">>", "!>", "||", "v", "-"],
        );
        text += pick(random, &["", "", " "], &["\t", "  "]);
        text += &version(random);
    }
    if random.u8(..16) == 0 {
        let odd = [
            '0', '9', '.', '-', '+', ' ', '<', '>', '=', '!', '|', '~', 'x', 'a', '\t',
        ];
        let at = random.usize(..=text.len());
        text.insert(at, random.choice(odd).unwrap_or(' '));
    }
    text
}

fn version(random: &mut Rng) -> String {
    let odd = [
        "",
        "01",
        "035",
        "-1",
        "+1",
        "35x",
        "x35",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
    ];
    let mut text = pick(random, &["1", "1", "1", "2", "0"], &odd).to_owned();
    let minor = pick(random, &["33", "34", "35", "36", "x"], &odd);
    text += ".";
    text += minor;
    if minor != "x" || random.bool() {
        text += ".";
        text += pick(random, &["0", "1", "4", "9", "x"], &odd);
    }
    text += pick(
        random,
        &["", "", "", "", "-rc.1", "+vmware.1"],
        &[
            "-0",
            "-01",
            "-x",
            "-rc.x",
            "-rc.1+b.2",
            "+01",
            "-99999999999999999999",
            "+99999999999999999999",
            "-",
            "+",
            "-a..b",
            "+a_b",
            ".0",
            ".x",
        ],
    );
    text
}

/// One of the usual texts, and now and then an odd one.
fn pick<'a>(random: &mut Rng, usual: &[&'a str], odd: &[&'a str]) -> &'a str {
    let texts = if random.u8(..40) == 0 { odd } else { usual };
    random.choice(texts).copied().unwrap_or_default()
}
