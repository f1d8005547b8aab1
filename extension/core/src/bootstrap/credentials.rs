//! Secrets that are credentials of Cluster API. A package that took its values from one would carry it into a workload cluster, where
//! others may read it than on the management cluster.

use k8s_openapi::api::core::v1::Secret;

use crate::hold::{GateReason, Hold};

/// The type of the Secrets that Cluster API makes.
pub const CREDENTIAL_TYPE: &str = "cluster.x-k8s.io/secret";

/// What it adds to the name of a Cluster for each of them (`util/secret/consts.go`). Some providers give theirs no type.
const SUFFIXES: [&str; 5] = ["-kubeconfig", "-ca", "-etcd", "-proxy", "-sa"];

/// The Cluster whose credential a Secret of this name is, if there is such a Cluster in its namespace.
#[must_use]
pub fn credential_of(secret: &str) -> Option<&str> {
    let mut clusters = SUFFIXES.iter().filter_map(|suffix| secret.strip_suffix(suffix));
    clusters.next().filter(|cluster| !cluster.is_empty())
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
             {CREDENTIAL_TYPE}, or <Cluster>-kubeconfig, -ca, -etcd, -proxy, -sa); name a Secret with values"
        ),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("one-kubeconfig", Some("one"))]
    #[case("one-ca-ca", Some("one-ca"))]
    #[case("one-sa", Some("one"))]
    #[case("one-antrea-package", None)]
    #[case("-etcd", None)]
    #[case("proxy", None)]
    fn credentials_are_named_after_their_cluster(#[case] secret: &str, #[case] cluster: Option<&str>) {
        assert_eq!(credential_of(secret), cluster);
    }
}
