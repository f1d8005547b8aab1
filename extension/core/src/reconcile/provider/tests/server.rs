//! Fake API server with preconditions, and reconciles of its only configuration.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_crds::{cni::CalicoConfig, foreign::Cluster};
use sluice_test_store::{Refused, Store, Strategy, identify};

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

/// Kind, namespace and name of a stored object.
type Stored = (String, String, String);

/// Number of writes.
#[derive(Clone, Default)]
struct Revision(u64);

impl Strategy<Stored> for Revision {
    fn prepare(&mut self, (_, namespace, name): &Stored, _: Option<&Value>, object: &mut Value) {
        self.0 += 1;
        identify(object, namespace, name, format!("uid-{}", self.0));
        object["metadata"]["resourceVersion"] = json!(self.0.to_string());
    }
}

#[derive(Clone, Default)]
pub(super) struct World {
    objects: Store<Stored, Revision>,
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

    pub(super) fn get(&self, place: Place) -> Option<&Value> {
        self.objects.get(&stored(place))
    }

    pub(super) fn put(&mut self, place: Place, object: Value) {
        self.objects.put(stored(place), object);
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
    pub(super) fn end(&self) -> BTreeMap<Stored, Value> {
        let mut objects: BTreeMap<_, _> = self
            .objects
            .all()
            .map(|(place, object)| (place.clone(), object.clone()))
            .collect();
        for metadata in objects.values_mut().map(|object| &mut object["metadata"]) {
            metadata["resourceVersion"] = Value::Null;
            metadata["uid"] = Value::Null;
        }
        objects
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
        let refused = |code| Failure {
            code: Some(code),
            ..Failure::other(Server::Management, "refused")
        };
        if let Some((kind, code)) = self.refuses
            && key.resource.kind == kind
        {
            return Err(refused(code));
        }
        let place = place_of(key);
        let made = match verb {
            Verb::Create => self.objects.create(place, body.clone()),
            Verb::Apply => self.objects.apply(place, body),
            Verb::Delete => {
                let uid = json!({"uid": body.as_str().unwrap_or_default()});
                match self.objects.delete(&place, &uid) {
                    Err(Refused::NotFound) => Ok(Value::Null),
                    deleted => deleted,
                }
            }
            _ => {
                // Another leader may write between the read and the write.
                assert!(!body["metadata"]["resourceVersion"].is_null(), "{write:?}");
                self.objects.patch(&place, body)
            }
        };
        made.map(Object).map_err(|reason| refused(reason.code()))
    }
}

fn stored((kind, namespace, name): Place) -> Stored {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

fn place_of(key: &Key) -> Stored {
    let namespace = key.namespace.clone().unwrap_or_default();
    (key.resource.kind.to_string(), namespace, key.name.clone())
}
