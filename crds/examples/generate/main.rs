//! Writes `crds/yaml` from the types, and the files that the chart copies: `cargo run -p sluice-crds --example generate`.

use std::error::Error;
use std::fs;

mod files;

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = files::wanted()?;
    for directory in files::directories() {
        fs::create_dir_all(&directory)?;
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if !wanted.contains_key(&path) {
                fs::remove_file(path)?;
            }
        }
    }
    for (path, text) in wanted {
        fs::write(path, text)?;
    }
    Ok(())
}
