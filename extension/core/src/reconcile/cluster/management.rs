//! Management clusters: Clusters whose workload API server is that of Sluice, and Clusters with the label of a management cluster.
//!
//! Another client installs kapp-controller there, and that process deploys the packages of all Clusters. A PackageInstall of Sluice
//! would replace the process that deploys it. A label alone never removes a proof: any user of a Cluster may set it.

use kube::ResourceExt as _;
use sluice_crds::{
    foreign::{Cluster, PackageInstall},
    labels::{annotation, label},
    run::{ClusterBootstrap, Gate, KappControllerMode, PackageRecord, PackageState, UpgradeRecord},
};

use super::{
    Context, Facts, Failure, ReadPhase, Server, Step, effects::Effects, preserved::is_of_another_cluster,
    read::Key,
};
use crate::{
    events::Event,
    names,
    packages::{bootstrap::ResolvedRelease, build::Owner},
    reasons::{GateReason, Hold},
};

/// Short name of the package of kapp-controller.
const KAPP_CONTROLLER: &str = "kapp-controller";

/// Value of annotation `lifecycle.sluice.dev/kapp-controller`.
const UNMANAGED_MARK: &str = "Unmanaged";

/// Installer of kapp-controller of a Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Sluice.
    Managed,
    /// Sluice, although the Cluster has the label of a management cluster.
    LabelIgnored,
    /// Another client, because the API servers of Sluice and of the workload are one.
    OwnServer,
    /// Another client, by the label of the Cluster.
    Labelled,
    /// Another client, by the record. The Cluster has no label any more.
    LabelRemoved,
    /// Unknown: the Cluster has the label, and got it after Sluice took over its ClusterBootstrap, whose record may be lost.
    Unproven,
    /// Unknown until the UID of the management cluster was read.
    Unknown,
}

impl Ownership {
    /// Whether the plan leaves kapp-controller out. Until it is decided, nothing is written, and the record decides what is judged.
    pub(super) fn leaves_out(self, record: Option<&UpgradeRecord>) -> bool {
        match self {
            Self::Managed | Self::LabelIgnored => false,
            Self::OwnServer | Self::Labelled | Self::LabelRemoved => true,
            Self::Unproven | Self::Unknown => is_unmanaged(record),
        }
    }

    /// Whether both API servers are one.
    pub(super) fn is_own_server(self) -> bool {
        self == Self::OwnServer
    }

    /// Returns the decision for the record.
    pub(super) fn recorded(self) -> Option<KappControllerMode> {
        match self {
            Self::Managed | Self::LabelIgnored => Some(KappControllerMode::Managed),
            Self::OwnServer | Self::Labelled | Self::LabelRemoved => Some(KappControllerMode::Unmanaged),
            Self::Unproven | Self::Unknown => None,
        }
    }

    /// Whether it is decided.
    pub(super) fn is_known(self) -> bool {
        !matches!(self, Self::Unproven | Self::Unknown)
    }

    /// Returns reason and message of the condition about an unmanaged kapp-controller.
    pub(super) fn said(self) -> Option<(&'static str, String)> {
        match self {
            Self::Unproven | Self::Unknown | Self::Managed | Self::LabelIgnored => None,
            Self::OwnServer => Some((
                "ManagementCluster",
                "the workload API server is that of Sluice: kapp-controller is not installed by Sluice, and not part of the proof"
                    .to_owned(),
            )),
            Self::Labelled => Some((
                "ManagementLabel",
                format!(
                    "label {} is set on the Cluster: kapp-controller is not installed by Sluice, and not part of the proof",
                    label::MANAGEMENT_CLUSTER
                ),
            )),
            Self::LabelRemoved => Some((
                "ManagementLabelRemoved",
                format!(
                    "the record says that another client installs kapp-controller, although the Cluster has no label {}: kapp-controller is not \
                     installed by Sluice, and not part of the proof",
                    label::MANAGEMENT_CLUSTER
                ),
            )),
        }
    }
}

/// Whether a Cluster has the label of a management cluster.
pub(super) fn is_labelled(cluster: &Cluster) -> bool {
    cluster.labels().contains_key(label::MANAGEMENT_CLUSTER)
}

/// Returns the mark of a ClusterBootstrap that Sluice creates or takes over for a Cluster with the label. It is written along with the
/// first resolved release, so that a later label does not pass for an earlier one once the record is lost. A user may have removed the
/// annotation of the release.
pub(super) fn mark(facts: &Facts, bootstrap: Option<&ClusterBootstrap>) -> Option<(String, String)> {
    let is_first = bootstrap.is_none_or(|bootstrap| ResolvedRelease::of(bootstrap).annotation.is_none());
    let mark = (annotation::KAPP_CONTROLLER.to_owned(), UNMANAGED_MARK.to_owned());
    let is_new = is_first && !facts.record().is_some_and(was_managed);
    (is_new && is_labelled(&facts.cluster)).then_some(mark)
}

