//! Steps of an upgrade over several minor versions, which hook GenerateUpgradePlan returns.
//!
//! Cluster API caches an answer for ten minutes, so all replicas choose the same versions from the same releases. A step opens no gate: it
//! is held like any other version.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{Cluster, ClusterClass},
    labels::{annotation, name},
    lifecycle::ClusterUpgrade,
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use super::usable::excluded;
use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Images, Releases, Stores},
    },
    cluster::{is_legacy, is_reconciled},
    gate::{
        hook_call::GENERATE_UPGRADE_PLAN_HANDLER,
        plan_call::{NoPlan, PlanCall},
    },
    packages::bootstrap::{ResolvedRelease, packages},
    reasons::{GateReason, Hold},
    resolver::{asks, describes_images, newest_release},
    upgrade::{hop::Plan, record::of_cluster, tkr::pinned_versions},
    version::{KubernetesVersion, Ordered, same},
};

/// Error for a minor version on the way to which no release belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no TanzuKubernetesRelease is for Kubernetes {major}.{minor}, which the upgrade from {from} to {to} passes; create one, or list the \
     versions in spec.kubernetesVersions of the ClusterClass instead of its generateUpgradePlanExtension"
)]
pub struct NoRelease {
    major: u64,
    minor: u64,
    from: String,
    to: String,
}

impl From<&NoPlan> for Hold {
    fn from(why: &NoPlan) -> Self {
        match why {
            NoPlan::NoRelease(missing) => Self::new(GateReason::NoTKRForHop, missing.to_string()),
            NoPlan::NotListed => Self::new(GateReason::UpgradePlanUnknown, why.to_string()),
        }
    }
}

/// Maximum number of versions of one minor version that are checked. Any tenant may create a Cluster whose checks are expensive.
const CHECKED: usize = 8;

/// Inputs of the steps of an upgrade.
#[derive(Debug, Clone, Copy)]
pub struct StepsInputs<'a> {
    /// `spec.version` of the control plane.
    pub from: &'a str,
    /// `topology.version`.
    pub to: &'a str,
    /// Kubernetes versions for which variable `TKR_DATA` names a release.
    pub pinned: &'a [String],
    /// Hops of the records of an upgrade to the same target.
    pub recorded: &'a [String],
    /// All releases.
    pub releases: &'a Releases,
}

/// Returns the versions that the control plane takes, in order: for each minor version on the way the pinned one; else the recorded hop;
/// else the newest one whose releases are usable; else the newest one, which its own gate holds. The last step is the target.
///
/// # Errors
/// A minor version on the way without any release.
pub fn steps(
    inputs: StepsInputs<'_>,
    is_usable: &dyn Fn(&str, &Releases) -> bool,
) -> Result<Vec<String>, NoRelease> {
    let StepsInputs { from, to, .. } = inputs;
    if same(from, to) {
        return Ok(Vec::new());
    }
    let mut steps = Vec::new();
    if let (Ok(at), Ok(target)) = (from.parse::<KubernetesVersion>(), to.parse::<KubernetesVersion>()) {
        let minors = at.minors_before(&target);
        let choices = if minors.is_empty() {
            Choices::default()
        } else {
            Choices::of(inputs)
        };
        for minor in minors {
            let place = (target.major(), minor);
            let step = choices.step(place, is_usable).ok_or_else(|| NoRelease {
                major: target.major(),
                minor,
                from: from.to_owned(),
                to: to.to_owned(),
            })?;
            steps.push(step.to_owned());
        }
    }
    steps.push(to.to_owned());
    Ok(steps)
}

/// Versions of one minor version, in their order, each with its releases.
type Versions<'a> = Vec<(Ordered, &'a str, Releases)>;

/// Versions to choose from, by major and minor version.
#[derive(Default)]
struct Choices<'a> {
    pinned: BTreeMap<(u64, u64), &'a str>,
    recorded: BTreeMap<(u64, u64), &'a str>,
    released: BTreeMap<(u64, u64), Versions<'a>>,
}

