//! Allow-check for kinds that an object of a tenant names: only kinds that follow a contract of Cluster API are read.

use crate::kube_client::responses::code;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt, core::ApiResource};
use sluice_core::{
    cache::{
        NamedKind,
        contract::{is_named, missing, unanswered, unread},
    },
    error_chain::error_chain,
};

use crate::kube_client::responses::served;

/// Checks definitions before kinds are read. Clones share the allowed kinds.
#[derive(Clone)]
pub struct Contract {
    /// Client for the allowed kinds.
    pub(crate) client: Client,
    /// Groups whose kinds need no contract label.
    groups: Arc<[String]>,
}

impl Contract {
    /// Creates a check that allows kinds of `groups` whatever their definitions say.
    #[must_use]
    pub fn new(client: Client, groups: Vec<String>) -> Self {
        Self {
            client,
            groups: groups.into(),
        }
    }

    /// Returns how an allowed kind is served; `None` when it is not served. A tenant chooses the kind in its Cluster, and Sluice can read
    /// the objects of all tenants.
    ///
    /// # Errors
    /// One line that tells why the kind is not allowed or not known.
    pub async fn find(&self, named: &NamedKind) -> Result<Option<ApiResource>, String> {
        let (group, kind) = (&named.group, &named.kind);
        let found = served(&self.client, group, kind).await;
        if !named.is_given {
            return found.map_err(|error| error_chain(&error));
        }
        let Some(resource) = found.map_err(|error| unanswered(code(&error)))? else {
            return Ok(None);
        };
        if self.groups.contains(group) {
            return Ok(Some(resource));
        }
        let name = format!("{}.{group}", resource.plural);
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        let found = definitions.get_metadata_opt(&name).await;
        match found.map_err(|error| unread(&name, code(&error)))? {
            Some(definition) if is_named(definition.labels().keys()) => Ok(Some(resource)),
            _ => Err(missing(&name, group)),
        }
    }
}
