//! Plans with a cached values Secret.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{labels::label, run::ClusterBootstrapSpec};

use super::*;
use crate::{
    packages::bootstrap::{CREDENTIAL_TYPES, Catalogue, PackageFacts},
    reasons::GateReason,
    reconcile::cluster::{
        Key, LocalState, Object, Read, ReadPhase, ReadResult, Server, Write,
        plan::{Plan, plan},
        tests::{clock, facts},
    },
};

const PACKAGE: &str = "antrea.test.1.0.0";

/// Content of the Secret.
const CONTENT: &str = "cmVwbGljYXM6IDEK";

/// Cached values, and what decides whether they are read again.
struct World {
    secret: Option<Value>,
    /// UID and resourceVersion that the watch of values sources shows, while it is readable.
    shown: Option<[&'static str; 2]>,
    /// Secret after a write of the reconcile.
    written: Option<Value>,
    /// Name of a Cluster that exists in the namespace.
    other_cluster: Option<&'static str>,
    stage: &'static str,
}

/// Returns the Secret with these UID, resourceVersion and content.
fn secret([uid, version]: [&str; 2], content: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "namespace": "team-a", "name": "two-ca", "uid": uid, "resourceVersion": version,
            "labels": {label::CLUSTER_NAME: "one", "more": "text of a tenant"},
            "annotations": {"last-applied": "text of a tenant"},
        },
        "data": {"values.yaml": content},
    })
}

fn key() -> Key {
    Key::of::<Secret>(Server::Management, Some("team-a"), "two-ca")
}

impl World {
    fn new() -> Self {
        Self {
            secret: Some(secret(["uid", "1"], CONTENT)),
            shown: Some(["uid", "1"]),
            written: None,
            other_cluster: None,
            stage: "v1.35.4",
        }
    }

    /// Plans a package with values of the Secret. Returns the plan, and how often the Secret is read.
    fn plan(&self, local: &LocalState) -> (Plan, usize) {
        let mut facts = facts();
        let package = PackageFacts {
            ref_name: "antrea.test".to_owned(),
            version: "1.0.0".to_owned(),
            ..PackageFacts::default()
        };
        facts.catalogue = Arc::new(Catalogue::from([(PACKAGE.to_owned(), package)]));
        let spec = json!({"cni": {"refName": PACKAGE, "valuesFrom": {"secretRef": "two-ca"}}});
        let spec: ClusterBootstrapSpec = serde_json::from_value(spec).unwrap();
        let inputs = DigestInputs {
            stage: Some(self.stage),
            ..DigestInputs::default()
        };
        let mut context = Context::new(&facts, local, clock());
        if let Some(written) = &self.written {
            let write = Write::patch(key(), Value::Null, "");
            context.record_outcome(write, Ok(Object(written.clone())));
        }
        let mut read = 0;
        loop {
            match plan(&context, &spec, inputs, None) {
                Ok(plan) => return (plan, read),
                Err(Interrupt::Need(asks)) => {
                    for ask in asks {
                        read += usize::from(ask == Read::Object(key(), ReadPhase::Plan));
                        let answer = self.answer(&ask);
                        context.record_answer(ask, answer);
                    }
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }

    fn answer(&self, ask: &Read) -> ReadResult {
        let found = match ask {
            Read::Shown(version) => {
                let version = [version.uid.as_str(), version.resource_version.as_str()];
                return ReadResult::Shown(self.shown == Some(version));
            }
            Read::Object(key, ReadPhase::Plan) if key.resource.kind == "Cluster" => self
                .other_cluster
                .filter(|name| key.name == *name)
                .map(|name| json!({"metadata": {"name": name}, "spec": {}})),
            Read::Object(_, ReadPhase::Plan) => self.secret.clone(),
            read => panic!("{read:?}"),
        };
        found.map_or(ReadResult::Absent, |found| ReadResult::Found(Object(found)))
    }

    /// Returns the local state after a plan.
    fn cached(&self) -> LocalState {
        let mut local = LocalState::default();
        let (plan, read) = self.plan(&local);
        assert_eq!(read, 1);
        local.cache_values(&plan.planned);
        local
    }
}

/// Returns the digests and the name of the values Secret of the planned package.
fn digests(plan: &Plan) -> [&str; 4] {
    let planned = &plan.planned[0];
    [
        &planned.content_digest,
        &planned.digest,
        &planned.kept_digest,
        &planned.secret_name,
    ]
}

#[rstest]
#[case::unchanged(|_: &mut World| {}, 0)]
#[case::another_version(
    |world: &mut World| (world.secret, world.shown) = (Some(secret(["uid", "2"], "YTogMg==")), Some(["uid", "2"])),
    1
)]
#[case::another_uid(
    |world: &mut World| (world.secret, world.shown) = (Some(secret(["another", "1"], "YTogMg==")), Some(["another", "1"])),
    1
)]
#[case::watch_without_data(|world: &mut World| world.shown = None, 1)]
#[case::watch_that_is_ahead(|world: &mut World| world.shown = Some(["uid", "2"]), 1)]
#[case::another_digest_input(|world: &mut World| world.stage = "v1.36.3", 1)]
#[case::own_write(|world: &mut World| world.written = Some(secret(["uid", "2"], "YTogMg==")), 0)]
fn a_values_secret_is_read_unless_it_is_unchanged(#[case] edit: fn(&mut World), #[case] expected: usize) {
    let mut world = World::new();
    let local = world.cached();
    edit(&mut world);
    let (cached, read) = world.plan(&local);
    assert_eq!(read, expected);
    let (fresh, _) = world.plan(&LocalState::default());
    assert_eq!(
        digests(&cached),
        digests(&fresh),
        "they are those of the current values"
    );
}

