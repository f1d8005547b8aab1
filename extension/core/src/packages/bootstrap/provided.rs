//! Validates the values that a provider object has for a package (addons-manager §3.6, §4.2).

use kube::{
    ResourceExt as _,
    core::{DynamicObject, ObjectMeta},
};
use serde_json::Value;
use sluice_crds::{
    labels::{annotation, label},
    run::{ClusterBootstrapPackage, TypedLocalObjectReference},
};

use super::Role;
use crate::{
    names::parse_string_for_label,
    reasons::{GateReason, Hold},
    value_kinds::own_resource,
};

/// Package with values from a provider object.
#[derive(Debug, Clone, Copy)]
pub struct Provided<'a> {
    /// Role of the package.
    pub role: Role,
    /// Name of the Package object.
    pub package: &'a str,
    /// Provider object.
    pub by: &'a TypedLocalObjectReference,
    /// Namespace of the object and of its Cluster.
    pub namespace: &'a str,
}

impl<'a> Provided<'a> {
    /// Returns a package and its provider; `None` if its values have another source.
    #[must_use]
    pub fn of(namespace: &'a str, role: Role, package: &'a ClusterBootstrapPackage) -> Option<Self> {
        Some(Self {
            role,
            package: &package.ref_name,
            by: package.values_from.as_ref()?.provider_ref.as_ref()?,
            namespace,
        })
    }

    /// Describes object and package: `AntreaConfig ns1/c1-antrea-package with the values of package …`.
    #[must_use]
    pub fn subject(&self) -> String {
        let Self {
            package,
            by,
            namespace,
            ..
        } = self;
        let (kind, name) = (&by.kind, &by.name);
        format!("{kind} {namespace}/{name} with the values of package {package}")
    }

    /// Returns a hold that names the object and the package.
    #[must_use]
    pub fn hold(&self, reason: GateReason, what: &str) -> Hold {
        Hold::new(reason, format!("{} {what}", self.subject()))
    }

    /// Returns the API group of the provider; the core group is empty.
    #[must_use]
    pub fn group(&self) -> &str {
        self.by.api_group.as_deref().unwrap_or_default()
    }

