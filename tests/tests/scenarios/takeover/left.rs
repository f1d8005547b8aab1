//! A settled Cluster as the addons-manager leaves it. Nothing of the addons-manager runs here: its objects are written as its sources
//! write them (release 0.29, `addons/controllers` and `addons/pkg/util`), while no replica of Sluice runs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::objects::{Release, TKR};
use sluice_tests::scenario::{Cluster, Objects, TIMEOUT};
use sluice_tests::wait;

pub(super) const FINALIZER: &str = "tkg.tanzu.vmware.com/addon";
pub(super) const HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/tkg.tanzu.vmware.com";
const HOOK_VALUE: &str = "tkg.tanzu.vmware.com/addons";
const SYSTEM: &str = "tkg-system";
const RESOLVED: &str = "lifecycle.sluice.dev/resolved-tkr";

/// Key of the values of Supervisors.
const PLACEMENT: &str = "tkgs-values.yaml";

/// On a Cluster: it is a management cluster, by its presence.
pub(super) const ROLE: &str = "cluster-role.tkg.tanzu.vmware.com/management";

/// The account that kapp-controller installs packages with.
const ACCOUNT: &str = "tanzu-cluster-bootstrap-sa";

/// One package: its PackageInstall and its App are on the same server, and so is the Secret with its values.
pub(super) struct Installed<'a> {
    cluster: &'a Cluster,
    package: &'a TestPackage,
    namespace: String,
    objects: Objects,
}

impl<'a> Installed<'a> {
    pub(super) fn of(cluster: &'a Cluster, package: &'a TestPackage) -> Result<Self> {
        let on_management = package.short() == "kapp-controller";
        let (namespace, objects) = if on_management {
            (cluster.scene().namespace().to_owned(), cluster.scene().objects())
        } else {
            let workload = cluster.workload()?.api.admin_client();
            (SYSTEM.to_owned(), Objects::of(workload))
        };
        Ok(Self {
            cluster,
            package,
            namespace,
            objects,
        })
    }

    fn name(&self) -> String {
        format!("{}-{}", self.cluster.name(), self.package.short())
    }

    fn path(&self, group: &str, plural: &str, name: &str) -> String {
        format!("{group}/namespaces/{}/{plural}/{name}", self.namespace)
    }

    fn install_path(&self) -> String {
        self.path(
            "/apis/packaging.carvel.dev/v1alpha1",
            "packageinstalls",
            &self.name(),
        )
    }

    fn secret_path(&self, name: &str) -> String {
        self.path("/api/v1", "secrets", name)
    }

    /// The name of its values Secret: `<cluster>-<short>-data-values`.
    fn fixed(&self) -> String {
        format!("{}-data-values", self.name())
    }

    async fn get(&self, path: &str) -> Result<Value> {
        self.objects
            .get(path)
            .await?
            .with_context(|| format!("{path} does not exist"))
    }

    async fn app(&self) -> Result<Value> {
        self.get(&self.path("/apis/kappctrl.k14s.io/v1alpha1", "apps", &self.name()))
            .await
    }

    /// UID, generation and spec of PackageInstall and App.
    pub(super) async fn identity(&self) -> Result<Value> {
        let install = self.get(&self.install_path()).await?;
        let of = |object: &Value| {
            let metadata = &object["metadata"];
            json!({"uid": metadata["uid"], "generation": metadata["generation"], "spec": object["spec"]})
        };
        Ok(json!([of(&install), of(&self.app().await?)]))
    }

    /// UID and content of the Secret of the fixed name.
    pub(super) async fn fixed_secret(&self) -> Result<Value> {
        let secret = self.get(&self.secret_path(&self.fixed())).await?;
        Ok(json!({"uid": secret["metadata"]["uid"], "data": secret["data"]}))
    }

    /// Deletes the PackageInstall and waits until kapp-controller has uninstalled the package.
    pub(super) async fn uninstall(&self) -> Result<()> {
        self.objects.delete(&self.install_path()).await?;
        wait::until(format!("{} to be gone", self.name()), TIMEOUT, || async {
            match self.objects.get(&self.install_path()).await? {
                None => Ok(()),
                Some(install) => wait::not_yet(&install["status"]),
            }
        })
        .await?;
        Ok(())
    }

