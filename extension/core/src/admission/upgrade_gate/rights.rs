//! Rights of an account, as the API server reviews them.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Resource as _;
use sluice_crds::lifecycle::UpgradeGate;

/// All resources of a group.
const ALL: &str = "*";

/// Account that writes a gate, as the API server has authenticated it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// Name of the user, `system:serviceaccount:ci:pipeline`.
    pub name: String,
    /// UID of the user.
    pub uid: Option<String>,
    /// Groups of the user.
    pub groups: Option<Vec<String>>,
    /// Further attributes, which some authorizers read.
    pub extra: Option<BTreeMap<String, Vec<String>>>,
}

/// Right to an API resource in a namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Right {
    verb: &'static str,
    group: String,
    resource: String,
    namespace: String,
    /// Empty for all objects.
    name: String,
}

impl Right {
    /// Returns the right to read an object; without a name, all objects of the resource.
    pub(super) fn get(group: &str, plural: &str, namespace: &str, name: &str) -> Self {
        Self {
            verb: "get",
            group: group.to_owned(),
            resource: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the right to read all objects of a group.
    pub(super) fn get_all(group: &str, namespace: &str) -> Self {
        Self::get(group, ALL, namespace, "")
    }

    /// Returns the right to have Sluice read objects of workload clusters.
    pub(super) fn read_workload(namespace: &str) -> Self {
        Self {
            verb: "read-workload",
            ..Self::get(&UpgradeGate::group(&()), &UpgradeGate::plural(&()), namespace, "")
        }
    }

    /// Builds the review of this right of an account.
    #[must_use]
    pub fn review(&self, author: &Author) -> SubjectAccessReview {
        let Self {
            verb,
            group,
            resource,
            namespace,
            name,
        } = self;
        let attributes = ResourceAttributes {
            verb: Some((*verb).to_owned()),
            group: Some(group.clone()),
            resource: Some(resource.clone()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            ..ResourceAttributes::default()
        };
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(author.name.clone()),
                uid: author.uid.clone(),
                groups: author.groups.clone(),
                extra: author.extra.clone(),
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }

    /// Returns whether a reviewed right is allowed.
    ///
    /// # Errors
    /// The API server has not decided.
    pub fn allowed(review: &SubjectAccessReview) -> Result<bool, String> {
        match &review.status {
            Some(status) => Ok(status.allowed && status.denied != Some(true)),
            None => Err("the API server has not decided".to_owned()),
        }
    }
}

/// For example `get helmchartproxies.addons.cluster.x-k8s.io "cilium" in namespace "team-a"`.
impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            group,
            resource,
            namespace,
            name,
        } = self;
        if resource == ALL {
            write!(f, "{verb} all resources of group {group:?}")?;
        } else if group.is_empty() {
            write!(f, "{verb} {resource}")?;
        } else {
            write!(f, "{verb} {resource}.{group}")?;
        }
        if !name.is_empty() {
            write!(f, " {name:?}")?;
        }
        write!(f, " in namespace {namespace:?}")
    }
}
