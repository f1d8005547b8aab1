//! What an installation has left on an API server, to be compared with that of another way.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::pinned_kind;
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value};

/// Labels that all ways but one do not have: of the tool itself.
const LABELS: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    "cluster.x-k8s.io/provider",
    "clusterctl.cluster.x-k8s.io",
];

/// The same of annotations.
const ANNOTATIONS: [&str; 4] = [
    "helm.sh/resource-policy",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// One object: kind, namespace (empty where it has none), name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        match namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// Objects as the API server has them, without what it, or the tool that has installed them, writes by itself.
#[derive(Debug, Clone)]
pub struct Installed(BTreeMap<Object, Value>);

impl Installed {
    /// All objects with label `app.kubernetes.io/name: sluice`, and all definitions of Sluice, of the kinds of `like`.
    pub async fn read(client: &Client, like: &[Value]) -> Result<Self> {
        let kinds: BTreeSet<(String, String)> = like
            .iter()
            .map(|object| (text(&object["apiVersion"]), text(&object["kind"])))
            .collect();
        let mut objects = BTreeMap::new();
        for (api_version, kind) in kinds {
            let label = match kind.as_str() {
                "CustomResourceDefinition" => "cluster.x-k8s.io/provider=runtime-extension-sluice",
                _ => "app.kubernetes.io/name=sluice",
            };
            let types = TypeMeta {
                api_version,
                kind: kind.clone(),
            };
            let gvk = GroupVersionKind::try_from(&types)?;
            let (resource, _) = pinned_kind(client, &gvk)
                .await
                .with_context(|| format!("find kind {kind}"))?;
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            for object in api.list(&ListParams::default().labels(label)).await? {
                let found = Object {
                    kind: kind.clone(),
                    namespace: object.namespace().unwrap_or_default(),
                    name: object.name_any(),
                };
                objects.insert(found, plain(serde_json::to_value(&object)?));
            }
        }
        Ok(Self(objects))
    }

    /// Its objects.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.keys()
    }

    /// Its objects, and what they say.
    pub fn contents(&self) -> impl Iterator<Item = (&Object, &Value)> {
        self.0.iter()
    }

    /// What is not the same in `other`, one line each: an object that one of them lacks, or the first field of an object.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let all: BTreeSet<&Object> = self.0.keys().chain(other.0.keys()).collect();
        let line = |object: &Object| match (self.0.get(object), other.0.get(object)) {
            (Some(here), Some(there)) => {
                let (path, here, there) = first_difference(String::new(), here, there)?;
                Some(format!("{object} at {path}: {here} and {there}"))
            }
            (Some(_), None) => Some(format!("{object} is only in the first")),
            (None, Some(_)) => Some(format!("{object} is only in the second")),
            (None, None) => None,
        };
        all.into_iter().filter_map(line).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn plain(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        // Of lists some servers say neither.
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    if object.get("aggregationRule").is_some()
        && let Some(fields) = object.as_object_mut()
    {
        // Collected by a controller.
        fields.remove("rules");
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        // Chosen by the API server.
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
        without(metadata, "labels", &LABELS);
        without(metadata, "annotations", &ANNOTATIONS);
    }
    object
}

fn without(metadata: &mut Map<String, Value>, field: &str, keys: &[&str]) {
    if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
        map.retain(|key, _| !keys.contains(&key.as_str()));
        if map.is_empty() {
            metadata.remove(field);
        }
    }
}

fn first_difference(path: String, here: &Value, there: &Value) -> Option<(String, Value, Value)> {
    match (here, there) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            keys.into_iter().find_map(|key| {
                let field = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                first_difference(format!("{path}.{key}"), &field(one), &field(other))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
            .iter()
            .zip(other)
            .enumerate()
            .find_map(|(index, (one, other))| first_difference(format!("{path}[{index}]"), one, other)),
        _ => (here != there).then(|| (path, here.clone(), there.clone())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn installed(objects: &[(&str, Value)]) -> Installed {
        let objects = objects.iter().map(|(name, value)| {
            let object = Object {
                kind: "Role".to_owned(),
                namespace: "a".to_owned(),
                name: (*name).to_owned(),
            };
            (object, plain(value.clone()))
        });
        Installed(objects.collect())
    }

    #[test]
    fn what_a_tool_marks_is_no_difference() {
        let helm = json!({"metadata": {"name": "x", "uid": "1", "labels": {"app.kubernetes.io/managed-by": "Helm", "a": "b"}}});
        let other = json!({"metadata": {"name": "x", "uid": "2", "labels": {"a": "b"}}});
        let (helm, other) = (installed(&[("x", helm)]), installed(&[("x", other)]));
        assert_eq!(helm.differences(&other), Vec::<String>::new());
    }

    #[test]
    fn differences_name_object_and_field() {
        let rule = |verb: &str| json!({"metadata": {"name": "x"}, "rules": [{"verbs": ["get", verb]}]});
        let one = installed(&[("x", rule("list")), ("y", json!({}))]);
        let other = installed(&[("x", rule("watch")), ("z", json!({}))]);
        assert_eq!(
            one.differences(&other),
            [
                r#"Role a/x at .rules[0].verbs[1]: "list" and "watch""#,
                "Role a/y is only in the first",
                "Role a/z is only in the second",
            ]
        );
    }
}
