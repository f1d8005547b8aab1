//! The ways of installing, by the commands of docs/install.md: they give the same objects, and leave nothing but definitions.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::Value;
use sluice_tests::install::{Guide, Installed, Object, Shell, Site};
use sluice_tests::stack::StackCore;
use sluice_tests::stack::manifests::Base;

/// What to do when two ways differ.
const ADVICE: &str = "manifests/base is what all ways install. For Helm: manifests/chart/templates has templates of its own of the files that \
     templates/base.yaml lists, and renders all others as they are. For clusterctl: manifests/clusterctl/kustomization.yaml takes out what is \
     in another namespace than sluice-system, and docs/install.md applies the files that have it";

/// Ways of installing, the first one by the files that all are compared with.
const WAYS: [&str; 3] = ["kubectl", "helm", "clusterctl"];

#[tokio::test(flavor = "multi_thread")]
async fn all_ways_give_the_same_objects() -> Result<()> {
    let core = StackCore::start("install").await?;
    let guide = Guide::read()?;
    let base = Base::read()?;
    let sites = try_join_all(WAYS.map(|way| install(&core, &guide, way))).await?;
    let mut installed = Vec::new();
    for site in &sites {
        installed.push(Installed::read(&site.client(), base.objects()).await?);
    }
    let wanted = base.objects().len();
    let found = installed[0].objects().count();
    ensure!(
        found == wanted,
        "manifests/base has {wanted} objects, and {found} of them were found by their labels: {:?}",
        missing(&base, &installed[0])
    );
    for (way, other) in WAYS.iter().zip(&installed).skip(1) {
        let differences = installed[0].differences(other);
        ensure!(
            differences.is_empty(),
            "kubectl (first) and {way} (second) install other objects:\n  {}\n{ADVICE}",
            differences.join("\n  ")
        );
    }
    let goings = WAYS.iter().zip(sites.iter().zip(&installed));
    try_join_all(goings.map(async |(way, (site, before))| {
        comes_and_goes(way, site, before, &guide, base.objects())
            .await
            .with_context(|| format!("with {way}"))
    }))
    .await?;
    core.directory().close().await
}

async fn install(core: &Arc<StackCore>, guide: &Guide, way: &str) -> Result<Site> {
    let site = Site::prepare(core, way).await?;
    for commands in ["prepare", way] {
        run(&site, guide, commands).await?;
    }
    if way == "kubectl" {
        run(&site, guide, "monitoring").await?;
    }
    Ok(site)
}

fn missing(base: &Base, installed: &Installed) -> Vec<String> {
    let found: Vec<&Object> = installed.objects().collect();
    let name = |object: &Value| {
        let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Object {
            kind: field(&object["kind"]),
            namespace: field(&object["metadata"]["namespace"]),
            name: field(&object["metadata"]["name"]),
        }
    };
    let all = base.objects().iter().map(name);
    all.filter(|object| !found.contains(&object))
        .map(|object| object.to_string())
        .collect()
}

/// Upgrades to the same version, then uninstalls.
async fn comes_and_goes(
    way: &str,
    site: &Site,
    before: &Installed,
    guide: &Guide,
    base: &[Value],
) -> Result<()> {
    let (upgrade, uninstall) = match way {
        "kubectl" => ("upgrade kubectl", "uninstall kubectl"),
        "helm" => ("upgrade helm", "uninstall helm"),
        _ => ("clusterctl", "uninstall kubectl"),
    };
    run(site, guide, upgrade).await?;
    let after = Installed::read(&site.client(), base).await?;
    let differences = before.differences(&after);
    ensure!(differences.is_empty(), "{upgrade}: {differences:?}");

    for commands in ["look again", "unregister", uninstall] {
        run(site, guide, commands).await?;
    }
    let left = Installed::read(&site.client(), base).await?;
    let (definitions, left): (Vec<&Object>, Vec<&Object>) = left
        .objects()
        // Helm leaves the namespace that it was given.
        .filter(|object| object.kind != "Namespace" || way != "helm")
        .partition(|object| object.kind == "CustomResourceDefinition");
    ensure!(left.is_empty(), "it leaves {left:?}");
    let shipped = before
        .objects()
        .filter(|object| object.kind == "CustomResourceDefinition");
    ensure!(
        definitions.len() == shipped.count(),
        "with a definition all its objects are deleted; left are {definitions:?}"
    );
    run(site, guide, "delete the definitions").await
}

async fn run(site: &Site, guide: &Guide, commands: &str) -> Result<()> {
    let said = site.shell().run(&guide.commands(commands)?, &[]).await?;
    said.well().map(drop).with_context(|| commands.to_owned())
}

