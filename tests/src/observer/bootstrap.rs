//! Packages and values that a ClusterBootstrap, or its template, requests.

use serde_json::Value;

use super::conditions::{annotation, text};

/// On a ClusterBootstrap: packages that its user keeps at a version, or leaves out, on purpose.
const KEEP: &str = "lifecycle.sluice.dev/keep-package-versions";

/// On a ClusterBootstrap: its Cluster gets no CNI.
const UNMANAGED: &str = "tkg.tanzu.vmware.com/unmanaged-cni";

/// On a ClusterBootstrap: the release of its packages.
const RESOLVED: &str = "lifecycle.sluice.dev/resolved-tkr";

/// What stands for the version of a package that is left out.
const NONE: &str = "none";

/// A ClusterBootstrap.
#[derive(Debug, Clone, Default)]
pub(super) struct Bootstrap {
    pub(super) packages: Vec<WantedPackage>,
    pub(super) exceptions: Exceptions,
    /// Whether the CNI of a release is not wanted: there is none by the annotation, or another one.
    unmanaged_cni: bool,
    /// Release of its packages; empty if it names none.
    pub(super) release: String,
    /// Whether its record is about a rollback.
    pub(super) rolls_back: bool,
}

/// One package of a template or of a ClusterBootstrap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedPackage {
    /// Name of the Package object.
    pub(super) name: String,
    /// Whether it installs kapp-controller, from the management cluster.
    pub(super) is_kapp_controller: bool,
    /// Whether it is the CNI.
    pub(super) is_cni: bool,
    /// `valuesFrom`, as it is written.
    pub(super) values_from: Value,
}

/// The exceptions that a ClusterBootstrap asks for. `upgradePolicy` names packages by short name only, the annotation by short name
/// or by `spec.refName` of the Package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Exceptions {
    /// Packages that need not be ready before the control plane goes.
    after_control_plane: Vec<String>,
    /// Packages of which it is enough that they are applied.
    applied: Vec<String>,
    /// Packages with a policy that does not say so.
    reconciled: Vec<String>,
    /// Packages with the version that is kept.
    kept: Vec<(String, String)>,
    /// `onCancel` of all packages; empty without.
    on_cancel: String,
    /// Packages with an `onCancel` of their own.
    own_on_cancel: Vec<(String, String)>,
}

impl Bootstrap {
    pub(super) fn read(object: &Value) -> Self {
        Self {
            packages: packages(object),
            exceptions: Exceptions::of(object),
            unmanaged_cni: object["metadata"]["annotations"][UNMANAGED].is_string(),
            release: annotation(object, RESOLVED),
            rolls_back: object["status"]["upgrade"]["rollback"].is_object(),
        }
    }

    /// Whether the CNI of a release is wanted. A user may have chosen another one, which is wanted at the version that is there.
    pub(super) fn wants_cni(&self, ref_name: &str, ref_name_of: impl Fn(&str) -> Option<String>) -> bool {
        let mut own = self.packages.iter().filter(|package| package.is_cni);
        !self.unmanaged_cni && own.all(|own| ref_name_of(&own.name).is_none_or(|own| own == ref_name))
    }
}

/// The packages that a template or a ClusterBootstrap names.
pub(super) fn packages(object: &Value) -> Vec<WantedPackage> {
    let spec = &object["spec"];
    let core = ["kapp", "cni", "cpi", "csi"].map(|field| (&spec[field], field));
    let additional = spec["additionalPackages"].as_array().into_iter().flatten();
    core.into_iter()
        .chain(additional.map(|package| (package, "")))
        .filter_map(|(package, field)| {
            Some(WantedPackage {
                name: package["refName"].as_str()?.to_owned(),
                is_kapp_controller: field == "kapp",
                is_cni: field == "cni",
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
            .map(|(package, version)| (package.trim().to_owned(), version.trim().to_owned()))
            .collect();
        Self {
            after_control_plane: named("phase", "AfterControlPlane"),
            applied: named("readiness", "Applied"),
            reconciled: policies
                .into_iter()
                .flatten()
                .filter(|policy| policy["readiness"] != "Applied")
                .map(|policy| text(policy, "/package"))
                .collect(),
            kept,
            on_cancel: text(bootstrap, "/spec/upgradePolicy/onCancel"),
            own_on_cancel: policies
                .into_iter()
                .flatten()
                .filter(|policy| policy["onCancel"].is_string())
                .map(|policy| (text(policy, "/package"), text(policy, "/onCancel")))
                .collect(),
        }
    }

    /// Whether this package goes back when an upgrade is cancelled.
    pub(super) fn goes_back(&self, ref_name: &str) -> bool {
        let own = self
            .own_on_cancel
            .iter()
            .find(|(name, _)| name == short(ref_name));
        let on_cancel = own.map_or(&self.on_cancel, |(_, on_cancel)| on_cancel);
        on_cancel == "Rollback"
    }

    /// Whether the control plane may go before this package is proven.
    pub(super) fn is_after_control_plane(&self, ref_name: &str) -> bool {
        self.after_control_plane
            .iter()
            .any(|name| name == short(ref_name))
    }

    /// Whether it is enough that this package is applied. On a Supervisor it is for those without a policy.
    pub(super) fn is_applied(&self, ref_name: &str, on_supervisor: bool) -> bool {
        let is_named = |names: &[String]| names.iter().any(|name| name == short(ref_name));
        is_named(&self.applied) || (on_supervisor && !is_named(&self.reconciled))
    }

    /// Whether this package stays at this version, whatever the release says. Another version of it follows the release.
    pub(super) fn keeps(&self, ref_name: &str, version: &str) -> bool {
        let named = |name: &str| name == ref_name || name == short(ref_name);
        self.kept
            .iter()
            .any(|(name, kept)| named(name) && kept == version)
    }

    /// Whether the release's package is not wanted where the ClusterBootstrap does not have it.
    pub(super) fn leaves_out(&self, ref_name: &str) -> bool {
        self.keeps(ref_name, NONE)
    }
}

/// The short name of a package: its refName up to the first dot.
pub(super) fn short(ref_name: &str) -> &str {
    ref_name.split('.').next().unwrap_or_default()
}
