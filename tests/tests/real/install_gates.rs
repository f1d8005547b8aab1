//! Installations with gates only, by the commands of docs/install.md and docs/gates.md: the same objects in each way, the rights of Sluice
//! and of authors, and what the chart refuses.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, PostParams};
use serde_json::json;
use sluice_tests::install::{Guide, Installed, Object, Site};
use sluice_tests::requests::apply::documents;
use sluice_tests::stack::StackCore;
use sluice_tests::wait;

use crate::install::{are_the_same, comes_and_goes, install, run};

/// Ways of installing, each by commands without namespace `tkg-system`.
const WAYS: [&str; 3] = ["kubectl gates only", "helm gates only", "clusterctl gates only"];

/// Kinds of Sluice that are left.
const DEFINITIONS: [&str; 2] = [
    "clusterupgrades.lifecycle.sluice.dev",
    "upgradegates.lifecycle.sluice.dev",
];

/// The one webhook that is left.
const WEBHOOKS: [&str; 1] = ["sluice-gates"];

/// Words of what packages need.
const OF_PACKAGES: [&str; 5] = ["tanzu", "vmware", "carvel", "k14s", "tkg-system"];

/// Until the controller manager has collected the rules of an aggregated role.
const AGGREGATED: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn gates_only_is_the_same_in_each_way() -> Result<()> {
    let core = StackCore::start("gates-only").await?;
    let guide = Guide::read()?;
    let sites = try_join_all(WAYS.map(async |way| install(&core, &guide, way, &[], &[way]).await)).await?;
    are_the_same(&sites)?;
    for installation in &sites {
        let rendered = "kubectl kustomize manifests/overlays/gates-only";
        let rendered = installation.site.shell().run(rendered, &[]).await?.well()?;
        let shipped: Vec<Object> = documents(&rendered)?.iter().map(Object::of).collect();
        for object in &shipped {
            ensure!(
                installation.installed.objects().any(|found| found == object),
                "{} does not install {object}",
                installation.way
            );
        }
        has_nothing_of_packages(&installation.installed).with_context(|| installation.way)?;
    }
    try_join_all(sites.iter().map(async |installation| {
        let (upgrade, uninstall) = match installation.way {
            "helm gates only" => ("upgrade helm", "uninstall helm"),
            way => (way, "uninstall kubectl"),
        };
        let gone = comes_and_goes(installation, &guide, upgrade, uninstall).await;
        gone.with_context(|| format!("with {}", installation.way))
    }))
    .await?;
    core.directory().close().await
}

/// Neither a definition nor a webhook nor a rule is for packages.
fn has_nothing_of_packages(installed: &Installed) -> Result<()> {
    let (mut definitions, mut webhooks) = (Vec::new(), Vec::new());
    for (object, content) in installed.contents() {
        if object.kind.ends_with("WebhookConfiguration") {
            webhooks.push(object.name.as_str());
        }
        let text = if object.kind == "CustomResourceDefinition" {
            definitions.push(object.name.as_str());
            object.to_string()
        } else {
            format!("{object} {content}")
        };
        for word in OF_PACKAGES {
            ensure!(!text.contains(word), "{word} is in {text}");
        }
    }
    ensure!(definitions == DEFINITIONS, "{definitions:?} are defined");
    ensure!(webhooks == WEBHOOKS, "{webhooks:?} are the webhooks");
    Ok(())
}

/// API group of gates.
const LIFECYCLE: &str = "lifecycle.sluice.dev";

/// Verbs, API group and resource, and whether Sluice has these rights before it may read further kinds.
const RIGHTS: [(&[&str], &str, &str, bool); 18] = [
    (&["get"], "", "secrets", true),
    (
        &["list", "watch", "create", "update", "patch", "delete"],
        "",
        "secrets",
        false,
    ),
    (&["get", "list", "watch"], LIFECYCLE, "upgradegates", true),
    (
        &["create", "update", "patch", "delete"],
        LIFECYCLE,
        "upgradegates",
        false,
    ),
    (
        &["get", "list", "watch", "create", "delete"],
        LIFECYCLE,
        "clusterupgrades",
        true,
    ),
    (&["update", "patch"], LIFECYCLE, "clusterupgrades", false),
    (&["update"], LIFECYCLE, "clusterupgrades/status", true),
    (
        &["get", "list", "watch"],
        "cluster.x-k8s.io",
        "machinedeployments",
        true,
    ),
    (
        &["create", "update", "patch", "delete"],
        "cluster.x-k8s.io",
        "clusters",
        false,
    ),
    (&["update", "patch"], "cluster.x-k8s.io", "clusters/status", false),
    // Overrides are for packages alone.
    (&["get", "list", "watch"], LIFECYCLE, "upgradeoverrides", false),
    (
        &["get"],
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        false,
    ),
    (&["create"], "authorization.k8s.io", "subjectaccessreviews", true),
    (&["create"], "authentication.k8s.io", "tokenreviews", false),
    (&["get"], "run.tanzu.vmware.com", "clusterbootstraps", false),
    (
        &["get", "list"],
        "addons.cluster.x-k8s.io",
        "helmchartproxies",
        false,
    ),
    (&["get"], "apps", "deployments", false),
    (&["get"], "helm.toolkit.fluxcd.io", "helmreleases", false),
];