/// Whether the Cluster had no label when Sluice took over its ClusterBootstrap.
fn lacks_mark(facts: &Facts) -> bool {
    facts.bootstrap.as_deref().is_some_and(|bootstrap| {
        let mark = bootstrap.annotations().get(annotation::KAPP_CONTROLLER);
        ResolvedRelease::of(bootstrap).annotation.is_some()
            && mark.is_none_or(|mark| mark.as_str() != UNMANAGED_MARK)
    })
}

fn is_unmanaged(record: Option<&UpgradeRecord>) -> bool {
    let mode = record.and_then(|record| record.kapp_controller);
    mode == Some(KappControllerMode::Unmanaged)
}

/// Whether a record shows that Sluice installs kapp-controller in the workload cluster. The UID alone does not: a record without a decision
/// has it as well, from a version of Sluice or of the definition without the field, also before the first package was written.
fn was_managed(record: &UpgradeRecord) -> bool {
    let is_written = || {
        let mut packages = record.packages.iter();
        packages.any(|package| package.name == KAPP_CONTROLLER && package.state != PackageState::Pending)
    };
    record.workload_uid.is_some()
        && match record.kapp_controller {
            Some(mode) => mode == KappControllerMode::Managed,
            None => is_written(),
        }
}

/// Whether another client installs kapp-controller on the recorded API server, also without the label. It is not installed there only as
/// long as the record says so, and no package is deployed.
fn stays_unmanaged(record: &UpgradeRecord) -> bool {
    let is_missing = |gate: &Gate| {
        let reason = GateReason::KappControllerNotInstalled;
        !gate.open && gate.reason == reason.as_str()
    };
    let is_written = |package: &PackageRecord| package.state != PackageState::Pending;
    is_unmanaged(Some(record))
        && (!record.gates.iter().any(is_missing) || record.packages.iter().any(is_written))
}

/// Decides who installs kapp-controller on the API server with the UID `workload`; `None` before its first response. `is_installed`
/// tells whether the PackageInstall of kapp-controller exists.
fn ownership(facts: &Facts, workload: Option<&str>, is_installed: bool) -> Ownership {
    let record = facts.record();
    let recorded = record.and_then(|record| record.workload_uid.as_deref());
    match (workload, facts.management_uid.as_deref()) {
        (Some(workload), Some(own)) if workload == own => return Ownership::OwnServer,
        (Some(workload), None) => {
            let mode = record.and_then(|record| record.kapp_controller);
            // It was compared with the UID of the management cluster before.
            if recorded != Some(workload) || mode != Some(KappControllerMode::Managed) {
                return Ownership::Unknown;
            }
        }
        (Some(_), Some(_)) | (None, _) => {}
    }
    if !is_labelled(&facts.cluster) {
        let is_same = recorded.is_some() && recorded == workload;
        return if is_same && !is_installed && record.is_some_and(stays_unmanaged) {
            Ownership::LabelRemoved
        } else {
            Ownership::Managed
        };
    }
    // A deleted PackageInstall does not show that Sluice installs kapp-controller there, but the record does.
    if is_installed || record.is_some_and(was_managed) {
        return if workload.is_some() {
            Ownership::LabelIgnored
        } else {
            Ownership::Managed
        };
    }
    // The record may be lost, together with the PackageInstall.
    if recorded.is_none() && lacks_mark(facts) {
        Ownership::Unproven
    } else {
        Ownership::Labelled
    }
}

/// Whether another client than Sluice may install kapp-controller of the Cluster.
pub(crate) fn may_be_unmanaged(facts: &Facts) -> bool {
    is_labelled(&facts.cluster) || is_unmanaged(facts.record())
}

/// Decides who installs kapp-controller of the Cluster, from the caches.
pub(super) fn ownership_of(context: &Context<'_>, workload: Option<&str>) -> Step<Ownership> {
    let facts = context.facts;
    let is_installed = may_be_unmanaged(facts) && is_installed(context)?;
    Ok(ownership(facts, workload, is_installed))
}

/// Returns the name of the PackageInstall of kapp-controller; `None` if it would be too long to exist.
fn install_name(owner: &Owner) -> Option<String> {
    names::package_install(&owner.name, KAPP_CONTROLLER).ok()
}

fn is_installed(context: &Context<'_>) -> Step<bool> {
    let owner = &context.facts.owner;
    let Some(name) = install_name(owner) else {
        return Ok(false);
    };
    let install = &context.watched(Server::Management, &name)?.install;
    Ok(install
        .as_deref()
        .is_some_and(|install| !is_of_another_cluster(install, &owner.uid)))
}

