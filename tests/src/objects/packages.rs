//! Packages for tests: real `Package` objects with inline ytt templates that kapp deploys.

use anyhow::Result;
use serde_json::{Value, json};

use crate::components::Binaries;
use crate::requests::apply;
use crate::stack::SYSTEM_NAMESPACE;
use crate::stack::kapp_controller::Manifests;
use crate::stack::kubelet::{DELAY_ANNOTATION, Delay};

/// Namespace in the workload cluster that packages deploy into.
pub const NAMESPACE: &str = "kube-system";

/// Namespace in the workload cluster that kapp-controller runs in.
pub const KAPP_CONTROLLER_NAMESPACE: &str = "kapp-controller";

/// Accepts whatever values a package is given.
const SCHEMA: &str = "#@data/values-schema\n#@schema/type any=True\n---\n";

/// How long kapp waits for a package whose pods are placed by its values, before it begins again.
const WAIT_FOR_NODES: &str = "--wait-timeout=45s";

/// A package of one version.
#[derive(Debug, Clone, PartialEq)]
pub struct TestPackage {
    ref_name: String,
    version: String,
    /// Objects that it deploys, besides the ConfigMap that echoes its values.
    objects: Vec<Value>,
    /// How long its Deployment takes that changes with its values.
    rolls: Option<Delay>,
    /// Whether it has a Deployment and a DaemonSet whose pods are placed by its values.
    placed: bool,
    /// `valuesSchema` of the Package.
    values_schema: Option<Value>,
    /// `kubernetesVersionSelection.constraints` of the Package.
    kubernetes: Option<String>,
    broken: Option<String>,
    plain: bool,
    /// URL of a file that is fetched and not used.
    fetches: Option<String>,
    /// Seconds that kapp waits for its objects.
    waits: Option<u32>,
}

impl TestPackage {
    /// A package `ref_name` (`antrea.slow.test`) that deploys one ConfigMap, `<short name>-values`.
    #[must_use]
    pub fn new(ref_name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            ref_name: ref_name.into(),
            version: version.into(),
            objects: Vec::new(),
            rolls: None,
            placed: false,
            values_schema: None,
            kubernetes: None,
            broken: None,
            plain: false,
            fetches: None,
            waits: None,
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
        let mut deployment = package.workload("Deployment", KAPP_CONTROLLER_NAMESPACE, Delay::NONE);
        deployment["spec"]["template"]["spec"]["containers"][0]["args"] = json!([
            format!("-packaging-global-namespace={SYSTEM_NAMESPACE}"),
            package.kapp_controller_argument(),
        ]);
        package.objects.push(deployment);
        Ok(package)
    }

