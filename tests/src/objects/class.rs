//! A ClusterClass with the templates that it needs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::cluster::CLUSTER_API;
use crate::provider::{GROUP, INFRASTRUCTURE_GROUP, SwapDelay, VERSION, WorkloadControllers};

/// Name of the class and of every template.
const NAME: &str = "harness";

/// Infrastructure kinds of the Clusters of a class. All are stand-ins, but the values of some packages depend on the kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Infrastructure {
    /// A kind that no package knows.
    #[default]
    Harness,
    /// One that they know.
    Docker,
    /// One that some of them read addresses of.
    VSphere,
}

impl Infrastructure {
    const fn group_kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Harness => (GROUP, "HarnessCluster"),
            Self::Docker => (INFRASTRUCTURE_GROUP, "DockerCluster"),
            Self::VSphere => (INFRASTRUCTURE_GROUP, "VSphereCluster"),
        }
    }

    /// Fields of the object that packages read.
    fn spec(self) -> Value {
        match self {
            Self::Harness | Self::Docker => json!({}),
            Self::VSphere => json!({"server": "vcenter.harness.test", "thumbprint": "AA:BB:CC"}),
        }
    }

    /// Machine template of control planes, for packages that read it.
    fn machines(self, namespace: &str) -> Option<Value> {
        let spec = json!({"datacenter": "dc0", "network": {"devices": [{"networkName": "VM Network"}]}});
        (self == Self::VSphere).then(|| template((INFRASTRUCTURE_GROUP, "VSphereMachine"), namespace, &spec))
    }
}

/// Options of a ClusterClass.
#[derive(Debug, Clone, Default)]
pub struct Class {
    /// Artificial pauses around a change of version or image of the control plane.
    pub swap_delay: SwapDelay,
    /// By version: values of the API server's `--runtime-config`.
    pub runtime_config: BTreeMap<String, Vec<String>>,
    /// Versions of chained upgrades; none leaves the field away.
    pub kubernetes_versions: Vec<String>,
    /// Handler that plans upgrades, `<handler>.<extension>`; none leaves the field away.
    pub upgrade_plan: Option<String>,
    /// What Clusters run on.
    pub infrastructure: Infrastructure,
    /// What images machines are made of; none leaves it open.
    pub images: Option<Images>,
    /// Whether Nodes are drained before their Machines are deleted.
    pub drains: bool,
    /// Whether the DaemonSet controller of Kubernetes runs in workload clusters.
    pub daemon_sets: bool,
    /// Which controllers roll out all kinds of workloads there.
    pub workloads: WorkloadControllers,
}

/// How a class has machines made of images that a release brings.
#[derive(Debug, Clone, Default)]
pub struct Images {
    /// The selector of releases of its Clusters; none where only a Cluster may ask for a resolution.
    pub releases: Option<&'static str>,
    /// Another class of workers, with its selector of images.
    pub other_workers: Option<(&'static str, &'static str)>,
    /// Whether Nodes get the labels of `TKR_DATA`, those of control planes included.
    pub node_labels: bool,
}

/// Has a release, and images of it, resolved: on Clusters and classes.
pub const RESOLVE: &str = "run.tanzu.vmware.com/resolve-tkr";

/// Selects images: on control plane and workers of Clusters and classes.
pub const RESOLVE_IMAGE: &str = "run.tanzu.vmware.com/resolve-os-image";