/// Kubernetes versions, UIDs and contents of Packages are such inputs. Were one of them missing in the key of the cache, a proof would be
/// taken for that of other inputs.
#[test]
fn each_digest_input_is_part_of_the_key() {
    let installer = |version, digest| Some(digest::Installer { version, digest });
    let base = DigestInputs {
        stage: Some("v1.35.4"),
        workload: Some("uid"),
        installer: installer("1.0.0", "0a-0b"),
        template: "template",
        repairs: 1,
        kept: false,
    };
    let inputs = [
        base,
        DigestInputs { stage: None, ..base },
        DigestInputs {
            workload: Some("other"),
            ..base
        },
        DigestInputs {
            installer: installer("2.0.0", "0a-0b"),
            ..base
        },
        DigestInputs {
            installer: installer("1.0.0", "0c-0b"),
            ..base
        },
        DigestInputs {
            installer: installer("1.0.0", "0a-0d"),
            ..base
        },
        DigestInputs {
            template: "other",
            ..base
        },
        DigestInputs { repairs: 2, ..base },
    ];
    let mut keys = inputs
        .map(|inputs| digest::values(&inputs, &Values::new()))
        .to_vec();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), inputs.len());
}

/// An event is late or lost. The plan asks for the content once it is needed, and then follows from it.
#[test]
fn the_content_of_a_cached_secret_is_read_where_it_is_needed() {
    let mut world = World::new();
    let mut local = world.cached();
    world.secret = Some(secret(["uid", "2"], "YTogMg=="));
    let (plan, read) = world.plan(&local);
    assert_eq!(read, 0);
    let asked = match plan.planned[0].values() {
        Err(Interrupt::Need(asked)) => asked,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked, [Read::Object(key(), ReadPhase::Plan)]);
    local.forget_checks();
    let (plan, read) = world.plan(&local);
    assert_eq!(read, 1, "a confirming read has found the difference");
    assert!(plan.planned[0].values().is_ok());
}

#[test]
fn a_deleted_secret_is_not_taken_from_the_cache() {
    let mut world = World::new();
    let mut local = world.cached();
    (world.secret, world.shown) = (None, None);
    let (plan, read) = world.plan(&local);
    assert_eq!(read, 1);
    assert_eq!(
        plan.problem.map(|hold| hold.reason),
        Some(GateReason::ValuesNotFound)
    );
    local.cache_values(&plan.planned);
    assert!(local.cached_values(PACKAGE).is_none());
}

#[test]
fn a_credential_is_not_cached() {
    let mut world = World::new();
    world.secret.as_mut().unwrap()["type"] = json!(CREDENTIAL_TYPES[0]);
    let local = world.cached();
    let (plan, read) = world.plan(&local);
    assert_eq!(read, 1);
    assert_eq!(
        plan.problem.map(|hold| hold.reason),
        Some(GateReason::ValuesSecretRefused)
    );
}

/// It is the certificate authority of a Cluster that was created after the values were cached.
#[test]
fn a_cached_secret_with_the_name_of_a_credential_is_refused() {
    let mut world = World::new();
    let local = world.cached();
    world.other_cluster = Some("two");
    let (plan, read) = world.plan(&local);
    assert_eq!(read, 0);
    assert_eq!(
        plan.problem.map(|hold| hold.reason),
        Some(GateReason::ValuesSecretRefused)
    );
}

#[test]
fn the_cache_has_neither_data_nor_texts_of_tenants() {
    let local = World::new().cached();
    let cached = local.cached_values(PACKAGE).unwrap();
    assert_eq!(
        cached.metadata().labels,
        Some([(label::CLUSTER_NAME.to_owned(), "one".to_owned())].into())
    );
    let text = format!("{local:?}");
    for absent in ["text of a tenant", CONTENT, "replicas"] {
        assert!(!text.contains(absent), "{text}");
    }
}
