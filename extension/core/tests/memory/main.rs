//! How much memory objects take that a tenant, or the API server of a workload, makes as dense or as long as can be.
//!
//! One test, because the allocator counts for the whole process.

mod generate;

use std::sync::Arc;

use kube::core::DynamicObject;
use peak_alloc::PeakAlloc;
use proptest::{prelude::*, test_runner::TestRunner};
use sluice_core::{
    compact::{Kept, Objects, Packer},
    decode::{Decode, Item},
    hop::ControlPlane,
    step::{Answer, Object, Server},
};
use sluice_crds::{
    foreign::{App, Cluster, ClusterClass, MachineDeployment, MachinePool, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use generate::{Case, cases};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What the test itself, and a text that is made of an error, may take.
const SLACK: usize = 64 * 1024;

/// Bytes that an answer of a workload may take, a list of them included.
const OF_ANSWERS: usize = 16 * 1024 * 1024;

/// Bytes that `work` takes at most, and of those the ones that its result takes.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let done = work();
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    let held = ALLOCATOR.current_usage().saturating_sub(before);
    (done, peak, held)
}

/// Decodes an object of kind `K` and keeps it. Nothing else of it may be left.
fn keeps<K: Kept + Decode>(kind: &str, Case { json, place, .. }: &Case) {
    // Types with flattened fields are built of a copy.
    let built = if matches!(kind, "DynamicObject" | "Package") {
        2
    } else {
        1
    };
    let most = (2 * json.len()).max(built * K::LIMIT.memory) + SLACK;
    let (item, peak, _) = measured(|| Item::<K>::of(json));
    assert!(
        peak <= most,
        "{kind}, {place}: {peak} bytes for {} of JSON",
        json.len()
    );
    let Some(mut item) = item else {
        unreachable!("a named object")
    };
    let by = Arc::<Packer<K>>::default();
    let mut objects = Objects::new(Arc::clone(&by));
    let ((), _, held) = measured(|| match (item.pack(&by), &item) {
        (Some(content), Item::Decoded(object)) => drop(objects.put(object, &content)),
        (_, Item::Undecodable(object)) => drop(objects.put_undecodable(object)),
        (None, Item::Decoded(_)) => unreachable!("it is packed"),
    });
    assert!(held <= kept::<K>() + SLACK, "{kind}, {place}: {held} bytes stay");
}

/// What one object may take in a store, and the packer of its kind beside it, which all objects of the kind share.
fn kept<K: Decode>() -> usize {
    const PACKER: usize = 1536 * 1024;
    K::KEPT + PACKER
}

fn every_kind(case: &Case) {
    keeps::<Cluster>("Cluster", case);
    keeps::<ClusterBootstrap>("ClusterBootstrap", case);
    keeps::<ClusterBootstrapTemplate>("ClusterBootstrapTemplate", case);
    keeps::<TanzuKubernetesRelease>("TanzuKubernetesRelease", case);
    keeps::<OSImage>("OSImage", case);
    keeps::<ClusterClass>("ClusterClass", case);
    keeps::<MachineDeployment>("MachineDeployment", case);
    keeps::<MachinePool>("MachinePool", case);
    keeps::<Package>("Package", case);
    keeps::<PackageInstall>("PackageInstall", case);
    keeps::<App>("App", case);
    keeps::<ControlPlane>("ControlPlane", case);
    keeps::<DynamicObject>("DynamicObject", case);
}

/// What a workload answers, as an object, a list, and to a write.
fn answers(Case { json, place, .. }: &Case) {
    let list = format!(r#"{{"kind":"SecretList","items":[{json},{json}]}}"#);
    for (what, text, most) in [
        ("an object", json.as_str(), OF_ANSWERS / 4),
        ("a list", &list, OF_ANSWERS),
    ] {
        let (_, peak, held) = measured(|| match what {
            "an object" => Answer::of_object(Server::Workload, text),
            _ => Answer::of_list(Server::Workload, text),
        });
        assert!(peak <= most + SLACK, "{what}, {place}: {peak} bytes");
        assert!(held <= most + SLACK, "{what}, {place}: {held} bytes stay");
    }
    let (_, peak, held) = measured(|| Object::written(Server::Workload, json));
    assert!(
        peak <= SLACK && held <= SLACK,
        "a write, {place}: {peak} bytes, {held} stay"
    );
}

#[test]
#[ignore = "messages of errors, and values of Packages, exceed the limit for a moment"]
fn objects_take_what_they_may() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let ran = runner.run(&cases(), |case| {
        every_kind(&case);
        answers(&case);
        Ok(())
    });
    assert!(ran.is_ok(), "{}", ran.unwrap_err());
}
