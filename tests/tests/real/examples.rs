//! The manifests of `examples/` against the definitions of their kinds, by a server-side dry run.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::install::{OF_EXAMPLES, Site};
use sluice_tests::objects::definition;
use sluice_tests::requests::apply::{apply_crds, documents};
use sluice_tests::scenario::sluice_definitions;
use sluice_tests::stack::StackCore;

const DRY_RUN: &str = "kubectl apply --server-side --dry-run=server --validate=strict";

/// Groups of kinds that depend on the provider.
const OF_PROVIDERS: [&str; 4] = [
    "infrastructure.cluster.x-k8s.io",
    "controlplane.cluster.x-k8s.io",
    "bootstrap.cluster.x-k8s.io",
    "harness.test",
];

#[tokio::test(flavor = "multi_thread")]
async fn examples_match_the_definitions_of_their_kinds() -> Result<()> {
    let core = StackCore::start("examples").await?;
    let site = Site::prepare(&core, "examples").await?;
    site.define(&OF_EXAMPLES).await?;
    let mut others = sluice_definitions()?;
    // The real ones are served by kapp-controller.
    for kind in ["Package", "PackageMetadata"] {
        let open = definition::open("data.packaging.carvel.dev", kind, "v1alpha1", &json!({}));
        others.push(open);
    }
    apply_crds(&site.client(), &others).await?;
    for namespace in ["tkg-system", "flux-system", "argocd"] {
        run(&site, &format!("kubectl create namespace {namespace}")).await?;
    }
    for directory in [
        "docker",
        "release",
        "bootstrap/partial",
        "bootstrap/values",
        "gitops/flux",
        "gitops/argocd",
    ] {
        run(&site, &format!("{DRY_RUN} -k examples/{directory}")).await?;
    }
    for files in ["gate.yaml", "gates", "override.yaml"] {
        run(&site, &format!("{DRY_RUN} --filename examples/{files}")).await?;
    }

    // Each definition is strict.
    for (directory, field) in [
        ("docker", "certSANs"),
        ("docker", "osImages"),
        ("bootstrap/partial", "inline"),
        ("gitops/flux", "sourceRef"),
        ("gitops/argocd", "syncOptions"),
    ] {
        let misspelt = format!(
            "kubectl kustomize examples/{directory} | sed s/{field}/{field}x/ | {DRY_RUN} --filename -"
        );
        let said = site.shell().run(&misspelt, &[]).await?;
        said.refused(&format!("{field}x"))
            .with_context(|| directory.to_owned())?;
    }
    let misspelt = format!("sed s/versionKey/versionKeyx/ examples/gate.yaml | {DRY_RUN} --filename -");
    site.shell().run(&misspelt, &[]).await?.refused("versionKeyx")?;
    only_providers_differ(&site).await?;
    synced(&site).await?;
    core.directory().close().await
}

/// The directory that Flux and Argo CD apply: all of its objects go to one namespace, which both name.
async fn synced(site: &Site) -> Result<()> {
    let directory = site.shell().home().join("edge-1");
    std::fs::create_dir_all(&directory)?;
    let directory = directory.display();
    for (from, file) in [("cluster", "cluster"), ("bootstrap/partial", "clusterbootstrap")] {
        let rendered = format!("kubectl kustomize examples/{from} > {directory}/{file}.yaml");
        run(site, &rendered).await?;
    }
    for (tool, kind, field) in [
        ("flux", "Kustomization", "/spec/targetNamespace"),
        ("argocd", "Application", "/spec/destination/namespace"),
    ] {
        let objects = documents(&run(site, &format!("kubectl kustomize examples/gitops/{tool}")).await?)?;
        let object = objects.iter().find(|object| object["kind"] == kind);
        let namespace = object.and_then(|object| object.pointer(field)?.as_str());
        let namespace = namespace.with_context(|| format!("{kind} without {field}"))?;
        run(
            site,
            &format!("{DRY_RUN} --namespace {namespace} --filename {directory}"),
        )
        .await?;
    }
    Ok(())
}

/// `demo` and `docker` have the same objects except those of their providers, to which their ClusterClasses refer.
async fn only_providers_differ(site: &Site) -> Result<()> {
    let (demo, docker) = (shared(site, "demo").await?, shared(site, "docker").await?);
    ensure!(demo.len() > 10, "only {} objects", demo.len());
    for (name, object) in &demo {
        ensure!(
            docker.get(name) == Some(object),
            "{name} of demo differs from that of docker"
        );
    }
    ensure!(demo.len() == docker.len(), "docker has other objects than demo");
    Ok(())
}

/// Objects of an example by kind and name, without those of providers.
async fn shared(site: &Site, directory: &str) -> Result<BTreeMap<String, Value>> {
    let rendered = run(site, &format!("kubectl kustomize examples/{directory}")).await?;
    let mut shared = BTreeMap::new();
    for mut object in documents(&rendered)? {
        let version = object["apiVersion"]
            .as_str()
            .context("an object without version")?;
        let group = version.split('/').next().unwrap_or_default();
        if OF_PROVIDERS.contains(&group) {
            continue;
        }
        if object["kind"] == "ClusterClass" {
            let spec = object["spec"].as_object_mut().context("a class without spec")?;
            let mut workers = spec.remove("workers").unwrap_or_default();
            for class in workers["machineDeployments"].as_array_mut().into_iter().flatten() {
                class["bootstrap"].take();
                class["infrastructure"].take();
            }
            spec.insert("workers".to_owned(), workers);
            spec.remove("infrastructure");
            spec.remove("controlPlane");
        }
        shared.insert(
            format!("{} {}", object["kind"], object["metadata"]["name"]),
            object,
        );
    }
    Ok(shared)
}

async fn run(site: &Site, command: &str) -> Result<String> {
    let said = site.shell().run(command, &[]).await?;
    said.well().with_context(|| command.to_owned())
}
