//! Cost of one resolution of a Cluster among 300 releases with 3,000 images: a new one, an unchanged one, and ones that are refused after
//! a check of every release, with as many pools and selectors as the resolver checks.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use sluice_benches::catalogue;
use sluice_core::resolver::{Asked, ResolverInputs, resolve};
use sluice_crds::foreign::ClusterClass;

const SELECTOR: &str = "run.tanzu.vmware.com/resolve-os-image";

/// A Cluster whose parts select images by label.
fn cluster(version: &str, os: &str) -> Value {
    let selects = json!({"annotations": {SELECTOR: format!("os-name={os}")}});
    json!({
        "metadata": {"name": "one", "namespace": "team", "annotations": {"run.tanzu.vmware.com/resolve-tkr": ""}},
        "spec": {"topology": {
            "classRef": {"name": "class"}, "version": version, "controlPlane": {"metadata": selects},
            "workers": {"machineDeployments": [
                {"class": "default", "name": "a", "metadata": selects}, {"class": "default", "name": "b", "metadata": selects},
            ]},
        }},
    })
}

fn resolutions(criterion: &mut Criterion) {
    let Ok((releases, images)) = catalogue::catalogue() else {
        return;
    };
    let class: ClusterClass = serde_json::from_value(json!({
        "metadata": {"name": "class", "namespace": "team"},
        "spec": {
            "workers": {"machineDeployments": [{"class": "default"}]},
            "variables": [{"name": "TKR_DATA"}],
        },
    }))
    .unwrap_or_default();
    let known = ResolverInputs {
        class: Ok(Some(&class)),
        releases: &releases,
        images: Some(&images),
        running: None,
        pinned: None,
        rollback_to: None,
    };
    let asked = |old: Option<&Value>, new: &Value| Asked {
        old: old.and_then(|old| serde_json::from_value(old.clone()).ok()),
        new: serde_json::from_value(new.clone()).unwrap_or_default(),
    };
    let pools = |count: usize, selector: &dyn Fn(usize) -> String| {
        let mut cluster = cluster("v1", "os-3");
        let pool = |index| {
            let selects = json!({"annotations": {SELECTOR: selector(index)}});
            json!({"class": "default", "name": format!("pool-{index}"), "metadata": selects})
        };
        cluster["spec"]["topology"]["workers"]["machineDeployments"] = (0..count).map(pool).collect();
        cluster
    };
    // As many pools as are resolved, and as many selectors, of which the last one takes no image of any release.
    let many = pools(2_000, &|index| {
        if index < 1_999 {
            "os-name=os-3"
        } else {
            "os-name=none"
        }
        .to_owned()
    });
    let differing = pools(150, &|index| {
        format!("os-name=os-3,!a{index}{}", if index < 149 { "" } else { ",none" })
    });
    let mut labelled = cluster("v1.30.7+vmware.1", "os-3");
    labelled["metadata"]["labels"] = json!({"run.tanzu.vmware.com/tkr": "v1.30.7---vmware.1-tkg.1"});
    let mut prefixed = labelled.clone();
    prefixed["spec"]["topology"]["version"] = json!("v1.30");
    let mut group = criterion.benchmark_group("resolve");
    for (name, asked) in [
        ("new", asked(None, &cluster("v1.30", "os-3"))),
        ("newest-of-all", asked(None, &cluster("v1", "os-3"))),
        ("stays", asked(Some(&labelled), &prefixed)),
        ("refused", asked(None, &cluster("v1.30", "none"))),
        ("refused-of-all", asked(None, &cluster("v1", "none"))),
        ("refused-of-all-2000-pools", asked(None, &many)),
        ("refused-of-all-150-selectors", asked(None, &differing)),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| resolve(black_box(&asked), black_box(known)));
        });
    }
    group.finish();
}

criterion_group!(benches, resolutions);
criterion_main!(benches);
