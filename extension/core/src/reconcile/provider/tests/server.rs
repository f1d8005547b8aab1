//! Fake API server with preconditions, and reconciles of its only configuration.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_crds::{cni::CalicoConfig, foreign::Cluster};

use super::super::*;
use crate::{
    clock::Clock,
    protocol::{Failure, Object, Read, ReadResult, Resource, Verb, Write},
    providers::{self, Config, Output, OwnerBy, Provider, Reason, Sources},
};

/// Kind, namespace, name.
pub(super) type Place = (&'static str, &'static str, &'static str);

pub(super) const CONFIG: Place = ("CalicoConfig", "team-a", "one");
pub(super) const VALUES: Place = ("Secret", "team-a", "one-made-up-data-values");
pub(super) const LOGIN: Place = ("Secret", "team-a", "login");
pub(super) const ACCOUNT: Place = ("Account", "team-a", "one");
pub(super) const ROLE: Place = ("ClusterRole", "", "accounts");
pub(super) const CLUSTER: Place = ("Cluster", "team-a", "one");

/// Kind that uses all features of a provider.
struct MadeUp;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    text: String,
    /// Name of a Secret that is adopted.
    login: Option<String>,
    /// Whether there is an account, which needs a role.
    #[serde(default)]
    account: bool,
    /// Whether values depend on the infrastructure, whose kind the Cluster names.
    #[serde(default)]
    infrastructure: bool,
}

impl Provider for MadeUp {
    type Resource = CalicoConfig;
    type Spec = Spec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;
    const STATUS_MESSAGE: bool = true;

    fn values(
        config: &Config<'_, Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, providers::ValuesError> {
        let (spec, namespace) = (config.spec, config.namespace);
        let mut output = Output::new("made-up", json!({"text": spec.text}));
        if let Some(login) = &spec.login {
            let login = Source::secret(namespace, login);
            let missing = || Problem::new(Reason::CredentialsNotFound, format!("{login} does not exist"));
            let found = sources.find(&login)?.ok_or_else(missing)?;
            output.values["login"] = found["data"]["login"].clone();
            output.owned.push(login);
        }
        if spec.infrastructure {
            let reference = cluster.spec.infrastructure_ref.as_ref().unwrap();
            sources.find(&Source::referred(namespace, reference))?;
        }
        if spec.account {
            output.objects = vec![role(), account()];
            output.former_owners = cluster.uid().into_iter().collect();
        } else {
            output.obsolete = vec![Source::namespaced("example.com", "Account", namespace, "one")];
        }
        Ok(output)
    }
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "accounts"}, "rules": [{"verbs": ["get"]}],
    })
}

fn account() -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Account",
        "metadata": {"name": "one", "namespace": "team-a", "ownerReferences": [owner("one", "infrastructure")]},
        "spec": {"may": ["read"]},
    })
}

pub(super) fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": uid})
}

/// Outcome of a reconcile: the next requeue, or the status code of the failure.
pub(super) type Outcome = Result<Done, Option<u16>>;

