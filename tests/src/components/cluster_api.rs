//! Releases of Cluster API, and the files of each that a stack needs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::catalogue::{CLUSTER_API, CLUSTER_API_VERSION, Module, module};
use super::go::{Program, build_sources, sources_of};
use super::once::once;

/// A release of Cluster API: the last one of each minor that has hooks as Sluice needs them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClusterApiRelease {
    /// The newest one, which every stack runs that asks for no other.
    #[default]
    Newest,
    /// Of 1.13.
    V1_13,
    /// Of 1.12.
    V1_12,
    /// Of 1.11, without hooks for single steps.
    V1_11,
}

/// The files of a release, or of a provider of Cluster API.
#[derive(Debug, Clone)]
pub struct ClusterApiFiles {
    /// The manager.
    pub manager: PathBuf,
    /// Directory of its CustomResourceDefinitions.
    pub definitions: PathBuf,
    /// Its webhook configurations.
    pub webhooks: PathBuf,
}

impl ClusterApiRelease {
    /// `vX.Y.Z`.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Newest => CLUSTER_API_VERSION,
            Self::V1_13 => "v1.13.6",
            Self::V1_12 => "v1.12.8",
            Self::V1_11 => "v1.11.7",
        }
    }

    /// The path at which it is served the hooks that it knows.
    #[must_use]
    pub fn hooks(self) -> &'static str {
        match self {
            Self::Newest | Self::V1_13 | Self::V1_12 => "",
            Self::V1_11 => "/capi-1.11",
        }
    }

    /// The program of one that no stack needs unless it asks for it.
    pub(super) fn program(self) -> Option<Program> {
        let (name, module) = match self {
            Self::Newest => return None,
            Self::V1_13 => ("capi-core-1.13", module!("capi113")),
            Self::V1_12 => ("capi-core-1.12", module!("capi112")),
            Self::V1_11 => ("capi-core-1.11", module!("capi111")),
        };
        Some(Program {
            name,
            module,
            package: "sigs.k8s.io/cluster-api",
            linker_flags: self.linker_flags(),
        })
    }

    fn module(self) -> Module {
        self.program().map_or(CLUSTER_API, |program| program.module)
    }

    /// The program that prints what functions of this release decide about reported versions, from `tests/go/upgrading`. It is built
    /// first where that was not done before, which takes a minute.
    pub fn upgrading(self) -> Result<PathBuf> {
        let Module { name, go_mod, go_sum } = self.module();
        // Internal packages of Cluster API are for modules below it.
        let go_mod = go_mod.replacen(
            &format!("module harness/{name}\n"),
            "module sigs.k8s.io/cluster-api/harness\n",
            1,
        );
        let main = include_str!("../../go/upgrading/main.go");
        let status = match self {
            Self::Newest => include_str!("../../go/upgrading/status114.go"),
            Self::V1_13 | Self::V1_12 | Self::V1_11 => include_str!("../../go/upgrading/status111.go"),
        };
        let files = [
            ("go.mod", go_mod.as_str()),
            ("go.sum", go_sum),
            ("main.go", main),
            ("status.go", status),
        ];
        build_sources("upgrading", &files)
    }

    /// Linker flags that set the version of the manager.
    pub(super) fn linker_flags(self) -> String {
        let package = "sigs.k8s.io/cluster-api/version";
        let version = self.version();
        let minor = version.split('.').nth(1).unwrap_or_default();
        format!(
            "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"
        )
    }
}

impl ClusterApiFiles {
    /// Those of a program `manager` with what [`copy_files`] has left in `directory`.
    pub(super) fn of(manager: PathBuf, directory: &Path) -> Self {
        Self {
            manager,
            definitions: directory.join("crds"),
            webhooks: directory.join("webhooks.yaml"),
        }
    }

    /// Those of a program whose main package is the root of its module. It is built first where that is needed.
    pub(super) fn built(program: &Program) -> Result<Self> {
        let manager = program.build()?;
        let directory = manager.parent().context("a program in no directory")?;
        let files = Self::of(manager.clone(), directory);
        // Copied last: its presence marks the others as complete.
        once(&files.webhooks, |webhooks| {
            // The manager of Cluster API was part of the module's root before it got a directory of its own.
            let config = sources_of(directory, program.package)?.join("config");
            copy_files(&config, &files.definitions, webhooks)
        })?;
        Ok(files)
    }
}

/// Copies definitions and webhooks out of a `config` directory of the sources of Cluster API or a provider.
pub(super) fn copy_files(config: &Path, definitions: &Path, webhooks: &Path) -> Result<()> {
    fs::create_dir_all(definitions)?;
    for entry in fs::read_dir(config.join("crd/bases"))
        .with_context(|| format!("list the CRDs in {}", config.display()))?
    {
        let entry = entry?;
        copy(&entry.path(), &definitions.join(entry.file_name()))?;
    }
    copy(&config.join("webhook/manifests.yaml"), webhooks)
}

/// Copies content only: files of the module cache are read-only, and would stay so.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
    fs::write(to, content).with_context(|| format!("write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The linker writes the version into the program, whatever it is built from.
    #[test]
    fn a_release_reports_its_source_version() {
        use ClusterApiRelease::{Newest, V1_11, V1_12, V1_13};
        for release in [Newest, V1_13, V1_12, V1_11] {
            let module = release.module();
            let required = format!("sigs.k8s.io/cluster-api {}", release.version());
            let mut lines = module
                .go_mod
                .lines()
                .map(|line| line.trim().trim_start_matches("require "));
            assert!(
                lines.any(|line| line == required),
                "{required} is not in {}",
                module.name
            );
        }
    }
}
