//! AwsEbsCSIConfig.

use serde_json::json;
use sluice_crds::{
    csi::{AwsEbsCSIConfig, AwsEbsCSIConfigSpec},
    foreign::Cluster,
};

use super::{
    cluster::given,
    kind::{Config, OwnerBy, Provider},
    output::Output,
    source::{Sources, Stop},
};

/// Namespace of storage drivers unless the configuration says another.
pub(super) const NAMESPACE: &str = "kube-system";
/// Replicas of storage drivers unless the configuration says another number.
pub(super) const REPLICAS: i32 = 3;

pub(super) struct AwsEbsCsi;

impl Provider for AwsEbsCsi {
    type Resource = AwsEbsCSIConfig;
    type Spec = AwsEbsCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(config: &Config<'_, Self::Spec>, _: &Cluster, _: &Sources) -> Result<Output, Stop> {
        let own = &config.spec.driver;
        let values = json!({
            "awsEBSCSIDriver": {
                "namespace": given(Some(&own.namespace), NAMESPACE),
                "http_proxy": given(own.http_proxy.as_ref(), ""),
                "https_proxy": given(own.https_proxy.as_ref(), ""),
                "no_proxy": given(own.no_proxy.as_ref(), ""),
                "deployment_replicas": own.deployment_replicas.unwrap_or(REPLICAS),
            },
        });
        Ok(Output::new("aws-ebs-csi", values))
    }
}
