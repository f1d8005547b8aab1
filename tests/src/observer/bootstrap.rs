//! What a ClusterBootstrap, or a template of one, asks for.

use serde_json::Value;

use super::conditions::{annotation, text};

/// On a ClusterBootstrap: packages that its user keeps at a version, or leaves out, on purpose.
const KEEP: &str = "lifecycle.sluice.dev/keep-package-versions";

/// A ClusterBootstrap.
#[derive(Debug, Clone, Default)]
pub(super) struct Bootstrap {
    pub(super) packages: Vec<WantedPackage>,
    pub(super) exceptions: Exceptions,
}

/// One package of a template or of a ClusterBootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedPackage {
    /// Name of the Package object.
    pub(super) name: String,
    /// Whether it installs kapp-controller, from the management cluster.
    pub(super) is_kapp_controller: bool,
    /// `valuesFrom`, as it is written.
    pub(super) values_from: Value,
}

/// The exceptions that a ClusterBootstrap asks for, by short names of packages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exceptions {
    /// Packages that need not be ready before the control plane goes.
    after_control_plane: Vec<String>,
    /// Packages of which it is enough that they are applied.
    applied: Vec<String>,
    kept: Vec<(String, Kept)>,
}

/// What is kept of a package on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kept {
    /// Exactly this version.
    Version(String),
    /// Nothing: it is left out.
    Nothing,
}

impl Bootstrap {
    pub(super) fn read(object: &Value) -> Self {
        Self {
            packages: packages(object),
            exceptions: Exceptions::of(object),
        }
    }
}

/// The packages that a template or a ClusterBootstrap names.
pub(super) fn packages(object: &Value) -> Vec<WantedPackage> {
    let spec = &object["spec"];
    let core = ["kapp", "cni", "cpi", "csi"].map(|field| (&spec[field], field == "kapp"));
    let additional = spec["additionalPackages"].as_array().into_iter().flatten();
    core.into_iter()
        .chain(additional.map(|package| (package, false)))
        .filter_map(|(package, is_kapp_controller)| {
            Some(WantedPackage {
                name: package["refName"].as_str()?.to_owned(),
                is_kapp_controller,
                values_from: package["valuesFrom"].clone(),
            })
        })
        .collect()
}

impl Exceptions {
    fn of(bootstrap: &Value) -> Self {
        let policies = bootstrap["spec"]["upgradePolicy"]["packages"].as_array();
        let named = |field: &str, value: &str| {
            policies
                .into_iter()
                .flatten()
                .filter(|policy| policy[field] == value)
                .map(|policy| text(policy, "/package"))
                .collect()
        };
        let kept = annotation(bootstrap, KEEP)
            .split(',')
            .filter_map(|entry| entry.split_once('='))
            .map(|(package, version)| {
                let kept = match version.trim() {
                    "none" => Kept::Nothing,
                    version => Kept::Version(version.to_owned()),
                };
                (package.trim().to_owned(), kept)
            })
            .collect();
        Self {
            after_control_plane: named("phase", "AfterControlPlane"),
            applied: named("readiness", "Applied"),
            kept,
        }
    }

    /// Whether the control plane may go before this package is proven.
    pub(super) fn is_after_control_plane(&self, ref_name: &str) -> bool {
        self.after_control_plane
            .iter()
            .any(|name| name == short(ref_name))
    }

    /// Whether it is enough that this package is applied.
    pub(super) fn is_applied(&self, ref_name: &str) -> bool {
        self.applied.iter().any(|name| name == short(ref_name))
    }

    /// What is kept of this package, if its user says so.
    pub(super) fn kept(&self, ref_name: &str) -> Option<&Kept> {
        let found = self.kept.iter().find(|(name, _)| name == short(ref_name))?;
        Some(&found.1)
    }
}

/// The name by which a user speaks of a package: its refName up to the first dot.
fn short(ref_name: &str) -> &str {
    ref_name.split('.').next().unwrap_or_default()
}
