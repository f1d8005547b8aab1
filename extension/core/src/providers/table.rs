//! Table of configuration kinds.

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

/// All configuration kinds. A new kind needs a file beside this one and a line here.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value_kinds::own_resource;

    #[test]
    fn every_kind_of_the_table_is_known_to_those_who_name_it() {
        for Kind { resource, .. } in kinds() {
            assert_eq!(own_resource(&resource.group, &resource.kind), Some(resource));
        }
    }
}
