//! A release: a Kubernetes version and the packages made for it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::objects::packages::TestPackage;
use crate::stack::SYSTEM_NAMESPACE;

/// Where a package's values come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Nowhere.
    None,
    /// Written in the template.
    Inline(Value),
    /// A Secret beside the template.
    Secret(Value),
    /// An object that every Cluster gets a copy of.
    Provider(Provider),
}

/// An object that provides values.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// Its API group.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its spec.
    pub spec: Value,
}

/// A TanzuKubernetesRelease with its ClusterBootstrapTemplate, Packages and value Secrets.
#[derive(Debug, Clone)]
pub struct Release {
    kubernetes: String,
    build: String,
    kapp: TestPackage,
    cni: TestPackage,
    cpi: Option<TestPackage>,
    csi: Option<TestPackage>,
    additional: Vec<TestPackage>,
    /// Packages that the template does not have.
    others: Vec<TestPackage>,
    values: Vec<(String, Values)>,
    /// Names of OSImages and of their distributions.
    images: Vec<(String, String)>,
}

impl Release {
    /// Where all of them are.
    pub const PATH: &str = "/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases";

    /// Where all OSImages are.
    pub const IMAGES: &str = "/apis/run.tanzu.vmware.com/v1alpha3/osimages";

    /// Release `build` (`slow.1`) of a Kubernetes version, with the two packages that every release has.
    #[must_use]
    pub fn new(
        kubernetes: impl Into<String>,
        build: impl Into<String>,
        kapp: TestPackage,
        cni: TestPackage,
    ) -> Self {
        Self {
            kubernetes: kubernetes.into(),
            build: build.into(),
            kapp,
            cni,
            cpi: None,
            csi: None,
            additional: Vec::new(),
            others: Vec::new(),
            values: Vec::new(),
            images: Vec::new(),
        }
    }

