//! The table of configuration kinds.

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
