//! The manifests of `examples/`, applied with kubectl as their READMEs do.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sluice_tests::install::Shell;
use sluice_tests::objects::Release;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::requests::apply::documents;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;

use crate::common::{given, is_completed, shell};

/// Directory of the Cluster for the providers of the stack.
const DEMO: &str = "demo";

/// Fields of a ClusterBootstrap that Sluice completes or upgrades, as pointers. Without webhooks no dry run completes the manifest.
const COMPLETED: [&str; 5] = [
    "/spec/kapp",
    "/spec/cni/refName",
    "/spec/cpi",
    "/spec/csi",
    "/spec/additionalPackages",
];

/// A directory that is applied before the Cluster, if any, and the values that packages then have.
struct Case {
    bootstrap: Option<&'static str>,
    values: [(&'static str, Value); 3],
}

fn cases() -> [Case; 3] {
    let antrea = |config: Value| ("antrea", json!({"antrea": {"config": config}}));
    let metrics = |replicas| ("metrics-server", json!({"metricsServer": {"replicas": replicas}}));
    let nothing = ("secretgen-controller", json!({}));
    let secret = json!({"secretgenController": {"createNamespace": false}});
    [
        Case {
            bootstrap: None,
            values: [antrea(json!({"defaultMTU": "1400"})), metrics(1), nothing.clone()],
        },
        Case {
            bootstrap: Some("bootstrap/values"),
            values: [
                antrea(json!({"defaultMTU": "1450"})),
                metrics(2),
                ("secretgen-controller", secret),
            ],
        },
        Case {
            bootstrap: Some("bootstrap/partial"),
            values: [
                antrea(json!({"trafficEncapMode": "noEncap"})),
                metrics(1),
                nothing,
            ],
        },
    ]
}

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "examples",
        "kubectl applies the examples: a Package brings their releases, packages get the values of each ClusterBootstrap and keep them in an upgrade that is held and released",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let shell = shell(&scene, "home-examples").await?;
    let [old, new] = installed(&scene, &shell).await?;
    for case in cases() {
        let what = case.bootstrap.unwrap_or("no ClusterBootstrap");
        one(&scene, &shell, (&old, &new), &case)
            .await
            .with_context(|| format!("with {what}"))?;
    }
    shell
        .run("kubectl delete -k examples/release", &[])
        .await?
        .well()?;
    Ok(())
}

/// Applies the releases as one Package, and waits until both are ready.
async fn installed(scene: &Scene, shell: &Shell) -> Result<[Release; 2]> {
    let manifests = rendered(shell, "release/objects").await?;
    let releases = [
        release(&manifests, VERSIONS[1])?,
        release(&manifests, VERSIONS[2])?,
    ];
    for release in &releases {
        scene.withdraws(release);
    }
    apply(shell, "release").await?;
    scene.releases_are_ready(&releases).await?;
    contains_all(shell, "release/objects", &[]).await?;
    Ok(releases)
}

/// The release of a Kubernetes version, with its packages and OSImages.
fn release(manifests: &[Value], kubernetes: &str) -> Result<Release> {
    let of = |kind: &str, name: &Value| {
        let mut all = manifests.iter();
        let found = all.find(|object| object["kind"] == kind && object["metadata"]["name"] == *name);
        found.with_context(|| format!("the examples have no {kind} {name}"))
    };
    let release = of(
        "TanzuKubernetesRelease",
        &json!(format!("{kubernetes}---example.1")),
    )?;
    let names = release["spec"]["bootstrapPackages"].as_array();
    let packages: Vec<TestPackage> = names
        .context("a release without packages")?
        .iter()
        .map(|listed| {
            let spec = &of("Package", &listed["name"])?["spec"];
            let text = |field: &str| spec[field].as_str().context("a Package without a field");
            Ok(TestPackage::new(text("refName")?, text("version")?))
        })
        .collect::<Result<_>>()?;
    let [kapp, cni, others @ ..] = packages.as_slice() else {
        anyhow::bail!("a release without a CNI")
    };
    let release = Release::new(kubernetes, "example.1", kapp.clone(), cni.clone());
    let release = ["amd64", "arm64"].iter().fold(release, |release, arch| {
        release.image(format!("kind-{arch}-{kubernetes}"), "debian")
    });
    Ok(others
        .iter()
        .fold(release, |release, package| release.additional(package.clone())))
}

/// Creates the Cluster, upgrades it, and deletes it.
async fn one(scene: &Scene, shell: &Shell, (old, new): (&Release, &Release), case: &Case) -> Result<()> {
    if let Some(directory) = case.bootstrap {
        apply(shell, directory).await?;
    }
    // The Cluster of the previous case had the same name.
    let since = scene.world().observer().catch_up().await?;
    apply(shell, DEMO).await?;
    let cluster = scene.cluster("edge-1").existing();
    cluster.packages_proven(old, since, TIMEOUT * 2).await?;
    cluster.is_available(TIMEOUT * 2).await?;
    cluster.is_settled(TIMEOUT).await?;
    has_values(&cluster, old, case).await?;
    for directory in case.bootstrap.into_iter().chain([DEMO]) {
        contains_all(shell, directory, &COMPLETED).await?;
    }

    cluster.delay("antrea", Delay::Never);
    let before = scene.world().observer().catch_up().await?;
    let upgrade = "kubectl patch cluster edge-1 --type merge --patch-file examples/upgrade.yaml";
    shell.run(upgrade, &[]).await?.well()?;
    let antrea = new.packages().find(|package| package.short() == "antrea");
    let antrea = antrea.context("a release without antrea")?.version();
    cluster.says(&format!("antrea {antrea}"), TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;
    cluster.delay("antrea", Delay::NONE);
    is_completed(&cluster).await?;
    cluster.is_settled(TIMEOUT).await?;
    has_values(&cluster, new, case).await?;
    if let Some(directory) = case.bootstrap {
        contains_all(shell, directory, &COMPLETED).await?;
    }
    cluster.delete().await
}

async fn has_values(cluster: &Cluster, release: &Release, case: &Case) -> Result<()> {
    for (short, wanted) in &case.values {
        let values = given(cluster, release, short).await?;
        ensure!(
            contained(wanted, &values),
            "{short} has the values {values}, not {wanted}"
        );
    }
    Ok(())
}

async fn apply(shell: &Shell, directory: &str) -> Result<()> {
    let command = format!("kubectl apply -k examples/{directory}");
    shell.run(&command, &[]).await?.well().map(drop)
}

async fn rendered(shell: &Shell, directory: &str) -> Result<Vec<Value>> {
    let command = format!("kubectl kustomize examples/{directory}");
    documents(&shell.run(&command, &[]).await?.well()?)
}

/// Fails unless the live objects contain all of the manifests except the `ignored` fields of ClusterBootstraps.
async fn contains_all(shell: &Shell, directory: &str, ignored: &[&str]) -> Result<()> {
    let command = format!("kubectl get --output json -k examples/{directory}");
    let live: Value = serde_json::from_str(&shell.run(&command, &[]).await?.well()?)?;
    // Several objects are one list.
    let live = live["items"]
        .as_array()
        .map_or(std::slice::from_ref(&live), Vec::as_slice);
    let manifests = rendered(shell, directory).await?;
    for mut manifest in manifests {
        let is = |field: &str, object: &Value| object[field] == manifest[field];
        let same = |object: &&Value| {
            is("kind", object)
                && object["metadata"]["name"] == manifest["metadata"]["name"]
                && is("apiVersion", object)
        };
        let found = live.iter().find(same);
        let found = found.with_context(|| format!("{directory} has no live {}", manifest["metadata"]))?;
        if manifest["kind"] == "ClusterBootstrap" {
            for pointer in ignored {
                remove(&mut manifest, pointer);
            }
        }
        encode(&mut manifest);
        ensure!(
            contained(&manifest, found),
            "{directory}: {found} does not contain {manifest}"
        );
    }
    Ok(())
}

fn remove(object: &mut Value, pointer: &str) {
    let Some((parent, field)) = pointer.rsplit_once('/') else {
        return;
    };
    if let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) {
        parent.remove(field);
    }
}

/// Writes `stringData` of a Secret as an API server does.
fn encode(object: &mut Value) {
    let Some(Value::Object(texts)) = object
        .as_object_mut()
        .and_then(|object| object.remove("stringData"))
    else {
        return;
    };
    for (key, text) in texts {
        object["data"][key] = json!(BASE64_STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

/// Whether `object` has each field of `wanted`.
fn contained(wanted: &Value, object: &Value) -> bool {
    match (wanted, object) {
        (Value::Object(wanted), Value::Object(object)) => wanted
            .iter()
            .all(|(key, wanted)| object.get(key).is_some_and(|value| contained(wanted, value))),
        (Value::Array(wanted), Value::Array(object)) => {
            wanted.len() == object.len()
                && wanted
                    .iter()
                    .zip(object)
                    .all(|(wanted, value)| contained(wanted, value))
        }
        _ => wanted == object,
    }
}
