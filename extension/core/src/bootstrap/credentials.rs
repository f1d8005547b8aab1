//! Secrets that are credentials of Cluster API. A package that took its values from one would carry it into a workload cluster, where
//! others may read it than on the management cluster.

use k8s_openapi::api::core::v1::Secret;

use crate::hold::{GateReason, Hold};

/// The type of the Secrets that Cluster API makes.
pub const CREDENTIAL_TYPE: &str = "cluster.x-k8s.io/secret";

/// What Cluster API and its providers add to the name of a Cluster for each of them. Some are given no type.
const SUFFIXES: [&str; 7] = [
    "-kubeconfig",
    "-user-kubeconfig",
    "-ca",
    "-etcd",
    "-apiserver-etcd-client",
    "-proxy",
    "-sa",
];

/// The Clusters whose credential a Secret of this name is, if there is one of them in its namespace.
pub fn credential_of(secret: &str) -> impl Iterator<Item = &str> {
    let clusters = SUFFIXES.iter().filter_map(|suffix| secret.strip_suffix(suffix));
    clusters.filter(|cluster| !cluster.is_empty())
}

/// Whether a Secret is a credential by its type.
#[must_use]
pub fn is_credential(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(CREDENTIAL_TYPE)
}

/// Why a package may not take its values from `secret`.
#[must_use]
pub fn credential_refused(namespace: &str, secret: &str, package: &str) -> Hold {
    Hold::new(
        GateReason::ValuesSecretRefused,
        format!(
            "Secret {namespace}/{secret}, named for the values of package {package}, is a credential of Cluster API (type \
             {CREDENTIAL_TYPE}, or named after a Cluster: -kubeconfig, -ca, -etcd, -proxy, -sa …); name a Secret with values"
        ),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

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