    /// Creates the PackageInstall as the addons-manager does, and the Secret of the fixed name with these values if it does not exist.
    async fn create(&self, values: &BTreeMap<String, String>) -> Result<()> {
        let (cluster, scene) = (self.cluster.name(), self.cluster.scene());
        if !self.has_fixed_secret().await? {
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": self.fixed(), "namespace": self.namespace},
                "data": values,
            });
            self.objects
                .restore(&self.secret_path(&self.fixed()), &secret)
                .await?;
        }
        let annotations = json!({
            "tkg.tanzu.vmware.com/cluster-name": cluster,
            "tkg.tanzu.vmware.com/cluster-namespace": scene.namespace(),
        });
        let install = json!({
            "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
            "metadata": {"name": self.name(), "namespace": self.namespace, "annotations": annotations},
            "spec": {
                "serviceAccountName": ACCOUNT,
                "syncPeriod": "10m0s",
                "values": [{"secretRef": {"name": self.fixed()}}],
                "packageRef": {
                    "refName": self.package.ref_name(),
                    "versionSelection": {"constraints": self.package.version(), "prereleases": {}},
                },
            },
        });
        self.objects.restore(&self.install_path(), &install).await
    }

    /// The Secret that the PackageInstall takes its values from, if it names one.
    pub(super) async fn named(&self) -> Result<Option<String>> {
        let install = self.get(&self.install_path()).await?;
        let name = install["spec"]["values"][0]["secretRef"]["name"].as_str();
        Ok(name.map(str::to_owned))
    }

    /// Whether the Secret of the fixed name exists.
    pub(super) async fn has_fixed_secret(&self) -> Result<bool> {
        Ok(self
            .objects
            .get(&self.secret_path(&self.fixed()))
            .await?
            .is_some())
    }

    /// Has the PackageInstall ask for `version` with values from the Secret of the fixed name, and for none where `values` are none.
    async fn install(&self, version: &str, values: Option<&BTreeMap<String, String>>) -> Result<()> {
        let named = match values {
            None => json!([]),
            Some(values) => {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": self.fixed(), "namespace": self.namespace},
                    "data": values,
                });
                self.objects
                    .restore(&self.secret_path(&self.fixed()), &secret)
                    .await?;
                json!([{"secretRef": {"name": self.fixed()}}])
            }
        };
        let change = json!({"spec": {
            "values": named, "syncPeriod": "10m0s",
            "packageRef": {"versionSelection": {"constraints": version}},
        }});
        self.objects.merge(&self.install_path(), &change).await
    }

    /// Waits until kapp-controller has deployed the generation of the PackageInstall.
    async fn is_deployed(&self) -> Result<()> {
        let what = format!("{} to be deployed as the addons-manager had it", self.name());
        wait::until(what, TIMEOUT, || async {
            let install = self.get(&self.install_path()).await?;
            let app = self.app().await?;
            let is_done = |object: &Value| {
                let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
                let mut true_ones = conditions.filter(|condition| condition["status"] == "True");
                object["status"]["observedGeneration"] == object["metadata"]["generation"]
                    && true_ones.any(|condition| condition["type"] == "ReconcileSucceeded")
            };
            let named = install["spec"]["values"][0]["secretRef"]["name"]
                .as_str()
                .unwrap_or_default();
            let uses = named.is_empty() || app["spec"].to_string().contains(&format!("{named}\""));
            if is_done(&install) && is_done(&app) && uses {
                Ok(())
            } else {
                wait::not_yet(format!("{} {}", install["status"], app["status"]["conditions"]))
            }
        })
        .await?;
        Ok(())
    }

    /// The values as the addons-manager wrote them: those written in the ClusterBootstrap as YAML, others as they are.
    async fn values(&self, bootstrap: &Value) -> Result<Option<BTreeMap<String, String>>> {
        let spec = &bootstrap["spec"];
        let others = spec["additionalPackages"].as_array().into_iter().flatten();
        let mut all = [&spec["kapp"], &spec["cni"]].into_iter().chain(others);
        let is_it = |found: &&Value| found["refName"] == self.package.name();
        let from = all.find(is_it).map_or(&Value::Null, |found| &found["valuesFrom"]);
        if from.is_null() {
            return Ok(None);
        }
        if from["inline"].is_object() {
            let document = serde_saphyr::to_string(&from["inline"]).context("write values")?;
            return Ok(Some(
                [("values.yaml".to_owned(), BASE64_STANDARD.encode(document))].into(),
            ));
        }
        let named = self.named().await?.context("a PackageInstall without values")?;
        let secret = self.get(&self.secret_path(&named)).await?;
        Ok(Some(serde_json::from_value(secret["data"].clone())?))
    }
}

