//! Components, with their modules and linker flags.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};

use super::cluster_api::ClusterApiRelease;

/// Names of programs that may be installed.
pub(super) const ETCD: &str = "etcd";
pub(super) const KUBE_APISERVER: &str = "kube-apiserver";
pub(super) const KUBE_CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Version of etcd, as `etcd --version` prints it.
const ETCD_VERSION: &str = "3.6.16";

/// Version of Cluster API.
pub const CLUSTER_API_VERSION: &str = "v1.14.2";

/// Version of kapp-controller.
pub const KAPP_CONTROLLER_VERSION: &str = "v0.53.1";

/// Version of the management API server, and the only one whose sources are built.
pub const MANAGEMENT_VERSION: &str = "v1.36.3";

/// Versions that API servers are prepared for. All but the first are the sources of the first, linked with
/// another version: such a server reports that version and *emulates* the API surface and feature gates of
/// its minor.
pub const KUBERNETES_VERSIONS: [&str; 3] = [MANAGEMENT_VERSION, "v1.35.4", "v1.34.4"];

/// Minor versions that the built sources can emulate: a server emulates at most the three before its own.
const EMULATED: RangeInclusive<u16> = 33..=36;

/// A module directory of `tests/go`: what resolves every dependency of a build without asking a proxy for
/// versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
}

macro_rules! module {
    ($name:literal) => {
        $crate::components::Module {
            name: $name,
            go_mod: include_str!(concat!("../../go/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../../go/", $name, "/go.sum")),
        }
    };
}

pub(crate) use module;

pub(super) const KUBERNETES: Module = module!("k8s136");
pub(super) const CLUSTER_API: Module = module!("capi114");
pub(super) const KAPP_CONTROLLER: Module = module!("kc");

pub(super) const MODULES: [Module; 8] = [
    module!("etcd"),
    KUBERNETES,
    CLUSTER_API,
    KAPP_CONTROLLER,
    module!("ytt"),
    module!("kbld"),
    module!("kapp"),
    module!("vendir"),
];

/// One program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Component {
    binary: String,
    pub(super) module: &'static str,
    pub(super) package: &'static str,
    pub(super) linker_flags: String,
}

impl Component {
    /// File name of the program.
    pub(super) fn binary(&self) -> &str {
        &self.binary
    }

    /// The program that may be installed instead, in the version that is built.
    pub(super) fn replaceable(&self) -> Option<(&'static str, &str)> {
        match self.binary() {
            ETCD => Some((ETCD, ETCD_VERSION)),
            KUBE_CONTROLLER_MANAGER => Some((KUBE_CONTROLLER_MANAGER, MANAGEMENT_VERSION)),
            other => {
                let version = other.strip_prefix(KUBE_APISERVER)?.strip_prefix('-')?;
                Some((KUBE_APISERVER, version))
            }
        }
    }

    /// The API server of a version `vX.Y.Z`.
    pub(super) fn kube_apiserver(version: &str) -> Result<Self> {
        Ok(Self {
            binary: format!("{KUBE_APISERVER}-{version}"),
            module: KUBERNETES.name,
            package: "k8s.io/kubernetes/cmd/kube-apiserver",
            linker_flags: kubernetes_flags(version)?,
        })
    }

    fn plain(name: &'static str, package: &'static str, linker_flags: &str) -> Self {
        Self {
            binary: name.to_owned(),
            module: name,
            package,
            linker_flags: linker_flags.to_owned(),
        }
    }
}

