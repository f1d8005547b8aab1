//! The objects that checks name, as last written.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Name, flux};
use crate::observer::conditions::{CLUSTER_NAME, is_observed, is_true, label, text};
use crate::observer::key::{Checked, Place};

/// Label of a HelmReleaseProxy: the HelmChartProxy that it is for.
const PROXY: &str = "helmreleaseproxy.addons.cluster.x-k8s.io/helmchartproxy-name";

/// An object: its API server, kind, namespace and name.
pub(super) type At = (Place, Checked, Name);

/// Objects of both API servers.
#[derive(Debug, Default)]
pub(super) struct Objects {
    current: BTreeMap<At, Value>,
    /// Jobs that were complete when they were deleted.
    completed: BTreeMap<At, Value>,
    /// uid and generation of HelmReleaseProxies that were seen deployed.
    deployed: BTreeSet<(String, i64)>,
    /// uid and generation of objects of Flux that were seen at rest, with the chart version or revision that they had then.
    at_rest: BTreeSet<(String, i64, String)>,
}

impl Objects {
    pub(super) fn written(&mut self, at: At, object: Option<Value>) {
        let Some(object) = object else {
            let before = self.current.remove(&at);
            if let Some(job) = before.filter(|job| at.1 == Checked::Job && is_true(job, "Complete")) {
                self.completed.insert(at, job);
            }
            return;
        };
        self.completed.remove(&at);
        let object = match at.1 {
            Checked::CustomResourceDefinition => without_schemas(object),
            _ => object,
        };
        match at.1 {
            Checked::HelmReleaseProxy if is_deployed(&object) && is_true(&object, "Ready") => {
                self.deployed.extend(incarnation(&object));
            }
            Checked::HelmRelease if flux::has_values(&object) => {
                self.rests_with(&object, flux::deployed(&object).ok());
            }
            Checked::Kustomization => self.rests_with(&object, flux::applied(&object).ok()),
            _ => {}
        }
        self.current.insert(at, object);
    }

    /// Notes what an object of Flux has, if it is at rest.
    fn rests_with(&mut self, object: &Value, has: Option<String>) {
        let has = has.filter(|_| flux::is_at_rest(object));
        if let Some((has, (uid, generation))) = has.zip(incarnation(object)) {
            self.at_rest.insert((uid, generation, has));
        }
    }

    /// Whether an object of Flux was at rest with this version at the generation that it has.
    pub(super) fn was_at_rest(&self, object: &Value, version: &str) -> bool {
        incarnation(object)
            .is_some_and(|(uid, generation)| self.at_rest.contains(&(uid, generation, version.to_owned())))
    }

    pub(super) fn get(&self, at: &At) -> Option<&Value> {
        self.current.get(at)
    }

    /// A Job that is deleted and was complete.
    pub(super) fn completed(&self, at: &At) -> Option<&Value> {
        self.completed.get(at)
    }

    /// HelmReleaseProxies of a Cluster and a HelmChartProxy.
    pub(super) fn releases<'a>(
        &'a self,
        (namespace, cluster): (&'a str, &'a str),
        proxy: &'a str,
    ) -> impl Iterator<Item = &'a Value> {
        self.current
            .iter()
            .filter(move |((place, kind, (of, _)), release)| {
                *place == Place::Management
                    && *kind == Checked::HelmReleaseProxy
                    && of == namespace
                    && label(release, CLUSTER_NAME) == cluster
                    && label(release, PROXY) == proxy
            })
            .map(|(_, release)| release)
    }

    /// Whether a HelmReleaseProxy was deployed at the generation that it has.
    pub(super) fn was_deployed(&self, release: &Value) -> bool {
        incarnation(release).is_some_and(|incarnation| self.deployed.contains(&incarnation))
    }
}

/// Whether CAAPH says that it has deployed the current generation.
pub(super) fn is_deployed(release: &Value) -> bool {
    is_observed(release) && release["status"]["status"] == "deployed"
}

/// A definition without its schemas and their owners, which may take a megabyte.
fn without_schemas(mut definition: Value) -> Value {
    if let Some(metadata) = definition.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) {
        // Where all versions have the same one.
        spec.remove("validation");
        let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
        for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
            version.remove("schema");
        }
    }
    definition
}

fn incarnation(object: &Value) -> Option<(String, i64)> {
    let generation = object["metadata"]["generation"].as_i64()?;
    Some((text(object, "/metadata/uid"), generation))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_versions_of_a_definition_are_kept() {
        let definition = json!({
            "metadata": {"name": "a", "managedFields": [{}]},
            "spec": {"validation": {}, "versions": [{"name": "v1", "served": true, "schema": {}}]},
        });
        assert_eq!(
            without_schemas(definition),
            json!({"metadata": {"name": "a"}, "spec": {"versions": [{"name": "v1", "served": true}]}})
        );
        assert_eq!(without_schemas(Value::Null), Value::Null);
    }
}