/// An installation with most values other than shipped.
const CHOSEN: &str = "
kubectl create namespace addons
kubectl create namespace releases
kubectl create namespace team-a
helm install sluice manifests/chart --namespace addons --set-file certificates.caBundle=\"$HOME/ca.crt\" \\
  --set certificates.source=given,certificates.secretName=my-certificate,systemNamespace=releases,replicas=3 \\
  --set extensionConfig.profile=capi-1.11,extensionConfig.name=other,statusService.enabled=true \\
  --set 'secretNamespaces={team-a},extensionConfig.namespaces={team-a,team-b},flags.sync-period=5m' \\
  --set monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true
";

/// The same with a selector that no namespace has.
const SELECTED: &str = "
helm upgrade sluice manifests/chart --namespace addons --reset-then-reuse-values \\
  --set extensionConfig.namespaces=null,extensionConfig.namespaceSelector.matchLabels.sluice=yes,webhooks.enabled=false
";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_chosen_is_installed_and_what_is_missing_is_said() -> Result<()> {
    let core = StackCore::start("chosen").await?;
    let site = Site::prepare(&core, "chosen").await?;
    let base = Base::read()?;
    std::fs::write(site.shell().home().join("ca.crt"), site.authority())?;

    let notes = site.shell().run(CHOSEN, &[]).await?.well()?;
    for warning in [
        "extensionConfig.namespaces has \"team-b\", and there is no such namespace",
        "there is no Secret addons/my-certificate",
        "kubectl label namespace addons pod-security.kubernetes.io/enforce=restricted",
    ] {
        ensure!(notes.contains(warning), "{warning:?} is not in {notes}");
    }
    ensure!(
        !notes.contains("\"team-a\""),
        "a namespace that is there is warned of: {notes}"
    );
    let installed = Installed::read(&site.client(), base.objects()).await?;
    let texts: Vec<String> = installed
        .contents()
        .filter(|(object, _)| object.kind != "CustomResourceDefinition")
        .map(|(object, content)| format!("{object} {content}"))
        .collect();
    for other in ["sluice-system", "tkg-system", "cert-manager"] {
        let named: Vec<&String> = texts.iter().filter(|text| text.contains(other)).collect();
        ensure!(named.is_empty(), "{other} is in {named:?}");
    }
    let all = texts.join("\n");
    for chosen in [
        "/capi-1.11",
        "--extension-config=other",
        "--system-namespace=releases",
        "--sync-period=5m",
        "RoleBinding team-a/sluice-secrets",
        "my-certificate",
        "\"replicas\":3",
    ] {
        ensure!(all.contains(chosen), "{chosen:?} is not in {all}");
    }
    ensure!(!all.contains("ClusterRoleBinding sluice-secrets"), "{all}");
    // Each webhook and the ExtensionConfig.
    let called = all.matches("\"clientConfig\":").count();
    let trusted = all.matches("\"caBundle\":").count();
    ensure!(
        called > 3 && trusted == called,
        "{called} places are called, {trusted} of them with an authority"
    );

    let notes = site.shell().run(SELECTED, &[]).await?.well()?;
    for warning in ["no namespace has the labels", "Nothing is reviewed"] {
        ensure!(notes.contains(warning), "{warning:?} is not in {notes}");
    }
    let labelled = format!("kubectl label namespace team-a sluice=yes\n{SELECTED}");
    let notes = site.shell().run(&labelled, &[]).await?.well()?;
    ensure!(!notes.contains("no namespace has the labels"), "{notes}");
    core.directory().close().await
}

/// Values that are wrong, what is said of each, and what is right of it.
const WRONG: [(&str, &str); 12] = [
    ("replicas=0", "/replicas"),
    ("replicas=two", "/replicas"),
    ("replica=3", "'replica' not allowed"),
    ("image.tags=x", "'tags' not allowed"),
    ("image.digest=sha256:abc", "/image/digest"),
    ("extensionConfig.profile=1.11", "/extensionConfig/profile"),
    ("extensionConfig.namespaces={A}", "/extensionConfig/namespaces/0"),
    (
        "extensionConfig.namespaces={a},extensionConfig.namespaceSelector.matchLabels.a=b",
        "/extensionConfig",
    ),
    ("certificates.source=given", "/certificates/caBundle"),
    ("secretNamespaces={a,a}", "/secretNamespaces"),
    (
        "flags.leader-elect=false",
        "flags.leader-elect: the chart sets this flag",
    ),
    ("flags.status-addr=x", "by statusService.enabled"),
];

#[tokio::test(flavor = "multi_thread")]
async fn wrong_values_are_named() -> Result<()> {
    let core = StackCore::start("values").await?;
    let shell = Shell::open(&core, "home", "").await?;
    for (values, text) in WRONG {
        let commands = format!("helm template sluice manifests/chart --set '{values}'");
        let said = shell.run(&commands, &[]).await?;
        said.refused(text).with_context(|| values.to_owned())?;
    }
    core.directory().close().await
}
