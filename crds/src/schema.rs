//! What schemars cannot say about a Kubernetes schema.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// An object whose content is nobody's business but its reader's.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// For `skip_serializing_if`: false is what absence means.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// Takes `nullable` out of a definition, so that the API server drops a null instead of storing it.
pub(crate) fn without_nullable(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            drop_nullable(schema);
        }
    }
    crd
}

fn drop_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        drop_nullable(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => drop_nullable(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(drop_nullable),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        drop_nullable(value);
    }
}