/// Every program that a stack needs, dear ones last within what can be seen early.
pub(super) fn all() -> Vec<Component> {
    let versions = KUBERNETES_VERSIONS
        .iter()
        .filter_map(|version| Component::kube_apiserver(version).ok());
    let mut components = vec![Component::plain(ETCD, "go.etcd.io/etcd/server/v3", "")];
    components.extend(versions);
    components.extend(
        kubernetes_flags(MANAGEMENT_VERSION)
            .ok()
            .map(|linker_flags| Component {
                binary: KUBE_CONTROLLER_MANAGER.to_owned(),
                module: KUBERNETES.name,
                package: "k8s.io/kubernetes/cmd/kube-controller-manager",
                linker_flags,
            }),
    );
    components.extend([
        Component {
            binary: "capi-core".to_owned(),
            module: CLUSTER_API.name,
            package: "sigs.k8s.io/cluster-api/core",
            linker_flags: ClusterApiRelease::Newest.linker_flags(),
        },
        Component {
            binary: "kapp-controller".to_owned(),
            module: KAPP_CONTROLLER.name,
            package: "carvel.dev/kapp-controller/cmd/controller",
            // Without it no package with a kappControllerVersionSelection matches.
            linker_flags: format!("-s -w -X main.Version={KAPP_CONTROLLER_VERSION}"),
        },
        Component::plain("ytt", "carvel.dev/ytt/cmd/ytt", ""),
        Component::plain("kbld", "carvel.dev/kbld/cmd/kbld", ""),
        Component::plain("kapp", "carvel.dev/kapp/cmd/kapp", ""),
        Component::plain("vendir", "carvel.dev/vendir/cmd/vendir", ""),
    ]);
    components
}

/// The programs that the demo needs for Clusters of the newest version and of `earlier` versions before it.
pub(super) fn of_the_demo(earlier: usize) -> Vec<Component> {
    let unused = KUBERNETES_VERSIONS[(earlier + 1).min(KUBERNETES_VERSIONS.len())..]
        .iter()
        .map(|version| format!("{KUBE_APISERVER}-{version}"));
    let unused: Vec<String> = unused.collect();
    let mut components = all();
    components.retain(|component| !unused.contains(&component.binary));
    components
}

/// Linker flags with which the sources of Kubernetes report `vX.Y.Z`.
pub(super) fn kubernetes_flags(version: &str) -> Result<String> {
    let package = "k8s.io/component-base/version";
    let minor: u16 = version
        .strip_prefix("v1.")
        .and_then(|rest| rest.split('.').next()?.parse().ok())
        .with_context(|| format!("{version:?} is not a Kubernetes version like {MANAGEMENT_VERSION}"))?;
    ensure!(
        EMULATED.contains(&minor),
        "{MANAGEMENT_VERSION} cannot emulate {version}"
    );
    Ok(format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor=1 -X {package}.gitMinor={minor} \
         -X {package}.gitCommit=0000000000000000000000000000000000000000 -X {package}.gitTreeState=clean \
         -X {package}.buildDate=2026-01-01T00:00:00Z"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_holds_every_program_once() {
        let mut names: Vec<String> = all()
            .iter()
            .map(|component| component.binary().to_owned())
            .collect();
        assert_eq!(names.len(), 11);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 11);
    }

    #[test]
    fn the_version_of_etcd_is_that_of_its_module() {
        let etcd = MODULES.iter().find(|module| module.name == ETCD).unwrap();
        let required = format!("go.etcd.io/etcd/server/v3 v{ETCD_VERSION}\n");
        assert!(etcd.go_mod.contains(&required), "no {required}");
    }

    #[test]
    fn every_component_has_a_module_that_requires_it() {
        for component in all() {
            let module = MODULES
                .iter()
                .find(|module| module.name == component.module)
                .unwrap();
            assert!(
                module.go_mod.contains(component.package),
                "{} in {}",
                component.package,
                module.name
            );
        }
    }

    #[test]
    fn a_version_must_look_like_one() {
        assert!(
            Component::kube_apiserver("v1.33.13")
                .unwrap()
                .linker_flags
                .contains("gitMinor=33 ")
        );
        assert!(Component::kube_apiserver("1.33.13").is_err());
        assert!(Component::kube_apiserver("latest").is_err());
        assert!(Component::kube_apiserver("v1.37.0").is_err());
        assert!(Component::kube_apiserver("v1.32.9").is_err());
    }
}
