//! Digest in the name of a values Secret; it changes with the values, the content of the Package and the other inputs.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits for values and inputs: 80 bits, short enough for a name.
pub const DIGITS: usize = 20;

/// Hexadecimal digits for the content of the Package, after a dash: 48 bits. Whoever chooses that content controls the cluster anyway.
pub const TEMPLATE_DIGITS: usize = 12;

/// Length of a digest in characters.
pub const LENGTH: usize = DIGITS + 1 + TEMPLATE_DIGITS;

/// Hexadecimal digits of a whole digest: 256 bits.
const WHOLE: usize = 64;

/// Inputs of a digest other than the values; the proof of a package depends on them. If one changes, kapp-controller deploys again,
/// although no value has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DigestInputs<'a> {
    /// Version of the API server, `v1.36.3`.
    pub stage: Option<&'a str>,
    /// UID of namespace `kube-system` in the workload cluster: a kubeconfig may lead to another cluster than before.
    pub workload: Option<&'a str>,
    /// kapp-controller that installs the package; none for its own package. A restarted kapp-controller ignores an interrupted
    /// deployment for a whole sync period, unless the App changes.
    pub installer: Option<Installer<'a>>,
    /// Digest of `Package.spec.template`, by [`template`]: a Package may be edited in place, at the same version.
    pub template: &'a str,
    /// Number of times that the sources of the deployment were found altered; see
    /// [`Judgement::with_repairs`](crate::proof::Judgement::with_repairs).
    pub repairs: u8,
    /// Whether the PackageInstall stays as the addons-manager created it. Such a proof does not count for other PackageInstalls: the
    /// name of its Secret does not identify the values.
    pub kept: bool,
}

/// kapp-controller that installs a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Installer<'a> {
    /// `Package.spec.version` of its own package.
    pub version: &'a str,
    /// Digest of its own values and inputs, by [`values`].
    pub digest: &'a str,
}

/// Returns the digest of the values and the other inputs of a package: `<values and inputs>-<content of the Package>`.
///
/// The second part covers the content of Packages, including that of the installer, so that [`differs_in_template_only`] detects
/// a change of nothing else.
#[must_use]
pub fn values(inputs: &DigestInputs<'_>, files: &BTreeMap<String, Vec<u8>>) -> String {
    let installer = inputs.installer.map(|installer| {
        let (values, template) = parts(installer.digest);
        (installer.version, values, template)
    });
    let (version, values, template) = installer.unwrap_or_default();
    let stage = inputs.stage.unwrap_or_default();
    let stage = match inputs.repairs {
        0 => stage.to_owned(),
        // No version contains this character.
        repairs => format!("{stage}#{repairs}"),
    };
    let stage = if inputs.kept {
        format!("{stage}#kept")
    } else {
        stage
    };
    let given = [
        stage.as_str(),
        inputs.workload.unwrap_or_default(),
        version,
        values,
    ];
    let given = given.into_iter().map(str::as_bytes);
    let values = hash(given.chain(names_and_contents(files)), DIGITS);
    let template = hash([inputs.template.as_bytes(), template.as_bytes()], TEMPLATE_DIGITS);
    format!("{values}-{template}")
}

/// Returns the digest of values without other inputs, in full length: no name contains it.
#[must_use]
pub fn content(files: &BTreeMap<String, Vec<u8>>) -> String {
    hash(names_and_contents(files), WHOLE)
}

fn names_and_contents(files: &BTreeMap<String, Vec<u8>>) -> impl Iterator<Item = &[u8]> {
    files
        .iter()
        .flat_map(|(name, content)| [name.as_bytes(), content.as_slice()])
}

/// Whether a text has the form of a digest by [`values`].
#[must_use]
pub fn is_digest(text: &str) -> bool {
    let is_hex = |part: &str, length: usize| {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        part.len() == length && part.bytes().all(is_digit)
    };
    let (values, template) = parts(text);
    is_hex(values, DIGITS) && is_hex(template, TEMPLATE_DIGITS)
}

