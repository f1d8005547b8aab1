//! Writes the tables of `docs/failure-modes.md` from the reasons to hold.

use std::{error::Error, fs, path::PathBuf};

use sluice_core::reasons::{PAGE, with_tables};

fn main() -> Result<(), Box<dyn Error>> {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let written = with_tables(&fs::read_to_string(&page)?)?;
    fs::write(&page, written)?;
    Ok(())
}
