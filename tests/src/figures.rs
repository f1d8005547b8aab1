//! Header of files of figures.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use crate::processes::run_directory::target_directory;

/// Where files of figures are: `target/bench`.
pub(crate) fn directory() -> PathBuf {
    target_directory()
        .unwrap_or_else(|| PathBuf::from("target"))
        .join("bench")
}

/// The commit of this checkout; empty without git.
pub(crate) fn commit() -> String {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let commit = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    commit.unwrap_or_default()
}

/// Number and model of the processors.
pub(crate) fn machine() -> String {
    let processors = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!(
        "{processors} processors, {}",
        model.map_or("of an unknown model", |(_, model)| model)
    )
}

/// The text with `table` in place of what stands between two lines; none if it does not have both.
pub(crate) fn with_table(page: &str, (begin, end): (&str, &str), table: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{table}{end}{after}"))
}

/// The median; none without figures.
pub(crate) fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_table() {
        let marks = ("<begin>\n", "<end>\n");
        let with = with_table("a\n<begin>\nold\n<end>\nb\n", marks, "new\n").unwrap();
        assert_eq!(with, "a\n<begin>\nnew\n<end>\nb\n");
        assert_eq!(with_table("a", marks, "new\n"), None);
    }

    #[test]
    fn a_median_is_one_of_the_figures() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }
}
