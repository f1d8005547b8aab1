//! Objects of an installation on an API server, for comparison with another way to install.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value};

/// Labels that all ways but one do not have: of the tool itself.
const LABELS: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    "cluster.x-k8s.io/provider",
    "clusterctl.cluster.x-k8s.io",
];

/// The same for annotations, with counters of controllers.
const ANNOTATIONS: [&str; 5] = [
    "deployment.kubernetes.io/revision",
    "helm.sh/resource-policy",
    "meta.helm.sh/release-name",
    "meta.helm.sh/release-namespace",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// One object: API group (empty for the core), kind, namespace (empty where it has none), name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Object {
    /// The one that a manifest describes.
    #[must_use]
    pub fn of(manifest: &Value) -> Self {
        let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let api_version = field(&manifest["apiVersion"]);
        Self {
            group: api_version
                .split_once('/')
                .map_or_else(String::new, |(group, _)| group.to_owned()),
            kind: field(&manifest["kind"]),
            namespace: field(&manifest["metadata"]["namespace"]),
            name: field(&manifest["metadata"]["name"]),
        }
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            ..
        } = self;
        match namespace.as_str() {
            "" => write!(f, "{kind} {name}"),
            namespace => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// Objects of the API server, without fields that the server or the installer sets.
#[derive(Debug, Clone)]
pub struct Installed(BTreeMap<Object, Value>);

/// Kinds that the API server or a controller keeps for other objects.
const KEPT: [&str; 7] = [
    "ControllerRevision",
    "Endpoints",
    "EndpointSlice",
    "Event",
    "IPAddress",
    "Lease",
    "PodMetrics",
];

impl Installed {
    /// All objects of all kinds, whatever their labels.
    pub async fn read(client: &Client) -> Result<Self> {
        let discovery = Discovery::new(client.clone())
            .run()
            .await
            .context("find all kinds")?;
        let mut objects = BTreeMap::new();
        for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
            if !capabilities.supports_operation(verbs::LIST) || KEPT.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let listed = match api.list(&ListParams::default()).await {
                // Its definition has gone meanwhile.
                Err(kube::Error::Api(status)) if status.is_not_found() => continue,
                listed => listed.with_context(|| format!("list kind {}", resource.kind))?,
            };
            for object in listed {
                let found = Object {
                    group: resource.group.clone(),
                    kind: resource.kind.clone(),
                    namespace: object.namespace().unwrap_or_default(),
                    name: object.name_any(),
                };
                let owned = !object.owner_references().is_empty();
                let content = serde_json::to_value(&object)?;
                if !owned && !is_record(&found, &content) {
                    objects.insert(found, plain(content));
                }
            }
        }
        Ok(Self(objects))
    }

    /// Those that were not there before.
    ///
    /// # Errors
    /// One that was there has changed, or is gone.
    pub fn since(mut self, before: &Self) -> Result<Self> {
        let all = self.0.clone();
        self.0.retain(|object, _| !before.0.contains_key(object));
        let there: BTreeMap<_, _> = all
            .into_iter()
            .filter(|(object, _)| before.0.contains_key(object))
            .collect();
        let changed = before.differences(&Self(there));
        ensure!(changed.is_empty(), "objects of others are changed: {changed:?}");
        Ok(self)
    }

    /// Its objects.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.keys()
    }

    /// Objects and their content.
    pub fn contents(&self) -> impl Iterator<Item = (&Object, &Value)> {
        self.0.iter()
    }

    /// Differences from `other`, one line each: a missing object, or the first different field of an object.
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

/// Default objects of a namespace, and release Secrets of Helm.
fn is_record(object: &Object, content: &Value) -> bool {
    match (object.kind.as_str(), object.name.as_str()) {
        ("ServiceAccount", "default") | ("ConfigMap", "kube-root-ca.crt") => true,
        ("APIService", _) => {
            let managed = &content["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"];
            !managed.is_null()
        }
        ("Secret", _) => content["type"] == "helm.sh/release.v1",
        _ => false,
    }
}

fn plain(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        // Some servers omit both in lists.
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
        metadata.retain(|field, _| {
            ["name", "namespace", "labels", "annotations", "finalizers"].contains(&field.as_str())
        });
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
                group: String::new(),
                kind: "Role".to_owned(),
                namespace: "a".to_owned(),
                name: (*name).to_owned(),
            };
            (object, plain(value.clone()))
        });
        Installed(objects.collect())
    }

    #[test]
    fn marks_of_a_tool_are_no_difference() {
        let helm = json!({"metadata": {"name": "x", "uid": "1", "labels": {"app.kubernetes.io/managed-by": "Helm", "a": "b"}}});
        let other = json!({"metadata": {"name": "x", "uid": "2", "labels": {"a": "b"}}});
        let (helm, other) = (installed(&[("x", helm)]), installed(&[("x", other)]));
        assert_eq!(helm.differences(&other), Vec::<String>::new());
    }

    #[test]
    fn existing_objects_are_not_installed() {
        let before = installed(&[("x", json!({}))]);
        let after = installed(&[("x", json!({"a": 1})), ("y", json!({}))]);
        let changed = after.clone().since(&before).unwrap_err().to_string();
        assert!(changed.contains("Role a/x at .a"), "{changed}");
        let after = installed(&[("x", json!({})), ("y", json!({}))]);
        let new = after.since(&before).unwrap();
        let names: Vec<String> = new.objects().map(Object::to_string).collect();
        assert_eq!(names, ["Role a/y"]);
        let gone = installed(&[]).since(&before).unwrap_err().to_string();
        assert!(gone.contains("only in the first"), "{gone}");
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
