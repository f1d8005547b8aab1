//! The ways of installing, by the commands of docs/install.md: they give the same objects, and leave nothing but definitions.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde_json::Value;
use sluice_tests::install::{Guide, Installed, Object, Shell, Site};
use sluice_tests::requests::apply::documents;
use sluice_tests::sources::root;
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
    let sites = try_join_all(WAYS.map(async |way| {
        let monitoring = match way {
            "helm" => "monitoring helm",
            _ => "monitoring",
        };
        install(&core, &guide, way, &["prepare"], &[way, monitoring]).await
    }))
    .await?;
    let [first, ..] = &sites[..] else {
        anyhow::bail!("no way to install")
    };
    let found: BTreeSet<&Object> = first.installed.objects().collect();
    let shipped = shipped(&first.site).await?;
    let shipped: BTreeSet<&Object> = shipped.iter().collect();
    ensure!(
        found == shipped,
        "installed but not shipped: {:?}; shipped but not installed: {:?}",
        found.difference(&shipped).collect::<Vec<_>>(),
        shipped.difference(&found).collect::<Vec<_>>()
    );
    are_the_same(&sites)?;
    try_join_all(sites.iter().map(async |installation| {
        let (upgrade, uninstall) = match installation.way {
            "kubectl" => ("upgrade kubectl", "uninstall kubectl"),
            "helm" => ("upgrade helm", "uninstall helm"),
            _ => ("clusterctl", "uninstall kubectl"),
        };
        let gone = comes_and_goes(installation, &guide, upgrade, uninstall).await;
        gone.with_context(|| format!("with {}", installation.way))
    }))
    .await?;
    core.directory().close().await
}

/// What one way has given.
pub(crate) struct Installation {
    /// The commands that have installed it.
    pub(crate) way: &'static str,
    /// Where it is installed.
    pub(crate) site: Site,
    /// From before.
    before: Installed,
    /// All of its objects.
    pub(crate) installed: Installed,
}

impl Installation {
    async fn now(&self) -> Result<Installed> {
        Installed::read(&self.site.client()).await?.since(&self.before)
    }
}

/// Runs these commands of the guide in a new management cluster: `before` its objects are compared, and `then`.
pub(crate) async fn install(
    core: &Arc<StackCore>,
    guide: &Guide,
    way: &'static str,
    before: &[&str],
    then: &[&str],
) -> Result<Installation> {
    let site = Site::prepare(core, &way.replace(' ', "-")).await?;
    for commands in before {
        run(&site, guide, commands).await?;
    }
    let before = Installed::read(&site.client()).await?;
    for commands in then {
        run(&site, guide, commands).await?;
    }
    let installed = Installed::read(&site.client()).await?.since(&before)?;
    Ok(Installation {
        way,
        site,
        before,
        installed,
    })
}

/// All ways have given the same objects.
pub(crate) fn are_the_same(installations: &[Installation]) -> Result<()> {
    let [first, others @ ..] = installations else {
        anyhow::bail!("no way to install")
    };
    for other in others {
        let differences = first.installed.differences(&other.installed);
        ensure!(
            differences.is_empty(),
            "{} (first) and {} (second) install other objects:\n  {}\n{ADVICE}",
            first.way,
            other.way,
            differences.join("\n  ")
        );
    }
    Ok(())
}

/// The objects of `manifests/base` and `manifests/alerts`.
async fn shipped(site: &Site) -> Result<Vec<Object>> {
    let commands = "kubectl kustomize manifests/alerts";
    let alerts = site.shell().run(commands, &[]).await?.well()?;
    let alerts = documents(&alerts)?;
    Ok(Base::read()?
        .objects()
        .iter()
        .chain(&alerts)
        .map(Object::of)
        .collect())
}

/// Upgrades to the same version, then uninstalls.
pub(crate) async fn comes_and_goes(
    installation: &Installation,
    guide: &Guide,
    upgrade: &str,
    uninstall: &str,
) -> Result<()> {
    let Installation {
        way, site, installed, ..
    } = installation;
    run(site, guide, upgrade).await?;
    let differences = installed.differences(&installation.now().await?);
    ensure!(differences.is_empty(), "{upgrade}: {differences:?}");

    for commands in ["look again", "unregister", uninstall] {
        run(site, guide, commands).await?;
    }
    let is_definition = |object: &&Object| object.kind == "CustomResourceDefinition";
    let shipped: Vec<&Object> = installed.objects().filter(is_definition).collect();
    let left = installation.now().await?;
    let left: Vec<&Object> = left
        .objects()
        // Helm leaves the namespace that it was given.
        .filter(|object| object.kind != "Namespace" || !way.starts_with("helm"))
        .collect();
    ensure!(
        left == shipped,
        "all but the definitions goes, with which their objects would be deleted; left are {left:?}"
    );
    let commands = guide.commands("delete the definitions")?;
    site.delete_definitions(&commands).await?;
    let left = installation.now().await?;
    let definition = left.objects().find(is_definition);
    ensure!(definition.is_none(), "{definition:?} is left");
    Ok(())
}

