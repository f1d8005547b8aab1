//! Releases that the resolver accepts for a Cluster.

use std::collections::BTreeSet;

use kube::core::Selector;
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::name,
};

use super::{
    asks,
    part::{MAX_TOTAL_SELECTOR_BYTES, Parts, image_selectors, is_short, parts_of},
    pick::Query,
    selector,
};
use crate::cache::stores::{Images, Releases};

/// Inputs that the accepted releases of a Cluster depend on, beside all releases and OSImages. Most Clusters of a class share them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Constraints {
    /// The release selector as written.
    releases: String,
    /// The Kubernetes versions that the class permits, with commas between them; empty permits any.
    versions: String,
    /// Whether the class declares `TKR_DATA`.
    declared: bool,
    /// The image selectors of all parts as written; `None` if the resolver refuses the Cluster.
    images: Option<BTreeSet<Option<String>>>,
}

impl Constraints {
    /// Returns the constraints of a Cluster of this class; `None` if neither requests a resolution, or if the Cluster has no topology.
    #[must_use]
    pub fn of(cluster: &Cluster, class: &ClusterClass) -> Option<Self> {
        let topology = cluster.spec.topology.as_ref()?;
        let releases = asks(&cluster.metadata, Some(class))?;
        let is_short = is_short(releases).is_ok();
        let images = image_selectors(topology, class);
        let bytes =
            |texts: &BTreeSet<Option<&str>>| texts.iter().flatten().map(|text| text.len()).sum::<usize>();
        let images = images.filter(|texts| is_short && bytes(texts) <= MAX_TOTAL_SELECTOR_BYTES);
        Some(Self {
            releases: if is_short {
                releases.to_owned()
            } else {
                String::new()
            },
            versions: class.spec.kubernetes_versions.join(","),
            declared: class.spec.declares(name::TKR_DATA),
            images: images.map(|texts| texts.into_iter().map(|text| text.map(str::to_owned)).collect()),
        })
    }

    /// Returns the names of the releases that the resolver accepts: none if it refuses the Cluster. `None` if it needs OSImages, and they are
    /// not listed yet.
    #[must_use]
    pub fn accepted<'a>(&self, releases: &'a Releases, images: Option<&Images>) -> Option<BTreeSet<&'a str>> {
        let Some((selector, parts)) = self.read() else {
            return Some(BTreeSet::new());
        };
        let needs_images = self.declared || parts.all.iter().any(|part| part.text.is_some());
        let query = Query {
            prefix: String::new(),
            text: &self.releases,
            selector,
            releases,
            images: if needs_images { Some(images?) } else { None },
            of_images: parts.selectors,
            keys: parts.keys,
        };
        let accepted = releases.iter().filter(|(_, release)| {
            self.permits(&release.spec.kubernetes.version) && query.accepts(release, &parts.all)
        });
        Some(accepted.map(|(name, _)| name.as_str()).collect())
    }

    /// Parses the selectors of releases and images.
    fn read(&self) -> Option<(Selector, Parts)> {
        let texts = self.images.as_ref()?.iter().map(Option::as_deref);
        Some((selector::parse(&self.releases).ok()?, parts_of(texts).ok()?))
    }

    /// Whether the class permits a Kubernetes version. Cluster API compares them byte by byte.
    fn permits(&self, version: &str) -> bool {
        self.versions.is_empty() || self.versions.split(',').any(|permitted| permitted == version)
    }
}
