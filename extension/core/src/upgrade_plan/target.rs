//! Target that a user names.

use kube::ResourceExt as _;
use serde_json::Value;
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::{annotation, label},
    run::TanzuKubernetesRelease,
};

use super::usable::excluded;
use crate::{
    cache::stores::{Images, Releases},
    cluster::{is_legacy, release_of},
    releases::{prefixes, version_label},
    resolver::{Asked, ResolverInputs, Running, asks, resolve},
    version::below,
};

/// Maximum number of releases in a message.
const MAX_NAMED: usize = 3;

/// Target of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `topology.version`, `v1.36.3+vmware.1`.
    pub version: String,
    /// Name of the TanzuKubernetesRelease.
    pub release: String,
}

impl Target {
    fn of(release: &TanzuKubernetesRelease) -> Self {
        Self {
            version: release.spec.kubernetes.version.clone(),
            release: release.name_any(),
        }
    }
}

/// Objects that a target depends on.
#[derive(Debug, Clone, Copy)]
pub struct TargetInputs<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// Its class, if it exists.
    pub class: Option<&'a ClusterClass>,
    /// All releases.
    pub releases: &'a Releases,
    /// All OSImages; `None` if they are not listed.
    pub images: Option<&'a Images>,
    /// Kubernetes version in the spec of the control plane, if it exists.
    pub control_plane: Option<&'a str>,
}

/// Error for a target that names no release, or none that the Cluster can move to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// No release has this name, version or prefix.
    #[error("{0:?} is no TanzuKubernetesRelease, no Kubernetes version and no prefix of one")]
    Unknown(String),
    /// Several releases have this version or prefix.
    #[error("{text:?} may be any of {releases}; name one of them")]
    Ambiguous {
        /// Rejected text.
        text: String,
        /// Names of some of the releases.
        releases: String,
    },
    /// The webhook that resolves releases would refuse the Cluster.
    #[error("{text:?} cannot be resolved: {why}")]
    NotResolved {
        /// Rejected text.
        text: String,
        /// First reason.
        why: String,
    },
    /// The version is lower than that of the control plane.
    #[error(
        "{version} is lower than {control_plane} of the control plane; Cluster API supports no downgrade"
    )]
    Lower {
        /// Version of the target.
        version: String,
        /// Version of the control plane.
        control_plane: String,
    },
}

/// Returns the target that `text` names: a release, a Kubernetes version, or a prefix of either. Where the Cluster or its class requests a
/// resolution, a version or prefix is what the resolution makes of it.
///
/// # Errors
/// No release, several, or one with a lower version.
pub fn target(text: &str, inputs: TargetInputs<'_>) -> Result<Target, InvalidTarget> {
    let named = inputs.releases.get(&version_label(text));
    let target = match named.or_else(|| inputs.releases.get(text)) {
        Some(named) => Target::of(named),
        None if asks(&inputs.cluster.metadata, inputs.class).is_some() => resolved(text, inputs)?,
        None => only(text, inputs.releases)?,
    };
    match inputs.control_plane {
        Some(control_plane) if below(&target.version, control_plane) => Err(InvalidTarget::Lower {
            version: target.version,
            control_plane: control_plane.to_owned(),
        }),
        _ => Ok(target),
    }
}

/// Returns the only release of a version, or else of a prefix. A release that is not usable counts only if there is no usable one.
fn only(text: &str, releases: &Releases) -> Result<Target, InvalidTarget> {
    let asked = version_label(text);
    let is_version = |release: &TanzuKubernetesRelease| {
        let spec = &release.spec;
        [&spec.version, &spec.kubernetes.version]
            .map(|version| version_label(version))
            .contains(&asked)
    };
    let has_prefix = |release: &TanzuKubernetesRelease| {
        let spec = &release.spec;
        [&spec.version, &spec.kubernetes.version]
            .iter()
            .any(|version| prefixes(&version_label(version)).any(|prefix| prefix == asked))
    };
    let of_version = select(releases, is_version);
    let found = if of_version.is_empty() {
        select(releases, has_prefix)
    } else {
        of_version
    };
    match found[..] {
        [] => Err(InvalidTarget::Unknown(text.to_owned())),
        [only] => Ok(Target::of(only)),
        _ => {
            let names: Vec<String> = found
                .iter()
                .take(MAX_NAMED)
                .map(|release| release.name_any())
                .collect();
            let more = found.len().saturating_sub(MAX_NAMED);
            let more = if more == 0 {
                String::new()
            } else {
                format!(" and {more} more")
            };
            Err(InvalidTarget::Ambiguous {
                text: text.to_owned(),
                releases: names.join(", ") + &more,
            })
        }
    }
}

