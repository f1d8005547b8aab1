//! Writes the tables of `docs/failure-modes.md` from the reasons to hold, and that of `docs/reference/plan.md` from the checks of a plan.

use std::{error::Error, fs, path::PathBuf};

use sluice_core::{reasons, upgrade_plan};

fn main() -> Result<(), Box<dyn Error>> {
    write(reasons::PAGE, reasons::with_tables)?;
    write(upgrade_plan::PAGE, upgrade_plan::with_checks)
}

fn write(page: &str, with: fn(&str) -> Result<String, String>) -> Result<(), Box<dyn Error>> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let written = with(&fs::read_to_string(&page)?)?;
    fs::write(&page, written)?;
    Ok(())
}
