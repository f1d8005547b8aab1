//! The release, or what belongs to it, is missing: first at the bump, one thing after the other, then in mid-hold.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sluice_tests::objects::{Release, Values};
use sluice_tests::scenario::{Scenario, Scene, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;

use super::row::{Row, holds};
use crate::common::{is_held, released};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "missing-things-release",
        "release, template, Package or values are missing at the bump and in mid-hold, or are a credential of Cluster API: held, with the reason in condition, event and hook message, and over by itself",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let old = release(&scene, VERSIONS[1], "1.0.0", Delay::NONE)?;
    let new = release(&scene, VERSIONS[2], "2.0.0", Delay::Never)?
        .additional(scene.package("late", "2.0.0"))
        .values("late", Values::Secret(json!({"late": true})));
    scene.publish(&old).await?;
    let cluster = scene.cluster("one").create_settled(&old).await?;

    let before = cluster.upgrade(&new).await?;
    for step in steps(&scene, &new)? {
        holds(&cluster, step.reason, &step.names)
            .await
            .with_context(|| format!("{} is missing", step.names))?;
        cluster.control_plane_is_untouched(before).await?;
        scene.apply(&step.repair).await?;
    }
    is_held(&cluster, &new, before).await?;
    // Nothing is new by now; this has the scene withdraw the release at its end.
    scene.publish(&new).await?;

    // Without it the copy that a Cluster has cannot be made again.
    let source = secret_of(&new, "metrics")?;
    let source = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{source}");
    scene.objects().delete(&source).await?;
    for row in rows(&scene, &new) {
        row.run(&cluster, before).await?;
    }
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;
    Ok(())
}

fn release(scene: &Scene, kubernetes: &str, version: &str, antrea: Delay) -> Result<Release> {
    Ok(scene
        .release(kubernetes, version, antrea)?
        .additional(scene.package("metrics", version))
        .values("metrics", Values::Secret(json!({"replicas": 1}))))
}

/// The name of the Secret beside the template with the values of a package.
fn secret_of(release: &Release, short: &str) -> Result<String> {
    let objects = release.objects();
    let secrets = objects.iter().filter(|object| object["kind"] == "Secret");
    let mut names = secrets.filter_map(|secret| secret["metadata"]["name"].as_str());
    let found = names.find(|name| name.starts_with(&format!("{short}-")));
    Ok(found
        .with_context(|| format!("a release without values of {short}"))?
        .to_owned())
}

/// The first missing object and its repair; then the next one is missing.
struct Step {
    reason: &'static str,
    names: String,
    repair: Vec<Value>,
}

fn steps(scene: &Scene, new: &Release) -> Result<Vec<Step>> {
    let objects = new.objects();
    let of_kind = |kind: &str| {
        let wanted = objects.iter().filter(|object| object["kind"] == kind);
        wanted.cloned().collect::<Vec<Value>>()
    };
    let package = |short: &str| {
        let package = new.packages().find(|package| package.short() == short);
        package.with_context(|| format!("a release without {short}"))
    };
    let secret = secret_of(new, "late")?;
    let system = |name: &str| format!("{SYSTEM_NAMESPACE}/{name}");
    let mut template = of_kind("ClusterBootstrapTemplate");
    template.push(scene.kapp_controller("2.0.0")?.package());
    Ok(vec![
        Step {
            reason: "TKRNotFound",
            names: new.name(),
            repair: of_kind("TanzuKubernetesRelease"),
        },
        Step {
            reason: "TemplateNotFound",
            names: system(&new.name()),
            repair: template,
        },
        Step {
            reason: "PackageNotFound",
            names: package("antrea")?.name(),
            repair: vec![package("antrea")?.package()],
        },
        Step {
            reason: "PackageNotFound",
            names: package("metrics")?.name(),
            repair: vec![package("metrics")?.package()],
        },
        Step {
            reason: "PackageNotFound",
            names: package("late")?.name(),
            repair: vec![package("late")?.package()],
        },
        Step {
            reason: "ValuesNotFound",
            names: format!("Secret {}", system(&secret)),
            repair: of_kind("Secret"),
        },
    ])
}

fn rows(scene: &Scene, new: &Release) -> Vec<Row> {
    let namespace = scene.namespace();
    let metrics = scene.package("metrics", "2.0.0").name();
    let run = "/apis/run.tanzu.vmware.com/v1alpha3";
    vec![
        Row {
            what: "the release is deleted",
            path: format!("{run}/tanzukubernetesreleases/{}", new.name()),
            spoil: None,
            reason: "TKRNotFound",
            names: new.name(),
        },
        Row {
            what: "a Package is deleted",
            path: format!(
                "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packages/{metrics}"
            ),
            spoil: None,
            reason: "PackageNotFound",
            names: metrics,
        },
        Row {
            what: "a credential as values",
            path: format!("{run}/namespaces/{namespace}/clusterbootstraps/one"),
            spoil: Some(
                json!({"spec": {"cni": {"valuesFrom": {"inline": null, "secretRef": "one-kubeconfig"}}}}),
            ),
            reason: "ValuesSecretRefused",
            names: scene.package("antrea", "2.0.0").name(),
        },
        Row {
            what: "the Secret with values is deleted, and its source",
            path: format!("/api/v1/namespaces/{namespace}/secrets/one-metrics-package"),
            spoil: None,
            reason: "ValuesNotFound",
            names: format!("Secret {namespace}/one-metrics-package"),
        },
    ]
}
