//! The table of configuration kinds.

use kube::core::ApiResource;

use super::{
    antrea::Antrea,
    calico::Calico,
    cloud_csi::{AwsEbsCsi, AzureDiskCsi, AzureFileCsi},
    kapp_controller::KappController,
    kind::Kind,
    kubevip_cpi::KubevipCpi,
    oracle_cpi::OracleCpi,
    vsphere_cpi::VSphereCpi,
    vsphere_csi::VSphereCsi,
};

/// Every kind that is turned into values. A new one is a file beside this one and a line here.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    vec![
        Kind::of::<KappController>(),
        Kind::of::<Antrea>(),
        Kind::of::<Calico>(),
        Kind::of::<VSphereCpi>(),
        Kind::of::<OracleCpi>(),
        Kind::of::<KubevipCpi>(),
        Kind::of::<VSphereCsi>(),
        Kind::of::<AwsEbsCsi>(),
        Kind::of::<AzureDiskCsi>(),
        Kind::of::<AzureFileCsi>(),
    ]
}

/// How a kind is served, if it is one of Sluice.
#[must_use]
pub fn own_resource(group: &str, kind: &str) -> Option<ApiResource> {
    let mut resources = kinds().into_iter().map(|kind| kind.resource);
    resources.find(|resource| (resource.group.as_str(), resource.kind.as_str()) == (group, kind))
}
