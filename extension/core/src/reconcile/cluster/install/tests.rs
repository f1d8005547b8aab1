//! Writes against one object that the server has or lacks, and that the cache shows or not.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::{
    packages::build::{Install, Owner, Place, install as built, repair_values_secret, values_secret},
    reconcile::cluster::{
        Failure, Object, ReadResult,
        tests::{clock, facts},
        write::Verb,
    },
};

/// Server with at most one object that checks preconditions and nothing else.
#[derive(Clone)]
struct One {
    object: Option<Value>,
    /// Body of the last write.
    written: Option<Value>,
}

impl One {
    fn with(object: Option<Value>) -> Self {
        Self {
            object,
            written: None,
        }
    }

    fn make(&mut self, write: &Write) -> Result<Object, Failure> {
        let refused = |code| {
            Err(Failure {
                code: Some(code),
                ..Failure::other(Server::Workload, "")
            })
        };
        let Some(found) = &self.object else {
            return match write.verb {
                Verb::Create => {
                    let mut created = write.body.clone();
                    created["metadata"]["uid"] = json!("created");
                    self.object = Some(created.clone());
                    Ok(Object(created))
                }
                _ => refused(404),
            };
        };
        let metadata = &write.body["metadata"];
        let differs = |field: &str| !metadata[field].is_null() && metadata[field] != found["metadata"][field];
        match write.verb {
            Verb::Create => refused(409),
            Verb::Delete if write.body != found["metadata"]["uid"] => refused(409),
            Verb::Delete => {
                self.object = None;
                Ok(Object(Value::Null))
            }
            _ if differs("uid") || differs("resourceVersion") => refused(409),
            _ => {
                self.written = Some(write.body.clone());
                Ok(Object(found.clone()))
            }
        }
    }

