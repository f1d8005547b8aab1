//! PackageInstalls, on the management cluster and in workload clusters.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_crds::{
    foreign::{
        PackageInstall,
        packaging::{
            KubeconfigSecretRef, PackageInstallSpec, PackageRef, Prereleases, SecretRef, TargetCluster,
            Values, VersionSelection,
        },
    },
    labels::{annotation, name},
};

use super::{Owner, owner};

/// Where a PackageInstall lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// Beside the Cluster; kapp-controller reaches the workload by its kubeconfig.
    Management,
    /// In this namespace of the workload cluster.
    Workload(&'a str),
}

/// What shall be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install<'a> {
    /// Name of the PackageInstall.
    pub name: &'a str,
    /// Where it lives.
    pub place: Place<'a>,
    /// `Package.spec.refName`.
    pub ref_name: &'a str,
    /// `Package.spec.version`, taken literally.
    pub version: &'a str,
    /// Name of the values Secret beside it.
    pub values: &'a str,
    /// How often kapp-controller looks again, as Go writes it: `10m0s`.
    pub sync_period: &'a str,
}

/// The PackageInstall of one package of `cluster`.
#[must_use]
pub fn install(cluster: &Owner, wanted: &Install<'_>) -> PackageInstall {
    let (namespace, target, account, owners) = match wanted.place {
        Place::Management => (
            cluster.namespace.as_str(),
            Some(target(cluster)),
            None,
            Some(vec![owner(cluster, false)]),
        ),
        Place::Workload(namespace) => (namespace, None, Some(name::SERVICE_ACCOUNT.to_owned()), None),
    };
    PackageInstall {
        metadata: ObjectMeta {
            name: Some(wanted.name.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: Some(BTreeMap::from([
                (annotation::CLUSTER_NAME.to_owned(), cluster.name.clone()),
                (
                    annotation::CLUSTER_NAMESPACE.to_owned(),
                    cluster.namespace.clone(),
                ),
            ])),
            owner_references: owners,
            ..ObjectMeta::default()
        },
        spec: PackageInstallSpec {
            service_account_name: account,
            // The cluster goes away as a whole: uninstalling its kapp-controller first would only take the tool away.
            noop_delete: target.is_some(),
            cluster: target,
            package_ref: Some(PackageRef {
                ref_name: wanted.ref_name.to_owned(),
                version_selection: Some(VersionSelection {
                    constraints: Some(wanted.version.to_owned()),
                    prereleases: Some(Prereleases::default()),
                }),
            }),
            values: vec![Values {
                secret_ref: Some(SecretRef {
                    name: wanted.values.to_owned(),
                    key: None,
                }),
            }],
            sync_period: Some(wanted.sync_period.to_owned()),
            ..PackageInstallSpec::default()
        },
        status: None,
    }
}

fn target(cluster: &Owner) -> TargetCluster {
    TargetCluster {
        namespace: None,
        kubeconfig_secret_ref: Some(KubeconfigSecretRef {
            name: format!("{}{}", cluster.name, name::KUBECONFIG_SUFFIX),
            key: Some(name::KUBECONFIG_KEY.to_owned()),
        }),
    }
}

/// Whether `found` already says all that `wanted` says. Fields that only others set (`paused`) are theirs.
#[must_use]
pub fn same_install(wanted: &PackageInstall, found: &PackageInstall) -> bool {
    let annotations = |install: &PackageInstall| install.metadata.annotations.clone().unwrap_or_default();
    let there = annotations(found);
    let (mine, theirs) = (&wanted.spec, &found.spec);
    annotations(wanted)
        .iter()
        .all(|(key, value)| there.get(key) == Some(value))
        && (
            &mine.service_account_name,
            &mine.cluster,
            &mine.package_ref,
            &mine.values,
            mine.noop_delete,
        ) == (
            &theirs.service_account_name,
            &theirs.cluster,
            &theirs.package_ref,
            &theirs.values,
            theirs.noop_delete,
        )
        && mine.sync_period == theirs.sync_period
}