impl Images {
    /// The class, with the variable `TKR_DATA` and with patches that put the image of each part into its template.
    fn put_into(&self, class: &mut Value) {
        if let Some(selector) = self.releases {
            class["metadata"]["annotations"][RESOLVE] = json!(selector);
        }
        let spec = &mut class["spec"];
        let mut names = vec!["default"];
        if let Some((name, selector)) = self.other_workers {
            let mut other = spec["workers"]["machineDeployments"][0].clone();
            other["class"] = json!(name);
            other["metadata"] = json!({"annotations": {RESOLVE_IMAGE: selector}});
            if let Some(classes) = spec["workers"]["machineDeployments"].as_array_mut() {
                classes.push(other);
            }
            names.push(name);
        }
        let entry = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        spec["variables"] = json!([{
            "name": "TKR_DATA", "required": false,
            "schema": {"openAPIV3Schema": {"type": "object", "additionalProperties": entry}},
        }]);
        let image = |part: &str, kind: &str, resources: Value| {
            let version = format!(".builtin.{part}.version");
            let template = format!("{{{{ (index .TKR_DATA {version}).osImageRef.name }}}}");
            json!({
                "selector": {
                    "apiVersion": format!("{GROUP}/{VERSION}"), "kind": format!("{kind}Template"), "matchResources": resources,
                },
                "jsonPatches": [{"op": "add", "path": "/spec/template/spec/image", "valueFrom": {"template": template}}],
            })
        };
        let control_plane = json!({"controlPlane": true});
        let workers = json!({"machineDeploymentClass": {"names": names}});
        let images = [
            image("controlPlane", "HarnessControlPlane", control_plane.clone()),
            image("machineDeployment", "HarnessMachine", workers.clone()),
        ];
        let mut patches = vec![patch("images", &images)];
        if self.node_labels {
            let labels = [
                labels("controlPlane", "HarnessControlPlane", &control_plane),
                labels("machineDeployment", "HarnessMachine", &workers),
            ];
            patches.push(patch("node-labels", &labels));
        }
        spec["patches"] = patches.into();
    }
}

/// A patch of Clusters that have `TKR_DATA`.
fn patch(name: &str, definitions: &[Value; 2]) -> Value {
    json!({
        "name": name,
        "enabledIf": "{{ if .TKR_DATA }}true{{ end }}",
        "definitions": definitions,
    })
}

/// Puts the labels of the entry for the version of a part into its template.
fn labels(part: &str, kind: &str, resources: &Value) -> Value {
    let template = format!("{{{{ (index .TKR_DATA .builtin.{part}.version).labels | toJson }}}}");
    json!({
        "selector": {
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": format!("{kind}Template"), "matchResources": resources,
        },
        "jsonPatches": [{"op": "add", "path": "/spec/template/spec/nodeLabels", "valueFrom": {"template": template}}],
    })
}

impl Class {
    /// Name of the ClusterClass.
    #[must_use]
    pub fn name() -> &'static str {
        NAME
    }

    /// Templates and class in `namespace`.
    #[must_use]
    pub fn objects(&self, namespace: &str) -> Vec<Value> {
        let mut control_plane = json!({
            "swapDelay": self.swap_delay,
            "runtimeConfig": self.runtime_config,
            "drains": self.drains,
            "daemonSets": self.daemon_sets,
            "workloads": self.workloads,
        });
        let machines = self.infrastructure.machines(namespace);
        if machines.is_some() {
            control_plane["machineTemplate"] = json!({"spec": {"infrastructureRef": {"name": NAME}}});
        }
        let infrastructure = self.infrastructure.group_kind();
        let harness = |kind| (GROUP, kind);
        let mut class = json!({
            "apiVersion": CLUSTER_API,
            "kind": "ClusterClass",
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": {
                "infrastructure": {"templateRef": reference(infrastructure)},
                "controlPlane": {"templateRef": reference(harness("HarnessControlPlane"))},
                "workers": {"machineDeployments": [{
                    "class": "default",
                    "bootstrap": {"templateRef": reference(harness("HarnessConfig"))},
                    "infrastructure": {"templateRef": reference(harness("HarnessMachine"))},
                }]},
            },
        });
        if !self.kubernetes_versions.is_empty() {
            class["spec"]["kubernetesVersions"] = json!(self.kubernetes_versions);
        }
        if let Some(handler) = &self.upgrade_plan {
            class["spec"]["upgrade"] = json!({"external": {"generateUpgradePlanExtension": handler}});
        }
        if let Some(images) = &self.images {
            images.put_into(&mut class);
        }
        let objects = [
            template(infrastructure, namespace, &self.infrastructure.spec()),
            template(harness("HarnessControlPlane"), namespace, &control_plane),
            template(harness("HarnessMachine"), namespace, &json!({})),
            template(harness("HarnessConfig"), namespace, &json!({})),
            class,
        ];
        machines.into_iter().chain(objects).collect()
    }
}

fn reference((group, kind): (&str, &str)) -> Value {
    json!({"apiVersion": format!("{group}/{VERSION}"), "kind": format!("{kind}Template"), "name": NAME})
}

fn template((group, kind): (&str, &str), namespace: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{group}/{VERSION}"),
        "kind": format!("{kind}Template"),
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {"template": {"spec": spec}},
    })
}
