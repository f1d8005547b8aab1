//! The checked-in definitions are those of the types, and the chart has copies of the manifests.

use std::collections::BTreeSet;
use std::fs;

#[path = "../../examples/generate/files.rs"]
mod files;

#[test]
fn generated_files_are_up_to_date() {
    let wanted = files::wanted().unwrap();
    for (path, text) in &wanted {
        let found = fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == *text,
            "{} is out of date; run `cargo run -p sluice-crds --example generate` and commit what it writes",
            path.display()
        );
    }
    for directory in files::directories() {
        let present: BTreeSet<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let generated = wanted.keys().filter(|path| path.starts_with(&directory));
        assert_eq!(
            present,
            generated.cloned().collect(),
            "files of {} that no longer exist",
            directory.display()
        );
    }
}
