//! Packages that bring releases, and the PackageRepository that offers them.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Bundle, Source};
use crate::objects::Release;
use crate::stack::SYSTEM_NAMESPACE;

/// On a Package whose content are releases.
const LABEL: &str = "run.tanzu.vmware.com/tkr-package";

/// A Package that brings releases.
#[derive(Debug, Clone)]
pub struct TkrPackage {
    ref_name: String,
    version: String,
    fetch: Value,
}

impl TkrPackage {
    /// Package `tkr.<namespace>.test` of a version, fetched so.
    #[must_use]
    pub fn new(namespace: &str, version: &str, fetch: Value) -> Self {
        Self {
            ref_name: format!("tkr.{namespace}.test"),
            version: version.to_owned(),
            fetch,
        }
    }

    /// The same for a bundle with all that belongs to a release, and its images: version `1.35.4+<build>` of release `v1.35.4---<build>`.
    pub async fn publish(
        source: &Source,
        namespace: &str,
        release: &Release,
        images: &[Value],
    ) -> Result<Self> {
        let objects: Vec<Value> = release
            .objects()
            .into_iter()
            .chain(images.iter().cloned())
            .collect();
        let version = release.name().trim_start_matches('v').replace("---", "+");
        Self::publish_objects(source, namespace, &version, &objects).await
    }

    /// The same for a bundle with these objects.
    pub async fn publish_objects(
        source: &Source,
        namespace: &str,
        version: &str,
        objects: &[Value],
    ) -> Result<Self> {
        let objects: Vec<Value> = objects.iter().cloned().map(without_copy).collect();
        let bundle = Bundle::default().objects("config/release.yml", &objects);
        // As names of images are.
        let name = format!("{namespace}-{}", version.replace('+', "-"));
        Ok(Self::new(
            namespace,
            version,
            source.publish(&name, &bundle).await?,
        ))
    }

    /// Its name: `<refName>.<version>`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.ref_name, self.version)
    }

    /// The name of the PackageInstall that Sluice makes for it.
    #[must_use]
    pub fn install(&self) -> String {
        self.name().replace('+', "---")
    }

    /// The path of a kind of the system namespace, and the name that this one has there.
    #[must_use]
    pub fn install_path(&self) -> String {
        format!(
            "/apis/packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packageinstalls/{}",
            self.install()
        )
    }

    /// The Package, as a repository has it.
    #[must_use]
    pub fn package(&self) -> Value {
        json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1",
            "kind": "Package",
            "metadata": {"name": self.name(), "labels": {LABEL: ""}},
            "spec": {
                "refName": self.ref_name,
                "version": self.version,
                "template": {"spec": {
                    "fetch": [self.fetch],
                    "template": [{"ytt": {"paths": ["config"]}}, {"kbld": {"paths": ["-", ".imgpkg/images.yml"]}}],
                    "deploy": [{"kapp": {}}],
                }},
            },
        })
    }
}

/// A PackageRepository of the system namespace that has these Packages. They are published first.
pub async fn repository(source: &Source, name: &str, packages: &[Value]) -> Result<Value> {
    let bundle = Bundle::default().objects("packages/all.yml", packages);
    let fetch = source.publish(&format!("{name}-repository"), &bundle).await?;
    Ok(json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageRepository",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "spec": {"fetch": fetch},
    }))
}

/// Without the copy of the whole object that kapp keeps in an annotation: that of kapp-controller's own Package would be too long.
fn without_copy(mut object: Value) -> Value {
    if object["kind"] == "Package" {
        object["metadata"]["annotations"]["kapp.k14s.io/disable-original"] = json!("");
    }
    object
}
