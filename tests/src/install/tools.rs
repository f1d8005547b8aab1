//! The programs that operators install with, built from their Go modules and kept in the user's cache directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::components::{
    CLUSTER_API_VERSION, MANAGEMENT_VERSION, Program, copy, go, module, once, sources_of, user_cache,
};
use crate::processes::notice;

/// A program that operators install with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Helm 3.
    Helm,
    /// kubectl, with kustomize inside.
    Kubectl,
    /// The command line of Cluster API.
    Clusterctl,
}

impl Tool {
    /// All.
    pub const ALL: [Self; 3] = [Self::Kubectl, Self::Helm, Self::Clusterctl];

    /// Its path, built first where that was not done before with these inputs. The first build takes minutes.
    pub async fn built(self) -> Result<PathBuf> {
        tokio::task::spawn_blocking(move || self.program().build())
            .await
            .context("build a tool")?
    }

    /// The name that it is called by.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Kubectl => "kubectl",
            Self::Clusterctl => "clusterctl",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Helm => "helm.sh/helm/v3/cmd/helm",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Clusterctl => "sigs.k8s.io/cluster-api/cmd/clusterctl",
        }
    }

    fn linker_flags(self) -> String {
        let minor = MANAGEMENT_VERSION.split('.').nth(1).unwrap_or_default();
        match self {
            // `helm template` asks no API server for its version.
            Self::Helm => format!(
                "-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={minor}"
            ),
            Self::Kubectl | Self::Clusterctl => "-s -w".to_owned(),
        }
    }

    fn program(self) -> Program {
        Program {
            name: self.name(),
            module: match self {
                Self::Helm => module!("helm"),
                Self::Kubectl => module!("kubectl"),
                Self::Clusterctl => module!("clusterctl"),
            },
            package: self.package(),
            linker_flags: self.linker_flags(),
        }
    }
}

/// CustomResourceDefinitions of another project: its module, a version, and files of it.
pub type Definitions = (&'static str, &'static str, &'static [&'static str]);

/// Those that an installation requires.
pub const OF_AN_INSTALLATION: [Definitions; 2] = [
    (
        "github.com/cert-manager/cert-manager",
        "v1.18.2",
        &[
            "deploy/crds/crd-certificates.yaml",
            "deploy/crds/crd-issuers.yaml",
        ],
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.84.0",
        &[
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        ],
    ),
];

/// Those of the kinds in `examples/` that no stack has.
pub const OF_EXAMPLES: [Definitions; 5] = [
    (
        "sigs.k8s.io/cluster-api",
        CLUSTER_API_VERSION,
        &[
            "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_clusterclasses.yaml",
            "bootstrap/kubeadm/config/crd/bases/bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml",
            "controlplane/kubeadm/config/crd/bases/controlplane.cluster.x-k8s.io_kubeadmcontrolplanetemplates.yaml",
        ],
    ),
    (
        "sigs.k8s.io/cluster-api/test",
        CLUSTER_API_VERSION,
        &[
            "infrastructure/docker/config/crd/bases/infrastructure.cluster.x-k8s.io_dockerclustertemplates.yaml",
            "infrastructure/docker/config/crd/bases/infrastructure.cluster.x-k8s.io_dockermachinetemplates.yaml",
        ],
    ),
    (
        "github.com/fluxcd/kustomize-controller",
        "v1.7.3",
        &["config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"],
    ),
    (
        "github.com/fluxcd/source-controller",
        "v1.7.3",
        &["config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml"],
    ),
    (
        "github.com/argoproj/argo-cd/v3",
        "v3.2.0",
        &["manifests/crds/application-crd.yaml"],
    ),
];

/// Texts of definitions, from their modules. Later calls need no network.
pub async fn definitions(of: &'static [Definitions]) -> Result<Vec<String>> {
    tokio::task::spawn_blocking(|| read_definitions(of))
        .await
        .context("read definitions")?
}

fn read_definitions(of: &[Definitions]) -> Result<Vec<String>> {
    let kept = user_cache()?.join("sluice/tools/definitions");
    let mut texts = Vec::new();
    for (module, version, files) in of {
        let directory = kept.join(module).join(version);
        for file in *files {
            let path = directory.join(file);
            once(&path, |unfinished| {
                let sources = download(&directory, &format!("{module}@{version}"))?;
                copy(&sources.join(file), unfinished)
            })?;
            texts.push(fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        }
    }
    Ok(texts)
}

/// Where Go keeps the sources of a `module@version`, whose hash its checksum database has confirmed. Nothing is written to the directory.
fn download(directory: &Path, module: &str) -> Result<PathBuf> {
    go(directory, &["mod", "download", module], |line| notice(line))
        .with_context(|| format!("download {module}"))?;
    sources_of(directory, module)
}
