//! Writes to a workload cluster: the identity that installs packages, and each package.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::objects::{ACCOUNT, core, identity, install, installs, packages, short, text, values_secret};
use crate::rest::{Rest, one};

/// A connection to one workload cluster. The addons-manager makes a new one for each reconcile, and for each package in it.
pub(crate) struct Workload {
    pub(crate) rest: Rest,
    namespace: String,
}

impl Workload {
    /// Connects by the Secret with the kubeconfig of the Cluster, and asks for all that the API server serves.
    pub(crate) async fn connect(kubeconfig: &Value, namespace: &str) -> Result<Self> {
        let content = BASE64_STANDARD
            .decode(text(kubeconfig, "/data/value"))
            .context("decode the kubeconfig")?;
        let read = Kubeconfig::from_yaml(&String::from_utf8(content).context("read the kubeconfig")?)?;
        let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let rest = Rest::of(config)?;
        rest.discover().await?;
        Ok(Self {
            rest,
            namespace: namespace.to_owned(),
        })
    }

    /// Creates what is missing of namespace, account and role.
    pub(crate) async fn prepare(&self) -> Result<()> {
        for (collection, object) in identity(&self.namespace) {
            if self.rest.get(&one(&collection, &object)).await?.is_none() {
                self.rest.create(&collection, &object).await?;
            }
        }
        Ok(())
    }

    /// Copies a Package and its values, and has it installed. `secret` is the one beside the Cluster; none for a package without values.
    pub(crate) async fn write(&self, cluster: &Value, package: &Value, secret: Option<&Value>) -> Result<()> {
        let copy = json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1",
            "kind": "Package",
            "metadata": {"name": package["metadata"]["name"], "namespace": self.namespace},
            "spec": package["spec"],
        });
        self.rest
            .create_or_patch(&packages(&self.namespace), &copy)
            .await?;
        let name = format!(
            "{}-{}-data-values",
            text(cluster, "/metadata/name"),
            short(&text(package, "/spec/refName"))
        );
        if let Some(secret) = secret {
            let values = values_secret(&name, secret);
            let collection = core(&self.namespace, "secrets");
            self.rest.create_or_patch(&collection, &values).await?;
        }
        let mut install = install(cluster, package, secret.map(|_| name.as_str()));
        install["spec"]["serviceAccountName"] = json!(ACCOUNT);
        let collection = installs(&self.namespace);
        // Its values are never taken away again, so it is read for them first.
        self.rest.get(&one(&collection, &install)).await?;
        self.rest.create_or_patch(&collection, &install).await
    }
}
