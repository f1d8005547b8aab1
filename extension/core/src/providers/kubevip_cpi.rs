//! Values of a KubevipCPIConfig.

use serde_json::json;
use sluice_crds::{
    cpi::{KubevipCPIConfig, KubevipCPIConfigSpec},
    foreign::Cluster,
};

use super::{
    kind::{Config, Provider},
    output::Output,
    source::{Sources, ValuesError},
};

pub(super) struct KubevipCpi;

impl Provider for KubevipCpi {
    type Resource = KubevipCPIConfig;
    type Spec = KubevipCPIConfigSpec;

    fn values(config: &Config<'_, Self::Spec>, _: &Cluster, _: &Sources) -> Result<Output, ValuesError> {
        // Serialization of the spec omits unset fields.
        Ok(Output::new(
            "kube-vip-cloud-provider",
            json!({ "kubevipCloudProvider": config.spec }),
        ))
    }
}