/// Installed packages of `release`.
pub(super) fn installed<'a>(cluster: &'a Cluster, release: &'a Release) -> Result<Vec<Installed<'a>>> {
    release
        .packages()
        .map(|package| Installed::of(cluster, package))
        .collect()
}

/// Makes of a settled Cluster at `release` what the addons-manager would have made: its PackageInstalls and values, its finalizers and
/// annotations, and a ClusterBootstrap that Sluice has never seen.
pub(crate) async fn by_the_addons_manager(cluster: &Cluster, release: &Release) -> Result<()> {
    leave(cluster, release, None).await
}

/// The same on a Supervisor, where each values Secret, which no package lacks, also places pods on Nodes of the release.
pub(super) async fn on_a_supervisor(cluster: &Cluster, release: &Release) -> Result<()> {
    leave(cluster, release, Some(&placement(release))).await
}

/// `tkgs-values.yaml`, as the addons-manager formats it.
fn placement(release: &Release) -> String {
    format!(
        "nodeSelector:\n    {TKR}: {}\ndeployment:\n    updateStrategy: RollingUpdate\n    rollingUpdate:\n        \
         maxUnavailable: 0\n        maxSurge: 1\ndaemonset:\n    updateStrategy: OnDelete\n",
        release.name()
    )
}

async fn leave(cluster: &Cluster, release: &Release, placement: Option<&str>) -> Result<()> {
    let bootstrap = cluster.bootstrap().await?;
    for package in installed(cluster, release)? {
        let before = package.named().await?;
        let mut values = package.values(&bootstrap).await?;
        if let Some(placement) = placement {
            let content = BASE64_STANDARD.encode(placement);
            values
                .get_or_insert_default()
                .insert(PLACEMENT.to_owned(), content);
        }
        package
            .install(package.package.version(), values.as_ref())
            .await?;
        package.is_deployed().await?;
        if let Some(before) = before {
            package.objects.delete(&package.secret_path(&before)).await?;
        }
    }
    forget(cluster, &release.name()).await?;
    for path in with_finalizer(cluster) {
        add_finalizer(&cluster.scene().objects(), &path).await?;
    }
    for machine in machines(cluster).await? {
        let hook = json!({"metadata": {"annotations": {HOOK: HOOK_VALUE}}});
        cluster
            .scene()
            .objects()
            .merge(&machine_path(cluster, &machine), &hook)
            .await?;
    }
    Ok(())
}

