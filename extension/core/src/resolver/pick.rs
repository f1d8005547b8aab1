//! Choice of a release, and of an image for each part.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use sluice_crds::{
    labels::label,
    run::{OSImage, TanzuKubernetesRelease},
};

use super::part::Part;
use crate::{
    cache::stores::{Images, Releases},
    cluster::is_legacy,
    releases::{image_labels_of, prefixes, release_labels_of, version_label},
    version::Ordered,
};

/// Maximum number of rejected releases in a message.
const NEAREST: usize = 3;

/// Labels that exclude releases and images regardless of selectors.
const UNWANTED: [&str; 3] = [label::INCOMPATIBLE, label::DEACTIVATED, label::INVALID];

/// Query for a release.
#[derive(Debug)]
pub(super) struct Query<'a> {
    /// `topology.version` as a label.
    pub(super) prefix: String,
    /// The release selector as written.
    pub(super) text: &'a str,
    pub(super) selector: Selector,
    pub(super) releases: &'a Releases,
    /// All OSImages; `None` if no image is needed.
    pub(super) images: Option<&'a Images>,
    /// Image selectors of the parts.
    pub(super) of_images: Vec<Selector>,
    /// Label keys in these selectors.
    pub(super) keys: BTreeSet<String>,
}

/// The picked release, with the image of each part.
#[derive(Debug, Clone)]
pub(super) struct Picked {
    pub(super) release: Arc<TanzuKubernetesRelease>,
    pub(super) images: Vec<Arc<OSImage>>,
}

