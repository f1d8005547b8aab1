//! The values of packages: those of a ClusterBootstrap, and those of a PackageInstall.
//!
//! Contents are compared, never names: a name with a digest in it is a promise of the product, and it is judged here.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::conditions::text;
use super::feed::Revision;
use super::key::Place;

/// File of a Secret on a Supervisor, beside the values that a ClusterBootstrap asks for: it places Pods on Nodes of a release.
const PLACEMENT: &str = "tkgs-values.yaml";

/// Label of those Nodes.
const TKR: &str = "run.tanzu.vmware.com/tkr";

/// Files of a Secret: key, and content in base64.
type Files = BTreeMap<String, String>;

/// Secrets, and the objects that name one in `status.secretRef`.
#[derive(Debug, Default)]
pub(super) struct Sources {
    secrets: BTreeMap<(Place, String, String), Stored>,
    /// By key of etcd.
    providers: BTreeMap<String, Provider>,
}

#[derive(Debug, Default)]
struct Stored {
    files: Files,
    /// Revision of its last content change. A deletion is no change, because it does not revoke used values.
    changed: Revision,
    exists: bool,
}

#[derive(Debug)]
struct Provider {
    namespace: String,
    group: String,
    kind: String,
    name: String,
    secret: String,
}

/// Values that a ClusterBootstrap asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// One document; null for no values at all.
    Document(Value),
    /// The files of a Secret, as they are.
    Files(Files),
}

/// Values that a PackageInstall was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    files: Files,
    /// Since when: the PackageInstall named other Secrets before, or one of them held something else.
    pub(super) since: Revision,
}

impl Sources {
    /// Applies a write of a Secret, and returns whether the content changed.
    pub(super) fn secret_written(
        &mut self,
        revision: Revision,
        place: Place,
        (namespace, name): (String, String),
        secret: Option<&Value>,
    ) -> bool {
        let stored = self.secrets.entry((place, namespace, name)).or_default();
        let existed = std::mem::replace(&mut stored.exists, secret.is_some());
        let Some(secret) = secret else { return existed };
        let files = files(secret);
        if stored.changed == 0 || stored.files != files {
            stored.files = files;
            stored.changed = revision;
        }
        stored.changed == revision || !existed
    }

    /// Applies a write of an object that may provide values, and returns whether it provides or provided some.
    pub(super) fn provider_written(&mut self, key: &str, object: Option<&Value>) -> bool {
        let named = object.and_then(|object| Some((object, object["status"]["secretRef"].as_str()?)));
        let Some((object, secret)) = named else {
            return self.providers.remove(key).is_some();
        };
        let api_version = text(object, "/apiVersion");
        let provider = Provider {
            namespace: text(object, "/metadata/namespace"),
            group: api_version.split('/').next().unwrap_or_default().to_owned(),
            kind: text(object, "/kind"),
            name: text(object, "/metadata/name"),
            secret: secret.to_owned(),
        };
        self.providers.insert(key.to_owned(), provider);
        true
    }

    /// Current values of `valuesFrom` of a package, or the missing object.
    pub(super) fn asked(&self, namespace: &str, values_from: &Value) -> Result<Asked, String> {
        if !values_from["inline"].is_null() {
            return Ok(Asked::Document(values_from["inline"].clone()));
        }
        let secret = match values_from["secretRef"].as_str() {
            Some(secret) => secret,
            None if values_from["providerRef"].is_null() => return Ok(Asked::Document(Value::Null)),
            None => self.provided(namespace, &values_from["providerRef"])?,
        };
        let key = (Place::Management, namespace.to_owned(), secret.to_owned());
        match self.secrets.get(&key).filter(|stored| stored.exists) {
            Some(stored) => Ok(Asked::Files(stored.files.clone())),
            None => Err(format!("its values are nowhere: no Secret {namespace}/{secret}")),
        }
    }