/// Makes of an unmanaged Cluster, whose kubeconfig leads to the management API server, the management cluster of the addons-manager at
/// `release`: everything that it writes, in the system namespace of that server. There it installs no kapp-controller, and leaves no
/// finalizer. The AntreaConfig and its values are those of `like`, a Cluster of the same namespace and release.
pub(super) async fn on_the_management_cluster(
    cluster: &Cluster,
    release: &Release,
    like: &Cluster,
) -> Result<()> {
    let (scene, name, system) = (cluster.scene(), cluster.name(), SYSTEM);
    scene.apply(&account()).await?;
    let renamed = |of: &Value| -> Result<Value> {
        let (theirs, own) = (format!("\"{}-", like.name()), format!("\"{name}-"));
        Ok(serde_json::from_str(&of.to_string().replace(&theirs, &own))?)
    };
    let uid = cluster.object().await?["metadata"]["uid"].clone();
    let owner = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let mut antrea = BTreeMap::new();
    for (path, kind) in [
        ("/api/v1", "secrets/NAME-antrea-data-values"),
        (
            "/apis/cni.tanzu.vmware.com/v1alpha1",
            "antreaconfigs/NAME-antrea-package",
        ),
    ] {
        let at = |cluster: &str| {
            let object = kind.replace("NAME", cluster);
            format!("{path}/namespaces/{system}/{object}")
        };
        let theirs = at(like.name());
        let found = scene.objects().get(&theirs).await?;
        let found = found.with_context(|| format!("{theirs} does not exist"))?;
        let mut own = renamed(&found)?;
        let labels = own["metadata"]["labels"].clone();
        own["metadata"] = json!({"name": own["metadata"]["name"], "namespace": system, "labels": labels});
        own["metadata"]["ownerReferences"] = owner.clone();
        if !own["metadata"]["labels"]["tkg.tanzu.vmware.com/cluster-name"].is_null() {
            own["metadata"]["labels"]["tkg.tanzu.vmware.com/cluster-name"] = json!(name);
        }
        scene.objects().restore(&at(name), &own).await?;
        if path == "/api/v1" {
            antrea = serde_json::from_value(own["data"].clone())?;
        } else {
            let status = json!({"status": {"secretRef": format!("{name}-antrea-data-values")}});
            scene
                .objects()
                .merge(&format!("{}/status", at(name)), &status)
                .await?;
        }
    }
    let bootstrap = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
        "metadata": {"name": name, "namespace": system, "ownerReferences": owner},
        "spec": renamed(&like.bootstrap().await?["spec"])?,
    });
    scene.apply(std::slice::from_ref(&bootstrap)).await?;
    forget(cluster, &release.name()).await?;
    for package in release
        .packages()
        .filter(|package| package.short() != "kapp-controller")
    {
        let installed = Installed::of(cluster, package)?;
        if package.short() == "antrea" {
            installed.create(&antrea).await?;
        } else {
            let values = installed.values(&bootstrap).await?.unwrap_or_default();
            installed.create(&values).await?;
        }
        installed.is_deployed().await?;
    }
    let labels = json!({"metadata": {"labels": {TKR: release.name(), ROLE: ""}}});
    cluster.patch(&labels).await?;
    Ok(())
}

/// The account of kapp-controller with its role, which may do everything.
fn account() -> [Value; 3] {
    let (role, binding) = (
        "tanzu-cluster-bootstrap-clusterrole",
        "tanzu-cluster-bootstrap-clusterrolebinding",
    );
    let group = "rbac.authorization.k8s.io";
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": SYSTEM},
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": role},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": binding},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}],
        }),
    ]
}

/// What the addons-manager does once label, version and pause are written, up to its own end between two packages: the ClusterBootstrap is
/// that of the new release, and so are the first packages.
pub(super) async fn in_mid_upgrade(cluster: &Cluster, new: &Release) -> Result<()> {
    let bootstrap = cluster.bootstrap().await?;
    let mut spec = bootstrap["spec"].clone();
    for package in new.packages() {
        let all = ["kapp", "cni"].map(str::to_owned);
        for field in all {
            rename(&mut spec[field.as_str()], package);
        }
        for other in spec["additionalPackages"].as_array_mut().into_iter().flatten() {
            rename(other, package);
        }
    }
    cluster.patch_bootstrap(&json!({"spec": spec})).await?;
    forget(cluster, &new.name()).await?;
    let merged = cluster.bootstrap().await?;
    for package in installed(cluster, new)?.iter().take(2) {
        let values = package.values(&merged).await?;
        package.copy_package().await?;
        package
            .install(package.package.version(), values.as_ref())
            .await?;
    }
    Ok(())
}

/// The package of `found` becomes that of the new release, if it is the same.
fn rename(found: &mut Value, package: &TestPackage) {
    let is_it = |name: &str| name.starts_with(&format!("{}.", package.ref_name()));
    if found["refName"].as_str().is_some_and(is_it) {
        found["refName"] = json!(package.name());
    }
}

