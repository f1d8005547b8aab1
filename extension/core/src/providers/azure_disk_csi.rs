//! AzureDiskCSIConfig.

use serde_json::json;
use sluice_crds::{
    csi::{AzureDiskCSIConfig, AzureDiskCSIConfigSpec},
    foreign::Cluster,
};

use super::{
    aws_ebs_csi::{NAMESPACE, REPLICAS},
    cluster::{given, is_development},
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
        let replicas = if is_development(cluster) {
            1
        } else {
            own.deployment_replicas.unwrap_or(REPLICAS)
        };
        let values = json!({
            "azureDiskCSIDriver": {
                "namespace": given(own.namespace.as_ref(), NAMESPACE),
                "http_proxy": given(own.http_proxy.as_ref(), ""),
                "https_proxy": given(own.https_proxy.as_ref(), ""),
                "no_proxy": given(own.no_proxy.as_ref(), ""),
                "deployment_replicas": replicas,
            },
        });
        Ok(Output::new("azuredisk-csi", values))
    }
}