/// Kinds of Flux, with their API groups, that Sluice may read if an operator wants it.
const OF_FLUX: [(&str, &str); 6] = [
    ("helm.toolkit.fluxcd.io", "helmreleases"),
    ("kustomize.toolkit.fluxcd.io", "kustomizations"),
    ("source.toolkit.fluxcd.io", "buckets"),
    ("source.toolkit.fluxcd.io", "externalartifacts"),
    ("source.toolkit.fluxcd.io", "gitrepositories"),
    ("source.toolkit.fluxcd.io", "ocirepositories"),
];

/// Has gates check kinds of Flux beside those of CAAPH.
const WITH_FLUX: &str = "helm upgrade sluice manifests/chart --namespace sluice-system --reset-then-reuse-values \
     --set 'gates.reads={caaph,flux}'";

/// The account of Sluice.
const SLUICE: &str = "system:serviceaccount:sluice-system:sluice";

/// User `editor` with ClusterRole `edit` in namespace `default`.
const EDITOR: &str = "kubectl create rolebinding editor --namespace default --clusterrole=edit --user=editor";

/// A ClusterBootstrap of an installation with packages.
const BOOTSTRAP: &str = "
kubectl apply -k crds
kubectl wait --for=condition=Established --timeout=1m crd/clusterbootstraps.run.tanzu.vmware.com
kubectl create --filename - <<END
apiVersion: run.tanzu.vmware.com/v1alpha3
kind: ClusterBootstrap
metadata: {name: one, namespace: default}
spec: {}
END
";

/// Switches gates off.
const WITHOUT_GATES: &str = "helm upgrade sluice manifests/chart --namespace sluice-system --reset-then-reuse-values \
     --set packages.enabled=true,gates.enabled=false";

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_few_and_gates_are_not_switched_off_while_they_hold() -> Result<()> {
    let core = StackCore::start("gates-page").await?;
    let site = Site::prepare(&core, "gates-page").await?;
    run(&site, &Guide::read()?, "helm gates only").await?;
    for (verbs, group, resource, expected) in RIGHTS {
        for verb in verbs {
            let allowed = may(&site, SLUICE, verb, (group, resource)).await?;
            ensure!(
                allowed == expected,
                "{verb} {resource} of group {group:?}: {allowed}, not {expected}"
            );
        }
    }

    let page = Guide::page("docs/gates.md")?;
    run(&site, &page, "install gates only").await?;
    for (verb, resource) in [("get", "helmchartproxies"), ("list", "helmreleaseproxies")] {
        becomes_allowed(&site, SLUICE, verb, ("addons.cluster.x-k8s.io", resource)).await?;
    }
    let allowed = may(&site, SLUICE, "get", ("apps", "deployments")).await?;
    ensure!(!allowed, "Sluice may read Deployments before it was asked for");
    run(&site, &page, "read workloads").await?;
    becomes_allowed(&site, SLUICE, "get", ("apps", "deployments")).await?;
    reads_flux(&site).await?;
    authors(&site, &page).await?;

    // The commands of the page.
    without_a_review(&site, &page).await?;
    let said = site
        .shell()
        .run(&page.commands("enforce the gate")?, &NAMESPACE)
        .await?;
    said.well().map(drop).context("enforce the gate")?;
    let said = site.shell().run(&page.commands("see gates")?, &NAMESPACE).await?;
    let columns = said.well()?;
    ensure!(
        columns.contains("HOLDING") && columns.contains("Enforce"),
        "{columns}"
    );

    refusals(&site, &page).await?;
    core.directory().close().await
}

/// The namespace of gates, as a variable of the commands.
const NAMESPACE: [(&str, &str); 1] = [("NAMESPACE", "default")];