impl Installed<'_> {
    /// Copies the spec of the Package into the workload.
    async fn copy_package(&self) -> Result<()> {
        if self.namespace != SYSTEM {
            return Ok(());
        }
        let name = self.package.name();
        let path = format!("/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM}/packages/{name}");
        let source = self.cluster.scene().objects().get(&path).await?;
        let source = source.with_context(|| format!("{path} does not exist"))?;
        let copy = json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package",
            "metadata": {"name": name, "namespace": SYSTEM}, "spec": source["spec"],
        });
        self.objects.restore(&path, &copy).await
    }
}

/// The ClusterBootstrap as the addons-manager leaves it: resolved for a release by its status alone.
async fn forget(cluster: &Cluster, release: &str) -> Result<()> {
    let bootstrap = cluster
        .patch_bootstrap(&json!({"metadata": {"annotations": {RESOLVED: null}}}))
        .await?;
    let mut status = serde_json::Map::new();
    for field in bootstrap["status"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(field, _)| field)
    {
        status.insert(field.clone(), Value::Null);
    }
    let conditions = bootstrap["status"]["conditions"].as_array().into_iter().flatten();
    let mirrored = conditions.filter(|condition| {
        condition["type"]
            .as_str()
            .is_some_and(|type_| type_.contains("-Reconcile"))
    });
    status.insert("conditions".to_owned(), mirrored.cloned().collect());
    status.insert("resolvedTKR".to_owned(), json!(release));
    let path = format!("{}/status", bootstrap_path(cluster));
    cluster
        .scene()
        .objects()
        .merge(&path, &json!({"status": status}))
        .await
}

/// What carries the finalizer: Cluster, kubeconfig and ClusterBootstrap.
fn with_finalizer(cluster: &Cluster) -> [String; 3] {
    let (namespace, name) = (cluster.scene().namespace(), cluster.name());
    [
        format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/{name}"),
        format!("/api/v1/namespaces/{namespace}/secrets/{name}-kubeconfig"),
        bootstrap_path(cluster),
    ]
}

fn bootstrap_path(cluster: &Cluster) -> String {
    let (namespace, name) = (cluster.scene().namespace(), cluster.name());
    format!("/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{namespace}/clusterbootstraps/{name}")
}

async fn add_finalizer(objects: &Objects, path: &str) -> Result<()> {
    wait::until(
        format!("a finalizer of {path} to be written"),
        TIMEOUT,
        || async {
            let found = objects
                .get(path)
                .await?
                .with_context(|| format!("{path} does not exist"))?;
            let mut all = found["metadata"]["finalizers"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            all.push(json!(FINALIZER));
            let version = &found["metadata"]["resourceVersion"];
            let change = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
            objects.merge(path, &change).await.map_err(Into::into)
        },
    )
    .await?;
    Ok(())
}

/// The Machines of the Cluster.
pub(super) async fn machines(cluster: &Cluster) -> Result<Vec<Value>> {
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines?labelSelector=cluster.x-k8s.io%2Fcluster-name%3D{}",
        cluster.scene().namespace(),
        cluster.name()
    );
    let listed = cluster
        .scene()
        .objects()
        .get(&path)
        .await?
        .context("Machines are not served")?;
    Ok(listed["items"].as_array().cloned().unwrap_or_default())
}

fn machine_path(cluster: &Cluster, machine: &Value) -> String {
    format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{}",
        cluster.scene().namespace(),
        machine["metadata"]["name"].as_str().unwrap_or_default()
    )
}

/// Waits until nothing of the addons-manager is left of a Cluster that is there.
pub(crate) async fn nothing_is_left(cluster: &Cluster, deadline: Duration) -> Result<()> {
    let what = format!("nothing of the addons-manager to be left of {}", cluster.name());
    let objects = cluster.scene().objects();
    wait::until(what, deadline, || async {
        for path in with_finalizer(cluster) {
            let found = objects.get(&path).await?.unwrap_or_default();
            let finalizers = found["metadata"]["finalizers"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            if finalizers.iter().any(|name| name == FINALIZER) {
                return wait::not_yet(format!("{path} has its finalizer"));
            }
        }
        for machine in machines(cluster).await? {
            if !machine["metadata"]["annotations"][HOOK].is_null() {
                return wait::not_yet(format!("{} has its annotation", machine["metadata"]["name"]));
            }
        }
        Ok(())
    })
    .await?;
    Ok(())
}
