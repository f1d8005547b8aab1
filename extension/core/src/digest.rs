//! The digest that names a values Secret: new values, or a new stage, are a new name.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest: 80 bits, short enough for a name.
pub const DIGITS: usize = 20;

/// The digest of a package's values and of the stage they are to be proven on.
///
/// The stage is the version of the API server, `v1.36.3`. It makes kapp-controller deploy again when the control plane
/// has taken a new version, although no value changed.
#[must_use]
pub fn values(stage: Option<&str>, files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    // Lengths keep one field from running into the next.
    field(&mut hash, stage.unwrap_or_default().as_bytes());
    for (name, content) in files {
        field(&mut hash, name.as_bytes());
        field(&mut hash, content);
    }
    let mut digest = hex(&hash.finalize());
    digest.truncate(DIGITS);
    digest
}

fn field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn files(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        pairs
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_digest_is_the_same_on_every_replica_and_in_every_release() {
        let digest = values(Some("v1.36.3"), &files(&[("values.yaml", "a: 1\n")]));
        assert_eq!(digest, "51c06128fbabeae255b8");
        assert_eq!(digest.len(), DIGITS);
    }

    #[test]
    fn stage_content_and_file_names_all_count() {
        let base = values(Some("v1.35.4"), &files(&[("values.yaml", "a: 1\n")]));
        assert_ne!(
            base,
            values(Some("v1.36.3"), &files(&[("values.yaml", "a: 1\n")]))
        );
        assert_ne!(base, values(None, &files(&[("values.yaml", "a: 1\n")])));
        assert_ne!(
            base,
            values(Some("v1.35.4"), &files(&[("values.yaml", "a: 2\n")]))
        );
        assert_ne!(
            base,
            values(Some("v1.35.4"), &files(&[("tkgs-values.yaml", "a: 1\n")]))
        );
        assert_ne!(
            base,
            values(Some("v1.35.4"), &files(&[("values.yaml", "a: 1\n"), ("x", "")]))
        );
    }

    proptest! {
        #[test]
        fn different_files_have_different_digests(
            one in prop::collection::btree_map("[a-z.]{0,6}", prop::collection::vec(any::<u8>(), 0..6), 0..4),
            other in prop::collection::btree_map("[a-z.]{0,6}", prop::collection::vec(any::<u8>(), 0..6), 0..4),
        ) {
            prop_assert_eq!(one == other, values(None, &one) == values(None, &other));
        }
    }
}
