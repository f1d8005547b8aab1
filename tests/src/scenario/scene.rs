//! One scenario's part of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use kube::Client;
use serde_json::{Value, json};

use super::cluster::NewCluster;
use super::objects::Objects;
use super::read;
use super::runner::TIMEOUT;
use super::table::Table;
use super::world::World;
use crate::objects::packages::TestPackage;
use crate::objects::{Class, Release, Values};
use crate::processes::canary;
use crate::repository::{Source, TkrPackage, repository};
use crate::requests::{apply, edit};
use crate::stack::SYSTEM_NAMESPACE;
use crate::stack::kubelet::Delay;
use crate::wait;

/// A namespace on the management cluster, and packages and releases that only this scenario uses.
#[derive(Clone)]
pub struct Scene {
    world: Arc<World>,
    namespace: String,
    /// Where the releases and OSImages are that the scenario has published.
    releases: Arc<Mutex<BTreeSet<String>>>,
    /// Whether the scenario has a PackageRepository.
    offers: Arc<AtomicBool>,
}

impl Scene {
    /// Creates the namespace with a ClusterClass in it.
    pub async fn open(world: &Arc<World>, namespace: &str, class: &Class) -> Result<Self> {
        let scene = Self {
            world: world.clone(),
            namespace: namespace.to_owned(),
            releases: Arc::default(),
            offers: Arc::default(),
        };
        apply::namespace(&scene.client(), namespace).await?;
        apply::apply_all(&scene.client(), &class.objects(namespace)).await?;
        let path = format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusterclasses/{}",
            Class::name()
        );
        wait::until(
            "the ClusterClass to be usable",
            Duration::from_mins(2),
            || async {
                let class = read::get(&scene.client(), &path).await?;
                match read::condition(&class, "VariablesReady") {
                    Some(condition) if condition["status"] == "True" => Ok(()),
                    _ => wait::not_yet(read::describe(&class, "VariablesReady")),
                }
            },
        )
        .await?;
        Ok(scene)
    }

    /// Resources that the scenario shares with others.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The management cluster, with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.world.stack().client()
    }

    /// Any object of the management cluster.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::of(self.client())
    }

    /// The scenario's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A package of this scenario: `<short>.<namespace>.test`, one ConfigMap.
    #[must_use]
    pub fn package(&self, short: &str, version: &str) -> TestPackage {
        TestPackage::new(format!("{short}.{}.test", self.namespace), version)
    }

    /// A package of this scenario with a Deployment that becomes ready after `delay`.
    #[must_use]
    pub fn slow_package(&self, short: &str, version: &str, delay: Delay) -> TestPackage {
        self.package(short, version).deployment(delay)
    }

    /// The package that installs kapp-controller.
    pub fn kapp_controller(&self, version: &str) -> Result<TestPackage> {
        TestPackage::kapp_controller(
            format!("kapp-controller.{}.test", self.namespace),
            version,
            self.world.stack().core().binaries(),
        )
    }

    /// A release with kapp-controller and the CNI `antrea`, both of package version `version`.
    pub fn release(&self, kubernetes: &str, version: &str, antrea: Delay) -> Result<Release> {
        Ok(Release::new(
            kubernetes,
            format!("{}.1", self.namespace),
            self.kapp_controller(version)?,
            self.slow_package("antrea", version, antrea),
        ))
    }

    /// The same with two more packages, so that values come in every way: from the management cluster, inline, in a Secret, not
    /// at all. `antrea` and `metrics` say how long these two take.
    pub fn full_release(
        &self,
        kubernetes: &str,
        version: &str,
        antrea: Delay,
        metrics: Delay,
    ) -> Result<Release> {
        Ok(self
            .release(kubernetes, version, antrea)?
            .additional(self.slow_package("metrics-server", version, metrics))
            .additional(self.package("secretgen-controller", version))
            .values(
                "antrea",
                Values::Inline(json!({"antrea": {"config": {"trafficEncapMode": "encap"}}})),
            )
            .values(
                "metrics-server",
                Values::Secret(json!({"metricsServer": {"replicas": 1, "password": canary::VALUES}})),
            ))
    }

    /// Applies everything that belongs to a release.
    pub async fn publish(&self, release: &Release) -> Result<()> {
        self.withdraws(release);
        self.apply(&release.objects()).await
    }

    /// Waits until kubectl shows these releases as ready.
    pub async fn releases_are_ready(&self, releases: &[Release]) -> Result<()> {
        wait::until("releases to be ready", TIMEOUT, || async {
            let table = Table::get(&self.client(), Release::PATH).await?;
            let is_ready = |release: &Release| {
                let row = table.row(&release.name());
                row.is_some_and(|row| row["READY"] == "True")
            };
            if releases.iter().all(is_ready) {
                Ok(())
            } else {
                wait::not_yet(table)
            }
        })
        .await?;
        Ok(())
    }

    /// A Package that brings a release and these images, whose bundle is published; it is in no repository yet.
    pub async fn tkr_package(
        &self,
        source: &Source,
        release: &Release,
        images: &[Value],
    ) -> Result<TkrPackage> {
        self.withdraws(release);
        TkrPackage::publish(source, &self.namespace, release, images).await
    }

    /// Applies the scenario's PackageRepository, which has these Packages from now on.
    pub async fn offer(&self, source: &Source, packages: &[Value]) -> Result<()> {
        self.offers.store(true, Ordering::Relaxed);
        let repository = repository(source, &self.namespace, packages).await?;
        self.apply(&[repository]).await
    }

    /// The path of the scenario's PackageRepository.
    #[must_use]
    pub fn repository_path(&self) -> String {
        format!(
            "/apis/packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packagerepositories/{}",
            self.namespace
        )
    }

    /// Has a release and its OSImages withdrawn at the end that come in another way.
    pub fn withdraws(&self, release: &Release) {
        let images = release
            .images()
            .map(|image| format!("{}/{image}", Release::IMAGES));
        let paths = images.chain([format!("{}/{}", Release::PATH, release.name())]);
        let mut releases = self.releases.lock().unwrap_or_else(PoisonError::into_inner);
        releases.extend(paths);
    }

    /// Applies objects to the management cluster.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        apply::apply_all(&self.client(), objects).await
    }

    /// A Cluster in the scenario's namespace, to be described further and created.
    #[must_use]
    pub fn cluster(&self, name: &str) -> NewCluster {
        NewCluster::new(self.clone(), name)
    }

    /// Fails if a version was written too early for a Cluster of this scenario.
    pub async fn in_order(&self) -> Result<()> {
        let observer = self.world.observer();
        observer.catch_up().await?;
        match observer.violations(&self.namespace) {
            violations if violations.is_empty() => Ok(()),
            violations => bail!(
                "the observer saw:\n{}",
                violations
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("\n")
            ),
        }
    }

    /// Deletes the scenario's namespace; does not wait.
    pub async fn delete_namespace(&self) -> Result<()> {
        let request = http::Request::delete(self.namespace_path()).body(Vec::new())?;
        self.client().request_text(request).await?;
        Ok(())
    }

    /// Waits until the scenario's namespace is gone.
    pub async fn namespace_is_gone(&self) -> Result<()> {
        let what = format!("namespace {} to be gone", self.namespace);
        wait::until(what, Duration::from_mins(2), || async {
            let request = http::Request::get(self.namespace_path()).body(Vec::new())?;
            match self.client().request::<Value>(request).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                Err(error) => Err(error.into()),
                Ok(namespace) => wait::not_yet(&namespace["status"]),
            }
        })
        .await?;
        Ok(())
    }

    fn namespace_path(&self) -> String {
        format!("/api/v1/namespaces/{}", self.namespace)
    }

    /// Deletes the scenario's Clusters, waits until they are gone, and withdraws its PackageRepository and its releases.
    pub async fn close(&self) -> Result<()> {
        self.delete_clusters().await?;
        self.delete_repository().await?;
        let releases = std::mem::take(&mut *self.releases.lock().unwrap_or_else(PoisonError::into_inner));
        for path in releases {
            self.client()
                .request_text(http::Request::delete(path).body(Vec::new())?)
                .await?;
        }
        Ok(())
    }

    async fn delete_repository(&self) -> Result<()> {
        if !self.offers.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = self.repository_path();
        self.objects().delete(&path).await?;
        wait::until(
            "the PackageRepository to be gone",
            Duration::from_mins(2),
            || async {
                match edit::get(&self.client(), &path).await? {
                    None => Ok(()),
                    Some(repository) => wait::not_yet(&repository["status"]),
                }
            },
        )
        .await?;
        Ok(())
    }

    async fn delete_clusters(&self) -> Result<()> {
        let clusters = format!(
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters",
            self.namespace
        );
        let request = http::Request::delete(&clusters).body(Vec::new())?;
        self.client().request_text(request).await?;
        wait::until("the Clusters to be deleted", Duration::from_mins(2), || async {
            let left = read::get(&self.client(), &clusters).await?;
            let left: BTreeMap<String, String> = left["items"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|cluster| {
                    let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
                    (name.to_owned(), read::describe(cluster, "Deleting"))
                })
                .collect();
            if left.is_empty() {
                Ok(())
            } else {
                wait::not_yet(format!("{left:?}"))
            }
        })
        .await?;
        Ok(())
    }
}