/// Returns the hold of a Cluster without kapp-controller in its proof, if the API server has the PackageInstall that the cache lacks.
pub(super) fn confirm(context: &Context<'_>, ownership: Ownership) -> Step<Option<Hold>> {
    let owner = &context.facts.owner;
    let is_theirs = matches!(ownership, Ownership::Labelled | Ownership::LabelRemoved);
    let Some(name) = install_name(owner).filter(|_| is_theirs) else {
        return Ok(None);
    };
    let at = (Server::Management, Some(owner.namespace.as_str()));
    let found: Option<PackageInstall> = context.read(&name, at, ReadPhase::Confirm)?;
    let found = found.filter(|found| !is_of_another_cluster(found, &owner.uid));
    Ok(found.map(|_| {
        let key = Key::of::<PackageInstall>(Server::Management, Some(&owner.namespace), &name);
        Hold::new(
            GateReason::CacheOutdated,
            format!("waiting for the leader to observe {key}"),
        )
    }))
}

/// Returns the hold of a Cluster whose kubeconfig leads to an API server with this UID that Sluice must not write to.
pub(super) fn refused(context: &Context<'_>, uid: &str) -> Step<Option<Hold>> {
    let ownership = ownership_of(context, Some(uid))?;
    Ok(refusal(context.facts, ownership, uid))
}

/// Whether the drift check of a Cluster may compare despite this hold. It only reads; the record of an earlier version
/// lacks the decision, and shows that Sluice has installed kapp-controller on this very API server.
pub(super) fn may_compare(facts: &Facts, hold: &Hold, uid: &str) -> bool {
    let is_recorded = |record: &UpgradeRecord| {
        let is_proven = |package: &PackageRecord| package.state == PackageState::Ready;
        record.workload_uid.as_deref() == Some(uid)
            && was_managed(record)
            && record.packages.iter().all(is_proven)
    };
    hold.reason == GateReason::ManagementUIDUnknown && facts.record().is_some_and(is_recorded)
}

fn refusal(facts: &Facts, ownership: Ownership, uid: &str) -> Option<Hold> {
    let Owner { namespace, name, .. } = &facts.owner;
    if ownership == Ownership::Unknown {
        return Some(Hold::new(
            GateReason::ManagementUIDUnknown,
            "waiting for Sluice to read namespace kube-system of the management cluster; see the log of the leader",
        ));
    }
    if ownership == Ownership::Unproven {
        let (label, key) = (label::MANAGEMENT_CLUSTER, annotation::KAPP_CONTROLLER);
        return Some(Hold::new(
            GateReason::ManagementLabelUnproven,
            format!(
                "label {label} was set on Cluster {namespace}/{name} after Sluice took over its ClusterBootstrap, which does not record who \
                 installs kapp-controller; remove the label, or set annotation {key}={UNMANAGED_MARK} on ClusterBootstrap {namespace}/{name} \
                 if another client does"
            ),
        ));
    }
    let recorded = facts.record().and_then(|record| record.workload_uid.as_deref());
    let is_own = facts.management_uid.as_deref() == Some(uid);
    let before = recorded.filter(|recorded| is_own && *recorded != uid)?;
    Some(Hold::new(
        GateReason::ReachesManagementCluster,
        format!(
            "Secret {namespace}/{name}-kubeconfig leads to the management API server, and led to the cluster with UID {before} before; \
             correct the kubeconfig"
        ),
    ))
}

/// Returns the hold for a failed write of a PackageInstall to a workload cluster that has no kapp-controller, if the label of the Cluster
/// is why Sluice does not install it.
pub(super) fn not_installed(ownership: Ownership, failure: &Failure) -> Option<Hold> {
    let is_theirs = matches!(ownership, Ownership::Labelled | Ownership::LabelRemoved);
    // A response about an object, or about its namespace, names it. One about the API does not.
    let names_object = failure.message.ends_with("\" not found");
    let is_missing = is_theirs && failure.is_not_found() && !names_object;
    is_missing.then(|| {
        Hold::new(
            GateReason::KappControllerNotInstalled,
            format!(
                "the workload cluster does not serve the package API, and Sluice does not install kapp-controller there because of \
                 label {} of the Cluster; install kapp-controller, or remove the label",
                label::MANAGEMENT_CLUSTER
            ),
        )
    })
}

/// Whether the deletion of the Cluster uninstalls nothing.
pub(super) fn is_left_alone(context: &Context<'_>) -> Step<bool> {
    let record = context.facts.record();
    let recorded = record.and_then(|record| record.workload_uid.as_deref());
    Ok(ownership_of(context, recorded)?.leaves_out(record))
}

/// Reports an ignored label once.
pub(super) fn report(context: &Context<'_>, effects: &mut Effects, ownership: Ownership) {
    let is_ignored = ownership == Ownership::LabelIgnored;
    let is_new = is_ignored && !effects.local.label_ignored;
    effects.local.label_ignored = is_ignored;
    if is_new {
        let Owner { namespace, name, .. } = &context.facts.owner;
        let note = format!(
            "label {} of the Cluster has no effect: Sluice installs kapp-controller by PackageInstall {namespace}/{name}-{KAPP_CONTROLLER}, \
             and the workload API server is not that of Sluice",
            label::MANAGEMENT_CLUSTER
        );
        effects.events.push(Event::Warned("ManagementLabelIgnored", note));
    }
}

#[cfg(test)]
mod tests;
