//! The kustomize base and overlay that we ship, as a user would apply them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command;

use crate::install::Tool;
use crate::requests::apply;
use crate::sources::root;

/// Kinds that speak of a pod network or of cert-manager, which this stack does not have: the harness starts the
/// extension as a process with a certificate of its own, and registers it under its address on loopback.
const NEEDS_POD_NETWORK: [&str; 7] = [
    "Deployment",
    "PodDisruptionBudget",
    "Issuer",
    "Certificate",
    "ExtensionConfig",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// The fields of a kustomization that this reader understands. Any other is an error: left out silently, it
/// would have the harness apply something else than a user gets.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: Option<String>,
    #[serde(rename = "kind")]
    _kind: Option<String>,
    resources: Vec<String>,
}

/// Objects of the base, or of an overlay.
#[derive(Debug, Clone)]
pub struct Base {
    objects: Vec<Value>,
}

/// Where the extension runs, by its own manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its namespace.
    pub namespace: String,
    /// Its ServiceAccount.
    pub service_account: String,
}

impl Base {
    /// Reads `manifests/base` of this repository.
    pub fn read() -> Result<Self> {
        Self::read_from(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base"))
    }

    /// Has kustomize render `manifests/overlays/gates-only`, and adds the roles of `manifests/gates`, which let Sluice read what gates name.
    /// The first call on a machine builds kubectl.
    pub async fn gates_only() -> Result<Self> {
        const OVERLAY: &str = "manifests/overlays/gates-only";
        let rendered = Command::new(Tool::Kubectl.built().await?)
            .args(["kustomize", OVERLAY])
            .current_dir(root())
            .kill_on_drop(true)
            .output()
            .await
            .context("start kubectl")?;
        let errors = String::from_utf8_lossy(&rendered.stderr);
        ensure!(rendered.status.success(), "kustomize refuses {OVERLAY}: {errors}");
        let rendered = String::from_utf8(rendered.stdout).context("read the objects of kustomize")?;
        let mut objects = apply::documents(&rendered).with_context(|| format!("read {OVERLAY}"))?;
        let roles = root().join("manifests/gates");
        for entry in fs::read_dir(&roles).with_context(|| format!("list {}", roles.display()))? {
            let path = entry?.path();
            objects
                .extend(apply::documents(&read(&path)?).with_context(|| format!("read {}", path.display()))?);
        }
        Ok(Self { objects })
    }

    fn read_from(directory: &Path) -> Result<Self> {
        let mut objects = Vec::new();
        collect(directory, &mut objects)?;
        Ok(Self { objects })
    }

    /// Every object, in the order of the kustomization.
    #[must_use]
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// The ServiceAccount that the Deployment names.
    pub fn identity(&self) -> Result<Identity> {
        let deployments: Vec<&Value> = self
            .objects
            .iter()
            .filter(|object| object["kind"] == "Deployment")
            .collect();
        let [deployment] = deployments[..] else {
            bail!("the manifests have {} Deployments, not one", deployments.len())
        };
        let field = |name: &str, value: &Value| {
            let value = value.as_str().map(str::to_owned);
            value.with_context(|| format!("Deployment without {name}"))
        };
        let pod = &deployment["spec"]["template"]["spec"];
        Ok(Identity {
            namespace: field("namespace", &deployment["metadata"]["namespace"])?,
            service_account: field("ServiceAccount", &pod["serviceAccountName"])?,
        })
    }

    /// Applies the base: definitions first, then namespaces, then the rest but for what needs a pod network.
    pub async fn apply(&self, client: &Client) -> Result<()> {
        let (definitions, others): (Vec<Value>, Vec<Value>) = self
            .objects
            .iter()
            .cloned()
            .partition(|object| object["kind"] == "CustomResourceDefinition");
        apply::apply_crds(client, &definitions).await?;
        let (namespaces, others): (Vec<Value>, Vec<Value>) = others
            .into_iter()
            .partition(|object| object["kind"] == "Namespace");
        apply::apply_all(client, &namespaces).await?;
        for object in &others {
            if !NEEDS_POD_NETWORK.iter().any(|kind| object["kind"] == *kind) {
                apply::apply(client, object).await?;
            }
        }
        Ok(())
    }
}

fn collect(directory: &Path, objects: &mut Vec<Value>) -> Result<()> {
    let file = directory.join("kustomization.yaml");
    let kustomization: Kustomization =
        serde_saphyr::from_str(&read(&file)?).with_context(|| format!("read {}", file.display()))?;
    for resource in kustomization.resources {
        ensure!(
            !resource.contains("://"),
            "{} has the remote resource {resource}",
            file.display()
        );
        let path: PathBuf = directory.join(resource);
        if path.is_dir() {
            collect(&path, objects)?;
        } else {
            objects
                .extend(apply::documents(&read(&path)?).with_context(|| format!("read {}", path.display()))?);
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, name: &str, content: &str) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(name), content).unwrap();
    }

    #[test]
    fn resources_are_files_and_directories() {
        let root = tempfile::tempdir().unwrap();
        let (base, crds) = (root.path().join("base"), root.path().join("crds"));
        write(&base, "kustomization.yaml", "resources: [account.yaml, ../crds]");
        write(
            &base,
            "account.yaml",
            "kind: Deployment\nmetadata: {name: c, namespace: b}\nspec: {template: {spec: {serviceAccountName: a}}}\n---\n---\nkind: Role\n",
        );
        write(
            &crds,
            "kustomization.yaml",
            "kind: Kustomization\nresources: [x.yaml]",
        );
        write(&crds, "x.yaml", "kind: CustomResourceDefinition");

        let read = Base::read_from(&base).unwrap();

        let kinds: Vec<&str> = read
            .objects()
            .iter()
            .filter_map(|object| object["kind"].as_str())
            .collect();
        assert_eq!(kinds, ["Deployment", "Role", "CustomResourceDefinition"]);
        assert_eq!(
            read.identity().unwrap(),
            Identity {
                namespace: "b".into(),
                service_account: "a".into()
            }
        );
    }

    #[test]
    fn an_unknown_transformer_is_refused() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "kustomization.yaml", "namePrefix: x-\nresources: []");
        let error = Base::read_from(root.path()).unwrap_err();
        assert!(format!("{error:#}").contains("namePrefix"), "{error:#}");
    }
}
