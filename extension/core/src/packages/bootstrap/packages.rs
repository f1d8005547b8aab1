//! Package set of a ClusterBootstrap, and the catalogue of Package objects.

use crate::fault::Fault;
use std::collections::BTreeMap;

use serde_json::Value;
use sluice_crds::foreign::Package;
use sluice_crds::labels::annotation;
use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec};

use crate::{digest, packages::build::LackedFields};

/// Role of a package in a cluster; the order of the variants is the order of writes and of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// kapp-controller, which deploys all others; installed from the management cluster.
    KappController,
    /// Network of the cluster.
    Cni,
    /// Cloud provider.
    Cpi,
    /// Storage.
    Csi,
    /// Everything in `additionalPackages`.
    Additional,
}

impl Role {
    /// Returns the field of the ClusterBootstrap for packages of this role.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::KappController => "spec.kapp",
            Self::Cni => "spec.cni",
            Self::Cpi => "spec.cpi",
            Self::Csi => "spec.csi",
            Self::Additional => "spec.additionalPackages",
        }
    }
}

/// Facts about a Package object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PackageFacts {
    /// `spec.refName`, `antrea.tanzu.vmware.com`.
    pub ref_name: String,
    /// `spec.version`.
    pub version: String,
    /// Whether the values of a PackageInstall reach its App: kapp-controller v0.53.1 names their Secret in the first step
    /// of the template that is ytt or Helm, and nowhere without such a step (`NewApp` in `pkg/packageinstall/app.go`).
    pub takes_values: bool,
    /// Digest of `spec.template`, by [`digest::template`].
    pub template: String,
    /// Values for a Supervisor that `spec.valuesSchema` lacks.
    pub lacked: LackedFields,
    /// `spec.kubernetesVersionSelection.constraints`: versions of the API server that kapp-controller installs the package on.
    pub kubernetes: Option<String>,
    /// `spec.kappControllerVersionSelection.constraints`: versions of kapp-controller that install the package.
    pub kapp_controller: Option<String>,
    /// Whether no rollback goes back from it to an earlier version, by annotation `lifecycle.sluice.dev/rollback`.
    pub stays: bool,
}

impl PackageFacts {
    /// Computes the facts of a Package. The cost is proportional to its content.
    #[must_use]
    pub fn of(package: &Package) -> Self {
        let spec = &package.spec;
        let template = spec.rest.get("template").unwrap_or(&Value::Null);
        let steps = template["spec"]["template"].as_array();
        let takes_values = |step: &Value| ["ytt", "helmTemplate"].iter().any(|tool| !step[tool].is_null());
        let constraints = |field: &str| {
            let constraints = spec.rest.get(field)?["constraints"].as_str()?;
            (!constraints.is_empty()).then(|| constraints.to_owned())
        };
        Self {
            ref_name: spec.ref_name.clone(),
            version: spec.version.clone(),
            takes_values: steps.into_iter().flatten().any(takes_values),
            template: digest::template(template),
            lacked: spec
                .rest
                .get("valuesSchema")
                .map(LackedFields::of)
                .unwrap_or_default(),
            kubernetes: constraints("kubernetesVersionSelection"),
            kapp_controller: constraints("kappControllerVersionSelection"),
            stays: package
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(annotation::ROLLBACK))
                .is_some_and(|value| value == "false"),
        }
    }
}

/// Package objects of the system namespace, by `metadata.name`.
pub type Catalogue = BTreeMap<String, PackageFacts>;

/// Returns all packages of a spec in the order of writes and waits.
#[must_use]
pub fn packages(spec: &ClusterBootstrapSpec) -> Vec<(Role, &ClusterBootstrapPackage)> {
    let core = [
        (Role::KappController, spec.kapp.as_ref()),
        (Role::Cni, spec.cni.as_ref()),
        (Role::Cpi, spec.cpi.as_ref()),
        (Role::Csi, spec.csi.as_ref()),
    ];
    let additional = spec
        .additional_packages
        .iter()
        .map(|package| (Role::Additional, package));
    core.into_iter()
        .filter_map(|(role, package)| package.map(|package| (role, package)))
        .chain(additional)
        .collect()
}

/// Returns the faults of missing required packages.
pub(crate) fn missing(spec: &ClusterBootstrapSpec, unmanaged_cni: bool) -> impl Iterator<Item = Fault> {
    let cni = (spec.cni.is_none() && !unmanaged_cni).then_some(Role::Cni);
    let kapp = spec.kapp.is_none().then_some(Role::KappController);
    [cni, kapp]
        .into_iter()
        .flatten()
        .map(|role| Fault::nil(role.field()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[expect(
        clippy::needless_pass_by_value,
        reason = "the cases read better with json! alone"
    )]
    fn facts(template: Value, more: Value) -> PackageFacts {
        let mut spec = json!({"refName": "antrea.x", "version": "1", "template": template});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        PackageFacts::of(
            &serde_json::from_value(json!({"metadata": {"name": "antrea.x.1"}, "spec": spec})).unwrap(),
        )
    }

    #[rstest]
    #[case::ytt(json!([{"ytt": {}}]), true)]
    #[case::helm(json!([{"helmTemplate": {"path": "chart"}}]), true)]
    #[case::images_before_ytt(json!([{"kbld": {}}, {"ytt": {"paths": ["config"]}}]), true)]
    #[case::images(json!([{"kbld": {"paths": ["config"]}}]), false)]
    #[case::other_tools(json!([{"cue": {}}, {"sops": {}}, {"kustomize": {}}, {"jsonnet": {}}]), false)]
    #[case::null_is_no_step(json!([{"ytt": null}]), false)]
    #[case::no_steps(json!([]), false)]
    #[case::nothing(Value::Null, false)]
    #[case::not_understood(json!("ytt"), false)]
    fn values_reach_packages_with_a_step_that_takes_them(#[case] steps: Value, #[case] takes_values: bool) {
        let facts = facts(json!({"spec": {"template": steps}}), json!({}));
        assert_eq!(facts.takes_values, takes_values);
    }

    #[test]
    fn of_a_package_only_the_template_counts() {
        let template = || json!({"spec": {"fetch": [{"inline": {"paths": {"a.yml": "a: 1"}}}]}});
        let one = facts(template(), json!({}));
        let released = facts(
            template(),
            json!({"releaseNotes": "better", "licenses": ["Apache-2.0"]}),
        );
        assert_eq!(one, released);
        let edited = facts(
            json!({"spec": {"fetch": [{"inline": {"paths": {"a.yml": "a: 2"}}}]}}),
            json!({}),
        );
        assert_ne!(one.template, edited.template);
        assert_ne!(one.template, facts(Value::Null, json!({})).template);
    }
}
