//! The tables of what Cluster API decides about reported versions, which unit tests of the product read.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sluice_tests::components::ClusterApiRelease::{self, Newest, V1_11, V1_12, V1_13};

/// Directory of the tables.
const TABLES: &str = "../extension/core/src/upgrade/hop/cluster_api";

#[test]
fn the_tables_are_what_each_release_of_cluster_api_decides() -> Result<()> {
    for (release, table) in [
        (Newest, "since_1_14.jsonl"),
        (V1_13, "before_1_14.jsonl"),
        (V1_12, "before_1_14.jsonl"),
        (V1_11, "before_1_14.jsonl"),
    ] {
        compare(release, table).with_context(|| format!("Cluster API {}", release.version()))?;
    }
    Ok(())
}

fn compare(release: ClusterApiRelease, table: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(TABLES).join(table);
    let recorded = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let program = release.upgrading()?;
    let output = Command::new(&program).output().context("run the program")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8(output.stdout).context("read its output")?;
    let differs = printed
        .lines()
        .zip(recorded.lines())
        .find(|(one, other)| one != other);
    ensure!(
        printed == recorded,
        "{table} is not what {} prints; first difference: {differs:?}",
        program.display()
    );
    Ok(())
}
