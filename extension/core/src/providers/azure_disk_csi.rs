//! AzureDiskCSIConfig.

use serde_json::json;
use sluice_crds::{
    csi::{AzureDiskCSIConfig, AzureDiskCSIConfigSpec},
    foreign::Cluster,
};

use super::{
    cloud_csi::Driver,
    cluster::is_development,
    kind::{Config, OwnerBy, Provider},
    output::Output,
    source::{Sources, Stop},
};

pub(super) struct AzureDiskCsi;

impl Provider for AzureDiskCsi {
    type Resource = AzureDiskCSIConfig;
    type Spec = AzureDiskCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(config: &Config<'_, Self::Spec>, cluster: &Cluster, _: &Sources) -> Result<Output, Stop> {
        let own = &config.spec.driver;
        let driver = Driver {
            namespace: own.namespace.as_ref(),
            http_proxy: own.http_proxy.as_ref(),
            https_proxy: own.https_proxy.as_ref(),
            no_proxy: own.no_proxy.as_ref(),
            replicas: if is_development(cluster) {
                Some(1)
            } else {
                own.deployment_replicas
            },
        };
        Ok(Output::new(
            "azuredisk-csi",
            json!({"azureDiskCSIDriver": driver.values()}),
        ))
    }
}
