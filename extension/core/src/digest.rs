//! The digest that names a values Secret: new values, or new ground under their proof, are a new name.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a digest: 80 bits, short enough for a name.
pub const DIGITS: usize = 20;

/// What the proof of a package stands on. When it changes, kapp-controller deploys again, although no value did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ground<'a> {
    /// Version of the API server, `v1.36.3`.
    pub stage: Option<&'a str>,
    /// UID of the workload's namespace `kube-system`: a kubeconfig may lead to another cluster than before.
    pub workload: Option<&'a str>,
    /// Version and digest of the kapp-controller that installs the package; nothing for itself. A kapp-controller that is
    /// restarted leaves what it was deploying untouched for a whole sync period, unless it is asked anew.
    pub installer: Option<&'a str>,
}

/// The digest of a package's values and of the ground under their proof.
#[must_use]
pub fn values(ground: &Ground<'_>, files: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    // Lengths keep one field from running into the next.
    for part in [ground.stage, ground.workload, ground.installer] {
        field(&mut hash, part.unwrap_or_default().as_bytes());
    }
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
        let ground = Ground {
            stage: Some("v1.36.3"),
            workload: Some("uid"),
            installer: None,
        };
        let digest = values(&ground, &files(&[("values.yaml", "a: 1\n")]));
        assert_eq!(digest, "d0ab86b0d7251d9411cc");
        assert_eq!(digest.len(), DIGITS);
    }

    #[test]
    fn stage_content_and_file_names_all_count() {
        let of = |stage, pairs: &[(&str, &str)]| {
            let ground = Ground {
                stage,
                ..Ground::default()
            };
            values(&ground, &files(pairs))
        };
        let base = of(Some("v1.35.4"), &[("values.yaml", "a: 1\n")]);
        for other in [
            of(Some("v1.36.3"), &[("values.yaml", "a: 1\n")]),
            of(None, &[("values.yaml", "a: 1\n")]),
            of(Some("v1.35.4"), &[("values.yaml", "a: 2\n")]),
            of(Some("v1.35.4"), &[("tkgs-values.yaml", "a: 1\n")]),
            of(Some("v1.35.4"), &[("values.yaml", "a: 1\n"), ("x", "")]),
        ] {
            assert_ne!(base, other);
        }
    }

    /// Found by a soak run: values of kapp-controller, edited while it deployed the other packages, restarted it, and it
    /// took them up again only ten minutes later.
    #[test]
    fn another_kapp_controller_is_asked_anew_for_everything_it_installs() {
        let by = |installer| {
            let ground = Ground {
                installer,
                ..Ground::default()
            };
            values(&ground, &files(&[("values.yaml", "a: 1\n")]))
        };
        assert_ne!(
            by(Some("3.0.0 51c06128fbabeae255b8")),
            by(Some("3.0.0 0d6d1e4d5e7a1b2c3d4e"))
        );
        assert_ne!(
            by(Some("3.0.0 51c06128fbabeae255b8")),
            by(Some("3.0.1 51c06128fbabeae255b8"))
        );
    }

    /// Found by the model: kapp-controller is judged where its kubeconfig lies, so its proof outlived a swap of the API
    /// server that it was deployed to.
    #[test]
    fn another_api_server_needs_another_proof() {
        let on = |workload| {
            let ground = Ground {
                workload,
                ..Ground::default()
            };
            values(&ground, &files(&[("values.yaml", "a: 1\n")]))
        };
        assert_ne!(on(Some("uid")), on(Some("another")));
    }

    proptest! {
        #[test]
        fn different_files_have_different_digests(
            one in prop::collection::btree_map("[a-z.]{0,6}", prop::collection::vec(any::<u8>(), 0..6), 0..4),
            other in prop::collection::btree_map("[a-z.]{0,6}", prop::collection::vec(any::<u8>(), 0..6), 0..4),
        ) {
            let ground = Ground::default();
            prop_assert_eq!(one == other, values(&ground, &one) == values(&ground, &other));
        }
    }
}
