//! Compatibility of releases with this management cluster.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use serde::{Deserialize, de::DeserializeOwned};
use sluice_crds::{
    foreign::Cluster,
    labels::{annotation, label, name},
};

use super::ReleaseReason;
use crate::{cluster::ClusterRef, packages::requirements::Unmet};

/// Sources of compatibility data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sources {
    /// ConfigMap [`name::BOM_METADATA`] of the system namespace.
    pub bom: Option<ConfigMap>,
    /// ConfigMaps of the system namespace with [`label::ADDITIONAL_COMPATIBLE_TKRS`].
    pub additional: Vec<ConfigMap>,
    /// Version of the management cluster, from [`annotation::TKG_VERSION`] of its Cluster.
    pub management_version: Option<String>,
}

/// Versions from the Clusters of the system namespace that are the management cluster. Clusters of tenants do not count: a tenant may
/// set the label.
#[derive(Debug, Clone, Default)]
pub struct ManagementClusters {
    namespace: String,
    versions: BTreeMap<ClusterRef, Option<String>>,
}

impl ManagementClusters {
    /// Creates an empty map for this system namespace.
    #[must_use]
    pub fn of(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            versions: BTreeMap::new(),
        }
    }

    /// Observes a Cluster, present or deleted. Returns whether anything has changed.
    pub fn saw(&mut self, named: &ClusterRef, cluster: &Cluster, is_there: bool) -> bool {
        let is_it =
            named.namespace() == self.namespace && cluster.labels().contains_key(label::MANAGEMENT_CLUSTER);
        if !is_there || !is_it {
            return self.versions.remove(named).is_some();
        }
        let version = cluster.annotations().get(annotation::TKG_VERSION).cloned();
        let before = self.versions.insert(named.clone(), version.clone());
        before != Some(version)
    }

    /// Returns the version of the first Cluster that has one.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        self.versions.values().flatten().next().cloned()
    }
}

/// Compatibility data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compatibility {
    /// Whether `bom-metadata` may exist, which lists all compatible versions. Additional ConfigMaps only add some.
    has_bom: bool,
    /// Versions that `bom-metadata` lists.
    versions: BTreeSet<String>,
    /// Versions that additional ConfigMaps list.
    additional: BTreeSet<String>,
    /// Whether all additional ConfigMaps could be read.
    is_whole: bool,
    /// Verdict on all other releases.
    others: Verdict,
}

/// Compatibility of a release with this management cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The release is compatible.
    Compatible,
    /// The release is not compatible, with the source of the verdict.
    Incompatible(String),
    /// A management package that the release needs is not proven.
    NotReady(Unmet),
    /// The compatibility is unknown, with the reason.
    Unknown(ReleaseReason, String),
}

/// Content of `bom-metadata`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    management_cluster_versions: Vec<Supported>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Supported {
    version: String,
    supported_kubernetes_versions: Vec<String>,
}

impl Verdict {
    /// Whether no Cluster may move to the release.
    #[must_use]
    pub const fn excludes(&self) -> bool {
        matches!(self, Self::Incompatible(_) | Self::NotReady(_))
    }

    /// Returns what Clusters of a release show of this verdict on it: without the found version of a package, which would change them all.
    #[must_use]
    pub fn of_clusters(&self, release: &str) -> Self {
        match self {
            Self::NotReady(unmet) => Self::NotReady(Unmet {
                wanted: unmet.wanted.clone(),
                found: format!("TanzuKubernetesRelease {release} says what was found"),
            }),
            verdict => verdict.clone(),
        }
    }
}

impl Compatibility {
    /// Combines the sources. An unreadable source excludes nothing.
    #[must_use]
    pub fn of(sources: &Sources) -> Self {
        let Sources {
            bom,
            additional,
            management_version,
        } = sources;
        let (mut versions, mut listed_too) = (BTreeSet::new(), BTreeSet::new());
        let mut unreadable = None;
        let additional_key = label::ADDITIONAL_COMPATIBLE_TKRS;
        let mut others = match bom {
            None if additional.is_empty() => Verdict::Unknown(
                ReleaseReason::NoCompatibilityData,
                format!(
                    "the system namespace has neither ConfigMap {} nor one with label {additional_key}",
                    name::BOM_METADATA
                ),
            ),
            None => Verdict::Incompatible(format!(
                "no ConfigMap with label {additional_key} lists the version"
            )),
            Some(bom) => match supported(bom, management_version.as_deref()) {
                Ok((supported, why)) => {
                    versions.extend(supported);
                    of_others(bom, &why)
                }
                Err(why) => Verdict::Unknown(ReleaseReason::CompatibilityDataInvalid, why),
            },
        };
        for config_map in additional {
            match listed(config_map) {
                Ok(more) => listed_too.extend(more),
                Err(why) => unreadable = unreadable.or(Some(why)),
            }
        }
        let is_whole = unreadable.is_none();
        let is_of_data = match &others {
            Verdict::Unknown(reason, _) => *reason == ReleaseReason::CompatibilityDataFrozen,
            _ => true,
        };
        if let (true, Some(why)) = (is_of_data, unreadable) {
            others = Verdict::Unknown(ReleaseReason::CompatibilityDataInvalid, why);
        }
        Self {
            has_bom: bom.is_some(),
            versions,
            additional: listed_too,
            is_whole,
            others,
        }
    }

