//! Files that are fetched together.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tar::{Builder, Header};

/// Image lock of a bundle. imgpkg requires it.
const IMAGES: &str = ".imgpkg/images.yml";

/// Files by path.
#[derive(Debug, Clone)]
pub struct Bundle(BTreeMap<String, String>);

impl Default for Bundle {
    /// One that names no images.
    fn default() -> Self {
        let none = json!({"apiVersion": "imgpkg.carvel.dev/v1alpha1", "kind": "ImagesLock"});
        Self(BTreeMap::from([(IMAGES.to_owned(), none.to_string())]))
    }
}

impl Bundle {
    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<String>) -> Self {
        self.0.insert(path.to_owned(), content.into());
        self
    }

    /// Adds a file with these objects.
    #[must_use]
    pub fn objects(self, path: &str, objects: &[Value]) -> Self {
        // JSON is YAML, without comments that ytt would take for its own.
        let documents = objects.iter().map(|object| format!("---\n{object}\n"));
        self.file(path, documents.collect::<String>())
    }

    /// All of them as a tarball.
    pub fn tarball(&self) -> Result<Vec<u8>> {
        let mut tarball = Builder::new(Vec::new());
        for (path, content) in &self.0 {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tarball
                .append_data(&mut header, path, content.as_bytes())
                .with_context(|| format!("put {path} into a tarball"))?;
        }
        tarball.into_inner().context("end a tarball")
    }
}
