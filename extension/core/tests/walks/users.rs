//! Edits by users, and failures of both servers.

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::Server;
use sluice_crds::labels::{annotation, label};

use crate::{
    capi::{record, version_at},
    kapp::IGNORES_SELECTION,
    machines,
    objects::{
        CATALOGUE, LATER_RELEASE, MANAGEMENT_UID, OTHER_RELEASE, PACKAGES, PlannedBy, RANGES, RELEASED,
        RELEASES, SAME_RELEASE, TEAM, VERSIONS, a_template, bootstrap, by_hand, class, cluster,
        control_plane, home, is_below, kube_system, kubeconfig, kubeconfig_with, leaving_worker,
        leaving_workers, of_package, package, package_name, package_place, packages_of, planned_by, release,
        release_of_version, short_name, template, values, values_source, version_of_release, worker,
    },
    odd,
    overridden::{override_place, remove_all},
    servers::{Place, Servers, place},
    supervisor,
    truth::snapshot,
};

/// What a user pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Paused {
    /// `spec.paused` of the Cluster.
    Cluster,
    /// `spec.paused` of the ClusterBootstrap.
    Bootstrap,
    /// An annotation of the Cluster that keeps its next upgrade from starting.
    Start,
}

/// How a user edits the snapshot of the packages from before an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edited {
    Removed,
    /// It is no JSON.
    Malformed,
    /// It is about another release.
    OtherRelease,
    /// It names Packages that do not exist.
    UnknownPackages,
}