#[derive(Clone, Default)]
pub(super) struct World {
    objects: BTreeMap<(String, String, String), Value>,
    revision: u64,
    /// Writes, such as `Create Secret one`.
    pub(super) written: Vec<String>,
    /// Objects read from the API server.
    pub(super) read: Vec<String>,
    /// Kind whose writes are refused, and the status code.
    pub(super) refuses: Option<(&'static str, u16)>,
    /// Kind that cannot be watched.
    pub(super) unwatchable: Option<&'static str>,
    /// Kind that is not served.
    pub(super) unserved: Option<&'static str>,
    /// Write of another client right after an object was read.
    pub(super) later: Option<(Place, Value)>,
    /// Whether the Cluster has no connection to its workload cluster.
    pub(super) is_cold: bool,
    pub(super) now: Timestamp,
    /// Number of writes after which the process ends.
    pub(super) ends_after: Option<usize>,
}

impl World {
    /// Returns a configuration with this spec, which finds its Cluster by its name.
    pub(super) fn new(spec: &Value) -> Self {
        let mut world = Self::default();
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {},
            "spec": {"infrastructureRef": {"apiGroup": "example.com", "kind": "Infrastructure", "name": "one"}},
        });
        world.put(CLUSTER, cluster);
        world.edit(CLUSTER, |cluster| cluster["metadata"]["uid"] = json!("uid"));
        let config = json!({
            "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": "CalicoConfig",
            "metadata": {"generation": 1}, "spec": spec,
        });
        world.put(CONFIG, config);
        world
    }

    pub(super) fn get(&self, (kind, namespace, name): Place) -> Option<&Value> {
        self.objects
            .get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn put(&mut self, (kind, namespace, name): Place, object: Value) {
        self.store((kind.to_owned(), namespace.to_owned(), name.to_owned()), object);
    }

    pub(super) fn edit(&mut self, place: Place, edit: impl FnOnce(&mut Value)) {
        let mut object = self.get(place).unwrap().clone();
        edit(&mut object);
        self.put(place, object);
    }

    /// Returns the reason of the condition.
    pub(super) fn reason(&self) -> Option<&'static str> {
        status::reason(self.get(CONFIG).unwrap())
    }

    /// Returns all objects, without fields that differ between runs.
    pub(super) fn end(&self) -> BTreeMap<(String, String, String), Value> {
        let mut objects = self.objects.clone();
        for metadata in objects.values_mut().map(|object| &mut object["metadata"]) {
            metadata["resourceVersion"] = Value::Null;
            metadata["uid"] = Value::Null;
        }
        objects
    }

    fn store(&mut self, place: (String, String, String), mut object: Value) -> Value {
        self.revision += 1;
        let metadata = &mut object["metadata"];
        metadata["name"] = json!(place.2);
        if !place.1.is_empty() {
            metadata["namespace"] = json!(place.1);
        }
        metadata["resourceVersion"] = json!(self.revision.to_string());
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.revision));
        }
        self.objects.insert(place, object.clone());
        object
    }

    /// Reconciles once; returns `None` if the process ends during the reconcile.
    pub(super) fn reconcile(&mut self) -> Option<(Outcome, Effects)> {
        let configuration = Configuration {
            kind: Kind::of::<MadeUp>(),
            object: Arc::new(serde_json::from_value(self.get(CONFIG).unwrap().clone()).unwrap()),
            sync_period: SyncPeriod {
                length: Duration::from_mins(10),
                since: Instant::now(),
            },
            is_hot: !self.is_cold,
        };
        let began = Clock {
            now: self.now,
            instant: Instant::now(),
        };
        self.written.clear();
        self.read.clear();
        let mut context = Context::new(&configuration, &(), began);
        loop {
            let mut effects = Effects::default();
            match reconcile(&context, &mut effects) {
                Ok(done) => return Some((Ok(done), effects)),
                Err(Interrupt::Failed(failure)) => return Some((Err(failure.code), effects)),
                Err(Interrupt::Held(problem)) => panic!("{problem}"),
                Err(Interrupt::Need(reads)) => {
                    assert!(
                        reads.iter().any(|read| !context.has(read)),
                        "it requests only known reads"
                    );
                    for ask in reads {
                        let answer = self.answer(&ask);
                        context.record_answer(ask, answer);
                    }
                }
                Err(Interrupt::Write(writes)) => {
                    for write in writes {
                        if self.ends_after == Some(self.written.len()) {
                            return None;
                        }
                        let outcome = self.make(&write);
                        let refused = outcome.is_err();
                        context.record_outcome(write, outcome);
                        if refused {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn answer(&mut self, ask: &Read) -> ReadResult {
        match ask {
            Read::Cluster(namespace, name) => {
                let place = ("Cluster".to_owned(), namespace.clone(), name.clone());
                let found = self.objects.get(&place).cloned();
                found.map_or(ReadResult::Absent, |found| {
                    ReadResult::Cluster(Arc::new(serde_json::from_value(found).unwrap()))
                })
            }
            Read::Source(source) if self.unserved == Some(source.group_kind().1) => ReadResult::Absent,
            Read::Source(source) if self.unwatchable == Some(source.group_kind().1) => {
                ReadResult::Unwatchable("it may not be listed".to_owned())
            }
            Read::Source(Source::Object {
                kind,
                namespace,
                name,
                ..
            }) => {
                let place = (kind.clone(), namespace.clone().unwrap_or_default(), name.clone());
                ReadResult::Listed(
                    self.objects
                        .get(&place)
                        .cloned()
                        .map(Object)
                        .into_iter()
                        .collect(),
                )
            }
            Read::Served { kind, .. } if self.unserved == Some(kind) => ReadResult::Absent,
            Read::Served { group, kind } => ReadResult::Served(Resource {
                group: group.clone().into(),
                version: "v1".into(),
                kind: kind.clone().into(),
                plural: kind.to_lowercase().into(),
            }),
            Read::Object(key, _) => {
                self.read.push(format!("{} {}", key.resource.kind, key.name));
                let found = self.objects.get(&place_of(key)).cloned();
                if let Some((place, object)) = self.later.take_if(|(place, _)| place.2 == key.name) {
                    self.put(place, object);
                }
                found.map_or(ReadResult::Absent, |found| ReadResult::Found(Object(found)))
            }
            other => panic!("{other:?}"),
        }
    }

    fn make(&mut self, write: &Write) -> Result<Object, Failure> {
        let Write { key, verb, body, .. } = write;
        self.written.push(format!("{write:?}"));
        let refused = |code| {
            Err(Failure {
                code: Some(code),
                ..Failure::other(Server::Management, "refused")
            })
        };
        if let Some((kind, code)) = self.refuses
            && key.resource.kind == kind
        {
            return refused(code);
        }
        let place = place_of(key);
        let Some(found) = self.objects.get(&place).cloned() else {
            return match verb {
                Verb::Create | Verb::Apply => Ok(Object(self.store(place, body.clone()))),
                Verb::Delete => Ok(Object(Value::Null)),
                _ => refused(404),
            };
        };
        let sent = &body["metadata"];
        let differs = |field: &str| !sent[field].is_null() && sent[field] != found["metadata"][field];
        if *verb == Verb::Delete {
            if *body != found["metadata"]["uid"] {
                return refused(409);
            }
            self.objects.remove(&place);
            return Ok(Object(Value::Null));
        }
        if *verb == Verb::Create || differs("uid") || differs("resourceVersion") {
            return refused(409);
        }
        // Another leader may write between the read and the write.
        assert!(
            *verb == Verb::Apply || !sent["resourceVersion"].is_null(),
            "{write:?}"
        );
        let mut next = found;
        merge(&mut next, body);
        Ok(Object(self.store(place, next)))
    }
}

fn place_of(key: &Key) -> (String, String, String) {
    let namespace = key.namespace.clone().unwrap_or_default();
    (key.resource.kind.to_string(), namespace, key.name.clone())
}

/// RFC 7386.
pub(super) fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        object.clone_from(patch);
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().map(|object| object.remove(name));
        } else {
            merge(&mut object[name], value);
        }
    }
}
