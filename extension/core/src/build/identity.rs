//! Who installs packages inside a workload cluster: the identity of the legacy manager, so that nothing is left behind
//! when a cluster changes hands.

use k8s_openapi::{
    api::{
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use sluice_crds::labels::name;

/// Namespace, ServiceAccount, ClusterRole and ClusterRoleBinding, in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// The system namespace.
    pub namespace: Namespace,
    /// The account that kapp-controller deploys packages with.
    pub service_account: ServiceAccount,
    /// What it may do: everything, because a package may hold anything.
    pub cluster_role: ClusterRole,
    /// Binds the two.
    pub cluster_role_binding: ClusterRoleBinding,
}

/// The identity in `namespace` of a workload cluster.
#[must_use]
pub fn identity(namespace: &str) -> Identity {
    let named = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    let all = || vec!["*".to_owned()];
    Identity {
        namespace: Namespace {
            metadata: named(namespace),
            ..Namespace::default()
        },
        service_account: ServiceAccount {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                ..named(name::SERVICE_ACCOUNT)
            },
            ..ServiceAccount::default()
        },
        cluster_role: ClusterRole {
            metadata: named(name::CLUSTER_ROLE),
            rules: Some(vec![PolicyRule {
                api_groups: Some(all()),
                resources: Some(all()),
                verbs: all(),
                ..PolicyRule::default()
            }]),
            ..ClusterRole::default()
        },
        cluster_role_binding: ClusterRoleBinding {
            metadata: named(name::CLUSTER_ROLE_BINDING),
            role_ref: RoleRef {
                api_group: "rbac.authorization.k8s.io".to_owned(),
                kind: "ClusterRole".to_owned(),
                name: name::CLUSTER_ROLE.to_owned(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: name::SERVICE_ACCOUNT.to_owned(),
                namespace: Some(namespace.to_owned()),
                ..Subject::default()
            }]),
        },
    }
}
