//! Version labels, and the labels that select OSImages.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use kube::ResourceExt as _;
use serde_json::{Map, Value};
use sluice_crds::{
    labels::label,
    run::{OSImage, OSImageSpec, TanzuKubernetesRelease},
};

use crate::{
    names::{LONGEST_LABEL, parse_string_for_label},
    version::Ordered,
};

/// Desired labels; `None` removes a label.
pub(super) type Labels = BTreeMap<String, Option<String>>;

/// Converts a version to a label or the name of a release: `v1.23.5---vmware.1` for `1.23.5+vmware.1`.
#[must_use]
pub fn version_label(version: &str) -> String {
    let number = version.strip_prefix('v').unwrap_or(version);
    format!("v{}", number.replace('+', "---"))
}

/// Converts a label, or the name of a release, back to its version.
#[must_use]
pub fn from_label(label: &str) -> String {
    let number = label.strip_prefix('v').unwrap_or(label);
    format!("v{}", number.replace("---", "+"))
}

/// Returns a version label and its prefixes, the longest first: for `v1.17.9---vmware.2` also `v1.17.9---vmware`, `v1.17.9`, `v1.17` and
/// `v1`.
pub fn prefixes(version_label: &str) -> impl Iterator<Item = &str> {
    let whole = Some(version_label).filter(|label| !label.is_empty());
    std::iter::successors(whole, |label| {
        let shorter = label
            .trim_end_matches(|letter: char| letter.is_alphanumeric())
            .trim_end_matches(|letter: char| !letter.is_alphanumeric());
        Some(shorter).filter(|shorter| !shorter.is_empty())
    })
}

/// Returns the labels of a release, including those derived from its version, written or not.
#[must_use]
pub fn release_labels_of(release: &TanzuKubernetesRelease) -> BTreeMap<String, String> {
    let follow = version_labels(semantic(&release.spec.version), release.metadata.labels.as_ref());
    changed(release.labels().clone(), follow)
}

/// Returns the labels of an OSImage with these keys, including those derived from its spec, written or not. The restriction to keys saves
/// work: of thousands of images few labels are compared.
#[must_use]
pub fn image_labels_of(image: &OSImage, keys: &BTreeSet<String>) -> BTreeMap<String, String> {
    let existing = keys.iter().filter_map(|key| image.labels().get_key_value(key));
    let existing = existing
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut follow = Labels::new();
    if begins(keys, "v") {
        follow = version_labels(semantic(&image.spec.kubernetes_version), Some(&existing));
    }
    add_image_labels(&mut follow, &image.spec, Some(keys));
    follow.retain(|key, _| keys.contains(key));
    changed(existing, follow)
}

fn begins(keys: &BTreeSet<String>, prefix: &str) -> bool {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    let mut later = keys.range::<str, _>(from);
    later.next().is_some_and(|key| key.starts_with(prefix))
}

fn semantic(version: &str) -> Option<&str> {
    Some(version).filter(|version| Ordered::of(version).is_some())
}

fn changed(mut labels: BTreeMap<String, String>, changes: Labels) -> BTreeMap<String, String> {
    for (key, value) in changes {
        match value {
            Some(value) => labels.insert(key, value),
            None => labels.remove(&key),
        };
    }
    labels
}

/// Returns the labels derived from the spec of an OSImage, without those of versions and without foreign labels.
#[must_use]
pub fn of_image_itself(image: &OSImageSpec) -> BTreeMap<String, String> {
    let labels = image_labels(image).into_iter();
    labels.filter_map(|(key, value)| Some((key, value?))).collect()
}

/// Returns the prefixes of a version as labels without values, and the removal of prefixes of another version in `existing`.
pub(super) fn version_labels(version: Option<&str>, existing: Option<&BTreeMap<String, String>>) -> Labels {
    let of_another_version = |(key, value): &(&String, &String)| {
        let mut letters = key.chars();
        value.is_empty()
            && letters.next() == Some('v')
            && letters.next().is_some_and(|letter| letter.is_ascii_digit())
    };
    let stale = existing.into_iter().flatten().filter(of_another_version);
    let mut labels: Labels = stale.map(|(key, _)| (key.clone(), None)).collect();
    let version_label = version.map(version_label).unwrap_or_default();
    let keys = prefixes(&version_label).filter(|key| is_label(key));
    labels.extend(keys.map(|key| (key.to_owned(), Some(String::new()))));
    labels
}

/// Returns the labels of an OSImage except its version: operating system, kind, and each field of its reference, such as `ami-region`.
/// Leaves out a field that is no valid label: nothing can select it.
pub(super) fn image_labels(image: &OSImageSpec) -> Labels {
    let mut labels = Labels::new();
    add_image_labels(&mut labels, image, None);
    labels
}

/// Adds these labels; with `keys` at least those with one of the keys.
fn add_image_labels(labels: &mut Labels, image: &OSImageSpec, keys: Option<&BTreeSet<String>>) {
    let (os, kind) = (&image.os, &image.image.type_);
    for (key, value) in [
        (label::OS_TYPE, &os.type_),
        (label::OS_NAME, &os.name),
        (label::OS_VERSION, &os.version),
        (label::OS_ARCH, &os.arch),
        (label::IMAGE_TYPE, kind),
    ] {
        if keys.is_none_or(|keys| keys.contains(key)) {
            // Otherwise a selector would match the previous value.
            labels.insert(key.to_owned(), None);
            put(labels, key.to_owned(), value);
        }
    }
    if keys.is_none_or(|keys| begins(keys, kind)) {
        reference_labels(labels, kind, &image.image.ref_);
    }
}

fn reference_labels(labels: &mut Labels, prefix: &str, fields: &Map<String, Value>) {
    for (name, value) in fields {
        let key = format!("{prefix}-{name}");
        match value {
            Value::Object(fields) => reference_labels(labels, &key, fields),
            Value::String(text) => put(labels, key, text),
            Value::Bool(_) | Value::Number(_) => put(labels, key, &value.to_string()),
            Value::Null | Value::Array(_) => {}
        }
    }
}

fn put(labels: &mut Labels, key: String, value: &str) {
    let value = parse_string_for_label(value);
    if is_label(&key) && (value.is_empty() || is_label(&value)) {
        labels.insert(key, Some(value));
    }
}

/// Whether a text is a valid label value, or a valid label key without a prefix.
fn is_label(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_LABEL
        && bytes.iter().copied().all(good)
        && ends(bytes.first())
        && ends(bytes.last())
}