    /// Returns the result of `part` of a reconcile at this server.
    fn run<T>(&mut self, part: impl Fn(&Context<'_>) -> Step<T>) -> Step<T> {
        let (facts, local) = (facts(), LocalState::default());
        let mut context = Context::new(&facts, &local, clock());
        loop {
            match part(&context) {
                Err(Interrupt::Need(asks)) => {
                    for read in asks {
                        let found = self
                            .object
                            .clone()
                            .map_or(ReadResult::Absent, |found| ReadResult::Found(Object(found)));
                        context.record_answer(read, found);
                    }
                }
                Err(Interrupt::Write(writes)) => {
                    for write in writes {
                        let outcome = self.make(&write);
                        context.record_outcome(write, outcome);
                    }
                }
                outcome => return outcome,
            }
        }
    }
}

fn owner() -> Owner {
    Owner {
        name: "one".to_owned(),
        namespace: "tenant".to_owned(),
        uid: "cluster".to_owned(),
    }
}

fn wanted(version: &str) -> PackageInstall {
    let antrea = Install {
        name: "one-antrea",
        place: Place::Workload("system"),
        ref_name: "antrea.test",
        version,
        values: "one-antrea-data-values-0a",
        sync_period: "10m0s",
    };
    built(&owner(), &antrea)
}

/// Returns `version` as stored by the server with `resource_version`.
fn stored(version: &str, uid: &str, resource_version: &str) -> PackageInstall {
    let mut install = wanted(version);
    install.metadata.uid = Some(uid.to_owned());
    install.metadata.resource_version = Some(resource_version.to_owned());
    install
}

/// Writes 2.0.0 to a server that has `server`, while the cache shows `seen`. Returns the response code and the server.
fn write(server: Option<PackageInstall>, seen: Option<&PackageInstall>) -> (u16, One) {
    let mut one = One::with(server.map(|server| json!(server)));
    let code = match one.run(|context| write_install(context, Server::Workload, &wanted("2.0.0"), seen)) {
        Ok(()) => 200,
        Err(stop) => stop.failed().unwrap().code.unwrap(),
    };
    (code, one)
}

#[test]
fn a_later_write_is_never_overwritten() {
    let newer = Some(stored("3.0.0", "a", "9"));
    let refused = |server: Option<PackageInstall>, seen: Option<&PackageInstall>, code| {
        let (answered, one) = write(server.clone(), seen);
        assert_eq!(answered, code);
        assert_eq!(one.object, server.map(|server| json!(server)));
        assert_eq!(one.written, None);
    };
    // A leader paused between read and write, while another leader updated the package.
    refused(newer.clone(), Some(&stored("1.0.0", "a", "7")), 409);
    // The PackageInstall did not exist yet at the read.
    refused(newer.clone(), None, 409);
    // The PackageInstall was deleted and created again.
    refused(newer, Some(&stored("1.0.0", "b", "9")), 409);
    // The PackageInstall was deleted, and an update never creates it.
    refused(None, Some(&stored("1.0.0", "a", "7")), 404);
}

#[test]
fn an_unchanged_object_is_updated() {
    let seen = stored("1.0.0", "a", "7");
    let (code, one) = write(Some(seen.clone()), Some(&seen));
    let written = one.written.unwrap();
    assert_eq!(code, 200);
    assert_eq!(written["metadata"], json!({"uid": "a", "resourceVersion": "7"}));
    assert_eq!(
        written["spec"],
        json!({"packageRef": {"versionSelection": {"constraints": "2.0.0"}}})
    );
    let (code, one) = write(None, None);
    assert_eq!(
        (code, &one.object.unwrap()["metadata"]["uid"]),
        (200, &json!("created"))
    );
}

#[test]
fn a_correct_object_is_not_written() {
    let seen = stored("2.0.0", "a", "7");
    let (code, one) = write(Some(seen.clone()), Some(&seen));
    assert_eq!((code, one.written), (200, None));
}

fn values(content: &str) -> Secret {
    let files = BTreeMap::from([("values.yaml".to_owned(), content.as_bytes().to_vec())]);
    values_secret(
        &owner(),
        "one-antrea-data-values-0a",
        "system",
        "antrea.test",
        &files,
        false,
    )
}

/// Ensures values on a server that has `server`. Returns UID and content afterwards.
fn ensured_as(server: Option<Secret>) -> (Value, Value) {
    let mut one = One::with(server.map(|mut server| {
        server.metadata.uid = Some("theirs".to_owned());
        json!(server)
    }));
    let values = values("ours");
    let needed = Needed::on_workload(&values, repair_values_secret);
    one.run(|context| needed.ensure(context)).unwrap();
    let mut after = one.object.unwrap();
    (after["metadata"]["uid"].take(), after["data"].take())
}

#[test]
fn a_values_secret_is_created_kept_or_recreated() {
    let ours = json!(values("ours").data);
    assert_eq!(ensured_as(None), (json!("created"), ours.clone()));
    assert_eq!(ensured_as(Some(values("ours"))), (json!("theirs"), ours.clone()));
    assert_eq!(ensured_as(Some(values("theirs"))), (json!("created"), ours));
}

#[rstest]
#[case::digest("one-antrea-data-values-0123456789abcdef0123-0123456789ab", true, true)]
#[case::earlier_digest("one-antrea-data-values-0a1b", true, false)]
#[case::secret_of_a_user("one-antrea-data-values-mine", true, false)]
#[case::secret_of_a_configuration("one-antrea-data-values", false, false)]
#[case::copy("one-antrea-package", false, false)]
#[case::another_package("one-antrea-x-data-values-0123456789abcdef0123-0123456789ab", false, false)]
fn only_secrets_of_sluice_are_removed_from_the_management_cluster(
    #[case] name: &str,
    #[case] on_workload: bool,
    #[case] on_own_server: bool,
) {
    let removes = |ownership| is_values_secret(name, "one-antrea-data-values-", ownership);
    assert_eq!(removes(Ownership::Managed), on_workload);
    assert_eq!(removes(Ownership::Labelled), on_workload);
    assert_eq!(removes(Ownership::OwnServer), on_own_server);
}