    /// The same objects under another version: what runs is not replaced.
    #[must_use]
    pub fn under_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// An argument that its kapp-controller is given and that differs from one major version to the next: how many Apps it works on
    /// at once.
    #[must_use]
    pub fn kapp_controller_argument(&self) -> String {
        let major = self
            .version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok());
        format!("-concurrency={}", major.unwrap_or(0_u32) + 3)
    }

    /// Adds a Deployment named as the package, which becomes ready `delay` after each change.
    #[must_use]
    pub fn deployment(mut self, delay: Delay) -> Self {
        self.objects.push(self.workload("Deployment", NAMESPACE, delay));
        self
    }

    /// Adds a Deployment named as the package, which becomes ready `delay` after each change, of its values too.
    #[must_use]
    pub fn rolls_with_values(mut self, delay: Delay) -> Self {
        self.rolls = Some(delay);
        self
    }

    /// Adds a Deployment and a DaemonSet named as the package, as packages for Supervisors have them: the values of `tkgs-values.yaml`
    /// give the Deployment its node selector, and both their update strategies. The DaemonSet runs on all Nodes.
    #[must_use]
    pub fn placed_by_values(mut self) -> Self {
        self.placed = true;
        self
    }

    /// Has the Package say that it takes the values of `tkgs-values.yaml` and those below `own`.
    #[must_use]
    pub fn takes_placement(mut self, own: &str) -> Self {
        let open = json!({"type": "object", "additionalProperties": true});
        let strategy = json!({"type": "string"});
        let rolling = json!({
            "type": "object",
            "properties": {"maxUnavailable": {"type": "integer"}, "maxSurge": {"type": "integer"}},
        });
        self.values_schema = Some(json!({"openAPIv3": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                own: open,
                "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
                "deployment": {
                    "type": "object", "properties": {"updateStrategy": strategy, "rollingUpdate": rolling},
                },
                "daemonset": {"type": "object", "properties": {"updateStrategy": strategy}},
            },
        }}));
        self
    }

    /// Has kapp-controller install the Package only on Kubernetes versions of this range, `>=1.34.0 <1.36.0`.
    #[must_use]
    pub fn for_kubernetes(mut self, constraints: impl Into<String>) -> Self {
        self.kubernetes = Some(constraints.into());
        self
    }

    /// Adds a DaemonSet named as the package, which becomes ready `delay` after each change.
    #[must_use]
    pub fn daemon_set(mut self, delay: Delay) -> Self {
        self.objects.push(self.workload("DaemonSet", NAMESPACE, delay));
        self
    }

    /// The same with a DaemonSet whose pods are replaced when they are deleted by hand.
    #[must_use]
    pub fn on_delete_daemon_set(mut self, delay: Delay) -> Self {
        let mut workload = self.workload("DaemonSet", NAMESPACE, delay);
        workload["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
        self.objects.push(workload);
        self
    }

    /// Has the file at this URL fetched, too; it is not used.
    #[must_use]
    pub fn fetches(mut self, url: impl Into<String>) -> Self {
        self.fetches = Some(url.into());
        self
    }

    /// Has kapp wait for its objects for so many seconds only, and then fail and begin again. kapp-controller takes up another version
    /// between two runs.
    #[must_use]
    pub fn waits(mut self, seconds: u32) -> Self {
        self.waits = Some(seconds);
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

    /// Without a step that takes values: its objects are deployed as they are.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.plain = true;
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
        let (files, step): (Value, fn(Vec<String>) -> Value) = if self.plain {
            let files = json!({"config.yml": self.manifest()});
            (files, |paths| json!({"kbld": {"paths": paths}}))
        } else {
            let files = json!({"schema.yml": self.schema(), "config.yml": self.template()});
            (files, |paths| json!({"ytt": {"paths": paths}}))
        };
        let own = json!({"inline": {"paths": files}});
        let file = self.fetches.iter().map(|url| json!({"http": {"url": url}}));
        let fetch: Vec<Value> = [own].into_iter().chain(file).collect();
        // What one of several steps fetches is in a directory of its number.
        let directory = if fetch.len() > 1 { "0/" } else { "" };
        let names: &[&str] = if self.plain {
            &["config.yml"]
        } else {
            &["schema.yml", "config.yml"]
        };
        let paths = names.iter().map(|path| format!("{directory}{path}")).collect();
        let waits = self.waits.map(|seconds| format!("--wait-timeout={seconds}s"));
        let deploy = match waits.as_deref().or(self.placed.then_some(WAIT_FOR_NODES)) {
            Some(option) => json!({"kapp": {"rawOptions": [option]}}),
            None => json!({"kapp": {}}),
        };
        let mut package = json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1",
            "kind": "Package",
            "metadata": {"name": self.name(), "namespace": SYSTEM_NAMESPACE},
            "spec": {
                "refName": self.ref_name,
                "version": self.version,
                "template": {"spec": {
                    "fetch": fetch,
                    "template": [step(paths)],
                    "deploy": [deploy],
                }},
            },
        });
        if let Some(schema) = &self.values_schema {
            package["spec"]["valuesSchema"] = schema.clone();
        }
        if let Some(constraints) = &self.kubernetes {
            package["spec"]["kubernetesVersionSelection"] = json!({"constraints": constraints});
        }
        package
    }

    /// The schema of its values, with the defaults of those that place pods.
    fn schema(&self) -> String {
        let defaults = if self.placed {
            json!({
                "nodeSelector": {},
                "deployment": {
                    "updateStrategy": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1},
                },
                "daemonset": {"updateStrategy": "RollingUpdate"},
            })
        } else {
            json!({})
        };
        format!("{SCHEMA}{defaults}\n")
    }

    /// The objects, and the ConfigMap with the version alone.
    fn manifest(&self) -> String {
        let echo = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("{}-values", self.short()), "namespace": NAMESPACE},
            "data": {"version": self.version},
        });
        let objects = self.objects.iter().chain([&echo]);
        let documents: Vec<String> = objects.map(|object| format!("---\n{object}\n")).collect();
        documents.concat()
    }

    fn template(&self) -> String {
        let loads = [("data", "data"), ("json", "json"), ("assert", "assert")]
            .map(|(module, name)| format!("#@ load(\"@ytt:{module}\", \"{name}\")\n"));
        let broken = self.broken.iter().map(|complaint| {
            format!(
                "---\nbroken: #@ assert.fail({})\n",
                Value::from(complaint.as_str())
            )
        });
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
            .chain(self.rolls.map(|delay| self.rolling(delay)))
            .chain(self.placed.then(|| self.placement()))
            .collect()
    }

    /// The objects of [`Self::placed_by_values`]. What ytt computes has to stand at the end of a line.
    fn placement(&self) -> String {
        let deployment = self.workload("Deployment", NAMESPACE, Delay::NONE);
        let daemon_set = self.workload("DaemonSet", NAMESPACE, Delay::NONE);
        let pod = |workload: &Value| {
            let template = &workload["spec"]["template"];
            (
                template["metadata"].clone(),
                template["spec"]["containers"].clone(),
            )
        };
        let ((metadata, containers), (daemon_metadata, daemon_containers)) =
            (pod(&deployment), pod(&daemon_set));
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {}\nspec:\n  replicas: 1\n  selector: {}\n  \
             strategy:\n    type: #@ data.values.deployment.updateStrategy\n    \
             rollingUpdate: #@ data.values.deployment.rollingUpdate\n  template:\n    metadata: {metadata}\n    spec:\n      \
             nodeSelector: #@ data.values.nodeSelector\n      containers: {containers}\n\
             ---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {}\nspec:\n  selector: {}\n  \
             updateStrategy:\n    type: #@ data.values.daemonset.updateStrategy\n  \
             template:\n    metadata: {daemon_metadata}\n    spec:\n      containers: {daemon_containers}\n",
            deployment["metadata"],
            deployment["spec"]["selector"],
            daemon_set["metadata"],
            daemon_set["spec"]["selector"],
        )
    }

    /// The Deployment of [`Self::rolls_with_values`]. What ytt computes has to stand at the end of a line.
    fn rolling(&self, delay: Delay) -> String {
        let workload = self.workload("Deployment", NAMESPACE, delay);
        let (spec, pod) = (&workload["spec"], &workload["spec"]["template"]);
        format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {}\nspec:\n  replicas: 1\n  selector: {}\n  template:\n    \
             metadata:\n      labels: {}\n      annotations:\n        harness.test/version: {}\n        \
             harness.test/values: #@ json.encode(data.values)\n    spec: {}\n",
            workload["metadata"],
            spec["selector"],
            pod["metadata"]["labels"],
            pod["metadata"]["annotations"]["harness.test/version"],
            pod["spec"],
        )
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

    #[test]
    fn a_package_names_the_kubernetes_versions_that_it_is_for() {
        let package = TestPackage::new("metrics.slow.test", "1.9.0");
        assert!(
            package.package()["spec"]
                .get("kubernetesVersionSelection")
                .is_none()
        );
        let package = package.for_kubernetes("<1.36.0").package();
        assert_eq!(
            package["spec"]["kubernetesVersionSelection"]["constraints"],
            "<1.36.0"
        );
    }

    #[test]
    fn kapp_waits_for_as_long_as_the_package_says() {
        let package = TestPackage::new("metrics.slow.test", "1.9.0");
        let deploy =
            |package: &TestPackage| package.package()["spec"]["template"]["spec"]["deploy"][0].clone();
        assert_eq!(deploy(&package), json!({"kapp": {}}));
        let options = json!({"kapp": {"rawOptions": ["--wait-timeout=10s"]}});
        assert_eq!(deploy(&package.waits(10)), options);
    }

    #[test]
    fn a_deployment_that_rolls_with_its_values_is_yaml() {
        let package = TestPackage::new("metrics.slow.test", "1.9.0").rolls_with_values(Delay::seconds(8));
        let documents = apply::documents(&package.template().replace("#@ json", "# json")).unwrap();
        let deployment = documents
            .iter()
            .find(|document| document["kind"] == "Deployment")
            .unwrap();
        let pod = &deployment["spec"]["template"];
        assert_eq!(deployment["metadata"]["name"], "metrics");
        assert_eq!(pod["metadata"]["annotations"]["harness.test/version"], "1.9.0");
        assert_eq!(pod["spec"]["containers"][0]["name"], "metrics");
        assert!(
            package
                .template()
                .contains("\n        harness.test/values: #@ json.encode(data.values)\n")
        );
    }

    #[test]
    fn pods_that_values_place_are_yaml() {
        let package = TestPackage::new("agent.slow.test", "1.9.0")
            .placed_by_values()
            .takes_placement("agent");
        let documents = apply::documents(&package.template().replace("#@ ", "# ")).unwrap();
        let of_kind = |kind: &str| {
            documents
                .iter()
                .find(|document| document["kind"] == kind)
                .unwrap()
        };
        let (deployment, daemon_set) = (of_kind("Deployment"), of_kind("DaemonSet"));
        for workload in [deployment, daemon_set] {
            let pod = &workload["spec"]["template"];
            assert_eq!(pod["metadata"]["annotations"]["harness.test/version"], "1.9.0");
            assert_eq!(pod["spec"]["containers"][0]["name"], "agent");
        }
        assert!(
            deployment["spec"]["template"]["spec"]
                .get("nodeSelector")
                .is_some()
        );
        assert!(
            daemon_set["spec"]["template"]["spec"]
                .get("nodeSelector")
                .is_none()
        );
        assert!(daemon_set["spec"]["updateStrategy"].get("type").is_some());
        let schema = apply::documents(&package.schema().replace("#@", "# ")).unwrap();
        assert_eq!(schema[0]["daemonset"]["updateStrategy"], "RollingUpdate");
        let spec = &package.package()["spec"];
        let properties = &spec["valuesSchema"]["openAPIv3"]["properties"];
        assert_eq!(properties["agent"]["type"], "object");
        assert_eq!(
            spec["template"]["spec"]["deploy"][0]["kapp"]["rawOptions"][0],
            WAIT_FOR_NODES
        );
    }
}
