//! Values of a CalicoConfig.

use serde_json::json;
use sluice_crds::{
    cni::{CalicoConfig, CalicoConfigSpec},
    foreign::Cluster,
};

use super::{
    addresses::Ranges,
    cluster::infrastructure_name,
    kind::{Config, Provider},
    output::Output,
    source::{Sources, ValuesError},
};

pub(super) struct Calico;

impl Provider for Calico {
    type Resource = CalicoConfig;
    type Spec = CalicoConfigSpec;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        _: &Sources,
    ) -> Result<Output, ValuesError> {
        let own = config
            .spec
            .calico
            .as_ref()
            .and_then(|calico| calico.config.clone())
            .unwrap_or_default();
        let pods = Ranges::of_pods(cluster)?;
        let values = json!({
            "infraProvider": infrastructure_name(cluster)?,
            "ipFamily": pods.families(),
            "calico": {"config": {
                // The package expects a string.
                "vethMTU": own.veth_mtu.to_string(),
                "clusterCIDR": pods.joined(),
                "skipCNIBinaries": own.skip_cni_binaries,
            }},
        });
        Ok(Output::new("calico", values))
    }
}
