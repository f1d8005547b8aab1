//! Names of the objects that Sluice creates for a Cluster, and checks of names.

/// Maximum length of a name in Kubernetes, for the kinds that Sluice writes.
pub const LONGEST_NAME: usize = 253;

/// Maximum length of a label value.
pub const LONGEST_LABEL: usize = 63;

/// Error for a name that Kubernetes would reject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("name {name} has {length} characters, Kubernetes takes {LONGEST_NAME}")]
pub struct NameTooLong {
    /// Rejected name.
    pub name: String,
    /// Length in bytes.
    pub length: usize,
}

/// Returns the short name of a package: `spec.refName` up to the first dot, `antrea` of `antrea.tanzu.vmware.com`.
#[must_use]
pub fn short(ref_name: &str) -> &str {
    ref_name.split('.').next().unwrap_or(ref_name)
}

/// Converts a string to a label value: replaces `+` with `---`, truncates to 63 bytes and trims `_`, `.` and `-` at the end.
#[must_use]
pub fn parse_string_for_label(text: &str) -> String {
    let replaced = text.replace('+', "---");
    let mut end = replaced.len().min(LONGEST_LABEL);
    while !replaced.is_char_boundary(end) {
        end -= 1;
    }
    replaced[..end].trim_end_matches(['_', '.', '-']).to_owned()
}

/// Returns the name of the PackageInstall of a package, and of its App: `<cluster>-<short>`.
pub fn package_install(cluster: &str, ref_name: &str) -> Result<String, NameTooLong> {
    checked(format!("{cluster}-{}", short(ref_name)))
}

/// Returns the name of the values Secret of a package: `<cluster>-<short>-data-values-<digest>`.
///
/// With the digest, new values have a new name, so the generations of PackageInstall and App cover them.
pub fn values_secret(cluster: &str, ref_name: &str, digest: &str) -> Result<String, NameTooLong> {
    checked(format!("{}{digest}", values_secret_prefix(cluster, ref_name)))
}

/// Returns the name prefix of all values Secrets of a package; it also matches those of earlier values.
#[must_use]
pub fn values_secret_prefix(cluster: &str, ref_name: &str) -> String {
    format!("{cluster}-{}-data-values-", short(ref_name))
}

/// Returns the name of the values Secret that a configuration controller writes on the management cluster:
/// `<cluster>-<short>-data-values`.
pub fn provider_values_secret(cluster: &str, ref_name: &str) -> Result<String, NameTooLong> {
    checked(format!("{cluster}-{}-data-values", short(ref_name)))
}

/// Returns the name of a cloned Secret or provider, and of the Secret of inline values: `<cluster>-<short>-package`.
pub fn clone(cluster: &str, ref_name: &str) -> Result<String, NameTooLong> {
    checked(format!("{cluster}-{}-package", short(ref_name)))
}

/// Whether this is a valid object name, and therefore one segment of a URL path.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let bytes = name.as_bytes();
    name.len() <= LONGEST_NAME
        && bytes.iter().copied().all(good)
        && ends(bytes.first().copied())
        && ends(bytes.last().copied())
}

/// Whether this is a valid Package name (`antrea.tanzu.vmware.com.1.7.1+vmware.1-tkg.1`), and therefore one segment of a URL path.
#[must_use]
pub fn is_package_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'+' | b'_');
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(good)
        && name
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
}

fn checked(name: String) -> Result<String, NameTooLong> {
    let length = name.len();
    if length > LONGEST_NAME {
        Err(NameTooLong { name, length })
    } else {
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("antrea.tanzu.vmware.com", "antrea")]
    #[case("kapp-controller.tanzu.vmware.com.0.38.3+vmware.1-tkg.1", "kapp-controller")]
    #[case("antrea", "antrea")]
    #[case("", "")]
    fn short_is_up_to_the_first_dot(#[case] ref_name: &str, #[case] expected: &str) {
        assert_eq!(short(ref_name), expected);
    }

    #[rstest]
    #[case::plus(
        "antrea.tanzu.vmware.com.1.7.1+vmware.1-tkg.1",
        "antrea.tanzu.vmware.com.1.7.1---vmware.1-tkg.1"
    )]
    #[case::trimmed("1.5.2+", "1.5.2")]
    #[case::cut(
        "load-balancer-and-ingress-service.tanzu.vmware.com.1.9.3+vmware.1-tkg.1",
        "load-balancer-and-ingress-service.tanzu.vmware.com.1.9.3---vmwa"
    )]
    fn labels_are_spelled_as_the_addons_manager_spelled_them(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(parse_string_for_label(text), expected);
    }

    #[test]
    fn objects_are_named_after_cluster_and_package() {
        assert_eq!(
            package_install("c1", "antrea.tanzu.vmware.com").unwrap(),
            "c1-antrea"
        );
        assert_eq!(
            values_secret("c1", "antrea.tanzu.vmware.com", "0a1b").unwrap(),
            "c1-antrea-data-values-0a1b"
        );
        assert_eq!(
            clone("c1", "antrea.tanzu.vmware.com").unwrap(),
            "c1-antrea-package"
        );
        assert_eq!(
            provider_values_secret("c1", "antrea.tanzu.vmware.com").unwrap(),
            "c1-antrea-data-values"
        );
    }

    #[rstest]
    #[case("one-antrea.package", true)]
    #[case("", false)]
    #[case("..", false)]
    #[case("one/status", false)]
    #[case("one?dryRun=All", false)]
    #[case("One", false)]
    fn names_of_objects_are_one_segment_of_a_path(#[case] name: &str, #[case] is_one: bool) {
        assert_eq!(is_object_name(name), is_one);
    }

    #[test]
    fn names_that_kubernetes_rejects_are_rejected() {
        let cluster = "c".repeat(250);
        let error = package_install(&cluster, "antrea.tanzu.vmware.com").unwrap_err();
        assert_eq!(error.length, 257);
    }

    proptest! {
        #[test]
        fn a_label_value_is_always_short_and_never_ends_in_punctuation(text in "\\PC{0,120}") {
            let label = parse_string_for_label(&text);
            prop_assert!(label.len() <= LONGEST_LABEL);
            prop_assert!(!label.ends_with(['_', '.', '-']));
        }
    }
}
