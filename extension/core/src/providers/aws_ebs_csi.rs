//! AwsEbsCSIConfig.

use serde_json::json;
use sluice_crds::{
    csi::{AwsEbsCSIConfig, AwsEbsCSIConfigSpec},
    foreign::Cluster,
};

use super::{
    cloud_csi::Driver,
    kind::{Config, OwnerBy, Provider},
    output::Output,
    source::{Sources, Stop},
};

pub(super) struct AwsEbsCsi;

impl Provider for AwsEbsCsi {
    type Resource = AwsEbsCSIConfig;
    type Spec = AwsEbsCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(config: &Config<'_, Self::Spec>, _: &Cluster, _: &Sources) -> Result<Output, Stop> {
        let own = &config.spec.driver;
        let driver = Driver {
            namespace: Some(&own.namespace),
            http_proxy: own.http_proxy.as_ref(),
            https_proxy: own.https_proxy.as_ref(),
            no_proxy: own.no_proxy.as_ref(),
            replicas: own.deployment_replicas,
        };
        Ok(Output::new(
            "aws-ebs-csi",
            json!({"awsEBSCSIDriver": driver.values()}),
        ))
    }
}
