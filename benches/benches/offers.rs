//! Cost of the available updates of 10,000 Clusters of 20 classes among 300 releases with 3,000 images, after a change of the releases.

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use sluice_benches::catalogue;
use sluice_core::{
    cache::stores::Releases,
    releases::{Evaluation, Facts, Offers},
};
use sluice_crds::foreign::{Cluster, ClusterClass};

const CLASSES: usize = 20;
const CLUSTERS: usize = 10_000;

/// Returns a label selector of OSImages.
fn selects(os: usize) -> Value {
    json!({"annotations": {"run.tanzu.vmware.com/resolve-os-image": format!("os-name=os-{os}")}})
}

/// Every other class permits 20 versions, the others any version.
fn class(index: usize, releases: &Releases) -> serde_json::Result<ClusterClass> {
    let versions = releases
        .values()
        .step_by(15)
        .filter(|_| index.is_multiple_of(2))
        .map(|release| release.spec.kubernetes.version.as_str());
    serde_json::from_value(json!({
        "metadata": {"name": format!("class-{index}"), "namespace": "team"},
        "spec": {
            "controlPlane": {"metadata": selects(index % 10)},
            "workers": {"machineDeployments": [{"class": "default", "metadata": selects((index + index / 10) % 10)}]},
            "variables": [{"name": "TKR_DATA"}],
            "kubernetesVersions": versions.collect::<Vec<_>>(),
        },
    }))
}

/// Returns a Cluster of each release in turn.
fn cluster(index: usize, release: &str) -> serde_json::Result<Cluster> {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("cluster-{index}"), "namespace": "team", "labels": {"run.tanzu.vmware.com/tkr": release},
            "annotations": {"run.tanzu.vmware.com/resolve-tkr": ""},
        },
        "spec": {"topology": {
            "classRef": {"name": format!("class-{}", index % CLASSES)}, "version": "v1.30.1+vmware.1", "controlPlane": {},
            "workers": {"machineDeployments": [{"class": "default", "name": "a"}, {"class": "default", "name": "b"}]},
        }},
    }))
}

fn offers(criterion: &mut Criterion) {
    let Ok((releases, images)) = catalogue::catalogue() else {
        return;
    };
    let names: Vec<&String> = releases.keys().collect();
    let classes = (0..CLASSES).map(|index| class(index, &releases));
    let clusters = (0..CLUSTERS).map(|index| cluster(index, names[index % names.len()]));
    let (Ok(classes), Ok(clusters)) = (
        classes.collect::<Result<Vec<_>, _>>(),
        clusters.collect::<Result<Vec<_>, _>>(),
    ) else {
        return;
    };
    let evaluation = Arc::new(Evaluation::of(Facts {
        releases: &releases,
        images: Some(&images),
        packages: None,
        compatibility: None,
        management_packages: None,
    }));
    let (releases, images) = (Arc::new(releases), Arc::new(images));
    let mut group = criterion.benchmark_group("offers");
    group.sample_size(20);
    group.bench_function("10000-clusters", |bencher| {
        bencher.iter(|| {
            let images = Some(Arc::clone(&images));
            let mut offers = Offers::of(Arc::clone(&evaluation), Arc::clone(&releases), images);
            let each = clusters.iter().enumerate();
            each.filter_map(|(index, cluster)| {
                offers.of_cluster(black_box(cluster), Some(&classes[index % CLASSES]))
            })
            .count()
        });
    });
    group.finish();
}

criterion_group!(benches, offers);
criterion_main!(benches);
