//! All objects that API servers store for some Clusters, and what has changed in them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::cluster::Cluster;
use super::scene::Scene;

/// Kinds that report, or that processes renew.
const LEFT_OUT: [&str; 2] = ["Event", "Lease"];

/// Labels of ConfigMaps in which kapp records its runs, with unchanged packages too.
const RUNS_OF_KAPP: [&str; 2] = ["kapp.k14s.io/is-app", "kapp.k14s.io/is-app-change"];

/// Objects at one moment, by API server, kind, namespace and name. They have no status, `managedFields` and `resourceVersion`.
#[derive(Debug, Clone, Default)]
pub struct Snapshot(BTreeMap<String, Value>);

impl Scene {
    /// The objects in the scenario's namespace, and all objects of the workload API servers of these Clusters.
    pub async fn snapshot(&self, clusters: &[&Cluster]) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        let namespace = Some(self.namespace());
        snapshot.add("management", &self.client(), namespace).await?;
        for cluster in clusters {
            let workload = cluster.workload()?.api.admin_client();
            snapshot.add(cluster.name(), &workload, None).await?;
        }
        Ok(snapshot)
    }
}

impl Snapshot {
    /// Adds all objects of an API server, or only those of a namespace.
    async fn add(&mut self, server: &str, client: &Client, namespace: Option<&str>) -> Result<()> {
        let discovery = Discovery::new(client.clone()).run().await;
        let discovery = discovery.with_context(|| format!("discover the kinds of {server}"))?;
        let kinds: Vec<_> = discovery
            .groups()
            .flat_map(ApiGroup::recommended_resources)
            .collect();
        for (resource, capabilities) in kinds {
            let is_in_scope = namespace.is_none() || capabilities.scope == Scope::Namespaced;
            let is_listed = capabilities.supports_operation(verbs::LIST);
            if !is_in_scope || !is_listed || LEFT_OUT.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let listed = api.list(&ListParams::default()).await;
            let listed = listed.with_context(|| format!("list {} of {server}", resource.plural))?;
            for object in listed.items.into_iter().filter(is_kept) {
                self.0.insert(key(server, &resource, &object), stored(object)?);
            }
        }
        Ok(())
    }

    /// The number of objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Created, deleted and changed objects, one line for each field.
    #[must_use]
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let created = later.0.keys().filter(|key| !self.0.contains_key(*key));
        let mut lines: Vec<String> = created.map(|key| format!("{key}: created")).collect();
        for (key, before) in &self.0 {
            let Some(after) = later.0.get(key) else {
                lines.push(format!("{key}: deleted"));
                continue;
            };
            let changes = json_patch::diff(before, after).0;
            lines.extend(changes.iter().map(|change| {
                let field = change.path().as_str();
                let was = before.pointer(field).unwrap_or(&Value::Null);
                format!("{key}: {field} was {was}, now {change}")
            }));
        }
        lines
    }
}

/// Whether the API server stores the object, and no run of kapp rewrites it.
fn is_kept(object: &DynamicObject) -> bool {
    let of_kapp = RUNS_OF_KAPP
        .iter()
        .any(|label| object.labels().contains_key(*label));
    object.metadata.uid.is_some() && !of_kapp
}

fn key(server: &str, resource: &ApiResource, object: &DynamicObject) -> String {
    let namespace = object.namespace().unwrap_or_default();
    let (version, kind, name) = (&resource.api_version, &resource.kind, object.name_any());
    format!("{server}: {version} {kind} {namespace}/{name}")
}

fn stored(mut object: DynamicObject) -> Result<Value> {
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    let mut object = serde_json::to_value(object)?;
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(objects: &[(&str, Value)]) -> Snapshot {
        let object = |(name, of): &(&str, Value)| {
            let mut object = json!({"metadata": {"name": name, "uid": "1"}});
            json_patch::merge(&mut object, of);
            (
                (*name).to_owned(),
                stored(serde_json::from_value(object).unwrap()).unwrap(),
            )
        };
        Snapshot(objects.iter().map(object).collect())
    }

    fn differences(before: Value, after: Value) -> Vec<String> {
        snapshot(&[("one", before)]).differences(&snapshot(&[("one", after)]))
    }

    #[test]
    fn a_changed_field_is_named_with_both_values() {
        let of = |period: &str| json!({"spec": {"syncPeriod": period}});
        let lines = differences(of("10m"), of("30s"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        for text in ["one: /spec/syncPeriod", "\"10m\"", "\"30s\""] {
            assert!(lines[0].contains(text), "{lines:?}");
        }
    }

    #[test]
    fn labels_data_and_generation_count() {
        let each = [
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            json!({"metadata": {"finalizers": ["a"]}}),
            json!({"metadata": {"generation": 2}}),
            json!({"metadata": {"uid": "2"}}),
            json!({"data": {"a": "b"}}),
        ];
        for after in each {
            assert_eq!(differences(json!({}), after.clone()).len(), 1, "{after}");
        }
    }

    #[test]
    fn status_and_resource_version_do_not_count() {
        let later =
            json!({"metadata": {"resourceVersion": "2", "managedFields": [{}]}, "status": {"a": "b"}});
        assert_eq!(differences(json!({}), later), Vec::<String>::new());
    }

    #[test]
    fn created_and_deleted_objects_are_named() {
        let (one, two) = (snapshot(&[("one", json!({}))]), snapshot(&[("two", json!({}))]));
        assert_eq!(one.differences(&two), ["two: created", "one: deleted"]);
    }

    #[test]
    fn records_of_kapp_are_left_out() {
        let object = |label: &str| -> DynamicObject {
            let metadata = json!({"name": "one", "uid": "1", "labels": {label: ""}});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        assert!(is_kept(&object("harness.test/app")));
        assert!(!is_kept(&object("kapp.k14s.io/is-app-change")));
    }
}
