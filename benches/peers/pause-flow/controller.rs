//! The controller: one worker, one Cluster after the other, each from the beginning to the unpause.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::Unpause;
use crate::bootstrap::{self, Named, entries, secret_of};
use crate::cache::Cache;
use crate::objects::{
    BOOTSTRAP_SECRET, PAUSED, core, inline_secret, install, installs, of_group, owner, packages, release_of,
    short, text,
};
use crate::pace::Pace;
use crate::queue::{Key, Queue};
use crate::ready::is_ready;
use crate::rest::{Rest, one};
use crate::workload::Workload;

/// Requeue interval of packages that are not ready.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How often a Package is looked up in one reconcile: the addons-manager does so for each name and version that it takes from it, and was
/// seen to make 24 to 37 of these requests in a reconcile of four packages. client-go's limit makes that most of the time that one takes.
const LOOKUPS: u32 = 7;

/// Reconciles Clusters.
pub(crate) struct Controller {
    pub(crate) management: Rest,
    pub(crate) cache: Arc<Cache>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) system_namespace: String,
    pub(crate) unpause: Unpause,
    /// Of lookups of Packages.
    pub(crate) pace: Pace,
}

/// A Cluster that is reconciled.
struct Subject {
    cluster: Value,
    namespace: String,
    name: String,
    /// Its release.
    tkr: String,
}

impl Controller {
    /// Reconciles one Cluster after the other until the process ends.
    pub(crate) async fn run(&self) -> Result<()> {
        self.cache.is_filled().await?;
        loop {
            let key = self.queue.next().await;
            match self.reconcile(&key).await {
                Ok(again) => {
                    self.queue.succeeded(&key);
                    if let Some(rest) = again {
                        self.queue.add_after(key, rest);
                    }
                }
                Err(error) => {
                    eprintln!("pause-flow: Cluster {}/{}: {error:#}", key.0, key.1);
                    self.queue.failed(key);
                }
            }
        }
    }

    /// One reconcile; says after what time another one is needed, if one is.
    async fn reconcile(&self, (namespace, name): &Key) -> Result<Option<Duration>> {
        let Some(cluster) = self.cache.cluster(namespace, name) else {
            return Ok(None);
        };
        let subject = Subject {
            tkr: release_of(&cluster),
            namespace: namespace.clone(),
            name: name.clone(),
            cluster,
        };
        if subject.tkr.is_empty() || !subject.cluster["metadata"]["deletionTimestamp"].is_null() {
            return Ok(None);
        }
        let Some(release) = self.cache.release(&subject.tkr) else {
            return Ok(None);
        };
        if self.unpause == Unpause::AtOnce && subject.is_paused_for(&subject.tkr) {
            self.unpause(&subject).await?;
        }
        let bootstrap = self.bootstrap(&subject, &release).await?;
        if subject.cluster["status"]["phase"] != "Provisioned" {
            return Ok(None);
        }
        let spec = &bootstrap["spec"];
        self.install_kapp_controller(&subject, &spec["kapp"]).await?;
        let kubeconfig = format!("{name}-kubeconfig");
        let kubeconfig = self.cache.secret(namespace, &kubeconfig);
        let kubeconfig = kubeconfig.context("the Cluster has no kubeconfig")?;
        let connect = || Workload::connect(&kubeconfig, &self.system_namespace);
        let workload = connect().await?;
        workload.prepare().await?;
        for entry in entries(spec).into_iter().filter(|entry| **entry != spec["kapp"]) {
            let secret = self.values(&subject, entry).await?;
            let package = self.package(&subject, &text(entry, "/refName")).await?;
            connect()
                .await?
                .write(&subject.cluster, &package, secret.as_ref())
                .await?;
        }
        if subject.is_paused_for(&text(&bootstrap, "/status/resolvedTKR")) {
            if self.unpause == Unpause::Ready && !self.are_ready(&subject, spec, &workload).await? {
                return Ok(Some(LOOK_AGAIN));
            }
            self.unpause(&subject).await?;
        }
        Ok(None)
    }

    /// The ClusterBootstrap with the packages of the release, made or merged if need be.
    async fn bootstrap(&self, subject: &Subject, release: &Value) -> Result<Value> {
        let template = self.cache.template(&self.system_namespace, &subject.tkr);
        let template = template.with_context(|| format!("no template {}", subject.tkr))?;
        let collection = of_group(
            "run.tanzu.vmware.com/v1alpha3",
            &subject.namespace,
            "clusterbootstraps",
        );
        let path = format!("{collection}/{}", subject.name);
        let spec = match self.cache.bootstrap(&subject.namespace, &subject.name) {
            Some(bootstrap) if bootstrap["status"]["resolvedTKR"] == subject.tkr => return Ok(bootstrap),
            Some(bootstrap) => {
                let spec = &bootstrap["spec"];
                let own = self.named(subject, &spec["additionalPackages"]).await?;
                let others = &template["spec"]["additionalPackages"];
                let others = self.named(subject, others).await?;
                let names = bootstrap::names_of(release);
                let merged = bootstrap::merged(&subject.name, spec, &template, &names, &own, &others)?;
                self.clone_secrets(subject, &template).await?;
                self.management.merge(&path, &json!({"spec": merged})).await?;
                merged
            }
            None => {
                self.clone_secrets(subject, &template).await?;
                let bootstrap = bootstrap::from_template(&subject.cluster, &template);
                self.management.create(&collection, &bootstrap).await?;
                bootstrap["spec"].clone()
            }
        };
        // By itself, as the addons-manager does since a single write could move the status on without the spec.
        let status = json!({"status": {"resolvedTKR": subject.tkr}});
        self.management.merge(&format!("{path}/status"), &status).await?;
        Ok(json!({"spec": spec, "status": status["status"]}))
    }

