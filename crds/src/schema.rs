//! Adjustments of schemars output to Kubernetes schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::labels::{label, name};

/// An object whose content only its reader interprets.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// For `skip_serializing_if`: false is what absence means.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// Turns a derived CRD into one to install: without `nullable`, so that the API server drops a null instead of storing it,
/// with descriptions for `kubectl explain`, and with labels.
///
/// Labels are added here because kube's derive would also put them on every object from `new`.
pub(crate) fn installable(mut crd: CustomResourceDefinition, labels: &[&str]) -> CustomResourceDefinition {
    let present = labels.iter().map(|&key| (key.to_owned(), String::new()));
    let provider = (label::PROVIDER.to_owned(), name::PROVIDER.to_owned());
    crd.metadata.labels = Some(present.chain([provider]).collect());
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            finish(schema);
        }
    }
    crd
}

fn finish(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.description = schema.description.take().map(|text| plain(&text));
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        finish(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => finish(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(finish),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        finish(value);
    }
}

/// Text of a doc comment without its line ends and links.
fn plain(text: &str) -> String {
    text.replace('\n', " ").replace("[`", "`").replace("`]", "`")
}