/// Whether two digests of a package differ only in the content of Packages, with the same values and inputs.
#[must_use]
pub fn differs_in_template_only(one: &str, other: &str) -> bool {
    one != other && parts(one).0 == parts(other).0
}

fn parts(digest: &str) -> (&str, &str) {
    digest.split_once('-').unwrap_or((digest, ""))
}

/// Returns the digest of a `Package.spec.template`, independent of the order of its fields.
///
/// A null field counts as absent: Go writes some of its empty fields as null, and releases of kapp-controller differ in which.
#[must_use]
pub fn template(content: &Value) -> String {
    let mut hash = Sha256::new();
    canonical(&mut hash, content);
    hex(&hash.finalize())
}

fn canonical(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().filter(|(_, value)| !value.is_null()).collect();
            begin(hash, b'{', fields.len());
            for (name, value) in fields {
                field(hash, name.as_bytes());
                canonical(hash, value);
            }
        }
        Value::Array(items) => {
            begin(hash, b'[', items.len());
            for item in items {
                canonical(hash, item);
            }
        }
        // The JSON of a string is quoted, so that "1" is not 1.
        scalar => {
            begin(hash, b'=', 1);
            field(hash, scalar.to_string().as_bytes());
        }
    }
}

fn begin(hash: &mut Sha256, kind: u8, length: usize) {
    hash.update([kind]);
    hash.update((length as u64).to_be_bytes());
}

