//! Values of AwsEbsCSIConfig, AzureDiskCSIConfig and AzureFileCSIConfig. These storage drivers use their own proxies only, not those of
//! the Cluster.

use serde_json::json;
use sluice_crds::{
    csi::{
        AwsEbsCSIConfig, AwsEbsCSIConfigSpec, AzureDiskCSIConfig, AzureDiskCSIConfigSpec, AzureFileCSIConfig,
        AzureFileCSIConfigSpec, CloudCSIDriver,
    },
    foreign::Cluster,
};

use super::{
    cluster::{Proxies, given, is_development},
    kind::{Config, OwnerBy, Provider},
    output::Output,
    source::{Sources, ValuesError},
};

/// Default namespace of a driver.
const NAMESPACE: &str = "kube-system";
/// Default number of replicas of a driver.
const REPLICAS: i32 = 3;

/// Builds the values of a driver, below `key`.
fn output<N>(
    package: &'static str,
    key: &str,
    driver: &CloudCSIDriver<N>,
    namespace: Option<&String>,
    replicas: Option<i32>,
) -> Output {
    let proxies = Proxies::default().under(&driver.proxies);
    let values = json!({
        "namespace": given(namespace, NAMESPACE),
        "http_proxy": proxies.http,
        "https_proxy": proxies.https,
        "no_proxy": proxies.no,
        "deployment_replicas": replicas.unwrap_or(REPLICAS),
    });
    Output::new(package, json!({ key: values }))
}

/// Replicas in Azure: one if the plan of the Cluster is for development.
fn in_azure<N>(cluster: &Cluster, driver: &CloudCSIDriver<N>) -> Option<i32> {
    if is_development(cluster) {
        Some(1)
    } else {
        driver.deployment_replicas
    }
}

pub(super) struct AwsEbsCsi;

impl Provider for AwsEbsCsi {
    type Resource = AwsEbsCSIConfig;
    type Spec = AwsEbsCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(config: &Config<'_, Self::Spec>, _: &Cluster, _: &Sources) -> Result<Output, ValuesError> {
        let own = &config.spec.driver;
        let (namespace, replicas) = (Some(&own.namespace), own.deployment_replicas);
        Ok(output("aws-ebs-csi", "awsEBSCSIDriver", own, namespace, replicas))
    }
}

pub(super) struct AzureDiskCsi;

impl Provider for AzureDiskCsi {
    type Resource = AzureDiskCSIConfig;
    type Spec = AzureDiskCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        _: &Sources,
    ) -> Result<Output, ValuesError> {
        let own = &config.spec.driver;
        let (namespace, replicas) = (own.namespace.as_ref(), in_azure(cluster, own));
        Ok(output(
            "azuredisk-csi",
            "azureDiskCSIDriver",
            own,
            namespace,
            replicas,
        ))
    }
}

pub(super) struct AzureFileCsi;

impl Provider for AzureFileCsi {
    type Resource = AzureFileCSIConfig;
    type Spec = AzureFileCSIConfigSpec;
    const OWNER: OwnerBy = OwnerBy::ReferenceOrName;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        _: &Sources,
    ) -> Result<Output, ValuesError> {
        let own = &config.spec.driver;
        let (namespace, replicas) = (Some(&own.namespace), in_azure(cluster, own));
        Ok(output(
            "azurefile-csi",
            "azureFileCSIDriver",
            own,
            namespace,
            replicas,
        ))
    }
}
