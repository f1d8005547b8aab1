//! Which kinds may be read that an object of a tenant names: those that keep to a contract of Cluster API.

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

/// Looks at definitions before kinds are read. Clones share what is allowed.
#[derive(Clone)]
pub struct Contract {
    /// Reads what may be read.
    pub(crate) client: Client,
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
