//! The checked-in definitions are those of the types.

use std::collections::BTreeSet;
use std::fs;

#[path = "../../examples/generate/files.rs"]
mod files;

#[test]
fn checked_in_definitions_are_those_of_the_types() {
    let wanted = files::wanted().unwrap();
    for (path, text) in &wanted {
        let found = fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == *text,
            "{} is out of date; run `cargo run -p sluice-crds --example generate` and commit what it writes",
            path.display()
        );
    }
    let present: BTreeSet<_> = fs::read_dir(files::directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(
        present,
        wanted.into_keys().collect(),
        "files of definitions that no longer exist"
    );
}