    /// The same under another build, a higher or lower release of the Kubernetes version.
    #[must_use]
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = build.into();
        self
    }

    /// Sets the CPI.
    #[must_use]
    pub fn cpi(mut self, package: TestPackage) -> Self {
        self.cpi = Some(package);
        self
    }

    /// Sets the CSI.
    #[must_use]
    pub fn csi(mut self, package: TestPackage) -> Self {
        self.csi = Some(package);
        self
    }

    /// Adds an additional package.
    #[must_use]
    pub fn additional(mut self, package: TestPackage) -> Self {
        self.additional.push(package);
        self
    }

    /// Adds an OSImage with a distribution, `ubuntu`. What the infrastructure finds it by is its name, too.
    #[must_use]
    pub fn image(mut self, name: impl Into<String>, distribution: impl Into<String>) -> Self {
        self.images.push((name.into(), distribution.into()));
        self
    }

    /// Lists a package that the template does not have, for Clusters that choose it.
    #[must_use]
    pub fn lists(mut self, package: TestPackage) -> Self {
        self.others.push(package);
        self
    }

    /// Gives values to the package with the short name `short`, in place of those that it had.
    #[must_use]
    pub fn values(mut self, short: impl Into<String>, values: Values) -> Self {
        let short = short.into();
        self.values.retain(|(known, _)| *known != short);
        self.values.push((short, values));
        self
    }

    /// The Kubernetes version.
    #[must_use]
    pub fn kubernetes(&self) -> &str {
        &self.kubernetes
    }

    /// Name of the release as a label value: `v1.35.4---slow.1`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}---{}", self.kubernetes, self.build)
    }

    /// The packages, in the order in which they are waited for.
    pub fn packages(&self) -> impl Iterator<Item = &TestPackage> {
        [&self.kapp, &self.cni]
            .into_iter()
            .chain(&self.cpi)
            .chain(&self.csi)
            .chain(&self.additional)
    }

    /// Names of the OSImages.
    pub fn images(&self) -> impl Iterator<Item = &str> {
        self.images.iter().map(|(name, _)| name.as_str())
    }

    fn os_image(&self, name: &str, distribution: &str) -> Value {
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": name},
            "spec": {
                "kubernetesVersion": self.kubernetes,
                "os": {"type": "linux", "name": distribution, "version": "24.04", "arch": "amd64"},
                "image": {"type": "harness", "ref": {"name": name}},
            },
        })
    }

    /// Everything to be applied to the management cluster; the release itself last.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let packages = self.packages().chain(&self.others).map(TestPackage::package);
        let values = self.packages().filter_map(|package| {
            self.values_secret(package)
                .or_else(|| self.values_provider(package))
        });
        let images = self.images.iter();
        packages
            .chain(values)
            .chain(images.map(|(name, distribution)| self.os_image(name, distribution)))
            .chain([self.template(), self.release()])
            .collect()
    }

    fn release(&self) -> Value {
        let names: Vec<Value> = self
            .packages()
            .chain(&self.others)
            .map(|package| json!({"name": package.name()}))
            .collect();
        let images: Vec<Value> = self.images().map(|name| json!({"name": name})).collect();
        let mut release = json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3",
            "kind": "TanzuKubernetesRelease",
            "metadata": {"name": self.name()},
            "spec": {
                "version": format!("{}+{}", self.kubernetes, self.build),
                "kubernetes": {"version": self.kubernetes},
                "bootstrapPackages": names,
            },
        });
        if !images.is_empty() {
            release["spec"]["osImages"] = images.into();
        }
        release
    }

    fn template(&self) -> Value {
        let mut spec = json!({"kapp": self.entry(&self.kapp), "cni": self.entry(&self.cni)});
        if let Some(cpi) = &self.cpi {
            spec["cpi"] = self.entry(cpi);
        }
        if let Some(csi) = &self.csi {
            spec["csi"] = self.entry(csi);
        }
        if !self.additional.is_empty() {
            let additional: Vec<Value> = self
                .additional
                .iter()
                .map(|package| self.entry(package))
                .collect();
            spec["additionalPackages"] = json!(additional);
        }
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3",
            "kind": "ClusterBootstrapTemplate",
            "metadata": {"name": self.name(), "namespace": SYSTEM_NAMESPACE},
            "spec": spec,
        })
    }

    fn entry(&self, package: &TestPackage) -> Value {
        let mut entry = json!({"refName": package.name()});
        match self.values_of(package) {
            Values::None => {}
            Values::Inline(values) => entry["valuesFrom"] = json!({"inline": values}),
            Values::Secret(_) => entry["valuesFrom"] = json!({"secretRef": self.secret_name(package)}),
            Values::Provider(Provider { group, kind, .. }) => {
                let template = json!({"apiGroup": group, "kind": kind, "name": self.name()});
                entry["valuesFrom"] = json!({"providerRef": template});
            }
        }
        entry
    }

    fn values_secret(&self, package: &TestPackage) -> Option<Value> {
        let Values::Secret(values) = self.values_of(package) else {
            return None;
        };
        Some(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "Opaque",
            "metadata": {"name": self.secret_name(package), "namespace": SYSTEM_NAMESPACE},
            "data": {"values.yaml": BASE64_STANDARD.encode(values.to_string())},
        }))
    }

    /// As a release ships it: nothing is computed from the object itself.
    fn values_provider(&self, package: &TestPackage) -> Option<Value> {
        let Values::Provider(Provider {
            group,
            version,
            kind,
            spec,
        }) = self.values_of(package)
        else {
            return None;
        };
        Some(json!({
            "apiVersion": format!("{group}/{version}"),
            "kind": kind,
            "metadata": {
                "name": self.name(),
                "namespace": SYSTEM_NAMESPACE,
                "annotations": {"tkg.tanzu.vmware.com/template-config": "true"},
            },
            "spec": spec,
        }))
    }

    fn secret_name(&self, package: &TestPackage) -> String {
        format!("{}-{}-values", package.short(), self.name())
    }

    fn values_of(&self, package: &TestPackage) -> &Values {
        self.values
            .iter()
            .find(|(short, _)| short == package.short())
            .map_or(&Values::None, |(_, values)| values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_names_packages_by_their_objects() {
        let release = Release::new(
            "v1.35.4",
            "slow.1",
            TestPackage::new("kapp-controller.slow.test", "0.53.1"),
            TestPackage::new("antrea.slow.test", "1.9.0"),
        )
        .additional(TestPackage::new("metrics.slow.test", "0.7.0"))
        .values("metrics", Values::Secret(json!({"a": 1})));

        let objects = release.objects();

        let template = &objects[4];
        assert_eq!(template["metadata"]["name"], "v1.35.4---slow.1");
        assert_eq!(template["spec"]["cni"]["refName"], "antrea.slow.test.1.9.0");
        assert_eq!(
            template["spec"]["additionalPackages"][0]["valuesFrom"]["secretRef"],
            objects[3]["metadata"]["name"]
        );
        assert_eq!(
            objects[5]["spec"]["bootstrapPackages"][2]["name"],
            "metrics.slow.test.0.7.0"
        );
    }
}