/// Returns the selected releases that are usable, or all of them if none is.
fn select(
    releases: &Releases,
    is_selected: impl Fn(&TanzuKubernetesRelease) -> bool,
) -> Vec<&TanzuKubernetesRelease> {
    let selected: Vec<&TanzuKubernetesRelease> = releases
        .values()
        .map(AsRef::as_ref)
        .filter(|release| is_selected(release))
        .collect();
    let usable: Vec<&TanzuKubernetesRelease> = selected
        .iter()
        .copied()
        .filter(|release| excluded(release, false).is_none() && !is_legacy(&release.metadata))
        .collect();
    if usable.is_empty() { selected } else { usable }
}

/// Returns what the webhook would make of `text` as `topology.version`.
fn resolved(text: &str, inputs: TargetInputs<'_>) -> Result<Target, InvalidTarget> {
    let not_resolved = |why: String| InvalidTarget::NotResolved {
        text: text.to_owned(),
        why,
    };
    let mut new = inputs.cluster.clone();
    if let Some(topology) = &mut new.spec.topology {
        text.clone_into(&mut topology.version);
    }
    // A pause keeps the webhook from resolving, and a plan is made before it ends.
    new.spec.paused = false;
    if let Some(annotations) = &mut new.metadata.annotations {
        annotations.remove(annotation::PAUSED);
    }
    let asked = Asked {
        old: Some(inputs.cluster.clone()),
        new,
    };
    let resolver = ResolverInputs {
        class: Ok(inputs.class),
        releases: inputs.releases,
        images: inputs.images,
        running: Some(&Running::UNKNOWN),
        pinned: None,
        rollback_to: None,
    };
    let resolution = resolve(&asked, resolver).map_err(|unknown| not_resolved(unknown.to_string()))?;
    if let Some(fault) = resolution.faults.first() {
        return Err(not_resolved(fault.text.clone()));
    }
    let name = label_in(&resolution.patch).unwrap_or_else(|| release_of(&asked.new.metadata));
    match inputs.releases.get(&name) {
        Some(release) => Ok(Target::of(release)),
        None => Err(InvalidTarget::Unknown(text.to_owned())),
    }
}