impl Query<'_> {
    /// Whether the version of a release has the requested prefix or is of this Kubernetes version.
    pub(super) fn fits(&self, release: &TanzuKubernetesRelease) -> bool {
        let version = version_label(&release.spec.version);
        prefixes(&version).any(|prefix| prefix == self.prefix)
            || version_label(&release.spec.kubernetes.version) == self.prefix
    }

    /// Whether the selector matches a release.
    pub(super) fn selects(&self, release: &TanzuKubernetesRelease) -> bool {
        self.selector.selects_all() || self.selector.matches(&release_labels_of(release))
    }

    /// Returns the newest suitable release, with the only matching image of each part.
    ///
    /// # Errors
    /// The message about rejected releases, the nearest first.
    pub(super) fn newest(&self, parts: &[Part]) -> Result<Picked, String> {
        // An exact name wins over releases with this prefix.
        if let Some(named) = self.releases.get(&self.prefix) {
            return self
                .taken(named, parts)
                .map_err(|why| format!("{} {why}", self.prefix));
        }
        let fitting = self.releases.values().filter(|release| self.fits(release));
        let mut fitting: Vec<_> = fitting
            .map(|release| (Ordered::of(&release.spec.version), release))
            .collect();
        fitting.sort_by(|(one, _), (other, _)| other.cmp(one));
        let mut excluded = Vec::new();
        for (_, release) in fitting {
            match self
                .usable(release)
                .and_then(|()| self.candidates(release, parts))
            {
                Ok(candidates) => {
                    return only(release, &candidates, parts)
                        .map_err(|why| format!("{} {why}", release.name_any()));
                }
                Err(why) if excluded.len() < NEAREST => {
                    excluded.push(format!("{} {why}", release.name_any()));
                }
                Err(_) => {}
            }
        }
        if excluded.is_empty() {
            return Err(self.of_other_versions());
        }
        Err(excluded.join(", "))
    }

    /// Returns this release if it is suitable, with the only matching image of each part.
    ///
    /// # Errors
    /// The reason for its rejection, to be read after its name.
    pub(super) fn taken(
        &self,
        release: &Arc<TanzuKubernetesRelease>,
        parts: &[Part],
    ) -> Result<Picked, String> {
        if !self.fits(release) {
            return Err(format!(
                "has version {} with Kubernetes {}, which does not begin with {}",
                release.spec.version, release.spec.kubernetes.version, self.prefix
            ));
        }
        self.usable(release)?;
        let candidates = self.candidates(release, parts)?;
        only(release, &candidates, parts)
    }

    /// Whether this release is suitable for a Cluster of any version.
    pub(super) fn accepts(&self, release: &Arc<TanzuKubernetesRelease>, parts: &[Part]) -> bool {
        self.usable(release).is_ok() && self.images_in(release, parts).is_ok()
    }

    /// Returns the only matching image of each part in a release, without a check of the release.
    ///
    /// # Errors
    /// The reason why there is none, to be read after the name of the release.
    pub(super) fn images_in(
        &self,
        release: &Arc<TanzuKubernetesRelease>,
        parts: &[Part],
    ) -> Result<Picked, String> {
        let candidates = self.candidates(release, parts)?;
        only(release, &candidates, parts)
    }

    /// Whether nothing excludes a release.
    fn usable(&self, release: &TanzuKubernetesRelease) -> Result<(), String> {
        if let Some(by) = unwanted(release.labels()) {
            return Err(format!("is {by}"));
        }
        // Sluice does not manage Clusters of such a release, so nothing would gate them.
        if is_legacy(&release.metadata) {
            return Err("is marked legacy".to_owned());
        }
        if release.metadata.deletion_timestamp.is_some() {
            return Err("is being deleted".to_owned());
        }
        if !self.selects(release) {
            return Err(format!("is not selected by {:?}", self.text));
        }
        Ok(())
    }

    /// Returns the matching images for each selector of these parts; at least one, if images are needed.
    fn candidates(&self, release: &TanzuKubernetesRelease, parts: &[Part]) -> Result<Candidates, String> {
        let mut candidates = Candidates::new();
        let Some(images) = self.images else {
            return Ok(candidates);
        };
        let named = release.spec.os_images.iter();
        let named: Vec<_> = named
            .filter_map(|named| images.get(&named.name))
            .filter(|image| unwanted(image.labels()).is_none())
            .map(|image| (image, OnceCell::new()))
            .collect();
        for part in parts {
            if candidates.contains_key(&part.selector) {
                continue;
            }
            let selector = &self.of_images[part.selector];
            // Computes labels lazily and once for all selectors: a release has ten images and more.
            let takes = |(image, labels): &&(&Arc<OSImage>, OnceCell<_>)| {
                selector.selects_all()
                    || selector.matches(labels.get_or_init(|| image_labels_of(image, &self.keys)))
            };
            let own: Vec<_> = named
                .iter()
                .filter(takes)
                .map(|(image, _)| Arc::clone(image))
                .collect();
            if own.is_empty() {
                return Err(format!("has no OSImage for {}", part.place));
            }
            candidates.insert(part.selector, own);
        }
        Ok(candidates)
    }

    /// Lists the releases whose names share the longest prefix with the requested version.
    fn of_other_versions(&self) -> String {
        let common = |other: &str| {
            let both = self.prefix.chars().zip(other.chars());
            both.take_while(|(one, other)| one == other).count()
        };
        let mut known: Vec<_> = self
            .releases
            .iter()
            .map(|(name, release)| (common(name), Ordered::of(&release.spec.version), name.as_str()))
            .collect();
        known.sort_by(|one, other| other.cmp(one));
        known.truncate(NEAREST);
        if known.is_empty() {
            return "there is no TanzuKubernetesRelease at all".to_owned();
        }
        let names: Vec<_> = known.into_iter().map(|(.., name)| name).collect();
        format!("no version has this prefix, the nearest are {}", names.join(", "))
    }
}

/// Returns the label that excludes an object.
fn unwanted(labels: &BTreeMap<String, String>) -> Option<&'static str> {
    UNWANTED.into_iter().find(|key| labels.contains_key(*key))
}

/// Matching images by selector index.
type Candidates = BTreeMap<usize, Vec<Arc<OSImage>>>;

/// Returns the only matching image of each part.
fn only(
    release: &Arc<TanzuKubernetesRelease>,
    candidates: &Candidates,
    parts: &[Part],
) -> Result<Picked, String> {
    let mut images = Vec::with_capacity(parts.len());
    for part in parts {
        match candidates.get(&part.selector).map(Vec::as_slice) {
            Some([image]) => images.push(Arc::clone(image)),
            Some(own) if !own.is_empty() => {
                let count = own.len();
                let names: Vec<_> = own.iter().take(NEAREST).map(|image| image.name_any()).collect();
                let names = names.join(", ");
                return Err(format!("has {count} OSImages for {} ({names})", part.place));
            }
            // No image is needed.
            _ => {}
        }
    }
    Ok(Picked {
        release: Arc::clone(release),
        images,
    })
}