/// Runs commands of the guide, which succeed.
pub(crate) async fn run(site: &Site, guide: &Guide, commands: &str) -> Result<()> {
    let said = site.shell().run(&guide.commands(commands)?, &[]).await?;
    said.well().map(drop).with_context(|| commands.to_owned())
}

/// Overlays, the equivalent chart values, and additional objects of the overlay.
const OVERLAYS: [(&str, &str, &[&str]); 3] = [
    ("status", "statusService.enabled=true", &[]),
    (
        "admission-client-ca",
        "webhooks.clientCAConfigMap=sluice-admission-client-ca",
        &[],
    ),
    (
        "secret-namespaces",
        "secretNamespaces={team-a,team-b}",
        // Without subjects.
        &["ClusterRoleBinding sluice-secrets is only in the first"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn overlays_give_the_objects_of_the_chart() -> Result<()> {
    let core = StackCore::start("overlays").await?;
    let guide = Guide::read()?;
    let sites = try_join_all(["overlays", "values"].map(async |name| {
        let site = Site::prepare(&core, name).await?;
        run(&site, &guide, "prepare").await?;
        let namespaces = "for team in a b; do kubectl create namespace team-$team; done";
        site.shell().run(namespaces, &[]).await?.well()?;
        let before = Installed::read(&site.client()).await?;
        anyhow::Ok((site, before))
    }))
    .await?;
    let [(overlays, before_overlays), (values, before_values)] = &sites[..] else {
        anyhow::bail!("not two management clusters")
    };
    run(values, &guide, "helm").await?;
    for (overlay, chosen, beside) in OVERLAYS {
        let apply = format!("kubectl apply -k manifests/overlays/{overlay}");
        overlays.shell().run(&apply, &[]).await?.well()?;
        let upgrade = format!(
            "helm upgrade sluice manifests/chart --namespace sluice-system --reset-values --set '{chosen}'"
        );
        values.shell().run(&upgrade, &[]).await?.well()?;
        let installed = Installed::read(&overlays.client())
            .await?
            .since(before_overlays)?;
        let other = Installed::read(&values.client()).await?.since(before_values)?;
        let differences = installed.differences(&other);
        ensure!(
            differences == beside,
            "overlay {overlay} (first) and {chosen} (second) install other objects:\n  {}",
            differences.join("\n  ")
        );
        if overlay == "secret-namespaces" {
            let binding = overlays
                .shell()
                .run(
                    "kubectl get clusterrolebinding sluice-secrets --output jsonpath='{.subjects}'",
                    &[],
                )
                .await?
                .well()?;
            ensure!(binding.is_empty(), "it binds {binding}");
        }
    }
    core.directory().close().await
}

/// An installation with most values other than shipped.
const CHOSEN: &str = "
kubectl create namespace addons
kubectl create namespace releases
kubectl create namespace team-a
helm install sluice manifests/chart --namespace addons --set-file certificates.caBundle=\"$HOME/ca.crt\" \\
  --set certificates.source=given,certificates.secretName=my-certificate,systemNamespace=releases,replicas=3 \\
  --set listenAddress=0.0.0.0,remoteProxySecret=my-proxy,caBundleConfigMap=my-authorities \\
  --set extensionConfig.profile=capi-1.11,extensionConfig.name=other,statusService.enabled=true \\
  --set 'secretNamespaces={team-a},extensionConfig.namespaces={team-a,team-b},flags.sync-period=5m' \\
  --set monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true
";

/// Listeners on an IPv6 address.
const OVER_IPV6: &str =
    "helm template sluice manifests/chart --set listenAddress=::,statusService.enabled=true";

/// The same with a selector that no namespace has.
const SELECTED: &str = "
helm upgrade sluice manifests/chart --namespace addons --reset-then-reuse-values \\
  --set extensionConfig.namespaces=null,extensionConfig.namespaceSelector.matchLabels.sluice=yes,webhooks.enabled=false
";

#[tokio::test(flavor = "multi_thread")]
async fn chosen_parts_are_installed_and_missing_ones_are_reported() -> Result<()> {
    let core = StackCore::start("chosen").await?;
    let site = Site::prepare(&core, "chosen").await?;
    let before = Installed::read(&site.client()).await?;
    fs::write(site.shell().home().join("ca.crt"), site.authority())?;

    let notes = site.shell().run(CHOSEN, &[]).await?.well()?;
    for warning in [
        "extensionConfig.namespaces has \"team-b\", and there is no such namespace",
        "there is no Secret addons/my-certificate",
        "there is no Secret addons/my-proxy (remoteProxySecret)",
        "there is no ConfigMap addons/my-authorities (caBundleConfigMap)",
        "kubectl label namespace addons pod-security.kubernetes.io/enforce=restricted",
    ] {
        ensure!(notes.contains(warning), "{warning:?} is not in {notes}");
    }
    ensure!(
        !notes.contains("\"team-a\""),
        "a namespace that is there is warned of: {notes}"
    );
    let installed = Installed::read(&site.client()).await?.since(&before)?;
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
        "--webhook-host=0.0.0.0",
        "--health-addr=0.0.0.0:9440",
        "\"0.0.0.0:9445\"",
        "RoleBinding team-a/sluice-secrets",
        "my-certificate",
        "\"SLUICE_REMOTE_PROXY\"",
        "\"my-proxy\"",
        "\"/etc/sluice/ca-bundle/ca.crt\"",
        "\"my-authorities\"",
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

    let rendered = site.shell().run(OVER_IPV6, &[]).await?.well()?;
    for flag in [
        "\"--webhook-host=::\"",
        "\"--health-addr=[::]:9440\"",
        "\"[::]:9445\"",
    ] {
        ensure!(rendered.contains(flag), "{flag} is not in {rendered}");
    }

    let notes = site.shell().run(SELECTED, &[]).await?.well()?;
    for warning in [
        "no namespace has the labels",
        "Nothing is reviewed",
        "Authors of UpgradeGates need no permission",
    ] {
        ensure!(notes.contains(warning), "{warning:?} is not in {notes}");
    }
    let labelled = format!("kubectl label namespace team-a sluice=yes\n{SELECTED}");
    let notes = site.shell().run(&labelled, &[]).await?.well()?;
    ensure!(!notes.contains("no namespace has the labels"), "{notes}");
    core.directory().close().await
}

/// Invalid values, the error message of each, and a valid value.
const WRONG: [(&str, &str); 22] = [
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
    ("flags.webhook-host=0.0.0.0", "by listenAddress"),
    ("flags.health-addr=:9440", "by listenAddress"),
    ("listenAddress=:9440", "/listenAddress"),
    (
        "remoteProxySecret=a,flags.remote-proxy=http://b",
        "by remoteProxySecret",
    ),
    ("caBundleConfigMap=1", "/caBundleConfigMap"),
    ("packages.enabled=false,gates.enabled=false", "/gates/enabled"),
    ("packages.enabled=no", "/packages/enabled"),
    ("gates.reads={flux,argo}", "/gates/reads/1"),
    ("flags.packages=false", "by packages.enabled"),
    (
        "packages.enabled=false,statusService.enabled=true",
        "the status service reports packages",
    ),
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

/// The chart as tools deliver it: a path below the home directory, and the commands that create it.
const DELIVERED: [(&str, &str); 4] = [
    (
        "archive/sluice-*.tgz",
        "mkdir \"$HOME/archive\"; helm package manifests/chart --destination \"$HOME/archive\"",
    ),
    // Flux.
    (
        "without-links",
        "cp -RP manifests/chart \"$HOME/without-links\"; find \"$HOME/without-links\" -type l -delete",
    ),
    // Git on Windows.
    (
        "links-as-text",
        "cp -RP manifests/chart \"$HOME/links-as-text\"
         find \"$HOME/links-as-text\" -type l | while read -r link; do
           target=$(readlink \"$link\"); rm \"$link\"; printf %s \"$target\" > \"$link\"
         done",
    ),
    (
        "line-ends",
        r#"cp -RL manifests/chart "$HOME/line-ends"; find "$HOME/line-ends" -type f -exec sed -i 's/$/\r/' {} +"#,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_chart_renders_all_objects_or_fails() -> Result<()> {
    let core = StackCore::start("delivered").await?;
    let shell = Shell::open(&core, "home", "").await?;
    let checkout = rendered(&shell, "manifests/chart").await?;
    for (path, commands) in DELIVERED {
        let copied = shell.run(commands, &[]).await?.well();
        copied.with_context(|| format!("create {path}"))?;
        let delivered = rendered(&shell, &format!("\"$HOME\"/{path}")).await;
        let delivered = delivered.with_context(|| format!("render {path}"))?;
        let different: Vec<String> = checkout
            .iter()
            .filter(|object| !delivered.contains(object))
            .map(|object| Object::of(object).to_string())
            .collect();
        ensure!(
            delivered == checkout,
            "{path} renders {} objects instead of {}; missing or different are {different:?}",
            delivered.len(),
            checkout.len()
        );
    }

    let index = "index.txt";
    let listed = fs::read_to_string(root().join("manifests/chart/files").join(index))?;
    for file in listed.lines().chain([index]) {
        let commands = format!(
            "rm -rf \"$HOME/part\"; cp -R manifests/chart \"$HOME/part\"; rm \"$HOME/part/files/{file}\"
             helm template sluice \"$HOME/part\""
        );
        let said = shell.run(&commands, &[]).await?;
        said.refused(&format!("file files/{file} is missing in the chart"))?;
    }
    core.directory().close().await
}

/// The objects of a chart with those that are off by default.
async fn rendered(shell: &Shell, chart: &str) -> Result<Vec<Value>> {
    let monitoring = "monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboard=true";
    let commands = format!("helm template sluice {chart} --namespace sluice-system --set {monitoring}");
    let text = shell.run(&commands, &[]).await?.well()?;
    documents(&text.replace('\r', ""))
}
