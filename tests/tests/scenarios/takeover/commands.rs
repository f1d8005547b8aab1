//! The commands of docs/migrating.md, run as they stand there. No kubectl is built for the harness: what kubectl does with them is one
//! request each, and that is made here. A command of another form is an error.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::scenario::Scene;

const PAGE: &str = include_str!("../../../../docs/migrating.md");

/// Where the objects of a kind are, by the name that kubectl takes.
const KINDS: &[(&str, &str)] = &[
    (
        "customresourcedefinition",
        "apiextensions.k8s.io/v1 customresourcedefinitions",
    ),
    ("packageinstall", "packaging.carvel.dev/v1alpha1 packageinstalls"),
    ("deployment", "apps/v1 deployments"),
    ("configmap", "v1 configmaps"),
    (
        "mutatingwebhookconfigurations",
        "admissionregistration.k8s.io/v1 mutatingwebhookconfigurations",
    ),
    (
        "validatingwebhookconfigurations",
        "admissionregistration.k8s.io/v1 validatingwebhookconfigurations",
    ),
    (
        "extensionconfigs",
        "runtime.cluster.x-k8s.io/v1beta2 extensionconfigs",
    ),
    (
        "clusterbootstraps",
        "run.tanzu.vmware.com/v1alpha3 clusterbootstraps",
    ),
    ("clusters", "cluster.x-k8s.io/v1beta2 clusters"),
    ("machines", "cluster.x-k8s.io/v1beta2 machines"),
];

/// The commands below a heading of the page, up to the next one.
pub(super) fn below(heading: &str) -> Result<Vec<String>> {
    let title = format!("## {heading}\n");
    let (_, rest) = PAGE
        .split_once(&title)
        .with_context(|| format!("no heading {heading:?}"))?;
    let section = rest.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let commands: Vec<String> = lines.map(str::to_owned).collect();
    ensure!(!commands.is_empty(), "no commands below {heading:?}");
    Ok(commands)
}

/// Runs the commands below a heading, one after the other.
pub(super) async fn run(scene: &Scene, heading: &str) -> Result<()> {
    for command in below(heading)? {
        one(scene, &command)
            .await
            .with_context(|| format!("run {command:?}"))?;
    }
    Ok(())
}

async fn one(scene: &Scene, command: &str) -> Result<()> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (namespace, words) = match words.as_slice() {
        ["kubectl", "-n", namespace, rest @ ..] => (Some(*namespace), rest),
        ["kubectl", rest @ ..] => (None, rest),
        _ => bail!("not a command of kubectl"),
    };
    let objects = scene.objects();
    match words {
        ["get", kind, "-A"] => {
            let found = objects.get(&path(kind, None, None)?).await?;
            found.map(drop).context("the kind is not served")
        }
        ["get", kind, name, "-o", "jsonpath='{.status.storedVersions}'"] => {
            let found = objects.get(&path(kind, namespace, Some(name))?).await?;
            let stored = found.context("there is no such definition")?["status"]["storedVersions"].take();
            ensure!(stored == json!(["v1alpha3"]), "{name} has stored {stored}");
            Ok(())
        }
        ["patch", kind, name, "--type", "merge", "-p", patch] => {
            let patch: Value = serde_json::from_str(patch.trim_matches('\'')).context("read the patch")?;
            objects.merge(&path(kind, namespace, Some(name))?, &patch).await
        }
        ["scale", kind, name, replicas] => {
            let replicas: u32 = replicas
                .strip_prefix("--replicas=")
                .context("no --replicas")?
                .parse()?;
            let path = format!("{}/scale", path(kind, namespace, Some(name))?);
            objects
                .merge(&path, &json!({"spec": {"replicas": replicas}}))
                .await
        }
        ["annotate", kind, name, change] => {
            let annotation = match (change.split_once('='), change.strip_suffix('-')) {
                (Some((key, value)), _) => json!({key: value}),
                (None, Some(key)) => json!({key: null}),
                (None, None) => bail!("neither <key>=<value> nor <key>-"),
            };
            let change = json!({"metadata": {"annotations": annotation}});
            objects.merge(&path(kind, namespace, Some(name))?, &change).await
        }
        ["delete", kind, "-l", label] => {
            let selector = label.replace('/', "%2F").replace('=', "%3D");
            let listed = format!("{}?labelSelector={selector}", path(kind, namespace, None)?);
            let listed = objects.get(&listed).await?.context("the kind is not served")?;
            for item in listed["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str();
                objects.delete(&path(kind, namespace, name)?).await?;
            }
            Ok(())
        }
        ["delete", kind, name, "--ignore-not-found"] => {
            let path = path(kind, namespace, Some(name))?;
            match objects.get(&path).await? {
                Some(_) => objects.delete(&path).await,
                None => Ok(()),
            }
        }
        _ => bail!("a command of a form that is not known"),
    }
}

/// The path of an object, or of all of its kind.
fn path(kind: &str, namespace: Option<&str>, name: Option<&str>) -> Result<String> {
    let mut known = KINDS.iter().filter(|(short, _)| *short == kind);
    let (_, served) = known.next().with_context(|| format!("kind {kind}"))?;
    let (group, plural) = served.split_once(' ').context("a kind of this file")?;
    let namespace = namespace
        .map(|namespace| format!("/namespaces/{namespace}"))
        .unwrap_or_default();
    let name = name.map(|name| format!("/{name}")).unwrap_or_default();
    let root = if group.contains('/') { "apis" } else { "api" };
    Ok(format!("/{root}/{group}{namespace}/{plural}{name}"))
}

/// The path of an object of one of the kinds that kubectl names in the singular.
pub(super) fn path_of(object: &Value) -> Result<String> {
    let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let (namespace, name) = (field(&metadata["namespace"]), field(&metadata["name"]));
    path(
        &field(&object["kind"]).to_lowercase(),
        Some(&namespace),
        Some(&name),
    )
}
