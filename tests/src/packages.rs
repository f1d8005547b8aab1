//! Packages for tests: real `Package` objects with inline ytt templates that kapp deploys.

use anyhow::Result;
use serde_json::{Value, json};

use crate::apply;
use crate::components::Binaries;
use crate::kapp_controller::Manifests;
use crate::kubelet::{DELAY_ANNOTATION, Delay};
use crate::stack::SYSTEM_NAMESPACE;

/// Namespace in the workload cluster that packages deploy into.
pub const NAMESPACE: &str = "kube-system";

/// Namespace in the workload cluster that kapp-controller runs in.
pub const KAPP_CONTROLLER_NAMESPACE: &str = "kapp-controller";

/// Accepts whatever values a package is given.
const SCHEMA: &str = "#@data/values-schema\n#@schema/type any=True\n---\n{}\n";

/// A package of one version.
#[derive(Debug, Clone, PartialEq)]
pub struct TestPackage {
    ref_name: String,
    version: String,
    /// Objects that it deploys, besides the ConfigMap that echoes its values.
    objects: Vec<Value>,
    broken: Option<String>,
}

impl TestPackage {
    /// A package `ref_name` (`antrea.slow.test`) that deploys one ConfigMap, `<short name>-values`.
    #[must_use]
    pub fn new(ref_name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            ref_name: ref_name.into(),
            version: version.into(),
            objects: Vec::new(),
            broken: None,
        }
    }

    /// The package that installs kapp-controller itself: definitions, roles and the Deployment that the kubelet stand-in runs.
    pub fn kapp_controller(
        ref_name: impl Into<String>,
        version: impl Into<String>,
        binaries: &Binaries,
    ) -> Result<Self> {
        let manifests = Manifests::read(binaries, KAPP_CONTROLLER_NAMESPACE)?;
        let mut package = Self::new(ref_name, version);
        package.objects.push(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": KAPP_CONTROLLER_NAMESPACE},
        }));
        package.objects.extend(apply::documents(&manifests.crds)?);
        package.objects.extend(apply::documents(&manifests.rbac)?);
        package
            .objects
            .push(package.workload("Deployment", KAPP_CONTROLLER_NAMESPACE, Delay::NONE));
        Ok(package)
    }

    /// Adds a Deployment named as the package, which becomes ready `delay` after each change.
    #[must_use]
    pub fn deployment(mut self, delay: Delay) -> Self {
        self.objects.push(self.workload("Deployment", NAMESPACE, delay));
        self
    }

    /// Adds a DaemonSet named as the package, which becomes ready `delay` after each change.
    #[must_use]
    pub fn daemon_set(mut self, delay: Delay) -> Self {
        self.objects.push(self.workload("DaemonSet", NAMESPACE, delay));
        self
    }

    /// Adds any object.
    #[must_use]
    pub fn object(mut self, object: Value) -> Self {
        self.objects.push(object);
        self
    }

    /// Makes the template fail, with `complaint`.
    #[must_use]
    pub fn broken(mut self, complaint: impl Into<String>) -> Self {
        self.broken = Some(complaint.into());
        self
    }

    /// `Package.spec.refName`.
    #[must_use]
    pub fn ref_name(&self) -> &str {
        &self.ref_name
    }

    /// `Package.spec.version`.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Name up to the first dot: `antrea`.
    #[must_use]
    pub fn short(&self) -> &str {
        self.ref_name.split('.').next().unwrap_or_default()
    }

    /// Name of the Package: `<refName>.<version>`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.ref_name, self.version)
    }

    /// The Package, in the namespace whose packages every namespace sees.
    #[must_use]
    pub fn package(&self) -> Value {
        json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1",
            "kind": "Package",
            "metadata": {"name": self.name(), "namespace": SYSTEM_NAMESPACE},
            "spec": {
                "refName": self.ref_name,
                "version": self.version,
                "template": {"spec": {
                    "fetch": [{"inline": {"paths": {"schema.yml": SCHEMA, "config.yml": self.template()}}}],
                    "template": [{"ytt": {"paths": ["schema.yml", "config.yml"]}}],
                    "deploy": [{"kapp": {}}],
                }},
            },
        })
    }

    fn template(&self) -> String {
        let loads = [("data", "data"), ("json", "json"), ("assert", "assert")]
            .map(|(module, name)| format!("#@ load(\"@ytt:{module}\", \"{name}\")\n"));
        let broken = self
            .broken
            .iter()
            .map(|complaint| format!("---\nbroken: #@ assert.fail({complaint:?})\n"));
        let (short, version) = (self.short(), &self.version);
        let echo = format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {short}-values, namespace: {NAMESPACE}}}\n\
             data:\n  version: \"{version}\"\n  values: #@ json.encode(data.values)\n"
        );
        // JSON is YAML, without comments that ytt would take for its own.
        let objects = self.objects.iter().map(|object| format!("---\n{object}\n"));
        loads
            .into_iter()
            .chain(broken)
            .chain([echo])
            .chain(objects)
            .collect()
    }

    fn workload(&self, kind: &str, namespace: &str, delay: Delay) -> Value {
        let name = self.short();
        let labels = json!({"app": name});
        let mut workload = json!({
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": {DELAY_ANNOTATION: delay.to_string()},
            },
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels, "annotations": {"harness.test/version": self.version}},
                    "spec": {"containers": [{"name": name, "image": format!("registry.invalid/{name}:{}", image_tag(&self.version))}]},
                },
            },
        });
        if kind == "Deployment" {
            workload["spec"]["replicas"] = json!(1);
        }
        workload
    }
}

/// An image tag has no `+`.
fn image_tag(version: &str) -> String {
    version.replace('+', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_ref_name_and_version() {
        let package = TestPackage::new("antrea.slow.test", "1.9.0+sluice.1").deployment(Delay::seconds(5));
        let object = package.package();
        assert_eq!(object["metadata"]["name"], "antrea.slow.test.1.9.0+sluice.1");
        let template = object["spec"]["template"]["spec"]["fetch"][0]["inline"]["paths"]["config.yml"]
            .as_str()
            .unwrap();
        assert!(template.contains("name: antrea-values"), "{template}");
        assert!(
            template.contains("\"harness.test/ready-after\":\"5000ms\""),
            "{template}"
        );
    }
}