impl<'a> Choices<'a> {
    fn of(inputs: StepsInputs<'a>) -> Self {
        let mut by_version: BTreeMap<&str, Releases> = BTreeMap::new();
        for (name, release) in inputs.releases {
            let version = release.spec.kubernetes.version.as_str();
            let releases = by_version.entry(version).or_default();
            releases.insert(name.clone(), Arc::clone(release));
        }
        let mut released: BTreeMap<(u64, u64), Versions<'_>> = BTreeMap::new();
        for (version, releases) in by_version {
            if let Some(ordered) = Ordered::of(version) {
                let versions = released.entry(ordered.minor()).or_default();
                versions.push((ordered, version, releases));
            }
        }
        for versions in released.values_mut() {
            // A version with and without `v` is the same one.
            versions
                .sort_by(|(one, text, _), (other, other_text, _)| one.cmp(other).then(text.cmp(other_text)));
        }
        // Sluice pins the recorded hop, and a user may pin another version instead.
        let of_users = inputs
            .pinned
            .iter()
            .filter(|version| !inputs.recorded.contains(version));
        Self {
            pinned: newest_of_each(of_users),
            recorded: newest_of_each(inputs.recorded.iter()),
            released,
        }
    }

    fn step(&self, minor: (u64, u64), is_usable: &dyn Fn(&str, &Releases) -> bool) -> Option<&'a str> {
        let chosen = self.pinned.get(&minor).or_else(|| self.recorded.get(&minor));
        if let Some(chosen) = chosen {
            return Some(chosen);
        }
        let released = self.released.get(&minor)?;
        let mut newest_first = released.iter().rev().take(CHECKED);
        let usable = newest_first.find(|(_, version, releases)| is_usable(version, releases));
        usable.or_else(|| released.last()).map(|(_, version, _)| *version)
    }
}

/// Returns the newest version of each minor version.
fn newest_of_each<'a>(versions: impl Iterator<Item = &'a String>) -> BTreeMap<(u64, u64), &'a str> {
    let mut ordered: Vec<(Ordered, &str)> = versions
        .filter_map(|version| Some((Ordered::of(version)?, version.as_str())))
        .collect();
    ordered.sort();
    ordered
        .iter()
        .map(|(ordered, version)| (ordered.minor(), *version))
        .collect()
}

/// Kinds that the steps depend on. Templates and Packages are not checked before they are listed.
const NEEDED: [StoredKind; 4] = [
    StoredKind::ClusterBootstrap,
    StoredKind::Cluster,
    StoredKind::TanzuKubernetesRelease,
    StoredKind::ClusterClass,
];

/// Whether the caches have what the steps of an upgrade depend on.
#[must_use]
pub fn knows_steps(stores: &impl Stores) -> bool {
    !stores.packages_enabled() || NEEDED.into_iter().all(|kind| stores.is_listed(kind))
}

/// Returns the steps of an upgrade by the cached objects.
///
/// # Errors
/// A minor version on the way without any release, or OSImages that are needed and not listed.
pub fn steps_of(
    call: &PlanCall,
    stores: &impl Stores,
    system_namespace: &str,
) -> Result<Vec<String>, NoPlan> {
    let cluster: Option<Arc<Cluster>> = stores.get(Some(call.namespace.as_str()), &call.name);
    let cluster = cluster.filter(|cluster| cluster.metadata.uid.as_deref() == Some(&call.uid));
    let class = cluster.as_deref().and_then(|cluster| class_of(cluster, stores));
    let known = cluster.as_deref().zip(class.as_deref());
    steps_for(call, known, stores, system_namespace)
}

/// Returns the same for a Cluster of this class, which may not be stored yet.
fn steps_for(
    call: &PlanCall,
    known: Option<(&Cluster, &ClusterClass)>,
    stores: &impl Stores,
    system_namespace: &str,
) -> Result<Vec<String>, NoPlan> {
    let (namespace, name) = (Some(call.namespace.as_str()), call.name.as_str());
    let releases = stores.releases();
    let images = stores.images();
    // Without them another version may be chosen, and Cluster API keeps an answer.
    if call.passes_minors() && images.is_none() && known.is_some_and(needs_images) {
        return Err(NoPlan::NotListed);
    }
    let bootstrap: Option<Arc<ClusterBootstrap>> = stores.get(namespace, name);
    let upgrade: Option<Arc<ClusterUpgrade>> = stores.get(namespace, name);
    let inputs = StepsInputs {
        from: &call.from,
        to: &call.to,
        pinned: &call.pinned,
        recorded: &recorded(call, bootstrap.as_deref(), upgrade.as_deref(), &releases),
        releases: &releases,
    };
    let is_usable = |version: &str, releases: &Releases| {
        let newest = match known {
            Some((cluster, class)) => newest_for(cluster, class, (releases, images.as_deref()), version),
            None => newest_usable(releases.values()),
        };
        newest.is_some_and(|release| has_packages(&release, stores, system_namespace))
    };
    Ok(steps(inputs, &is_usable)?)
}

