//! Contents of workload clusters: copies of the first one except for names, with later writes to each.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::path::Path;
use crate::fleet::name;

/// Objects by their paths.
type Objects = BTreeMap<String, Value>;

/// The objects of all workload clusters.
#[derive(Debug, Default)]
pub(in crate::fleet) struct Contents {
    /// What every cluster has, as JSON, with the name of the first one.
    common: BTreeMap<String, String>,
    /// Writes to a cluster; null for a deleted object.
    own: HashMap<String, Objects>,
    version: u64,
}

/// A change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) cluster: String,
    pub(super) collection: String,
    kind: &'static str,
    pub(super) object: Value,
}

impl Change {
    /// The event of a watch.
    pub(super) fn event(&self) -> String {
        format!("{{\"type\":\"{}\",\"object\":{}}}\n", self.kind, self.object)
    }
}

impl Contents {
    /// Copies the contents of the first cluster to every cluster.
    pub(in crate::fleet) fn share(&mut self) {
        let own = self.own.remove(&name(0)).unwrap_or_default();
        let own = own.into_iter().filter(|(_, object)| !object.is_null());
        self.common = own.map(|(path, object)| (path, object.to_string())).collect();
    }

    /// Drops the writes to a cluster.
    pub(in crate::fleet) fn forget(&mut self, cluster: &str) {
        self.own.remove(cluster);
    }

    /// Version of the latest change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// The objects of a kind that were written to a cluster, by a part of their paths.
    pub(in crate::fleet) fn written(&self, cluster: &str, part: &str) -> Vec<(String, Value)> {
        let own = self.own.get(cluster).into_iter().flatten();
        let wanted = own.filter(|(path, object)| path.contains(part) && !object.is_null());
        wanted
            .map(|(path, object)| (path.clone(), object.clone()))
            .collect()
    }

    /// An object as JSON.
    pub(super) fn text(&self, cluster: &str, path: &Path) -> Option<String> {
        let path = path.object();
        match self.own.get(cluster).and_then(|own| own.get(&path)) {
            Some(Value::Null) => None,
            Some(object) => Some(object.to_string()),
            None => {
                let common = self.common.get(&path.replace(cluster, &name(0)))?;
                Some(common.replace(&name(0), cluster))
            }
        }
    }

    /// An object.
    pub(super) fn get(&self, cluster: &str, path: &Path) -> Option<Value> {
        let text = self.text(cluster, path)?;
        serde_json::from_str(&text).ok()
    }

    /// A list of a collection.
    pub(super) fn list(&self, cluster: &str, path: &Path) -> String {
        let items = self.texts(cluster, path).join(",");
        format!(
            "{{\"kind\":\"List\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[{items}]}}",
            self.version
        )
    }

    /// The events of a collection after a version; of all its objects without one.
    pub(super) fn since(&self, cluster: &str, path: &Path, version: Option<u64>) -> Vec<String> {
        let Some(version) = version else {
            let texts = self.texts(cluster, path).into_iter();
            return texts
                .map(|text| format!("{{\"type\":\"ADDED\",\"object\":{text}}}\n"))
                .collect();
        };
        let own = self.own.get(cluster).into_iter().flatten();
        let later = own.filter(|(at, object)| is_in(at, &path.collection) && version_of(object) > version);
        later
            .map(|(_, object)| format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n"))
            .collect()
    }

    fn texts(&self, cluster: &str, path: &Path) -> Vec<String> {
        let none = Objects::new();
        let own = self.own.get(cluster).unwrap_or(&none);
        let common = self
            .common
            .iter()
            .map(|(at, text)| (at.replace(&name(0), cluster), text));
        let common = common.filter(|(at, _)| is_in(at, &path.collection) && !own.contains_key(at));
        let common = common.map(|(_, text)| text.replace(&name(0), cluster));
        let own = own
            .iter()
            .filter(|(at, object)| is_in(at, &path.collection) && !object.is_null());
        common.chain(own.map(|(_, object)| object.to_string())).collect()
    }

    /// Writes an object.
    pub(super) fn write(&mut self, cluster: &str, path: &Path, mut object: Value) -> Change {
        self.version += 1;
        let before = self.get(cluster, path);
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        let of_before = |field: &str| {
            before
                .as_ref()
                .map(|before| &before["metadata"][field])
                .filter(|value| !value.is_null())
        };
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.version);
        metadata["uid"] = of_before("uid").cloned().unwrap_or_else(|| json!(uid));
        metadata["creationTimestamp"] = json!("2026-11-01T10:00:00Z");
        let generation = of_before("generation")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        let same = before
            .as_ref()
            .is_some_and(|before| before["spec"] == object["spec"]);
        object["metadata"]["generation"] = json!(if same { generation } else { generation + 1 });
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.own
            .entry(cluster.to_owned())
            .or_default()
            .insert(path.object(), object.clone());
        change(cluster, path, kind, object)
    }

    /// Deletes an object, which was this.
    pub(super) fn delete(&mut self, cluster: &str, path: &Path, mut object: Value) -> Change {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.own
            .entry(cluster.to_owned())
            .or_default()
            .insert(path.object(), Value::Null);
        change(cluster, path, "DELETED", object)
    }
}

fn change(cluster: &str, path: &Path, kind: &'static str, object: Value) -> Change {
    Change {
        cluster: cluster.to_owned(),
        collection: path.collection.clone(),
        kind,
        object,
    }
}

/// Whether the path is that of an object in a collection.
fn is_in(at: &str, collection: &str) -> bool {
    at.strip_prefix(collection)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|name| !name.contains('/'))
}

fn version_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPS: &str = "/apis/kappctrl.k14s.io/v1alpha1/namespaces/tkg-system/apps";

    fn app(cluster: &str) -> Path {
        Path::of(&format!("{APPS}/{cluster}-antrea"))
    }

    #[test]
    fn every_cluster_has_the_contents_of_the_first_one_under_its_own_name() {
        let mut contents = Contents::default();
        let of_first = json!({"metadata": {"name": "fleet-00000-antrea"}, "spec": {"paused": false}});
        contents.write(&name(0), &app(&name(0)), of_first);
        contents.share();
        let (cluster, all) = (name(7), Path::of(APPS));
        let found = contents.get(&cluster, &app(&cluster)).unwrap();
        assert_eq!(
            (&found["metadata"]["name"], &found["metadata"]["generation"]),
            (&json!("fleet-00007-antrea"), &json!(1))
        );
        assert!(contents.list(&cluster, &all).contains("fleet-00007-antrea"));

        let mut edited = found.clone();
        edited["spec"]["paused"] = json!(true);
        contents.write(&cluster, &app(&cluster), edited);
        let now = contents.get(&cluster, &app(&cluster)).unwrap();
        assert_eq!(
            (&now["metadata"]["uid"], &now["metadata"]["generation"]),
            (&found["metadata"]["uid"], &json!(2))
        );
        assert_eq!(contents.since(&cluster, &all, Some(1)).len(), 1);
        assert_eq!(
            contents.get(&name(0), &app(&name(0))).unwrap()["spec"]["paused"],
            false
        );

        contents.delete(&cluster, &app(&cluster), now);
        assert!(contents.get(&cluster, &app(&cluster)).is_none());
        assert!(contents.list(&cluster, &all).ends_with("\"items\":[]}"));
    }
}
