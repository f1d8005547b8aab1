//! Detects Secrets that are credentials of Kubernetes or Cluster API. A package with values from one would copy it to a workload
//! cluster, where other users may read it.

use k8s_openapi::api::core::v1::Secret;

use crate::reasons::{GateReason, Hold};

/// Types of Secrets that are credentials: tokens of ServiceAccounts and of joining nodes, and all Secrets of Cluster API.
///
/// The ValidatingAdmissionPolicy in `manifests/base/tkr-installer.yaml` and the docs name the same types; tests compare them.
pub const CREDENTIAL_TYPES: [&str; 3] = [
    "kubernetes.io/service-account-token",
    "bootstrap.kubernetes.io/token",
    "cluster.x-k8s.io/secret",
];

/// Suffixes that Cluster API and its providers add to the name of a Cluster for its credentials. Some of these have no type.
const SUFFIXES: [&str; 7] = [
    "-kubeconfig",
    "-user-kubeconfig",
    "-ca",
    "-etcd",
    "-apiserver-etcd-client",
    "-proxy",
    "-sa",
];

/// Returns the names of the Clusters whose credential a Secret of this name is, if they exist in its namespace.
pub fn credential_of(secret: &str) -> impl Iterator<Item = &str> {
    let clusters = SUFFIXES.iter().filter_map(|suffix| secret.strip_suffix(suffix));
    clusters.filter(|cluster| !cluster.is_empty())
}

/// Whether a Secret of this type is a credential.
#[must_use]
pub fn is_credential_type(type_: Option<&str>) -> bool {
    type_.is_some_and(|type_| CREDENTIAL_TYPES.contains(&type_))
}

/// Whether a Secret is a credential by its type.
#[must_use]
pub fn is_credential(secret: &Secret) -> bool {
    is_credential_type(secret.type_.as_deref())
}

/// Describes a Secret that is a credential.
pub(crate) fn credential(secret: &str) -> String {
    let [others @ .., last] = CREDENTIAL_TYPES;
    format!(
        "{secret} is a credential of Kubernetes or Cluster API (of type {} or {last}, or named after a Cluster: -kubeconfig, -ca, -etcd, \
         -proxy, -sa …)",
        others.join(", ")
    )
}

/// Returns the hold of a package whose values Secret is a credential.
#[must_use]
pub fn credential_refused(namespace: &str, secret: &str, package: &str) -> Hold {
    let secret = format!("Secret {namespace}/{secret}, named for the values of package {package},");
    let message = format!("{}; name a Secret with values", credential(&secret));
    Hold::new(GateReason::ValuesSecretRefused, message)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    /// Reads a file of the repository, with each run of white space as one space.
    fn read(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = fs::read_to_string(root.join(path)).unwrap();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[rstest]
    #[case("cluster.x-k8s.io/secret", true)]
    #[case("kubernetes.io/service-account-token", true)]
    #[case("bootstrap.kubernetes.io/token", true)]
    #[case("Opaque", false)]
    #[case("clusterbootstrap-secret", false)]
    fn credentials_have_a_type(#[case] type_: &str, #[case] expected: bool) {
        let secret = Secret {
            type_: Some(type_.to_owned()),
            ..Secret::default()
        };
        assert_eq!(is_credential(&secret), expected);
    }

    /// The policy that rejects credentials in bundles is CEL with a copy of the list.
    #[test]
    fn the_policy_of_the_installer_refuses_the_same_types() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/base/tkr-installer.yaml");
        let manifest = fs::read_to_string(root).unwrap();
        let objects: Vec<Value> = serde_saphyr::from_multiple(&manifest).unwrap();
        let policy = objects
            .iter()
            .find(|object| object["kind"] == "ValidatingAdmissionPolicy");
        let variables = policy.unwrap()["spec"]["variables"].as_array().unwrap();
        let credentials = variables
            .iter()
            .find(|variable| variable["name"] == "credentials")
            .unwrap();
        let expected = CREDENTIAL_TYPES.map(|type_| format!("'{type_}'")).join(", ");
        assert_eq!(credentials["expression"], format!("[{expected}]"));
    }

    #[rstest]
    #[case("docs/admission.md")]
    #[case("docs/decisions/0031-release-installation-through-kapp-controller.md")]
    #[case("docs/failure-modes.md")]
    #[case("docs/reference/providers.md")]
    #[case("docs/reference/releases.md")]
    fn the_docs_name_the_same_types(#[case] page: &str) {
        let [others @ .., last] = CREDENTIAL_TYPES.map(|type_| format!("`{type_}`"));
        let expected = format!("of type {} or {last}", others.join(", "));
        let text = read(page);
        assert!(text.contains(&expected), "{page} does not say {expected:?}");
        let named = text.matches("`cluster.x-k8s.io/secret`").count();
        assert_eq!(
            text.matches(&expected).count(),
            named,
            "{page} names only some of them"
        );
    }

    #[rstest]
    #[case("one-kubeconfig", &["one"])]
    #[case("one-user-kubeconfig", &["one-user", "one"])]
    #[case("one-apiserver-etcd-client", &["one"])]
    #[case("one-ca-ca", &["one-ca"])]
    #[case("one-sa", &["one"])]
    #[case("one-antrea-package", &[])]
    #[case("-etcd", &[])]
    #[case("proxy", &[])]
    fn credentials_are_named_after_their_cluster(#[case] secret: &str, #[case] clusters: &[&str]) {
        assert_eq!(credential_of(secret).collect::<Vec<_>>(), clusters);
    }
}
