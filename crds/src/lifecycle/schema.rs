//! Schemas of types of Kubernetes, and of the values of a version.
//!
//! The schemas of k8s-openapi have no limits, without which the API server refuses the rules of an UpgradeGate as too costly.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::MAX_KEYS;

/// A label selector.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels and their values, all of which a Cluster needs.",
                "type": "object",
                "maxProperties": 32,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "description": "Requirements for labels, all of which a Cluster needs to meet.",
                "type": "array",
                "maxItems": 32,
                "items": {
                    "description": "A requirement for one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "Key of the label.",
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 317,
                        },
                        "operator": {
                            "description": "Relation of the label to the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values of the label; only for `In` and `NotIn`.",
                            "type": "array",
                            "maxItems": 64,
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "fieldPath": ".values",
                        "message": "In and NotIn need values; Exists and DoesNotExist allow none",
                    }],
                },
            },
        },
    })
}

/// The values of a Kubernetes version by key.
pub(super) fn values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_KEYS,
        "additionalProperties": {
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
            "x-kubernetes-validations": [
                {
                    "rule": "self != 'latest'",
                    "message": "latest names no version: name the exact version",
                },
                {
                    "rule": "!self.matches('[*^~<>|!,[:space:]]|[.][xX]')",
                    "message": "a range names no version, and values are compared byte for byte: name the exact version",
                },
            ],
        },
        "x-kubernetes-validations": [{
            "rule": "self.all(key, size(key) <= 63 && key.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'))",
            "message": "keys have at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
        }],
    })
}

/// Conditions of Kubernetes.
pub(super) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One observation about an object.",
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {"description": "The observation, PascalCase.", "type": "string"},
                "status": {
                    "description": "`True`, `False` or `Unknown`.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "description": "`metadata.generation` that the condition is about.",
                    "type": "integer",
                    "format": "int64",
                },
                "lastTransitionTime": {
                    "description": "When `status` last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "reason": {"description": "Reason of the condition, PascalCase.", "type": "string"},
                "message": {"description": "Explanation for users.", "type": "string"},
            },
        },
    })
}
