//! `kubectl apply -k` installs every definition.

use std::{collections::BTreeSet, fs, path::Path};

#[derive(serde::Deserialize)]
struct Kustomization {
    resources: BTreeSet<String>,
}

#[test]
fn the_kustomization_lists_every_definition() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(directory.join("kustomization.yaml")).unwrap();
    let listed: Kustomization = serde_saphyr::from_str(&text).unwrap();
    let present: BTreeSet<String> = fs::read_dir(directory.join("yaml"))
        .unwrap()
        .map(|entry| format!("yaml/{}", entry.unwrap().file_name().to_string_lossy()))
        .collect();
    assert_eq!(listed.resources, present);
}