    /// Creates unknown compatibility, because the sources are unreadable.
    #[must_use]
    pub fn unreadable(system_namespace: &str) -> Self {
        let why =
            format!("ConfigMaps of namespace {system_namespace} cannot be read; the log of Sluice says why");
        Self {
            has_bom: true,
            versions: BTreeSet::new(),
            additional: BTreeSet::new(),
            is_whole: false,
            others: Verdict::Unknown(ReleaseReason::CompatibilityDataInvalid, why),
        }
    }

    /// Returns the verdict on a release of this version.
    #[must_use]
    pub fn verdict(&self, version: &str) -> Verdict {
        if self.versions.contains(version) || self.additional.contains(version) {
            Verdict::Compatible
        } else {
            self.others.clone()
        }
    }

    /// Whether an additional ConfigMap lists the version, so that the release is compatible whatever it needs; `None` while one that may
    /// list it cannot be read.
    #[must_use]
    pub fn overrides(&self, version: &str) -> Option<bool> {
        let is_listed = self.additional.contains(version);
        (is_listed || self.is_whole).then_some(is_listed)
    }

    /// Returns the verdict on a release of this version that needs management packages. `overridden` says whether an additional ConfigMap
    /// lists the version; see [`Self::overrides`]. `unmet` describes the first package that is not proven. Proven packages are a source,
    /// too: they make the release compatible unless `bom-metadata` excludes it.
    #[must_use]
    pub fn verdict_on_requiring(&self, version: &str, overridden: bool, unmet: Option<&Unmet>) -> Verdict {
        use ReleaseReason::{CompatibilityDataFrozen, NoCompatibilityData};
        match (overridden, unmet) {
            (true, _) => Verdict::Compatible,
            (false, Some(unmet)) => Verdict::NotReady(unmet.clone()),
            (false, None) => match self.verdict(version) {
                Verdict::Unknown(CompatibilityDataFrozen | NoCompatibilityData, _) => Verdict::Compatible,
                _ if !self.has_bom => Verdict::Compatible,
                verdict => verdict,
            },
        }
    }
}

/// Returns the verdict on releases that `bom-metadata` does not list. Data that nothing maintains any more excludes none of them.
fn of_others(bom: &ConfigMap, why: &str) -> Verdict {
    let (config_map, key) = (shown(bom), annotation::FROZEN);
    if bom.annotations().contains_key(key) {
        return Verdict::Unknown(
            ReleaseReason::CompatibilityDataFrozen,
            format!("{why}; annotation {key} of {config_map} limits it to the versions that it lists"),
        );
    }
    let namespace = bom.namespace().unwrap_or_default();
    let command = format!(
        "kubectl -n {namespace} annotate configmap {} {key}=",
        bom.name_any()
    );
    Verdict::Incompatible(format!(
        "{why}; if nothing maintains the ConfigMap any more, run: {command}"
    ))
}

/// Returns the versions that `bom-metadata` lists for the management cluster, and the message for other versions.
fn supported(bom: &ConfigMap, management_version: Option<&str>) -> Result<(Vec<String>, String), String> {
    let (config_map, key) = (shown(bom), name::BOM_COMPATIBILITY);
    let data = bom.binary_data.as_ref().and_then(|data| data.get(key));
    let Some(data) = data else {
        return Err(format!("{config_map} has no binaryData.{key}"));
    };
    let text = std::str::from_utf8(&data.0);
    let text = text.map_err(|_| format!("binaryData.{key} of {config_map} is not text"))?;
    let metadata: Metadata = yaml(text).map_err(|why| format!("binaryData.{key} of {config_map}: {why}"))?;
    let Some(version) = management_version else {
        let why = format!(
            "{config_map} lists releases by the version of the management cluster, but no Cluster of its namespace with label {} has annotation {}",
            label::MANAGEMENT_CLUSTER,
            annotation::TKG_VERSION
        );
        return Ok((Vec::new(), why));
    };
    let mut entries = metadata.management_cluster_versions.into_iter();
    let found = entries.find(|entry| entry.version == version);
    let why = match found {
        Some(_) => format!("{config_map} does not list the version for management cluster {version}"),
        None => format!("{config_map} has no entry for management cluster {version}"),
    };
    let versions = found.map(|entry| entry.supported_kubernetes_versions);
    Ok((versions.unwrap_or_default(), why))
}

/// Returns the versions in an additional ConfigMap.
fn listed(config_map: &ConfigMap) -> Result<Vec<String>, String> {
    let key = name::TKR_VERSIONS;
    let data = config_map.data.as_ref().and_then(|data| data.get(key));
    let text = data.map(|text| text.trim()).filter(|text| !text.is_empty());
    let versions: Option<Vec<String>> = text
        .map(yaml)
        .transpose()
        .map_err(|why| format!("data.{key} of {}: {why}", shown(config_map)))?;
    Ok(versions.unwrap_or_default())
}

/// Parses a text, or explains on one line why it is unreadable.
fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let text = error.to_string();
        let line = text.lines().next().unwrap_or_default();
        format!("cannot be read as YAML: {line}")
    })
}

fn shown(config_map: &ConfigMap) -> String {
    let namespace = config_map.namespace().unwrap_or_default();
    format!("ConfigMap {namespace}/{}", config_map.name_any())
}
