//! A program with functions of kapp-controller.

use std::path::PathBuf;

use anyhow::Result;

use super::catalogue::{KAPP_CONTROLLER, Module};
use super::go::build_sources;

/// The program that prints which versions functions of kapp-controller accept for ranges of Packages, from `tests/go/ranges`. It is built
/// first where that was not done before, which takes a minute.
pub fn ranges() -> Result<PathBuf> {
    let Module { go_mod, go_sum, .. } = KAPP_CONTROLLER;
    let sources = [
        ("go.mod", go_mod),
        ("go.sum", go_sum),
        ("main.go", include_str!("../../go/ranges/main.go")),
    ];
    build_sources("ranges", &sources)
}