/// One edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Edit {
    /// Version and label of the Cluster.
    Target(usize),
    Version(usize),
    /// The version, without the check that it is not below that of the control plane.
    UnsafeVersion(usize),
    Label(usize),
    /// The label, without the check that its release is not below that of the machines.
    UnsafeLabel(usize),
    NoLabel,
    /// Another release of the second version appears, with later packages, and the label names it.
    OtherRelease,
    /// A release of the second version with the packages of the first release appears, and the label names it.
    SameRelease,
    /// The release of the later patch version appears.
    LaterRelease,
    Pause(Paused),
    Resume(Paused),
    /// Source of the steps of upgrades.
    Steps(PlannedBy),
    Delete,
    /// `clusterctl move`: objects lose their status and get other UIDs.
    Move,
    /// The Cluster is recreated with its name. Objects of the first one wait for the garbage collector.
    Again,
    /// Workers are being deleted and never terminate.
    LeavingWorkers,
    Values(u8),
    NoValues,
    /// The values source is created again, with other values.
    RecreatedValues(u8),
    /// A Package of the catalogue gets this content, at the same version.
    Content(usize, usize, &'static str),
    NoPackage(usize, usize),
    /// A Package permits the Kubernetes versions of this range.
    Constrain(usize, usize, usize),
    /// The PackageInstall of a package ignores the range of its Package.
    IgnoreSelection(usize),
    /// The ClusterBootstrap gets this version of a package.
    Choose(usize, usize),
    /// The template of a release gets this version of a package.
    UpdatesAvailableWrite(usize, usize, usize),
    NoRelease(usize),
    NoTemplate(usize),
    /// Releases, templates and Packages are as in the beginning.
    RestoreCatalogue,
    /// The ClusterBootstrap of the first release is applied again.
    OldManifest,
    /// The ClusterBootstrap loses the annotation of its resolved release.
    NoMark,
    /// The ClusterBootstrap loses its status, with the record.
    NoStatus,
    /// The ClusterBootstrap is deleted, and its finalizers removed.
    NoBootstrap,
    /// A package gets this upgrade policy.
    Policy(usize, &'static str, &'static str),
    NoPolicy,
    Kubeconfig(&'static str),
    NoKubeconfig,
    /// Another, empty API server responds at the same address.
    ReplaceServer,
    Silent(bool),
    /// An object of this kind in the workload is deleted.
    Remove(&'static str, u8),
    /// An object of this kind in the workload is altered: a Secret is recreated, a Package is edited.
    Alter(&'static str, u8),
    /// The PackageInstall of a package is edited.
    Install(usize, &'static str),
    /// The PackageInstall or the App of a package is paused or canceled.
    Stop(usize, &'static str, &'static str),
    /// The PackageInstall of a package is neither paused nor canceled.
    Restart(usize),
    /// An object of a watched kind becomes undecodable.
    Odd(usize, u8),
    /// Another team has an undecodable ClusterBootstrap.
    OddOfOthers,
    /// The addons-manager installed the packages, and Sluice has never reconciled the Cluster.
    OfAddonsManager,
    /// An edit of the spec of the Cluster that nothing depends on.
    Unimportant,
    /// The label that deactivates a release is set or removed.
    Deactivate(usize, bool),
    /// A release loses the image of the control plane.
    NoImage(usize),
    /// Both images of a release get this content.
    Image(usize, &'static str),
    /// The ClusterClass declares the variable `TKR_DATA`, or does not.
    Declare(bool),
    /// The Cluster loses the entries of its machines.
    NoEntries,
    /// A webhook of a user refuses JSON patches of Clusters, or does not.
    RefusePatches(bool),
    /// The pool stays at its version, or does not.
    Defer(bool),
    /// The label of a management cluster is set or removed.
    ManagementLabel(bool),
    /// The workload API server is the management API server.
    OfManagement,
    /// No leader can read the UID of the management cluster, or each can.
    ManagementUnread(bool),
    /// A user installs kapp-controller in the workload.
    ByHand,
    /// The PackageInstall of a package is removed, and its objects stay.
    Uninstall(usize),
    /// VirtualMachines of the Cluster exist, or do not.
    VirtualMachines(bool),
    /// The list of VirtualMachines is refused, or is not.
    RefuseVirtualMachines(bool),
    /// Packages go back after a cancellation, or stay.
    OnCancel(bool),
    /// The target is the version of the control plane again, and the label names its release.
    Cancel,
    Snapshot(Edited),
    /// No rollback goes back from a version of a package.
    NoWayBack(usize, usize),
    /// The override of this name is deleted.
    Revoke(&'static str),
}

/// Annotation of a ClusterBootstrap with the snapshot before and after an edit.
const SNAPSHOTS: &str = "test/snapshots";

fn to_of(servers: &Servers) -> usize {
    let to = servers
        .get(&cluster())
        .map(|cluster| cluster["spec"]["topology"]["version"].clone());
    let index = VERSIONS.iter().position(|version| to == Some(json!(version)));
    index.expect("a version of the walk")
}

/// Returns the nearest possible target: Cluster API accepts none below the control plane.
fn possible(servers: &Servers, version: usize) -> usize {
    let at = version_at(servers, &control_plane(), "spec");
    if is_below(version, at) { at } else { version }
}

#[expect(clippy::too_many_lines, reason = "a list of edits")]
pub(crate) fn edit(servers: &mut Servers, edit: Edit) {
    match edit {
        Edit::Target(version) => {
            let version = possible(servers, version);
            self::edit(servers, Edit::Version(version));
            self::edit(servers, Edit::Label(release_of_version(version)));
        }
        Edit::Version(version) => {
            let version = possible(servers, version);
            self::edit(servers, Edit::UnsafeVersion(version));
        }
        Edit::UnsafeVersion(version) => {
            servers.edit(&cluster(), |cluster| {
                cluster["spec"]["topology"]["version"] = json!(VERSIONS[version]);
            });
            machines::review(servers);
        }
        Edit::Label(release) => {
            if !machines::is_refused(servers, release) {
                self::edit(servers, Edit::UnsafeLabel(release));
            }
        }
        Edit::UnsafeLabel(release) => {
            servers.edit(&cluster(), |cluster| {
                cluster["metadata"]["labels"][label::TKR] = json!(RELEASES[release]);
            });
            machines::review(servers);
        }
        Edit::NoLabel => servers.edit(&cluster(), |cluster| {
            if let Some(labels) = cluster["metadata"]["labels"].as_object_mut() {
                labels.remove(label::TKR);
            }
        }),
        Edit::OtherRelease | Edit::SameRelease => {
            let added = if edit == Edit::OtherRelease {
                OTHER_RELEASE
            } else {
                SAME_RELEASE
            };
            add_release(servers, added);
            self::edit(servers, Edit::Label(added));
        }
        Edit::LaterRelease => add_release(servers, LATER_RELEASE),
        Edit::Pause(paused) => pause(servers, paused, true),
        Edit::Resume(paused) => pause(servers, paused, false),
        Edit::Steps(planned_by) => {
            let class_of = machines::class_of(servers, planned_by, true);
            servers.put(class(), class_of);
        }
        Edit::Delete => servers.edit(&cluster(), |cluster| {
            cluster["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
        }),
        Edit::Move => moved(servers),
        Edit::Again => again(servers),
        Edit::Odd(kind, which) => odd::make(servers, kind, which),
        Edit::OddOfOthers => odd::make_of_others(servers),
        Edit::OfAddonsManager => of_addons_manager(servers),
        Edit::Unimportant => servers.edit(&cluster(), |cluster| {
            let before = cluster["spec"]["edits"].as_u64().unwrap_or_default();
            cluster["spec"]["edits"] = json!(before + 1);
        }),
        Edit::LeavingWorkers => drop(servers.put(leaving_worker(), leaving_workers())),
        Edit::Values(replicas) => {
            let data = values(replicas)["data"].clone();
            servers.edit(&values_source(), |secret| secret["data"] = data);
        }
        Edit::NoValues => servers.remove(&values_source()),
        Edit::RecreatedValues(replicas) => {
            let data = values(replicas)["data"].clone();
            servers.put_another(&values_source(), |secret| secret["data"] = data);
        }
        Edit::Content(which, version, content) => {
            let spec = package(which, version, content)["spec"].clone();
            servers.edit(&package_place(&package_name(which, version)), |package| {
                package["spec"] = spec;
            });
        }
        Edit::NoPackage(which, version) => servers.remove(&package_place(&package_name(which, version))),
        Edit::Constrain(which, version, range) => {
            let (constraints, _) = RANGES[range];
            servers.edit(&package_place(&package_name(which, version)), |package| {
                package["spec"]["kubernetesVersionSelection"] = json!({"constraints": constraints});
            });
        }
        Edit::IgnoreSelection(which) => {
            servers.edit(&of_package(which, "packageinstalls"), |install| {
                install["metadata"]["annotations"][IGNORES_SELECTION] = json!("");
            });
        }
        Edit::Choose(which, version) => servers.edit(&bootstrap(), |bootstrap| {
            // Searches have two packages.
            if which < 2 || !bootstrap["spec"]["additionalPackages"][0].is_null() {
                *of_spec(&mut bootstrap["spec"], which) = json!(package_name(which, version));
            }
        }),
        Edit::UpdatesAvailableWrite(of, which, version) => servers.edit(&template(of), |template| {
            *of_spec(&mut template["spec"], which) = json!(package_name(which, version));
        }),
        Edit::NoRelease(version) => servers.remove(&release(version)),
        Edit::NoTemplate(version) => servers.remove(&template(version)),
        Edit::RestoreCatalogue => restore_catalogue(servers),
        Edit::OldManifest => {
            for which in PACKAGES {
                self::edit(servers, Edit::Choose(which, 0));
            }
        }
        Edit::NoMark => servers.edit(&bootstrap(), |bootstrap| {
            if let Some(annotations) = bootstrap["metadata"]["annotations"].as_object_mut() {
                annotations.remove(annotation::RESOLVED_TKR);
            }
        }),
        Edit::NoStatus => servers.edit(&bootstrap(), |bootstrap| {
            bootstrap.as_object_mut().map(|object| object.remove("status"));
        }),
        Edit::NoBootstrap => servers.remove(&bootstrap()),
        Edit::Policy(which, field, value) => servers.edit(&bootstrap(), |bootstrap| {
            let policy = json!({"package": short_name(which), field: value});
            bootstrap["spec"]["upgradePolicy"]["packages"] = json!([policy]);
        }),
        Edit::NoPolicy => servers.edit(&bootstrap(), |bootstrap| {
            if let Some(spec) = bootstrap["spec"].as_object_mut() {
                spec.remove("upgradePolicy");
            }
        }),
        Edit::Kubeconfig(token) => {
            let secret = with_uid(servers, token);
            servers.put(kubeconfig(), secret);
        }
        Edit::NoKubeconfig => servers.remove(&kubeconfig()),
        Edit::ReplaceServer => {
            servers.take_over(Server::Workload, &Servers::default());
            servers.put(
                kube_system(),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {}}),
            );
        }
        Edit::Silent(silent) => servers.silent = silent,
        Edit::Remove(kind, which) => {
            if let Some(place) = on_workload(servers, kind, which) {
                servers.delete(&place);
            }
        }
        Edit::Alter(kind, which) => {
            let Some(place) = on_workload(servers, kind, which) else {
                return;
            };
            match kind {
                "secrets" => servers.put_another(&place, |secret| secret["data"] = values(9)["data"].clone()),
                _ => servers.edit(&place, |package| {
                    package["spec"]["template"]["spec"]["fetch"] = json!([{"http": {"url": "altered"}}]);
                }),
            }
        }
        Edit::Install(which, field) => {
            servers.edit(&of_package(which, "packageinstalls"), |install| match field {
                "syncPeriod" => install["spec"]["syncPeriod"] = json!("7m0s"),
                _ => install["spec"]["values"] = json!([]),
            });
        }
        Edit::Stop(which, kind, field) => {
            servers.edit(&of_package(which, kind), |stopped| {
                stopped["spec"][field] = json!(true);
            });
        }
        Edit::Restart(which) => servers.edit(&of_package(which, "packageinstalls"), |install| {
            if let Some(spec) = install["spec"].as_object_mut() {
                spec.retain(|field, _| field != "paused" && field != "canceled");
            }
        }),
        Edit::Deactivate(release, sets) => machines::deactivate(servers, release, sets),
        Edit::NoImage(release) => machines::remove_image(servers, release),
        Edit::Image(release, content) => machines::replace_images(servers, release, content),
        Edit::Declare(declares) => {
            let edited = machines::class_of(servers, planned_by(servers), declares);
            servers.edit(&class(), |class| class["spec"] = edited["spec"].clone());
        }
        Edit::NoEntries => machines::remove_entries(servers),
        Edit::RefusePatches(true) => drop(servers.put(machines::refusing(), json!({"metadata": {}}))),
        Edit::RefusePatches(false) => servers.remove(&machines::refusing()),
        Edit::Defer(defers) => machines::defer(servers, defers),
        Edit::ManagementLabel(sets) => servers.edit(&cluster(), |cluster| {
            let Some(labels) = cluster["metadata"]["labels"].as_object_mut() else {
                return;
            };
            if sets {
                labels.insert(label::MANAGEMENT_CLUSTER.to_owned(), json!(""));
            } else {
                labels.remove(label::MANAGEMENT_CLUSTER);
            }
        }),
        Edit::OfManagement => servers.edit(&kube_system(), |namespace| {
            namespace["metadata"]["uid"] = json!(MANAGEMENT_UID);
        }),
        Edit::ManagementUnread(unread) => servers.is_management_unread = unread,
        Edit::ByHand => drop(servers.put(by_hand(), json!({"metadata": {}}))),
        Edit::Uninstall(which) => servers.remove(&of_package(which, "packageinstalls")),
        Edit::VirtualMachines(exist) => supervisor::set_virtual_machines(servers, exist),
        Edit::RefuseVirtualMachines(refuses) => supervisor::refuse_virtual_machines(servers, refuses),
        Edit::OnCancel(goes_back) => servers.edit(&bootstrap(), |bootstrap| {
            let on_cancel = if goes_back { "Rollback" } else { "Keep" };
            bootstrap["spec"]["upgradePolicy"]["onCancel"] = json!(on_cancel);
        }),
        Edit::Cancel => cancel(servers),
        Edit::Snapshot(edited) => edit_snapshot(servers, edited),
        Edit::NoWayBack(which, version) => {
            servers.edit(&package_place(&package_name(which, version)), |package| {
                package["metadata"]["annotations"] = json!({annotation::ROLLBACK: "false"});
            });
        }
        Edit::Revoke(name) => servers.remove(&override_place(name)),
    }
}

/// Reverts the target to the version of the control plane, and the label to the release of the snapshot or of the machines.
fn cancel(servers: &mut Servers) {
    let version = version_at(servers, &control_plane(), "spec");
    let before = servers.get(&bootstrap()).and_then(snapshot);
    let named = before.as_ref().map(|before| &before["release"]);
    let release = RELEASES
        .iter()
        .position(|release| named.is_some_and(|named| named == release));
    let release = release
        .filter(|release| version_of_release(*release) == version)
        .or_else(|| machines::pinned(servers, version));
    edit(servers, Edit::UnsafeVersion(version));
    edit(servers, Edit::Label(release.unwrap_or(version)));
}

fn edit_snapshot(servers: &mut Servers, edited: Edited) {
    restore_snapshot(servers);
    servers.edit(&bootstrap(), |bootstrap| {
        let annotations = bootstrap.pointer_mut("/metadata/annotations");
        let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
            return;
        };
        let Some(before) = annotations.remove(annotation::ROLLBACK_TO) else {
            return;
        };
        let mut content: Value =
            serde_json::from_str(before.as_str().unwrap_or_default()).unwrap_or_default();
        let after = match edited {
            Edited::Removed => Value::Null,
            Edited::Malformed => json!("{"),
            Edited::OtherRelease => {
                content["release"] = json!("other");
                json!(content.to_string())
            }
            Edited::UnknownPackages => {
                let packages = content["packages"].as_object_mut();
                for (_, package) in packages.into_iter().flatten() {
                    package["name"] = json!("unknown");
                }
                json!(content.to_string())
            }
        };
        let snapshots = json!([before, after]).to_string();
        annotations.insert(SNAPSHOTS.to_owned(), json!(snapshots));
        if !after.is_null() {
            annotations.insert(annotation::ROLLBACK_TO.to_owned(), after);
        }
    });
}

/// Restores an edited snapshot, unless Sluice has written another one since.
fn restore_snapshot(servers: &mut Servers) {
    servers.edit(&bootstrap(), |bootstrap| {
        let annotations = bootstrap.pointer_mut("/metadata/annotations");
        let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
            return;
        };
        let Some(snapshots) = annotations.remove(SNAPSHOTS) else {
            return;
        };
        let snapshots: Value =
            serde_json::from_str(snapshots.as_str().unwrap_or_default()).unwrap_or_default();
        let current = annotations.get(annotation::ROLLBACK_TO).cloned();
        if current.unwrap_or_default() == snapshots[1] {
            annotations.insert(annotation::ROLLBACK_TO.to_owned(), snapshots[0].clone());
        }
    });
}

/// Creates a release.
fn add_release(servers: &mut Servers, index: usize) {
    let added = machines::release_of(servers, index);
    servers.put(release(index), added);
    servers.put(template(index), a_template(index));
}

/// Sets or removes a pause.
fn pause(servers: &mut Servers, paused: Paused, sets: bool) {
    let (place, part, field) = match paused {
        Paused::Cluster => (cluster(), "/spec", "paused".to_owned()),
        Paused::Bootstrap => (bootstrap(), "/spec", "paused".to_owned()),
        Paused::Start => (
            cluster(),
            "/metadata/annotations",
            format!("{}/test", annotation::BEFORE_UPGRADE_PREFIX),
        ),
    };
    servers.edit(&place, |object| {
        if paused == Paused::Start && object["metadata"]["annotations"].is_null() {
            object["metadata"]["annotations"] = json!({});
        }
        let Some(fields) = object.pointer_mut(part).and_then(Value::as_object_mut) else {
            return;
        };
        let set = if paused == Paused::Start {
            json!("")
        } else {
            json!(true)
        };
        if sets {
            fields.insert(field, set);
        } else {
            fields.remove(&field);
        }
    });
}

/// Moves values into Secrets with the fixed names of the addons-manager. Only the status of the ClusterBootstrap still names its
/// release.
fn of_addons_manager(servers: &mut Servers) {
    for which in PACKAGES {
        let (install, (server, namespace)) = (of_package(which, "packageinstalls"), home(which));
        let named = servers
            .get(&install)
            .map(|install| install["spec"]["values"][0]["secretRef"]["name"].clone());
        let Some(named) = named.as_ref().and_then(Value::as_str) else {
            continue;
        };
        let secret = |name: &str| place(server, "secrets", namespace, name);
        let Some(data) = servers.get(&secret(named)).map(|found| found["data"].clone()) else {
            continue;
        };
        let fixed = format!("one-{}-data-values", short_name(which));
        servers.put(
            secret(&fixed),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": data}),
        );
        servers.edit(&install, |install| {
            install["spec"]["values"] = json!([{"secretRef": {"name": fixed}}]);
            install["spec"]["syncPeriod"] = json!("7m0s");
        });
    }
    servers.edit(&bootstrap(), |bootstrap| {
        let mark = bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR].take();
        if let Some(annotations) = bootstrap["metadata"]["annotations"].as_object_mut() {
            annotations.remove(annotation::RESOLVED_TKR);
        }
        bootstrap["status"] = json!({"resolvedTKR": mark});
    });
}

/// Returns the reference to a package in a spec.
fn of_spec(spec: &mut Value, package: usize) -> &mut Value {
    match package {
        0 => &mut spec["kapp"]["refName"],
        1 => &mut spec["cni"]["refName"],
        _ => &mut spec["additionalPackages"][0]["refName"],
    }
}

fn with_uid(servers: &Servers, token: &str) -> Value {
    let mut secret = kubeconfig_with(token);
    if let Some(found) = servers.get(&kubeconfig()) {
        secret["metadata"] = found["metadata"].clone();
    }
    secret
}

fn on_workload(servers: &Servers, kind: &str, which: u8) -> Option<Place> {
    let places: Vec<&Place> = servers
        .of(Server::Workload, kind)
        .map(|(place, _)| place)
        .collect();
    let index = usize::from(which).checked_rem(places.len())?;
    Some(places[index].clone())
}

fn again(servers: &mut Servers) {
    let version = VERSIONS[to_of(servers)];
    servers.put_another(&cluster(), |cluster| {
        if let Some(metadata) = cluster["metadata"].as_object_mut() {
            metadata.remove("deletionTimestamp");
        }
        without_conditions(cluster);
    });
    servers.remove(&leaving_worker());
    servers.put_another(&control_plane(), |plane| {
        plane["spec"]["version"] = json!(version);
        plane["status"]["version"] = json!(version);
    });
    servers.put_another(&worker(), |worker| {
        worker["spec"]["template"]["spec"]["version"] = json!(version);
        worker["status"]["versions"][0]["version"] = json!(version);
    });
    edit(servers, Edit::ReplaceServer);
}

fn without_conditions(cluster: &mut Value) {
    let status = cluster.pointer_mut("/status").and_then(Value::as_object_mut);
    if let Some(status) = status {
        status.remove("conditions");
    }
}

fn moved(servers: &mut Servers) {
    servers.put_another(&cluster(), without_conditions);
    let owner = servers
        .get(&cluster())
        .map(|cluster| cluster["metadata"]["uid"].clone());
    let places: Vec<Place> = servers
        .of(Server::Management, "clusterbootstraps")
        .chain(servers.of(Server::Management, "packageinstalls"))
        .chain(servers.of(Server::Management, "secrets"))
        .map(|(place, _)| place.clone())
        .filter(|place| place.2 == TEAM)
        .collect();
    for place in places {
        servers.put_another(&place, |object| {
            if let Some(object) = object.as_object_mut() {
                object.remove("status");
            }
            if object["metadata"]["ownerReferences"][0]["uid"].is_string() {
                object["metadata"]["ownerReferences"][0]["uid"] = owner.clone().unwrap_or_default();
            }
        });
    }
    servers.remove(&of_package(0, "apps"));
    remove_all(servers);
}

/// Sets a target above the first version, and corrects all its inputs, with the package versions if they were `chosen`. Returns the
/// version of the target.
pub(crate) fn mend(servers: &mut Servers, chosen: bool) -> usize {
    let to = possible(servers, to_of(servers).max(1));
    edit(servers, Edit::Target(to));
    mend_inputs(servers, to, chosen);
    to
}

/// Corrects all inputs of the current target, whose label stays if it names one of its releases. Returns the version of the target.
pub(crate) fn mend_target(servers: &mut Servers, chosen: bool) -> usize {
    let to = possible(servers, to_of(servers));
    edit(servers, Edit::Version(to));
    mend_inputs(servers, to, chosen);
    let is_usable =
        |label: &usize| version_of_release(*label) == to && servers.get(&release(*label)).is_some();
    let label = machines::labelled(servers).filter(is_usable);
    let pinned = machines::pinned(servers, to);
    let label = match (label, pinned) {
        // The webhook would have refused a lower release.
        (Some(label), Some(pinned)) => label.max(pinned),
        (label, pinned) => label.or(pinned).unwrap_or(release_of_version(to)),
    };
    edit(servers, Edit::Label(label));
    to
}

fn mend_inputs(servers: &mut Servers, to: usize, chosen: bool) {
    odd::mend(servers);
    restore_snapshot(servers);
    edit(servers, Edit::Silent(false));
    edit(servers, Edit::Kubeconfig("token"));
    for paused in [Paused::Cluster, Paused::Bootstrap, Paused::Start] {
        edit(servers, Edit::Resume(paused));
    }
    for which in PACKAGES {
        edit(servers, Edit::Restart(which));
    }
    // On the way to the last version, the release of the second one must be the only one.
    if to > 1 {
        for other in [OTHER_RELEASE, SAME_RELEASE] {
            // An entry of machines names its release.
            if machines::pinned(servers, version_of_release(other)) != Some(other) {
                servers.remove(&release(other));
                servers.remove(&template(other));
            }
        }
    }
    restore_catalogue(servers);
    machines::restore(servers);
    // A reconcile creates a missing one.
    if servers.get(&values_source()).is_some() {
        restore(servers, values_source(), values(1));
    }
    // A cancelled release of the same version, which had lower packages, leaves them on a control plane that has the version.
    let has_lower = version_at(servers, &control_plane(), "spec") == to && is_below_release(servers);
    if !chosen && !has_lower {
        return;
    }
    // A user corrects restored or lower packages once those of the release were merged.
    let marked = servers
        .get(&bootstrap())
        .map(|bootstrap| bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR].clone());
    if let Some(marked) = RELEASES.iter().position(|release| marked == Some(json!(release))) {
        for which in PACKAGES {
            edit(servers, Edit::Choose(which, packages_of(marked)));
        }
    }
}

/// Whether a gate is held until a user raises a package to the version of the release.
fn is_below_release(servers: &Servers) -> bool {
    let gates = record(servers).map(|record| record.gates).unwrap_or_default();
    gates.iter().any(|gate| gate.reason == "PackageBelowRelease")
}

/// Restores the initial releases, templates and Packages.
fn restore_catalogue(servers: &mut Servers) {
    for version in 0..RELEASED {
        let restored = machines::release_of(servers, version);
        restore(servers, release(version), restored);
        machines::deactivate(servers, version, false);
        restore(servers, template(version), a_template(version));
    }
    for version in 0..CATALOGUE {
        for which in PACKAGES {
            let place = package_place(&package_name(which, version));
            restore(servers, place, package(which, version, "a"));
        }
    }
}

/// Restores the initial state of an object.
fn restore(servers: &mut Servers, place: Place, object: Value) {
    if servers.get(&place).is_none() {
        servers.put(place, object);
        return;
    }
    servers.edit(&place, |found| {
        for field in ["spec", "data"] {
            if !object[field].is_null() {
                found[field] = object[field].clone();
            }
        }
    });
}