/// Whether the releases of a Cluster depend on OSImages.
fn needs_images((cluster, class): (&Cluster, &ClusterClass)) -> bool {
    class.spec.declares(name::TKR_DATA) || describes_images(cluster, class)
}

/// Returns the steps of an upgrade by releases that were read, with the ClusterBootstrap of the Cluster.
///
/// # Errors
/// A minor version on the way without any release.
pub fn steps_by(
    call: &PlanCall,
    releases: &Releases,
    bootstrap: Option<&ClusterBootstrap>,
) -> Result<Vec<String>, NoRelease> {
    let inputs = StepsInputs {
        from: &call.from,
        to: &call.to,
        pinned: &call.pinned,
        recorded: &recorded(call, bootstrap, None, releases),
        releases,
    };
    steps(inputs, &|_, releases| newest_usable(releases.values()).is_some())
}

fn class_of(cluster: &Cluster, stores: &impl Stores) -> Option<Arc<ClusterClass>> {
    let (namespace, name) = crate::resolver::class_of(cluster)?;
    stores.get(Some(&namespace), name)
}

/// Returns the hops of the records of this upgrade. A hop counts while a release of its version is usable, or once the packages of one are
/// merged: otherwise it would hold until a user corrects the release.
fn recorded(
    call: &PlanCall,
    bootstrap: Option<&ClusterBootstrap>,
    upgrade: Option<&ClusterUpgrade>,
    releases: &Releases,
) -> Vec<String> {
    let of_packages = bootstrap.and_then(|bootstrap| bootstrap.status.as_ref()?.upgrade.as_ref());
    let of_packages = of_cluster(of_packages, &call.uid)
        .filter(|record| record.to == call.to)
        .and_then(|record| record.hop.clone());
    let of_gates = upgrade.and_then(|upgrade| upgrade.status.as_ref()?.upgrade.as_ref());
    let of_gates = crate::gates::record::of_cluster(of_gates, &call.uid)
        .filter(|record| record.to == call.to)
        .and_then(|record| record.hop.clone());
    let merged = bootstrap.and_then(|bootstrap| ResolvedRelease::of(bootstrap).annotation);
    let counts = |hop: &String| {
        let of_hop = || {
            releases
                .values()
                .filter(|release| release.spec.kubernetes.version == *hop)
        };
        of_hop().any(|release| merged == Some(release.name_any().as_str()))
            || newest_usable(of_hop()).is_some()
    };
    of_packages.or(of_gates).filter(counts).into_iter().collect()
}

/// Returns the newest usable release of a version for a Cluster. Its gate accepts only the single release of a version, unless a resolution
/// is requested.
fn newest_for(
    cluster: &Cluster,
    class: &ClusterClass,
    (releases, images): (&Releases, Option<&Images>),
    version: &str,
) -> Option<String> {
    let is_legacy = |release: &&Arc<TanzuKubernetesRelease>| is_legacy(&release.metadata);
    let is_single = releases.values().filter(|release| !is_legacy(release)).count() == 1;
    if !is_single && asks(&cluster.metadata, Some(class)).is_none() {
        return None;
    }
    newest_release(cluster, class, (releases, images), version).ok()
}

/// Returns the newest release without a label that excludes it.
fn newest_usable<'a>(releases: impl Iterator<Item = &'a Arc<TanzuKubernetesRelease>>) -> Option<String> {
    let is_usable = |release: &&Arc<TanzuKubernetesRelease>| {
        excluded(release, false).is_none()
            && !is_legacy(&release.metadata)
            && release.metadata.deletion_timestamp.is_none()
    };
    let usable = releases.filter(is_usable);
    let newest =
        usable.max_by(|one, other| Ordered::of(&one.spec.version).cmp(&Ordered::of(&other.spec.version)))?;
    Some(newest.name_any())
}

