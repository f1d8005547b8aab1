//! AzureFileCSIConfig.

use serde_json::json;
use sluice_crds::{
    csi::{AzureFileCSIConfig, AzureFileCSIConfigSpec},
    foreign::Cluster,
};

use super::{
    cloud_csi::Driver,
    cluster::is_development,
    kind::{Config, OwnerBy, Provider},
    output::Output,
    source::{Sources, Stop},
};

pub(super) struct AzureFileCsi;

impl Provider for AzureFileCsi {
    type Resource = AzureFileCSIConfig;
    type Spec = AzureFileCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(config: &Config<'_, Self::Spec>, cluster: &Cluster, _: &Sources) -> Result<Output, Stop> {
        let own = &config.spec.driver;
        let driver = Driver {
            namespace: Some(&own.namespace),
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
            "azurefile-csi",
            json!({"azureFileCSIDriver": driver.values()}),
        ))
    }
}
