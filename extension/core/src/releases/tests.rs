mod labels;
mod requirements;
mod updates;
mod verdicts;

use crate::cache::stores::Images;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    run::{OSImage, TanzuKubernetesRelease},
};
use sluice_test_store::merge;

use super::*;
use crate::{
    cache::stores::Releases,
    clock::Clock,
    packages::{
        bootstrap::{Catalogue, PackageFacts},
        requirements::ManagementPackages,
    },
    protocol::{Context, Done, Error, Interrupt, Object, Reconciler, Write},
    version::Ordered,
};

const PACKAGE: &str = "antrea.tanzu.vmware.com.1.7.1+vmware.1-tkg.1";

fn then() -> Timestamp {
    "2026-11-01T00:00:00Z".parse().unwrap()
}

fn now() -> Timestamp {
    "2026-11-02T00:00:00Z".parse().unwrap()
}

fn release(version: &str, more: &Value) -> TanzuKubernetesRelease {
    let mut object = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
        "metadata": {"name": version_label(version), "uid": version, "resourceVersion": "1"},
        "spec": {
            "version": version, "kubernetes": {"version": "v1.35.4"},
            "osImages": [{"name": "ubuntu"}], "bootstrapPackages": [{"name": PACKAGE}],
        },
    });
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

fn image(more: &Value) -> OSImage {
    let mut object = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage",
        "metadata": {"name": "ubuntu", "uid": "ubuntu", "resourceVersion": "1"},
        "spec": {
            "kubernetesVersion": "v1.35.4",
            "os": {"type": "linux", "name": "ubuntu", "version": "24.04", "arch": "amd64"},
            "image": {"type": "ami", "ref": {"id": "ami-0123", "region": "us-east-1"}},
        },
    });
    merge(&mut object, more);
    serde_json::from_value(object).unwrap()
}

/// Inputs of an evaluation: releases, one image, one Package, and no compatibility data.
struct World {
    releases: Releases,
    images: Images,
    packages: Catalogue,
    compatibility: Compatibility,
    management_packages: ManagementPackages,
}

impl World {
    fn of(releases: impl IntoIterator<Item = TanzuKubernetesRelease>) -> Self {
        let named =
            |release: TanzuKubernetesRelease| (release.metadata.name.clone().unwrap(), Arc::new(release));
        Self {
            releases: releases.into_iter().map(named).collect(),
            images: Images::from([("ubuntu".to_owned(), Arc::new(image(&json!({}))))]),
            packages: Catalogue::from([(PACKAGE.to_owned(), PackageFacts::default())]),
            compatibility: Compatibility::of(&Sources::default()),
            management_packages: ManagementPackages::default(),
        }
    }

    fn evaluation(&self) -> Evaluation {
        Evaluation::of(Facts {
            releases: &self.releases,
            images: Some(&self.images),
            packages: Some(&self.packages),
            compatibility: Some(&self.compatibility),
            management_packages: Some(&self.management_packages),
        })
    }

    fn offers(&self) -> Offers {
        let images = Some(Arc::new(self.images.clone()));
        Offers::of(
            Arc::new(self.evaluation()),
            Arc::new(self.releases.clone()),
            images,
        )
    }

    /// Carries out the writes of each release once. Returns the number of releases with a write.
    fn settle(&mut self, at: Timestamp) -> usize {
        let evaluation = self.evaluation();
        let mut written = 0;
        for release in self.releases.values_mut() {
            let Some(mark) = evaluation.of_release(release, at) else {
                continue;
            };
            let mut object = json!(**release);
            for write in carry_out(&mark, at, &json!({})) {
                merge(&mut object, &write.body);
            }
            *release = Arc::new(serde_json::from_value(object).unwrap());
            written += 1;
        }
        written
    }

    fn condition(&self, release: &str, type_: &str) -> (String, String, String) {
        let status = self.releases[release].status.as_ref().unwrap();
        let found = status
            .conditions
            .iter()
            .find(|found| found.type_ == type_)
            .unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }
}

/// Carries out a reconcile against a server that has `object` and accepts every write. Returns the writes.
fn carry_out<S: Reconciler<LocalState = (), Effects = (), Hold = String>>(
    subject: &S,
    at: Timestamp,
    object: &Value,
) -> Vec<Write> {
    let began = Clock {
        now: at,
        instant: std::time::Instant::now(),
    };
    let (mut known, mut written) = (Context::new(subject, &(), began), Vec::new());
    loop {
        match S::reconcile(&known, &mut ()) {
            Ok(done) => {
                assert_eq!(done, Done::AwaitChange);
                return written;
            }
            Err(Interrupt::Need(asks)) => {
                for ask in known
                    .unanswered(asks)
                    .map_err(|error: Error| error.to_string())
                    .unwrap()
                {
                    known.record_answer(ask, crate::protocol::ReadResult::Found(Object(object.clone())));
                }
            }
            Err(Interrupt::Write(writes)) => {
                for write in writes {
                    written.push(write.clone());
                    let version = format!("{}", written.len() + 1);
                    let made = json!({"metadata": {"resourceVersion": version}});
                    known.record_outcome(write, Ok(Object(made)));
                }
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }
}