/// Whether the template of a release and its Packages exist, as far as they are listed.
fn has_packages(release: &str, stores: &impl Stores, system_namespace: &str) -> bool {
    let kinds = [StoredKind::ClusterBootstrapTemplate, StoredKind::Package];
    if !kinds.into_iter().all(|kind| stores.is_listed(kind)) {
        return true;
    }
    let template: Option<Arc<ClusterBootstrapTemplate>> = stores.get(Some(system_namespace), release);
    let catalogue = stores.catalogue();
    template.is_some_and(|template| {
        let mut packages = packages(&template.spec.0).into_iter();
        packages.all(|(_, package)| catalogue.contains_key(&package.ref_name))
    })
}

/// Plan of a Cluster, with the steps that Sluice plans for it.
#[derive(Debug)]
pub(crate) struct ClusterPlan {
    pub(crate) plan: Plan,
    /// Steps that hook GenerateUpgradePlan returns; `None` if the class does not refer to it, or Cluster API shows the steps.
    pub(crate) own_steps: Option<Result<Vec<String>, NoPlan>>,
}

impl ClusterPlan {
    /// Returns the plan of a Cluster of this class whose control plane has this version.
    pub(crate) fn of(
        cluster: &Cluster,
        class: Option<&ClusterClass>,
        control_plane: Option<&str>,
        stores: &impl Stores,
        (system_namespace, configs): (&str, &[String]),
    ) -> Self {
        let plan = Plan::of(class, cluster.status.as_ref());
        let topology = cluster.spec.topology.as_ref();
        if plan.leads_to(topology.map_or("", |topology| &topology.version)) {
            return Self {
                plan,
                own_steps: None,
            };
        }
        let own = own_call(cluster, class, control_plane, configs);
        let known = class.map(|class| (cluster, class));
        let own_steps = own.map(|call| steps_for(&call, known, stores, system_namespace));
        let plan = match &own_steps {
            Some(Ok(steps)) if !shows_plans(cluster, &plan) => Plan::Listed(steps.clone()),
            _ => plan,
        };
        Self { plan, own_steps }
    }
}

/// Whether a class refers to hook GenerateUpgradePlan of Sluice, by the name of the handler and of one of these ExtensionConfigs. Without
/// names it may be any.
#[must_use]
pub fn is_planned_by_sluice(class: &ClusterClass, configs: &[String]) -> bool {
    let handler = class
        .spec
        .plan_extension()
        .and_then(|named| named.split_once('.'));
    handler.is_some_and(|(handler, config)| {
        handler == GENERATE_UPGRADE_PLAN_HANDLER
            && (configs.is_empty() || configs.iter().any(|known| known == config))
    })
}

/// Returns the call that Cluster API makes for a Cluster; `None` if the class refers to another handler, or there is no control plane.
fn own_call(
    cluster: &Cluster,
    class: Option<&ClusterClass>,
    control_plane: Option<&str>,
    configs: &[String],
) -> Option<PlanCall> {
    class.filter(|class| is_planned_by_sluice(class, configs))?;
    let topology = cluster.spec.topology.as_ref()?;
    Some(PlanCall {
        namespace: cluster.namespace()?,
        name: cluster.name_any(),
        uid: cluster.uid()?,
        from: control_plane?.to_owned(),
        to: topology.version.clone(),
        pinned: pinned_versions(&topology.variables),
    })
}

/// Whether Cluster API shows the steps of an upgrade in the status of the Cluster, as since 1.14, or may still do so. Earlier versions have
/// reconciled the Cluster without them, and most keep an annotation between upgrades.
fn shows_plans(cluster: &Cluster, plan: &Plan) -> bool {
    let is_shown = matches!(plan, Plan::Given { control_plane, .. } if !control_plane.is_empty());
    is_shown || !cluster.annotations().contains_key(annotation::UPGRADE_STEP) && !is_reconciled(cluster)
}

#[cfg(test)]
mod tests;