/// Returns the release label that the operations of a patch write.
fn label_in(patch: &[Value]) -> Option<String> {
    let key = label::TKR.replace('/', "~1");
    let written = |step: &Value| {
        let value = &step["value"];
        let label = match step["path"].as_str()? {
            "/metadata/labels" => &value[label::TKR],
            one if one.strip_prefix("/metadata/labels/") == Some(&*key) => value,
            _ => return None,
        };
        label.as_str().map(str::to_owned)
    };
    patch.iter().find_map(written)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cache::stores::tests::object;

    const LABELS: [(&str, &str, &str); 6] = [
        ("v1.35.4---vmware.1", "v1.35.4+vmware.1", ""),
        ("v1.36.1---vmware.1", "v1.36.1+vmware.1", label::DEACTIVATED),
        ("v1.36.3---vmware.1", "v1.36.3+vmware.1", ""),
        ("v1.37.0---vmware.1", "v1.37.0+vmware.1", ""),
        ("v1.37.2---vmware.1-tkg.1", "v1.37.2+vmware.1", ""),
        ("v1.37.2---vmware.1-tkg.2", "v1.37.2+vmware.1", ""),
    ];

    fn releases() -> Releases {
        let release = |(name, version, excluding): (&str, &str, &str)| {
            let of_name = crate::releases::from_label(name);
            let spec = json!({"spec": {"version": of_name, "kubernetes": {"version": version}}});
            let labels = if excluding.is_empty() {
                json!({})
            } else {
                json!({excluding: ""})
            };
            let release: Arc<TanzuKubernetesRelease> = object(None, name, &labels, &spec);
            (name.to_owned(), release)
        };
        LABELS.into_iter().map(release).collect()
    }

    fn targeted(text: &str, resolves: bool, control_plane: &str) -> Result<Target, InvalidTarget> {
        let spec = json!({"topology": {"classRef": {"name": "class"}, "version": "v1.35.4+vmware.1"}});
        let labels = json!({label::TKR: "v1.35.4---vmware.1"});
        let mut cluster: Arc<Cluster> = object(Some("team-a"), "one", &labels, &json!({"spec": spec}));
        let class: Arc<ClusterClass> = object(Some("team-a"), "class", &Value::Null, &json!({"spec": {}}));
        if resolves {
            let annotations = &mut Arc::make_mut(&mut cluster).metadata.annotations;
            annotations
                .get_or_insert_default()
                .insert(annotation::RESOLVE_TKR.to_owned(), String::new());
        }
        let releases = releases();
        target(
            text,
            TargetInputs {
                cluster: &cluster,
                class: Some(&class),
                releases: &releases,
                images: None,
                control_plane: Some(control_plane),
            },
        )
    }

    #[rstest]
    #[case::release("v1.36.3---vmware.1", false, "v1.36.3---vmware.1")]
    #[case::release_that_is_not_usable("v1.36.1---vmware.1", false, "v1.36.1---vmware.1")]
    #[case::version_of_a_release("v1.37.2+vmware.1-tkg.1", false, "v1.37.2---vmware.1-tkg.1")]
    #[case::kubernetes_version("v1.36.3+vmware.1", false, "v1.36.3---vmware.1")]
    #[case::kubernetes_version_without_v("1.36.3+vmware.1", false, "v1.36.3---vmware.1")]
    #[case::prefix_of_one_version("v1.36.3", false, "v1.36.3---vmware.1")]
    #[case::prefix_of_one_usable_release("v1.36", false, "v1.36.3---vmware.1")]
    #[case::prefix_of_releases_that_are_not_usable("v1.36.1", false, "v1.36.1---vmware.1")]
    #[case::back_at_the_control_plane("v1.35.4", false, "v1.35.4---vmware.1")]
    #[case::newest_of_a_resolution("v1.37", true, "v1.37.2---vmware.1-tkg.2")]
    #[case::release_of_a_resolution("v1.37.2---vmware.1-tkg.1", true, "v1.37.2---vmware.1-tkg.1")]
    #[case::prefix_that_keeps_the_release("v1.35", true, "v1.35.4---vmware.1")]
    fn a_target_is_found(#[case] text: &str, #[case] resolves: bool, #[case] release: &str) {
        let found = targeted(text, resolves, "v1.35.4+vmware.1").unwrap();
        assert_eq!(found.release, release);
        let (_, version, _) = LABELS.into_iter().find(|(name, ..)| *name == release).unwrap();
        assert_eq!(found.version, version);
    }

    #[rstest]
    #[case::unknown("v1.38", false, "\"v1.38\" is no TanzuKubernetesRelease")]
    #[case::part_of_a_number("v1.3", false, "\"v1.3\" is no TanzuKubernetesRelease")]
    #[case::empty("", false, "is no TanzuKubernetesRelease")]
    #[case::prefix_of_versions(
        "v1.37",
        false,
        "v1.37.0---vmware.1, v1.37.2---vmware.1-tkg.1, v1.37.2---vmware.1-tkg.2; name one"
    )]
    #[case::version_of_releases(
        "v1.37.2+vmware.1",
        false,
        "v1.37.2---vmware.1-tkg.1, v1.37.2---vmware.1-tkg.2; name one"
    )]
    #[case::prefix_of_many("v1", false, "and 2 more; name one")]
    #[case::not_resolved("v1.38", true, "\"v1.38\" cannot be resolved: ")]
    fn a_wrong_target_is_named(#[case] text: &str, #[case] resolves: bool, #[case] says: &str) {
        let error = targeted(text, resolves, "v1.35.4+vmware.1")
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }

    #[test]
    fn a_lower_version_is_no_target() {
        let lower = targeted("v1.35", false, "v1.36.3+vmware.1").unwrap_err();
        assert!(matches!(lower, InvalidTarget::Lower { .. }), "{lower}");
    }
}