    /// Has each Secret that the template names beside the Cluster, too. One that is there is left alone.
    async fn clone_secrets(&self, subject: &Subject, template: &Value) -> Result<()> {
        let entries = entries(&template["spec"]);
        for (entry, of) in entries.iter().filter_map(|entry| {
            let secret = entry["valuesFrom"]["secretRef"].as_str()?;
            Some((entry, secret))
        }) {
            let name = crate::objects::package_secret(&subject.name, &text(entry, "/refName"));
            if self.cache.secret(&subject.namespace, &name).is_some() {
                continue;
            }
            let secret = self.cache.secret(&self.system_namespace, of);
            let secret = secret.with_context(|| format!("no Secret {of}"))?;
            let copy = json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "type": BOOTSTRAP_SECRET,
                "metadata": {"name": name, "ownerReferences": [owner(&subject.cluster, false)]},
                "data": secret["data"],
            });
            self.management
                .create(&core(&subject.namespace, "secrets"), &copy)
                .await?;
        }
        Ok(())
    }

    /// Writes the PackageInstall that has kapp-controller installed from the management cluster.
    async fn install_kapp_controller(&self, subject: &Subject, entry: &Value) -> Result<()> {
        let secret = self.values(subject, entry).await?;
        let package = self.package(subject, &text(entry, "/refName")).await?;
        let secret = secret.map(|secret| text(&secret, "/metadata/name"));
        let mut install = install(&subject.cluster, &package, secret.as_deref());
        install["metadata"]["ownerReferences"] = json!([owner(&subject.cluster, false)]);
        install["spec"]["noopDelete"] = json!(true);
        let kubeconfig = json!({"name": format!("{}-kubeconfig", subject.name), "key": "value"});
        install["spec"]["cluster"] = json!({"kubeconfigSecretRef": kubeconfig});
        let collection = installs(&subject.namespace);
        let name = text(&install, "/metadata/name");
        match self.cache.install(&subject.namespace, &name) {
            None => self.management.create(&collection, &install).await,
            Some(found) if crate::rest::holds(&found, &install) => Ok(()),
            Some(_) => self.management.merge(&one(&collection, &install), &install).await,
        }
    }

    /// The Secret beside the Cluster with the values of a package; values that stand in the ClusterBootstrap are written there each time.
    async fn values(&self, subject: &Subject, entry: &Value) -> Result<Option<Value>> {
        let Some(name) = secret_of(entry, &subject.name) else {
            return Ok(None);
        };
        let inline = &entry["valuesFrom"]["inline"];
        let collection = core(&subject.namespace, "secrets");
        let found = self.cache.secret(&subject.namespace, &name);
        if !inline.is_null() {
            let wanted = inline_secret(&subject.cluster, &name, inline);
            match &found {
                None => self.management.create(&collection, &wanted).await?,
                Some(_) => {
                    self.management
                        .merge(&format!("{collection}/{name}"), &wanted)
                        .await?;
                }
            }
        }
        let secret = match found {
            Some(found) => Some(found),
            None => self.management.get(&format!("{collection}/{name}")).await?,
        };
        secret.with_context(|| format!("no Secret {name}")).map(Some)
    }

    /// A Package, looked up as often as the addons-manager does.
    async fn package(&self, subject: &Subject, name: &str) -> Result<Value> {
        for _ in 1..LOOKUPS {
            self.looked_up(subject, name).await?;
        }
        self.looked_up(subject, name).await
    }

    async fn looked_up(&self, subject: &Subject, name: &str) -> Result<Value> {
        self.pace.wait().await;
        let path = format!("{}/{name}", packages(&subject.namespace));
        let package = self.management.get(&path).await?;
        package.with_context(|| format!("no Package {name}"))
    }

    async fn named(&self, subject: &Subject, entries: &Value) -> Result<Vec<Named>> {
        let mut named = Vec::new();
        for entry in entries.as_array().into_iter().flatten() {
            let name = text(entry, "/refName");
            let package = self.looked_up(subject, &name).await?;
            let ref_name = text(&package, "/spec/refName");
            named.push(Named { name, ref_name });
        }
        Ok(named)
    }

    async fn are_ready(&self, subject: &Subject, spec: &Value, workload: &Workload) -> Result<bool> {
        for entry in entries(spec) {
            let package = self.package(subject, &text(entry, "/refName")).await?;
            let name = format!("{}-{}", subject.name, short(&text(&package, "/spec/refName")));
            let (rest, namespace) = if *entry == spec["kapp"] {
                (&self.management, &subject.namespace)
            } else {
                (&workload.rest, &self.system_namespace)
            };
            if !is_ready(rest, namespace, &name, &text(&package, "/spec/version")).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn unpause(&self, subject: &Subject) -> Result<()> {
        let path = of_group("cluster.x-k8s.io/v1beta2", &subject.namespace, "clusters");
        let change = json!({"metadata": {"annotations": {PAUSED: null}}, "spec": {"paused": false}});
        self.management
            .merge(&format!("{path}/{}", subject.name), &change)
            .await
    }
}

impl Subject {
    fn is_paused_for(&self, release: &str) -> bool {
        let paused_for = &self.cluster["metadata"]["annotations"][PAUSED];
        self.cluster["spec"]["paused"] == true && !release.is_empty() && *paused_for == release
    }
}
