//! The kinds that a cluster consists of: where an API server serves them, and where it keeps them in etcd.

use serde_json::{Value, json};

use super::NAMESPACE;
use crate::provider::{GROUP, INFRASTRUCTURE_GROUP, VERSION};

/// A kind, served at one version. Its objects are stored at that version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
}

const fn kind(group: &'static str, version: &'static str, name: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version,
        name,
        plural,
    }
}

pub(super) const CLUSTER: Kind = kind("cluster.x-k8s.io", "v1beta2", "Cluster", "clusters");
pub(super) const WORKERS: Kind = kind(
    "cluster.x-k8s.io",
    "v1beta2",
    "MachineDeployment",
    "machinedeployments",
);
pub(super) const CONTROL_PLANE: Kind = kind(GROUP, VERSION, "HarnessControlPlane", "harnesscontrolplanes");
pub(super) const INFRASTRUCTURE: Kind =
    kind(INFRASTRUCTURE_GROUP, VERSION, "VSphereCluster", "vsphereclusters");
pub(super) const BOOTSTRAP: Kind = kind(
    "run.tanzu.vmware.com",
    "v1alpha3",
    "ClusterBootstrap",
    "clusterbootstraps",
);
pub(super) const RELEASE: Kind = kind(
    "run.tanzu.vmware.com",
    "v1alpha3",
    "TanzuKubernetesRelease",
    "tanzukubernetesreleases",
);
pub(super) const INSTALL: Kind = kind(
    "packaging.carvel.dev",
    "v1alpha1",
    "PackageInstall",
    "packageinstalls",
);
pub(super) const APP: Kind = kind("kappctrl.k14s.io", "v1alpha1", "App", "apps");
pub(super) const ANTREA: Kind = kind(
    "cni.tanzu.vmware.com",
    "v1alpha1",
    "AntreaConfig",
    "antreaconfigs",
);
pub(super) const CPI: Kind = kind(
    "cpi.tanzu.vmware.com",
    "v1alpha1",
    "VSphereCPIConfig",
    "vspherecpiconfigs",
);
pub(super) const GATE: Kind = kind("lifecycle.sluice.dev", "v1alpha1", "UpgradeGate", "upgradegates");
pub(super) const UPGRADE: Kind = kind(
    "lifecycle.sluice.dev",
    "v1alpha1",
    "ClusterUpgrade",
    "clusterupgrades",
);
pub(super) const SECRET: Kind = kind("", "v1", "Secret", "secrets");

/// All objects of a cluster on the management cluster. The Cluster comes last: when its event triggers Sluice, the rest exists.
pub(super) const OF_A_CLUSTER: [Kind; 10] = [
    SECRET,
    INFRASTRUCTURE,
    CONTROL_PLANE,
    WORKERS,
    ANTREA,
    CPI,
    INSTALL,
    APP,
    BOOTSTRAP,
    CLUSTER,
];

impl Kind {
    /// `apiVersion` of its objects.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// An object of the fleet's namespace.
    pub(super) fn object(&self, name: &str, mut content: Value) -> Value {
        content["apiVersion"] = json!(self.api_version());
        content["kind"] = json!(self.name);
        content["metadata"]["name"] = json!(name);
        content["metadata"]["namespace"] = json!(NAMESPACE);
        content
    }

    /// A reference to an object, as Cluster API has them.
    pub(super) fn reference(&self, name: &str) -> Value {
        json!({"apiGroup": self.group, "kind": self.name, "name": name})
    }

    /// An owner of the kind.
    pub(super) fn owner(&self, name: &str, uid: &str) -> Value {
        json!([{"apiVersion": self.api_version(), "kind": self.name, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true}])
    }

    /// Path of its objects in `namespace`.
    pub(super) fn all_in(&self, namespace: &str) -> String {
        let Self {
            group,
            version,
            plural,
            ..
        } = self;
        if group.is_empty() {
            format!("/api/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}")
        }
    }

    /// Path of its objects in the fleet's namespace.
    pub(super) fn all(&self) -> String {
        self.all_in(NAMESPACE)
    }

    /// Path of one object in the fleet's namespace.
    pub(super) fn one(&self, name: &str) -> String {
        format!("{}/{name}", self.all())
    }

    /// Path of one object that is in no namespace.
    pub(super) fn of_the_cluster(&self, name: &str) -> String {
        let Self {
            group,
            version,
            plural,
            ..
        } = self;
        format!("/apis/{group}/{version}/{plural}/{name}")
    }

    /// Key of objects of the fleet's namespace whose names begin with `name`, in the etcd of an API server with this prefix.
    pub(super) fn key(&self, prefix: &str, name: &str) -> String {
        let Self { group, plural, .. } = self;
        if group.is_empty() {
            format!("/{prefix}/{plural}/{NAMESPACE}/{name}")
        } else {
            format!("/{prefix}/{group}/{plural}/{NAMESPACE}/{name}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_the_key_that_the_api_server_reads() {
        assert_eq!(SECRET.one("a"), "/api/v1/namespaces/fleet/secrets/a");
        assert_eq!(SECRET.key("m", "a"), "/m/secrets/fleet/a");
        assert_eq!(
            CLUSTER.one("a"),
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet/clusters/a"
        );
        assert_eq!(CLUSTER.key("m", "a"), "/m/cluster.x-k8s.io/clusters/fleet/a");
    }
}
