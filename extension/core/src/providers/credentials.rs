//! Credentials for vSphere: from a Secret that a configuration names, or from the identity of the cluster.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use serde_json::Value;
use sluice_crds::{foreign::Cluster, run::TypedLocalObjectReference};
use std::collections::BTreeMap;

use super::{
    cluster::named,
    problem::{Problem, Reason},
    source::{Source, Sources, ValuesError, text},
};

/// Namespace of the infrastructure provider, which holds the Secrets of its identities.
const CAPV_NAMESPACE: &str = "capv-system";
const IDENTITY_GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// User name and password.
pub(super) struct Login {
    pub(super) username: String,
    pub(super) password: String,
    /// The Secret that holds them.
    pub(super) secret: Source,
}

/// Returns the text under `key` of a Secret; `None` if it is missing or not text.
pub(super) fn secret_text(secret: &Value, key: &str) -> Option<String> {
    let encoded = secret.get("data")?.get(key)?.as_str()?;
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()
}

/// Returns the Secret, or a problem that names the object that refers to it.
pub(super) fn secret<'a>(
    sources: &'a Sources,
    secret: &Source,
    asked_by: &str,
) -> Result<&'a Value, ValuesError> {
    sources.find(secret)?.ok_or_else(|| {
        let message = format!("{secret}, named by {asked_by}, does not exist");
        Problem::new(Reason::CredentialsNotFound, message).into()
    })
}

/// Reads a login from the keys `username` and `password` of a Secret.
pub(super) fn login(sources: &Sources, from: Source, asked_by: &str) -> Result<Login, ValuesError> {
    let found = secret(sources, &from, asked_by)?;
    let key = |key: &str| required(found, &from, key, asked_by);
    Ok(Login {
        username: key("username")?,
        password: key("password")?,
        secret: from,
    })
}

/// Returns the text under `key`, or a problem that names the Secret and the key but never the content.
pub(super) fn required(secret: &Value, from: &Source, key: &str, asked_by: &str) -> Result<String, Problem> {
    secret_text(secret, key).ok_or_else(|| {
        let message = format!("{from}, named by {asked_by}, has no text under the key {key}");
        Problem::new(Reason::CredentialsIncomplete, message)
    })
}

/// Reads the login that a configuration names.
pub(super) fn named_login(
    sources: &Sources,
    namespace: &str,
    reference: &TypedLocalObjectReference,
    field: &str,
) -> Result<Login, ValuesError> {
    if reference.kind != "Secret" {
        let message = format!("{field} is of kind {:?}; name a Secret", reference.kind);
        return Err(Problem::new(Reason::IdentityUnknown, message).into());
    }
    login(sources, Source::secret(namespace, &reference.name), field)
}

/// Reads the login of an identity: `reference` holds `kind` and `name`, `field` is its path in messages.
pub(super) fn identity_login(
    sources: &Sources,
    cluster: &Cluster,
    reference: &Value,
    field: &str,
) -> Result<Login, ValuesError> {
    let namespace = cluster.namespace().unwrap_or_default();
    let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
    match kind {
        "Secret" => login(sources, Source::secret(&namespace, name), field),
        "VSphereClusterIdentity" => {
            let source = Source::cluster_wide(IDENTITY_GROUP, kind, name);
            let identity = sources
                .find(&source)?
                .filter(|identity| is_ready(identity))
                .ok_or_else(|| {
                    let message = format!("{source}, named by {field}, does not exist or is not ready");
                    Problem::new(Reason::IdentityNotReady, message)
                })?;
            allows(sources, identity, &source, cluster, &namespace)?;
            let secret = Source::secret(CAPV_NAMESPACE, text(identity, "/spec/secretName"));
            login(sources, secret, &format!("spec.secretName of {source}"))
        }
        other => {
            let message = format!(
                "{field} of {} is of kind {other:?}; name a Secret or a VSphereClusterIdentity",
                named(cluster)
            );
            Err(Problem::new(Reason::IdentityUnknown, message).into())
        }
    }
}

fn is_ready(identity: &Value) -> bool {
    let conditions = identity.pointer("/status/conditions").and_then(Value::as_array);
    let ready =
        |condition: &Value| text(condition, "/type") == "Ready" && text(condition, "/status") == "True";
    identity.pointer("/status/ready") == Some(&Value::Bool(true))
        || conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

/// Whether an identity allows a namespace. It allows the namespaces that it selects, and none if it selects nothing. Otherwise a user who
/// may edit a Cluster could read a password by naming the identity.
fn allows(
    sources: &Sources,
    identity: &Value,
    source: &Source,
    cluster: &Cluster,
    namespace: &str,
) -> Result<(), ValuesError> {
    let refused = || {
        let message = format!(
            "spec.allowedNamespaces of {source} does not select namespace {namespace} of {}",
            named(cluster)
        );
        ValuesError::from(Problem::new(Reason::IdentityNotAllowed, message))
    };
    let selector = identity
        .pointer("/spec/allowedNamespaces/selector")
        .ok_or_else(refused)?;
    let selector: LabelSelector = serde_json::from_value(selector.clone()).map_err(|_| refused())?;
    let selector = Selector::try_from(selector).map_err(|_| refused())?;
    let object = sources.find(&Source::cluster_wide("", "Namespace", namespace))?;
    let labels: BTreeMap<String, String> = object
        .and_then(|object| object.pointer("/metadata/labels"))
        .and_then(|labels| serde_json::from_value(labels.clone()).ok())
        .unwrap_or_default();
    if object.is_some() && selector.matches(&labels) {
        Ok(())
    } else {
        Err(refused())
    }
}
