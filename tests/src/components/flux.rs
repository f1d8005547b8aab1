//! The controllers of Flux, which deliver Helm charts and manifests. They are built for the scenarios that need them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::catalogue::{Module, module};
use super::go::{Program, sources_of};
use super::once::once;
use crate::requests::apply;

/// Version of helm-controller.
pub const HELM_CONTROLLER_VERSION: &str = "v1.6.2";

/// Version of kustomize-controller.
pub const KUSTOMIZE_CONTROLLER_VERSION: &str = "v1.9.4";

/// Version of source-controller.
pub const SOURCE_CONTROLLER_VERSION: &str = "v1.9.1";

/// A controller of Flux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FluxController {
    /// Installs charts for HelmReleases.
    Helm,
    /// Applies manifests for Kustomizations.
    Kustomize,
    /// Fetches what the other two deliver.
    Source,
}

/// The files of a controller of Flux.
#[derive(Debug, Clone)]
pub struct FluxFiles {
    /// Its program.
    pub program: PathBuf,
    /// Its CustomResourceDefinitions.
    pub definitions: Vec<Value>,
}

impl FluxController {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Helm, Self::Kustomize, Self::Source];

    /// File name of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Helm => "helm-controller",
            Self::Kustomize => "kustomize-controller",
            Self::Source => "source-controller",
        }
    }

    /// `vX.Y.Z`.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Helm => HELM_CONTROLLER_VERSION,
            Self::Kustomize => KUSTOMIZE_CONTROLLER_VERSION,
            Self::Source => SOURCE_CONTROLLER_VERSION,
        }
    }

    /// Its module, whose root is its main package.
    fn package(self) -> &'static str {
        match self {
            Self::Helm => "github.com/fluxcd/helm-controller",
            Self::Kustomize => "github.com/fluxcd/kustomize-controller",
            Self::Source => "github.com/fluxcd/source-controller",
        }
    }

    fn module(self) -> Module {
        match self {
            Self::Helm => module!("helm-controller"),
            Self::Kustomize => module!("kustomize-controller"),
            Self::Source => module!("source-controller"),
        }
    }

    /// Its program, and how it is built.
    fn program(self) -> Program {
        Program {
            name: self.name(),
            module: self.module(),
            package: self.package(),
            linker_flags: "-s -w".to_owned(),
        }
    }
}

impl FluxFiles {
    /// Those of a controller, which is built first where that was not done before on this machine.
    pub(super) fn built(controller: FluxController) -> Result<Self> {
        let program = controller.program().build()?;
        let directory = program.parent().context("a program in no directory")?;
        let definitions = directory.join("definitions.yaml");
        once(&definitions, |unfinished| {
            let sources = sources_of(directory, controller.package())?;
            fs::write(unfinished, joined(&sources.join("config/crd/bases"))?)?;
            Ok(())
        })?;
        let yaml =
            fs::read_to_string(&definitions).with_context(|| format!("read {}", definitions.display()))?;
        Ok(Self {
            definitions: apply::documents(&yaml)
                .with_context(|| format!("read {}", definitions.display()))?,
            program,
        })
    }
}

/// The documents of all files of a directory as one text.
fn joined(directory: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))? {
        let path = entry?.path();
        let documents = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        text.push_str("---\n");
        text.push_str(&documents);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests and reports name the constants; the build reads the module files.
    #[test]
    fn the_versions_are_those_of_the_modules() {
        for controller in FluxController::ALL {
            let required = format!("require {} {}", controller.package(), controller.version());
            let module = controller.module();
            assert!(
                module.go_mod.lines().any(|line| line == required),
                "no {required} in {}",
                module.name
            );
        }
    }

    /// `replace` of a dependency does not count, so each module file repeats those of its controller.
    #[test]
    fn every_module_replaces_what_its_controller_replaces() {
        for controller in FluxController::ALL {
            let module = controller.module();
            let replaced = "github.com/opencontainers/go-digest => ";
            assert!(
                module.go_mod.contains(replaced),
                "no {replaced} in {}",
                module.name
            );
        }
    }

    #[test]
    fn all_files_of_a_directory_are_read() {
        let directory = tempfile::tempdir().unwrap();
        for (file, text) in [("a.yaml", "---\nname: a"), ("b.yaml", "---\nname: b\n")] {
            fs::write(directory.path().join(file), text).unwrap();
        }
        let documents = apply::documents(&joined(directory.path()).unwrap()).unwrap();
        let mut names: Vec<&str> = documents
            .iter()
            .filter_map(|document| document["name"].as_str())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "b"]);
    }
}
