//! Which kinds may be read that an object of a tenant names: those that keep to a contract of Cluster API.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt, core::ApiResource};

use crate::runner::reads::served;

/// Looks at definitions before kinds are read. Clones share what is allowed.
#[derive(Clone)]
pub struct Contract {
    client: Client,
    /// Groups whose kinds need no label.
    groups: Arc<[String]>,
}

impl Contract {
    /// Kinds of `groups` may be read whatever their definitions say.
    #[must_use]
    pub fn new(client: Client, groups: Vec<String>) -> Self {
        Self {
            client,
            groups: groups.into(),
        }
    }

    /// How a kind is served that may be read; `None` when it is not served. What a Cluster names is written by a tenant, and Sluice
    /// sees the objects of all of them.
    ///
    /// # Errors
    /// Why the kind may not be read, or is not known: one line.
    pub async fn find(self, group: String, kind: String) -> Result<Option<ApiResource>, String> {
        let Self { client, groups } = self;
        let unanswered = |error: kube::Error| match error {
            kube::Error::Api(status) => format!(
                "the API server refused to say how it is served with {}",
                status.code
            ),
            _ => "the API server does not answer".to_owned(),
        };
        let Some(resource) = served(&client, &group, &kind).await.map_err(unanswered)? else {
            return Ok(None);
        };
        if groups.contains(&group) {
            return Ok(Some(resource));
        }
        let name = format!("{}.{group}", resource.plural);
        let definition = Api::<CustomResourceDefinition>::all(client)
            .get_metadata_opt(&name)
            .await
            .map_err(|error| match error {
                kube::Error::Api(status) if status.code == 403 => format!(
                    "Sluice may not get CustomResourceDefinition {name}; apply the roles of this release"
                ),
                error => unanswered(error),
            })?;
        if definition.is_some_and(|definition| definition.labels().keys().any(|key| is_contract(key))) {
            return Ok(Some(resource));
        }
        Err(format!(
            "CustomResourceDefinition {name} does not exist or has no label cluster.x-k8s.io/<contract version>; name a kind of a control plane provider, or start Sluice with --control-plane-group={group}"
        ))
    }
}

/// Whether a label of a definition says to which contract of Cluster API the kind keeps, such as `cluster.x-k8s.io/v1beta2`.
fn is_contract(label: &str) -> bool {
    let version = label.strip_prefix("cluster.x-k8s.io/v");
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("cluster.x-k8s.io/v1beta2", true)]
    #[case("cluster.x-k8s.io/v1alpha4", true)]
    #[case("cluster.x-k8s.io/provider", false)]
    #[case("cluster.x-k8s.io/v", false)]
    #[case("cluster.x-k8s.io/vsphere", false)]
    #[case("app/v1beta2", false)]
    fn a_contract_is_a_version(#[case] label: &str, #[case] contract: bool) {
        assert_eq!(is_contract(label), contract);
    }
}
