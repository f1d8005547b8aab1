//! Origins of the programs of the demo.

use std::path::PathBuf;

use serde::Serialize;

use super::catalogue::{CLUSTER_API_VERSION, Component, KAPP_CONTROLLER_VERSION, MANAGEMENT_VERSION};
use super::installed::{Commit, Installed};

/// A program that the demo runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramReport {
    /// File name of the component.
    pub name: String,
    /// Version that the program prints; none for tools whose version the module file has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where it is from.
    pub source: Origin,
    /// Path of an installed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Seconds of its build, if this run has built it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// Where a program is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A released binary: its version names a commit.
    Released,
    /// Built from the sources of its version.
    Built,
    /// Built from the sources of the newest version, and emulating a minor version.
    Emulating,
}

impl ProgramReport {
    pub(super) fn installed(name: &str, installed: &Installed) -> Self {
        let origin = match installed.commit {
            Commit::Released => Origin::Released,
            Commit::Harness => Origin::of_build(installed.program, &installed.version),
            Commit::Unknown => Origin::Built,
        };
        Self {
            name: name.to_owned(),
            version: Some(installed.version.clone()),
            source: origin,
            path: Some(installed.path.clone()),
            seconds: None,
        }
    }

    pub(super) fn built(component: &Component, seconds: Option<f64>) -> Self {
        let (program, version) = match component.replaceable() {
            Some((program, version)) => (program, Some(version)),
            None => match component.binary() {
                "capi-core" => ("", Some(CLUSTER_API_VERSION)),
                "kapp-controller" => ("", Some(KAPP_CONTROLLER_VERSION)),
                _ => ("", None),
            },
        };
        Self {
            name: component.binary().to_owned(),
            version: version.map(str::to_owned),
            source: Origin::of_build(program, version.unwrap_or_default()),
            path: None,
            seconds: seconds.map(f64::round),
        }
    }

    /// Whether it is etcd or a program of Kubernetes.
    #[must_use]
    pub fn is_of_kubernetes(&self) -> bool {
        self.name == super::ETCD || self.name.starts_with("kube-")
    }

    /// `kube-apiserver v1.35.4, built here and emulating v1.35`.
    #[must_use]
    pub fn line(&self) -> String {
        let program = self.name.split("-v1").next().unwrap_or_default();
        let version = self.version.as_deref().unwrap_or_default();
        let origin = match (self.source, &self.path) {
            (Origin::Released, _) => "released binary".to_owned(),
            (Origin::Built, None) => "built here".to_owned(),
            (Origin::Built, Some(_)) => "not a released binary".to_owned(),
            (Origin::Emulating, _) => {
                format!("{MANAGEMENT_VERSION} built here, emulating this minor version")
            }
        };
        let path = self.path.as_ref().map(|path| format!(" {}", path.display()));
        format!("{program} {version}: {origin}{}", path.unwrap_or_default())
    }
}

impl Origin {
    fn of_build(program: &str, version: &str) -> Self {
        if program == super::KUBE_APISERVER && version != MANAGEMENT_VERSION {
            Self::Emulating
        } else {
            Self::Built
        }
    }
}
