//! API types of Sluice, and narrow views of the foreign kinds that it reads and writes.
//!
//! - [`run`]: the kinds of `run.tanzu.vmware.com/v1alpha3`, field for field as the Tanzu addons-manager served them,
//!   with the evidence record and the upgrade policy added.
//! - [`cni`], [`cpi`], [`csi`]: the configuration kinds of `<group>.tanzu.vmware.com/v1alpha1`, also field for field; all of them, and
//!   KappControllerConfig, share [`ConfigStatus`].
//! - [`lifecycle`]: the kinds of `lifecycle.sluice.dev/v1alpha1`, which gate add-ons of any delivery system.
//! - [`decode`], [`free_form`]: decoding of objects within a memory limit.
//! - [`foreign`]: Cluster API and Carvel kinds, reduced to what is read or written here.
//! - [`labels`]: every label, annotation and secret type that is a contract with other software.
//!
//! [`crds`] returns the CRDs to install; `crds/yaml` holds the same as files.

mod config_status;
mod deadline;
mod proxy_settings;
mod schema;

pub mod cni;
pub mod cpi;
pub mod csi;
pub mod decode;
pub mod foreign;
pub mod free_form;
pub mod labels;
pub mod lifecycle;
pub mod run;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use config_status::ConfigStatus;
pub use free_form::FreeForm;
use labels::label;
pub use proxy_settings::ProxySettings;

/// Every CustomResourceDefinition that Sluice installs, in the order in which they are applied.
///
/// Install these and not `Kind::crd()`: here a null in an optional field is dropped by the API server, as it always
/// was for these kinds, while `Kind::crd()` would have it stored; and only these carry the labels of the provider.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let stays: &[&str] = &[];
    // A move includes copies, because a Cluster owns them. It leaves templates out, because it deletes what it moves.
    let follows: &[&str] = &[label::CLUSTERCTL];
    let definitions: Vec<(CustomResourceDefinition, &[&str])> = vec![
        (run::TanzuKubernetesRelease::crd(), stays),
        (run::OSImage::crd(), stays),
        (run::ClusterBootstrapTemplate::crd(), stays),
        // A configuration that waits for its Cluster has no owner yet, but moves with the Cluster.
        (
            run::ClusterBootstrap::crd(),
            &[label::CLUSTERCTL, label::CLUSTERCTL_MOVE],
        ),
        (run::KappControllerConfig::crd(), follows),
        (cni::AntreaConfig::crd(), follows),
        (cni::CalicoConfig::crd(), follows),
        (cpi::VSphereCPIConfig::crd(), follows),
        (cpi::OracleCPIConfig::crd(), follows),
        (cpi::KubevipCPIConfig::crd(), follows),
        (csi::VSphereCSIConfig::crd(), follows),
        (csi::AwsEbsCSIConfig::crd(), follows),
        (csi::AzureDiskCSIConfig::crd(), follows),
        (csi::AzureFileCSIConfig::crd(), follows),
        // A gate has no owner. clusterctl finds its kind by the first label.
        (
            lifecycle::UpgradeGate::crd(),
            &[label::CLUSTERCTL, label::CLUSTERCTL_MOVE],
        ),
        // The leader creates the record again after a move.
        (lifecycle::ClusterUpgrade::crd(), stays),
        // An override is of one Cluster by its UID, which a move changes.
        (lifecycle::UpgradeOverride::crd(), stays),
    ];
    let installable = |(crd, labels)| schema::installable(crd, labels);
    definitions.into_iter().map(installable).collect()
}
