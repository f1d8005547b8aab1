//! Identity that installs packages inside a workload cluster. It is the one of the addons-manager, so a migrated Cluster has no
//! leftovers.

use k8s_openapi::{
    api::{
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use sluice_crds::labels::name;

use super::Repair;

/// Namespace, ServiceAccount, ClusterRole and ClusterRoleBinding, in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// System namespace.
    pub namespace: Namespace,
    /// ServiceAccount with which kapp-controller deploys packages.
    pub service_account: ServiceAccount,
    /// Permissions of the account: all, because a package may contain any object.
    pub cluster_role: ClusterRole,
    /// Binding of account and role.
    pub cluster_role_binding: ClusterRoleBinding,
}

/// Builds the identity in `namespace` of a workload cluster.
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

/// Returns the repair of a ClusterRole that lacks a desired rule. Additional rules of others stay.
#[must_use]
pub fn repair_role(wanted: &ClusterRole, found: &ClusterRole) -> Repair<ClusterRole> {
    let rules = found.rules.as_deref().unwrap_or_default();
    if wanted.rules.iter().flatten().all(|rule| rules.contains(rule)) {
        return Repair::NotNeeded;
    }
    // An aggregated role would lose its rules again.
    Repair::Replace(Box::new(ClusterRole {
        metadata: found.metadata.clone(),
        ..wanted.clone()
    }))
}

/// Returns the repair of a ClusterRoleBinding that lacks the ServiceAccount, or has another role, which is immutable.
#[must_use]
pub fn repair_binding(wanted: &ClusterRoleBinding, found: &ClusterRoleBinding) -> Repair<ClusterRoleBinding> {
    if wanted.role_ref != found.role_ref {
        return Repair::Recreate;
    }
    let subjects = found.subjects.as_deref().unwrap_or_default();
    if wanted
        .subjects
        .iter()
        .flatten()
        .all(|subject| subjects.contains(subject))
    {
        return Repair::NotNeeded;
    }
    Repair::Replace(Box::new(ClusterRoleBinding {
        metadata: found.metadata.clone(),
        ..wanted.clone()
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn there(mut metadata: ObjectMeta) -> ObjectMeta {
        metadata.uid = Some("uid".to_owned());
        metadata.resource_version = Some("7".to_owned());
        metadata.labels = Some([("theirs".to_owned(), "yes".to_owned())].into());
        metadata
    }

    fn role(edit: impl Fn(&mut Vec<PolicyRule>)) -> ClusterRole {
        let mut role = identity("system").cluster_role;
        role.metadata = there(role.metadata);
        edit(role.rules.get_or_insert_default());
        role
    }

    fn binding(edit: impl Fn(&mut ClusterRoleBinding)) -> ClusterRoleBinding {
        let mut binding = identity("system").cluster_role_binding;
        binding.metadata = there(binding.metadata);
        edit(&mut binding);
        binding
    }

    #[rstest]
    #[case::as_written(role(|_| {}), false)]
    #[case::with_more(role(|rules| rules.push(PolicyRule::default())), false)]
    #[case::emptied(role(Vec::clear), true)]
    #[case::cut_down(role(|rules| rules[0].verbs = vec!["get".to_owned()]), true)]
    fn a_role_that_lost_a_rule_gets_it_back(#[case] found: ClusterRole, #[case] replaced: bool) {
        let expected = if replaced {
            Repair::Replace(Box::new(role(|_| {})))
        } else {
            Repair::NotNeeded
        };
        assert_eq!(repair_role(&identity("system").cluster_role, &found), expected);
    }

    #[rstest]
    #[case::as_written(binding(|_| {}), Repair::NotNeeded)]
    #[case::without_subjects(binding(|found| found.subjects = None), Repair::Replace(Box::new(binding(|_| {}))))]
    #[case::of_another_account(
        binding(|found| found.subjects.iter_mut().flatten().for_each(|subject| subject.name = "other".to_owned())),
        Repair::Replace(Box::new(binding(|_| {})))
    )]
    #[case::to_another_role(binding(|found| found.role_ref.name = "view".to_owned()), Repair::Recreate)]
    fn a_binding_leads_from_our_account_to_our_role(
        #[case] found: ClusterRoleBinding,
        #[case] expected: Repair<ClusterRoleBinding>,
    ) {
        assert_eq!(
            repair_binding(&identity("system").cluster_role_binding, &found),
            expected
        );
    }
}