    /// Whether the provider is a configuration kind of Sluice.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        own_resource(self.group(), &self.by.kind).is_some()
    }

    /// Returns the label that the provider needs before its values are used. The values of a CNI depend on its version, which the label
    /// tells their controller.
    #[must_use]
    pub fn label(&self) -> Option<(&'static str, String)> {
        (self.role == Role::Cni).then(|| (label::PACKAGE_NAME, parse_string_for_label(self.package)))
    }

    /// Whether `provider` has that label.
    #[must_use]
    pub fn is_labelled(&self, provider: &DynamicObject) -> bool {
        self.label()
            .is_none_or(|(key, value)| provider.labels().get(key) == Some(&value))
    }

    /// Returns the Secret that `provider` names, in the same namespace.
    ///
    /// # Errors
    /// Returns a hold if its values are not yet those of this package or of the current spec.
    pub fn secret<'p>(&self, provider: &'p DynamicObject) -> Result<&'p str, Hold> {
        let not_ready = |what: &str| Err(self.hold(GateReason::ValuesNotReady, what));
        if !self.is_labelled(provider) {
            return not_ready("is not labelled with this package yet");
        }
        let status = |pointer: &str| provider.data.get("status")?.pointer(pointer);
        // A controller that reports an observed generation has to report the latest one.
        let observed = status("/observedGeneration").and_then(Value::as_i64);
        if observed.is_some() && observed != provider.metadata.generation {
            return not_ready("was changed, and its values were not yet");
        }
        let text = |value: &'p Value, field: &str| value.get(field).and_then(Value::as_str);
        let conditions = status("/conditions").and_then(Value::as_array);
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| text(condition, "type") == Some("Ready"));
        if let Some(ready) = ready
            && text(ready, "status") == Some("False")
        {
            let reason = text(ready, "reason").unwrap_or("no reason given");
            return not_ready(&format!("is not Ready: {reason}"));
        }
        match status("/secretRef").and_then(Value::as_str) {
            Some(secret) if !secret.is_empty() => Ok(secret),
            _ => not_ready("names no Secret in status.secretRef yet"),
        }
    }

    /// Checks that `provider` wrote the Secret with metadata `of_secret`, for the Cluster with this UID and for its own current labels.
    ///
    /// Neither a label nor an owner changes a generation, so `observedGeneration` does not cover them, and two configurations of one
    /// Cluster write the same Secret. Only the kinds of Sluice guarantee to write all of this together with the content.
    ///
    /// # Errors
    /// Returns a hold if it did not.
    pub fn check(&self, provider: &DynamicObject, of_secret: &ObjectMeta, cluster: &str) -> Result<(), Hold> {
        if !self.is_ours() {
            return Ok(());
        }
        let not_yet = |what: &str| {
            self.hold(
                GateReason::ValuesNotReady,
                &format!("has not computed them for this {what} yet"),
            )
        };
        let (labels, annotations) = (of_secret.labels.as_ref(), of_secret.annotations.as_ref());
        let of_package = labels.and_then(|labels| labels.get(label::PACKAGE_NAME));
        let by = annotations.and_then(|annotations| annotations.get(annotation::CONFIGURATION_UID));
        let mut owners = of_secret.owner_references.iter().flatten();
        // Only the values of a CNI depend on the version of its package.
        if self.role == Role::Cni && of_package != provider.labels().get(label::PACKAGE_NAME) {
            return Err(not_yet("package"));
        }
        if by != provider.metadata.uid.as_ref() || !owners.any(|owner| owner.uid == cluster) {
            return Err(not_yet("Cluster"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const PACKAGE: &str = "antrea.tanzu.vmware.com.1.9.0+vmware.1";
    const LABEL: &str = "antrea.tanzu.vmware.com.1.9.0---vmware.1";

    fn reference(group: &str, kind: &str) -> TypedLocalObjectReference {
        TypedLocalObjectReference {
            api_group: Some(group.to_owned()),
            kind: kind.to_owned(),
            name: "c1-antrea-package".to_owned(),
        }
    }

    fn provided(role: Role, by: &TypedLocalObjectReference) -> Provided<'_> {
        Provided {
            role,
            package: PACKAGE,
            by,
            namespace: "ns1",
        }
    }

    fn provider(label: &str, status: &Value) -> DynamicObject {
        let object = json!({
            "metadata": {"generation": 2, "labels": {"tkg.tanzu.vmware.com/package-name": label}},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[rstest]
    #[case::complete(LABEL, json!({"secretRef": "s", "observedGeneration": 2}), Ok("s"))]
    #[case::of_another_package("antrea.1.7.1", json!({"secretRef": "s"}), Err("is not labelled with this package yet"))]
    #[case::behind(LABEL, json!({"secretRef": "s", "observedGeneration": 1}), Err("was changed, and its values were not yet"))]
    #[case::says_no_generation(LABEL, json!({"secretRef": "s"}), Ok("s"))]
    #[case::ready(LABEL, json!({"secretRef": "s", "conditions": [{"type": "Ready", "status": "True"}]}), Ok("s"))]
    #[case::broken(
        LABEL,
        json!({"secretRef": "s", "conditions": [{"type": "Other", "status": "True"}, {"type": "Ready", "status": "False", "reason": "CIDRMissing"}]}),
        Err("is not Ready: CIDRMissing")
    )]
    #[case::nothing(LABEL, json!(null), Err("names no Secret in status.secretRef yet"))]
    #[case::empty(LABEL, json!({"secretRef": ""}), Err("names no Secret in status.secretRef yet"))]
    fn values_are_taken_when_they_are_those_of_the_package(
        #[case] label: &str,
        #[case] status: Value,
        #[case] wanted: Result<&str, &str>,
    ) {
        let by = reference("cni.tanzu.vmware.com", "AntreaConfig");
        let object = provider(label, &status);
        let found = provided(Role::Cni, &by).secret(&object);
        let wanted = wanted.map_err(|what| {
            Hold::new(
                GateReason::ValuesNotReady,
                format!("AntreaConfig ns1/c1-antrea-package with the values of package {PACKAGE} {what}"),
            )
        });
        assert_eq!(found, wanted);
    }

    #[test]
    fn only_a_cni_is_told_its_version() {
        let by = reference("cpi.tanzu.vmware.com", "VSphereCPIConfig");
        assert_eq!(
            provided(Role::Cni, &by).label(),
            Some(("tkg.tanzu.vmware.com/package-name", LABEL.to_owned()))
        );
        for role in [Role::KappController, Role::Cpi, Role::Csi, Role::Additional] {
            assert_eq!(provided(role, &by).label(), None);
            assert!(provided(role, &by).is_labelled(&provider("whatever", &json!(null))));
        }
    }

    #[rstest]
    #[case::written_for_it(
        Role::Cni,
        "AntreaConfig",
        LABEL,
        Some(LABEL),
        Some("config"),
        "cluster",
        true
    )]
    #[case::written_for_another_package(
        Role::Cni,
        "AntreaConfig",
        LABEL,
        Some("antrea.1.7.1"),
        Some("config"),
        "cluster",
        false
    )]
    #[case::written_before_there_was_a_label(
        Role::Cni,
        "AntreaConfig",
        LABEL,
        None,
        Some("config"),
        "cluster",
        false
    )]
    #[case::whose_version_does_not_matter(
        Role::Cpi,
        "VSphereCPIConfig",
        LABEL,
        Some("cpi.1"),
        Some("config"),
        "cluster",
        true
    )]
    #[case::written_by_another_configuration(
        Role::Cpi,
        "VSphereCPIConfig",
        LABEL,
        Some(LABEL),
        Some("other"),
        "cluster",
        false
    )]
    #[case::not_said_by_which(Role::Cpi, "VSphereCPIConfig", LABEL, Some(LABEL), None, "cluster", false)]
    #[case::written_for_another_cluster(
        Role::Cpi,
        "VSphereCPIConfig",
        LABEL,
        Some(LABEL),
        Some("config"),
        "other",
        false
    )]
    #[case::promises_nothing(
        Role::Cni,
        "SomebodysConfig",
        LABEL,
        Some("antrea.1.7.1"),
        None,
        "other",
        true
    )]
    fn the_secret_was_written_for_the_package_and_the_cluster(
        #[case] role: Role,
        #[case] kind: &str,
        #[case] label: &str,
        #[case] of_secret: Option<&str>,
        #[case] by_uid: Option<&str>,
        #[case] owner: &str,
        #[case] good: bool,
    ) {
        let group = if role == Role::Cni {
            "cni.tanzu.vmware.com"
        } else {
            "cpi.tanzu.vmware.com"
        };
        let by = reference(group, kind);
        let metadata = json!({
            "labels": of_secret.map(|value| json!({label::PACKAGE_NAME: value})),
            "annotations": by_uid.map(|uid| json!({annotation::CONFIGURATION_UID: uid})),
            "ownerReferences": [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": owner}],
        });
        let mut provider = provider(label, &json!(null));
        provider.metadata.uid = Some("config".to_owned());
        let metadata = serde_json::from_value(metadata).unwrap();
        let checked = provided(role, &by).check(&provider, &metadata, "cluster");
        assert_eq!(checked.is_ok(), good, "{checked:?}");
    }
}
