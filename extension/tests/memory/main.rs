//! Memory of objects, reviews and responses that a tenant, a Pod, or a workload API server makes as dense or as long as possible.
//!
//! One test, because the allocator counts for the whole process.

mod generate;

use axum::{Router, body::Body, extract::Request, http::StatusCode};
use k8s_openapi::api::core::v1::Secret;
use kube::{core::DynamicObject, runtime::watcher::Event};
use peak_alloc::PeakAlloc;
use proptest::{prelude::*, test_runner::TestRunner};
use sluice::{
    admission::{Admission, AdmissionMetrics, Checks},
    cache::{store::Writer, watch::Followed},
    flags::{GateNotInForce, UpgradeChecks},
};
use sluice_core::{
    decode::{Item, OF_TENANT, READ},
    protocol::{Key, Object, ReadResult, Server},
};
use sluice_crds::{
    foreign::{
        App, Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall,
    },
    run::{ClusterBootstrap, ClusterBootstrapTemplate, OSImage, TanzuKubernetesRelease},
};

use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

use generate::{Case, cases};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What the test itself, and a text that is made of an error, may take.
const SLACK: usize = 64 * 1024;

/// Bytes that an object of a workload may take, and a list of them.
const OF_OBJECT: usize = 4 * 1024 * 1024;
const OF_LIST: usize = 8 * 1024 * 1024;

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
fn keeps<K: Followed>(kind: &str, Case { json, place, .. }: &Case) {
    let most = (2 * json.len()).max(K::LIMIT.memory) + SLACK;
    let (item, peak, _) = measured(|| Item::<K>::of(json));
    assert!(
        peak <= most,
        "{kind}, {place}: {peak} bytes for {} of JSON",
        json.len()
    );
    drop(item);
    let mut writer = Writer::<K>::default();
    let (changes, _, held) = measured(|| {
        let Some(item) = Item::<K>::of(json) else {
            unreachable!("a named object")
        };
        writer.apply(Event::Apply(item))
    });
    drop(changes);
    assert!(
        held <= K::LIMIT.memory + SLACK,
        "{kind}, {place}: {held} bytes stay"
    );
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

/// Response of a workload: an object, a list, and the result of a write.
fn answers(Case { json, place, .. }: &Case) {
    let list = format!(r#"{{"kind":"SecretList","items":[{json},{json}]}}"#);
    let key = |server| Key::of::<Secret>(server, Some("team-a"), "one");
    for (what, server, text, most) in [
        ("an object", Server::Workload, json, OF_OBJECT),
        ("an object to be read", Server::Management, json, READ),
        ("a list", Server::Workload, &list, OF_LIST),
    ] {
        let (_, peak, held) = measured(|| match what {
            "a list" => ReadResult::of_list(server, text),
            _ => ReadResult::of_object(&key(server), text),
        });
        assert!(peak <= most + SLACK, "{what}, {place}: {peak} bytes");
        assert!(held <= most + SLACK, "{what}, {place}: {held} bytes stay");
    }
    let (_, peak, held) = measured(|| Object::written(&key(Server::Workload), json));
    assert!(
        peak <= SLACK && held <= SLACK,
        "a write, {place}: {peak} bytes, {held} stay"
    );
}

/// Paths of webhooks, and the group, version and kind of objects that they review.
const WEBHOOKS: [(&str, [&str; 3]); 6] = [
    ("/mutate-cluster", ["cluster.x-k8s.io", "v1beta2", "Cluster"]),
    ("/validate-cluster", ["cluster.x-k8s.io", "v1beta2", "Cluster"]),
    (
        "/mutate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap",
        ["run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap"],
    ),
    (
        "/validate-run-tanzu-vmware-com-v1alpha3-clusterbootstrap",
        ["run.tanzu.vmware.com", "v1alpha3", "ClusterBootstrap"],
    ),
    (
        "/validate-lifecycle-sluice-dev-v1alpha1-upgradegate",
        ["lifecycle.sluice.dev", "v1alpha1", "UpgradeGate"],
    ),
    (
        "/mutate-lifecycle-sluice-dev-v1alpha1-upgradeoverride",
        ["lifecycle.sluice.dev", "v1alpha1", "UpgradeOverride"],
    ),
];

/// Reviews of any Pod.
fn reviews(runtime: &Runtime, webhooks: &Router, Case { json, place, .. }: &Case) {
    for (path, [group, version, kind]) in WEBHOOKS {
        // A gate without a change is not decoded.
        let old = if kind == "UpgradeGate" {
            "{}"
        } else {
            json.as_str()
        };
        // Only a new override is decoded.
        let operation = if kind == "UpgradeOverride" {
            "CREATE"
        } else {
            "UPDATE"
        };
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","kind":{{"group":"{group}","version":"{version}","kind":"{kind}"}},"operation":"{operation}","namespace":"team-a","name":"one","object":{json},"oldObject":{old},"userInfo":{{"username":"a"}}}}}}"#
        );
        // The body is there once as it was sent, and once as it is read.
        let most = (3 * body.len()).max(body.len() + 2 * OF_TENANT) + SLACK;
        let length = body.len();
        let request = Request::post(path).body(Body::from(body)).unwrap_or_default();
        let (answer, peak, held) = measured(|| runtime.block_on(webhooks.clone().oneshot(request)));
        let Ok(answer) = answer;
        assert_ne!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(
            peak <= most,
            "a review, {place}: {peak} bytes for {length} of JSON"
        );
        assert!(held <= SLACK, "a review, {place}: {held} bytes stay");
    }
}

#[test]
fn objects_take_what_they_may() {
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| unreachable!("{error}"));
    let webhooks = Admission::new(
        "system".to_owned(),
        Checks {
            upgrade: UpgradeChecks::Deny,
            gate: GateNotInForce::Off,
        },
        AdmissionMetrics::default(),
    )
    .router(true, true);
    let ran = runner.run(&cases(), |case| {
        every_kind(&case);
        answers(&case);
        reviews(&runtime, &webhooks, &case);
        Ok(())
    });
    assert!(ran.is_ok(), "{}", ran.unwrap_err());
}