/// Returns the first `digits` hexadecimal digits of the digest of `parts`, in order.
pub(crate) fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>, digits: usize) -> String {
    let mut hash = Sha256::new();
    // Lengths separate the fields.
    for part in parts {
        field(&mut hash, part);
    }
    let mut digest = hex(&hash.finalize());
    digest.truncate(digits);
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
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn files(pairs: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        pairs
            .iter()
            .map(|(name, content)| ((*name).to_owned(), content.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn a_digest_is_the_same_on_every_replica_and_in_every_release() {
        let inputs = DigestInputs {
            stage: Some("v1.36.3"),
            workload: Some("uid"),
            installer: None,
            template: &template(&json!({"spec": {"deploy": [{"kapp": {}}]}})),
            repairs: 0,
            kept: false,
        };
        let digest = values(&inputs, &files(&[("values.yaml", "a: 1\n")]));
        assert_eq!(digest, "53d69ffeed341e279da2-cd503f4357eb");
        assert_eq!(digest.len(), DIGITS + 1 + TEMPLATE_DIGITS);
    }

    /// The latch of one must never be that of the other.
    #[test]
    fn a_kept_package_install_has_its_own_digest() {
        let of = |kept, repairs| {
            let inputs = DigestInputs {
                stage: Some("v1.36.3"),
                repairs,
                kept,
                ..DigestInputs::default()
            };
            values(&inputs, &files(&[("values.yaml", "a: 1\n")]))
        };
        assert_ne!(of(true, 0), of(false, 0));
        assert_ne!(of(true, 0), of(true, 1));
        assert!(!differs_in_template_only(&of(true, 0), &of(false, 0)));
    }

    #[test]
    fn stage_content_and_file_names_all_count() {
        let of = |stage, pairs: &[(&str, &str)]| {
            let inputs = DigestInputs {
                stage,
                ..DigestInputs::default()
            };
            values(&inputs, &files(pairs))
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
            assert!(!differs_in_template_only(&base, &other));
        }
    }

    /// Found by a soak run: an edit of kapp-controller's values restarted it while it deployed the other packages, and it resumed
    /// them only ten minutes later.
    #[test]
    fn another_kapp_controller_is_asked_again_for_everything_it_installs() {
        let by = |version, digest| {
            let inputs = DigestInputs {
                installer: Some(Installer { version, digest }),
                ..DigestInputs::default()
            };
            values(&inputs, &files(&[("values.yaml", "a: 1\n")]))
        };
        let base = by("3.0.0", "51c06128fbabeae255b8-0123456789ab");
        for (version, digest, only_template) in [
            ("3.0.0", "0d6d1e4d5e7a1b2c3d4e-0123456789ab", false),
            ("3.0.1", "51c06128fbabeae255b8-0123456789ab", false),
            ("3.0.0", "51c06128fbabeae255b8-ba9876543210", true),
        ] {
            let other = by(version, digest);
            assert_ne!(base, other);
            assert_eq!(
                differs_in_template_only(&base, &other),
                only_template,
                "{version} {digest}"
            );
        }
    }

    /// Once an edit of a Package in place, at the same version, did not count as a change, and nothing was deployed again.
    #[test]
    fn a_package_that_is_edited_in_place_is_another_one() {
        let with = |content: Value| {
            let inputs = DigestInputs {
                template: &template(&content),
                ..DigestInputs::default()
            };
            values(&inputs, &files(&[("values.yaml", "a: 1\n")]))
        };
        let (one, other) = (with(json!({"a": 1})), with(json!({"a": 2})));
        assert_ne!(one, other);
        assert!(differs_in_template_only(&one, &other));
        assert!(!differs_in_template_only(&one, &one));
        assert!(
            !differs_in_template_only("d1", "d2"),
            "digests of an earlier release have one part"
        );
    }

    #[rstest]
    #[case::order_of_fields(
        r#"{"a": 1, "b": {"c": [1, 2], "d": ""}}"#,
        r#"{"b": {"d": "", "c": [1, 2]}, "a": 1}"#,
        true
    )]
    #[case::null_is_absent(r#"{"a": 1, "b": null}"#, r#"{"a": 1}"#, true)]
    #[case::spaces(r#"{"a":1}"#, r#"{ "a" : 1 }"#, true)]
    #[case::order_of_items("[1, 2]", "[2, 1]", false)]
    #[case::a_null_item("[null]", "[]", false)]
    #[case::text_is_no_number(r#"{"a": "1"}"#, r#"{"a": 1}"#, false)]
    #[case::text_is_no_bool(r#"{"a": "true"}"#, r#"{"a": true}"#, false)]
    #[case::names(r#"{"a": 1}"#, r#"{"b": 1}"#, false)]
    #[case::depth(r#"{"a": {"b": {}}}"#, r#"{"a": {}, "b": {}}"#, false)]
    #[case::brackets("[[1], [2]]", "[[1, 2]]", false)]
    #[case::kinds("{}", "[]", false)]
    fn templates(#[case] one: &str, #[case] other: &str, #[case] same: bool) {
        let of = |text| template(&serde_json::from_str(text).unwrap());
        assert_eq!(of(one) == of(other), same);
    }

    #[rstest]
    #[case::upper_case("0123456789ABCDEF0123-0123456789ab", false)]
    #[case::short("0123456789abcdef012-0123456789ab", false)]
    #[case::one_part("0123456789abcdef0123", false)]
    #[case::third_part("0123456789abcdef0123-0123456789ab-0", false)]
    #[case::word("package", false)]
    #[case::nothing("", false)]
    #[case::digest("0123456789abcdef0123-0123456789ab", true)]
    fn only_digests_have_the_form_of_one(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_digest(text), expected);
        let made = values(&DigestInputs::default(), &files(&[("values.yaml", text)]));
        assert!(is_digest(&made), "{made}");
    }

    /// Found by the model: kapp-controller is judged on the management cluster, so its proof outlived a swap of the API server
    /// that it was deployed to.
    #[test]
    fn another_api_server_needs_another_proof() {
        let on = |workload| {
            let inputs = DigestInputs {
                workload,
                ..DigestInputs::default()
            };
            values(&inputs, &files(&[("values.yaml", "a: 1\n")]))
        };
        assert_ne!(on(Some("uid")), on(Some("another")));
    }

    proptest! {
        #[test]
        fn different_files_have_different_digests(
            one in prop::collection::btree_map("[a-z.]{0,6}", prop::collection::vec(any::<u8>(), 0..6), 0..4),
            other in prop::collection::btree_map("[a-z.]{0,6}", prop::collection::vec(any::<u8>(), 0..6), 0..4),
        ) {
            let inputs = DigestInputs::default();
            prop_assert_eq!(one == other, values(&inputs, &one) == values(&inputs, &other));
            prop_assert_eq!(one == other, content(&one) == content(&other));
        }
    }
}