/// Sluice reads kinds of Flux one by one, once it may.
async fn reads_flux(site: &Site) -> Result<()> {
    site.shell().run(WITH_FLUX, &[]).await?.well()?;
    for of in OF_FLUX {
        becomes_allowed(site, SLUICE, "get", of).await?;
        for verb in ["list", "watch", "patch"] {
            let allowed = may(site, SLUICE, verb, of).await?;
            ensure!(!allowed, "Sluice may {verb} {}", of.1);
        }
    }
    Ok(())
}

/// No replica runs, so the API server stores no gate while the webhook is registered.
async fn without_a_review(site: &Site, page: &Guide) -> Result<()> {
    let apply = page.commands("apply the gate")?;
    let said = site.shell().run(&apply, &NAMESPACE).await?;
    said.refused("failed calling webhook \"upgradegate.validating.lifecycle.sluice.dev\"")?;
    let delete = "kubectl delete validatingwebhookconfiguration sluice-gates";
    site.shell().run(delete, &[]).await?.well()?;
    wait::until("a gate to be stored without a review", AGGREGATED, || async {
        site.shell().run(&apply, &NAMESPACE).await?.well()?;
        Ok(())
    })
    .await?;
    Ok(())
}

/// Authors write gates and no records. The role is not part of `edit`.
async fn authors(site: &Site, page: &Guide) -> Result<()> {
    let of_author = [NAMESPACE[0], ("AUTHOR", "author")];
    let said = site
        .shell()
        .run(&page.commands("let the author read")?, &of_author)
        .await?;
    said.well().map(drop).context("let the author read")?;
    site.shell().run(EDITOR, &[]).await?.well()?;
    let proxies = ("addons.cluster.x-k8s.io", "helmchartproxies");
    becomes_allowed(site, "author", "get", proxies).await?;
    for (verb, resource) in [
        ("create", "upgradegates"),
        ("delete", "upgradegates"),
        ("read-workload", "upgradegates"),
        ("watch", "clusterupgrades"),
    ] {
        becomes_allowed(site, "author", verb, (LIFECYCLE, resource)).await?;
    }
    becomes_allowed(site, "editor", "create", ("", "configmaps")).await?;
    for (user, verb, resource) in [
        ("author", "update", "upgradegates/status"),
        ("author", "update", "clusterupgrades/status"),
        ("author", "delete", "clusterupgrades"),
        ("editor", "create", "upgradegates"),
        ("editor", "create", "upgradeoverrides"),
        ("author", "create", "upgradeoverrides"),
        ("editor", "read-workload", "upgradegates"),
        ("editor", "update", "clusterupgrades/status"),
    ] {
        let allowed = may(site, user, verb, (LIFECYCLE, resource)).await?;
        ensure!(!allowed, "{user} may {verb} {resource}");
    }
    Ok(())
}

/// The chart refuses to switch off what holds upgrades, and docs/install.md has the way out.
async fn refusals(site: &Site, page: &Guide) -> Result<()> {
    let guide = Guide::read()?;
    let shell = site.shell();
    shell.run(BOOTSTRAP, &[]).await?.well()?;
    let install = page.commands("install gates only")?;
    for (commands, text, rest, delete) in [
        (
            install.as_str(),
            "but there is ClusterBootstrap",
            "default/one",
            "kubectl delete clusterbootstrap --namespace default one",
        ),
        (
            WITHOUT_GATES,
            "but there is UpgradeGate",
            "default/cni",
            "kubectl delete upgradegate --namespace default cni",
        ),
    ] {
        ensure!(guide.says(text), "docs/install.md does not name {text:?}");
        let said = shell.run(commands, &[]).await?;
        said.refused(&format!("{text} {rest}"))?;
        shell.run(delete, &[]).await?.well()?;
    }
    shell.run(&install, &[]).await?.well().map(drop)
}

/// Whether a user may do this in namespace `default`. The resource is `resource` or `resource/subresource`.
async fn may(site: &Site, user: &str, verb: &str, (group, resource): (&str, &str)) -> Result<bool> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": user,
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": "default",
            },
        },
    }))?;
    let reviews = Api::<SubjectAccessReview>::all(site.client());
    let reviewed = reviews.create(&PostParams::default(), &review).await;
    let reviewed = reviewed.with_context(|| format!("ask whether {user} may {verb} {resource}"))?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}

/// Waits until a user may do this.
pub(crate) async fn becomes_allowed(site: &Site, user: &str, verb: &str, of: (&str, &str)) -> Result<()> {
    let what = format!("{user} to be allowed to {verb} {}", of.1);
    wait::until(what, AGGREGATED, || async {
        if may(site, user, verb, of).await? {
            Ok(())
        } else {
            wait::not_yet("not allowed")
        }
    })
    .await?;
    Ok(())
}