    fn provided(&self, namespace: &str, reference: &Value) -> Result<&str, String> {
        let by = |provider: &&Provider| {
            provider.namespace == namespace
                && provider.group == text(reference, "/apiGroup")
                && provider.kind == text(reference, "/kind")
                && provider.name == text(reference, "/name")
        };
        let found = self.providers.values().find(by);
        found.map(|provider| provider.secret.as_str()).ok_or_else(|| {
            let (kind, name) = (text(reference, "/kind"), text(reference, "/name"));
            format!("its values are nowhere: {kind} {namespace}/{name} names no Secret")
        })
    }

    /// Values of a PackageInstall with these `spec.values`, or the missing object. `named` is the revision of `spec.values`.
    pub(super) fn given(
        &self,
        place: &Place,
        namespace: &str,
        values: &Value,
        named: Revision,
    ) -> Result<Given, String> {
        let mut given = Given {
            files: Files::new(),
            since: named,
        };
        for reference in values.as_array().into_iter().flatten() {
            let (name, key) = (
                text(reference, "/secretRef/name"),
                text(reference, "/secretRef/key"),
            );
            let found = (place.clone(), namespace.to_owned(), name.clone());
            let stored = self.secrets.get(&found);
            let stored = stored.ok_or_else(|| format!("its PackageInstall names no Secret: {name:?}"))?;
            let files = stored.files.iter();
            let named = files.filter(|(file, _)| key.is_empty() || **file == key);
            given
                .files
                .extend(named.map(|(file, content)| (file.clone(), content.clone())));
            given.since = given.since.max(stored.changed);
        }
        Ok(given)
    }
}

impl Given {
    /// Whether these are the desired values. Those that place Pods are no part of them.
    pub(super) fn is(&self, asked: &Asked) -> bool {
        match asked {
            Asked::Files(files) => asked_for(&self.files).eq(asked_for(files)),
            Asked::Document(document) => {
                let wanted: Vec<&Value> = [document]
                    .into_iter()
                    .filter(|wanted| !is_empty(wanted))
                    .collect();
                let documents: Vec<Value> = asked_for(&self.files)
                    .map(|(_, content)| document_in(content))
                    .collect();
                documents.iter().filter(|document| !is_empty(document)).eq(wanted)
            }
        }
    }
}

impl Given {
    /// The release whose Nodes Pods are placed on; none if they are placed on any.
    pub(super) fn selected_release(&self) -> Option<String> {
        let placement = document_in(self.files.get(PLACEMENT)?);
        placement["nodeSelector"][TKR].as_str().map(str::to_owned)
    }
}

/// The files that a ClusterBootstrap asks for.
fn asked_for(files: &Files) -> impl Iterator<Item = (&String, &String)> {
    files.iter().filter(|(file, _)| *file != PLACEMENT)
}

fn files(secret: &Value) -> Files {
    let data = secret["data"].as_object();
    data.into_iter()
        .flatten()
        .map(|(key, content)| (key.clone(), content.as_str().unwrap_or_default().to_owned()))
        .collect()
}

fn is_empty(document: &Value) -> bool {
    document.is_null() || document.as_object().is_some_and(serde_json::Map::is_empty)
}

/// A document, in JSON or YAML; a string with everything if it is neither.
fn document_in(content: &str) -> Value {
    let bytes = BASE64_STANDARD.decode(content).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        serde_saphyr::from_str(&text).unwrap_or_else(|_| Value::String(text.into_owned()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(content: &str) -> Given {
        Given {
            files: Files::from([("values.yaml".to_owned(), BASE64_STANDARD.encode(content))]),
            since: 0,
        }
    }

    #[test]
    fn json_and_yaml_are_the_same_document() {
        let asked = Asked::Document(json!({"antrea": {"mtu": 1400}}));
        assert!(given("{\"antrea\":{\"mtu\":1400}}\n").is(&asked));
        assert!(given("---\nantrea:\n  mtu: 1400\n").is(&asked));
        assert!(!given("antrea: {mtu: 1500}\n").is(&asked));
        assert!(!given("{}\n").is(&asked));
    }

    #[test]
    fn no_values_are_given_as_an_empty_document() {
        let nothing = Asked::Document(Value::Null);
        assert!(given("{}\n").is(&nothing));
        assert!(!given("a: 1\n").is(&nothing));
        assert!(given("").is(&nothing));
    }
}
