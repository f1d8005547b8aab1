//! Ground truth of gates: actual deployments, independent of any status.

use serde_json::Value;
use sluice_crds::{
    labels::annotation,
    run::{Gate, Hook, UpgradeRecord},
};

use crate::{
    capi::version_at,
    kapp::Kapp,
    machines::{labelled, pinned},
    objects::{
        OTHER_RELEASE, PACKAGES, RELEASES, SAME_RELEASE, VERSIONS, bootstrap, control_plane, is_below,
        is_unmanaged, no_values, of_package, package_name, package_place, packages_of, ref_name, release,
        release_of_version, short_name, template, values_source, version_of_release, worker,
    },
    servers::{Place, Servers},
    supervisor::{is_on_supervisor, with_tkgs_values},
};

/// Whether a package is correctly deployed, by Kubernetes version.
pub(crate) type Right = [bool; VERSIONS.len()];

/// Whether each package is correctly deployed, by release.
pub(crate) type Fits = [[bool; RELEASES.len()]; PACKAGES.len()];

/// Whether the gate is open and releases a step that Cluster API has not taken yet.
pub(crate) fn releases_step(servers: &Servers, gate: &Gate) -> bool {
    let place = match gate.hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => control_plane(),
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => worker(),
        _ => return false,
    };
    gate.open && is_below(version_at(servers, &place, "spec"), version_of(gate))
}

/// Returns the newly open gates of a record that release a step.
pub(crate) fn opened<'a>(
    servers: &Servers,
    before: Option<&UpgradeRecord>,
    after: &'a UpgradeRecord,
) -> Vec<&'a Gate> {
    // A gate that is open by another override, or by a proof instead of an override, opens.
    let was_open = |gate: &Gate| {
        let mut gates = before.into_iter().flat_map(|record| &record.gates);
        gates.any(|other| {
            other.open
                && (other.hook, &other.version, &other.overridden_by)
                    == (gate.hook, &gate.version, &gate.overridden_by)
        })
    };
    let gates = after.gates.iter();
    gates
        .filter(|gate| releases_step(servers, gate) && !was_open(gate))
        .collect()
}

/// Returns the index of the version of a gate.
pub(crate) fn version_of(gate: &Gate) -> usize {
    let version = VERSIONS.iter().position(|known| *known == gate.version);
    version.expect("a version of the walk")
}

/// Returns the name of the Package in a ClusterBootstrap or a template.
pub(crate) fn named(servers: &Servers, of: &Place, package: usize) -> Option<String> {
    named_in(servers.get(of)?, package)
}

/// Returns the same of an object.
pub(crate) fn named_in(object: &Value, package: usize) -> Option<String> {
    let spec = &object["spec"];
    let named = match package {
        0 => &spec["kapp"],
        1 => &spec["cni"],
        _ => &spec["additionalPackages"][0],
    };
    named["refName"].as_str().map(str::to_owned)
}

/// Whether the upgrade policy of a package has this value.
pub(crate) fn policy(servers: &Servers, package: usize, field: &str, value: &str) -> bool {
    let bootstrap = servers.get(&bootstrap());
    let policies = bootstrap.and_then(|bootstrap| bootstrap["spec"]["upgradePolicy"]["packages"].as_array());
    let mut policies = policies.into_iter().flatten();
    policies.any(|policy| policy["package"] == short_name(package) && policy[field] == value)
}

/// Whether packages go back after a cancellation, by the policy of the ClusterBootstrap.
pub(crate) fn may_roll_back(servers: &Servers) -> bool {
    let bootstrap = servers.get(&bootstrap());
    bootstrap.is_some_and(any_goes_back)
}

/// Whether any package goes back after a cancellation, by the policy of a ClusterBootstrap.
pub(crate) fn any_goes_back(bootstrap: &Value) -> bool {
    PACKAGES.iter().any(|package| goes_back(bootstrap, *package))
}

/// Whether a package goes back after a cancellation, by the policy of a ClusterBootstrap.
pub(crate) fn goes_back(bootstrap: &Value, package: usize) -> bool {
    let policy = &bootstrap["spec"]["upgradePolicy"];
    let mut policies = policy["packages"].as_array().into_iter().flatten();
    let own = policies.find(|policy| policy["package"] == short_name(package));
    let own = own.map(|own| &own["onCancel"]).filter(|own| !own.is_null());
    own.unwrap_or(&policy["onCancel"]) == "Rollback"
}

/// Returns the packages of a ClusterBootstrap from before the upgrade, if its annotation can be read.
pub(crate) fn snapshot(bootstrap: &Value) -> Option<Value> {
    let text = bootstrap["metadata"]["annotations"][annotation::ROLLBACK_TO].as_str()?;
    serde_json::from_str(text).ok()
}

/// Returns the release of a version that the entry or the label of the Cluster selects. A version below the target has the only known
/// release, which the ClusterBootstrap names.
fn selected(servers: &Servers, version: usize) -> usize {
    if let Some(pinned) = pinned(servers, version) {
        return pinned;
    }
    match labelled(servers).filter(|release| version_of_release(*release) == version) {
        Some(release) => release,
        None => match merged(servers) {
            Some(other @ (SAME_RELEASE | OTHER_RELEASE))
                if version == 1 && servers.get(&release(1)).is_none() =>
            {
                other
            }
            _ => release_of_version(version),
        },
    }
}

/// Returns the release whose packages were merged into the ClusterBootstrap.
fn merged(servers: &Servers) -> Option<usize> {
    let name = &servers.get(&bootstrap())?["metadata"]["annotations"][annotation::RESOLVED_TKR];
    RELEASES.iter().position(|release| name == release)
}

/// Returns the releases that the next machines of a version may be made of: the selected one, and the one whose packages were merged.
pub(crate) fn releases_of(servers: &Servers, version: usize) -> Vec<usize> {
    let merged = merged(servers).filter(|release| version_of_release(*release) == version);
    let mut releases = vec![selected(servers, version)];
    releases.extend(merged);
    releases
}

/// Whether a package may be proven by readiness `Applied`. The gates of these walks come before machines are replaced.
fn may_wait(servers: &Servers, package: usize) -> bool {
    let bootstrap = servers.get(&bootstrap());
    let policies = bootstrap.and_then(|bootstrap| bootstrap["spec"]["upgradePolicy"]["packages"].as_array());
    let mut policies = policies.into_iter().flatten();
    let has_policy = policies.any(|policy| policy["package"] == short_name(package));
    policy(servers, package, "readiness", "Applied") || is_on_supervisor(servers) && !has_policy
}

/// Returns the version of the package if it is deployed with its current ClusterBootstrap, Package and values. On a Supervisor, the values
/// are those for Nodes of a release.
fn deployed_version<'a>(
    servers: &'a Servers,
    kapp: &Kapp,
    package: usize,
    release: usize,
) -> Option<&'a str> {
    let name = named(servers, &bootstrap(), package)?;
    let values = match package {
        0 => Some(no_values()),
        1 => servers.get(&values_source()).map(|secret| secret["data"].clone()),
        _ => Some(Value::Null),
    };
    let waits = may_wait(servers, package);
    let (values, source) = (values?, servers.get(&package_place(&name))?);
    let values = with_tkgs_values(servers, values, release);
    kapp.is_right(servers, package, &name, &values, waits)
        .then(|| source["spec"]["version"].as_str().unwrap_or_default())
}

/// Whether kapp-controller is deployed with its current ClusterBootstrap and Package. Without a ClusterBootstrap, its PackageInstall names the
/// Package.
pub(crate) fn is_first_deployed(servers: &Servers, kapp: &Kapp) -> bool {
    if let Some(bootstrap) = servers.get(&bootstrap()) {
        let name = &bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR];
        let merged = RELEASES.iter().position(|release| name == release);
        return deployed_version(servers, kapp, 0, merged.unwrap_or_default()).is_some();
    }
    let Some(install) = servers.get(&of_package(0, "packageinstalls")) else {
        return false;
    };
    let reference = &install["spec"]["packageRef"];
    let version = reference["versionSelection"]["constraints"].as_str();
    let name = format!("{}.{}", ref_name(0), version.unwrap_or_default());
    kapp.is_right(servers, 0, &name, &no_values(), false)
}

/// Returns the version of the package if it is deployed for each release, with its current ClusterBootstrap, Package and values.
fn deployed_versions<'a>(
    servers: &'a Servers,
    kapp: &Kapp,
    package: usize,
) -> [Option<&'a str>; RELEASES.len()] {
    if is_on_supervisor(servers) {
        std::array::from_fn(|release| deployed_version(servers, kapp, package, release))
    } else {
        [deployed_version(servers, kapp, package, 0); RELEASES.len()]
    }
}

/// Returns the releases for which the package is deployed with its current ClusterBootstrap, Package and values.
pub(crate) fn right(servers: &Servers, kapp: &Kapp, package: usize) -> Right {
    deployment(servers, kapp, package).1
}

/// Returns the same, and whether it is so for any release, also a later one than that of the Cluster.
pub(crate) fn deployment(servers: &Servers, kapp: &Kapp, package: usize) -> (bool, Right) {
    let deployed = deployed_versions(servers, kapp, package);
    if deployed.iter().all(Option::is_none) {
        return (false, [false; VERSIONS.len()]);
    }
    let has = |release: usize| {
        deployed[release].is_some_and(|version| is_enough(servers, package, version, release))
    };
    // Packages of a later release count as well.
    let right = std::array::from_fn(|version| {
        let mut later = (0..VERSIONS.len()).filter(|later| !is_below(*later, version));
        later.any(|version| has(selected(servers, version)))
    });
    (true, right)
}

/// Whether the version of a package is that of the release or a later one.
fn is_enough(servers: &Servers, package: usize, version: &str, release: usize) -> bool {
    // The version of a CNI follows the list of the release.
    let least = match package {
        1 => Some(package_name(package, packages_of(release))),
        _ => named(servers, &template(release), package),
    };
    least.is_some_and(|least| least <= format!("{}.{version}", ref_name(package)))
}

/// Returns the releases for which each package is deployed with its current ClusterBootstrap, Package and values.
pub(crate) fn fits(servers: &Servers, kapp: &Kapp) -> Fits {
    PACKAGES.map(|package| {
        let versions = deployed_versions(servers, kapp, package);
        std::array::from_fn(|release| {
            versions[release].is_some_and(|version| is_enough(servers, package, version, release))
        })
    })
}

/// Whether the control plane runs the version of a gate that comes after it.
fn has_rolled(servers: &Servers, gate: &Gate) -> bool {
    let comes_after = matches!(
        gate.hook,
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade
    );
    !comes_after || !is_below(version_at(servers, &control_plane(), "status"), version_of(gate))
}

/// Whether an entry or the label names a release of the target if the control plane is released to the target.
fn is_labelled(servers: &Servers, record: &UpgradeRecord, gate: &Gate) -> bool {
    let comes_before = matches!(
        gate.hook,
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade
    );
    let labelled = RELEASES.iter().position(|release| *release == record.label);
    !comes_before
        || gate.version != record.to
        || pinned(servers, version_of(gate)).is_some()
        || labelled.is_some_and(|release| VERSIONS[version_of_release(release)] == gate.version)
}

/// Asserts that the rollout before an open gate has ended, and that the label names a release of the target.
pub(crate) fn assert_in_order(servers: &Servers, record: &UpgradeRecord, gate: &Gate) {
    assert!(
        has_rolled(servers, gate),
        "early: {:?} {} is opened before the control plane has the version",
        gate.hook,
        gate.version,
    );
    assert!(
        is_labelled(servers, record, gate),
        "early: {:?} {} is opened with label {}",
        gate.hook,
        gate.version,
        record.label,
    );
}

/// Returns UID, generation, label and target of the Cluster that a record is about, in the form of [`cluster_state`](crate::walk::cluster_state).
pub(crate) fn recorded_cluster(record: &UpgradeRecord) -> String {
    let generation = record.observed_cluster_generation.to_string();
    [
        record.cluster_uid.as_str(),
        &generation,
        &record.label,
        &record.to,
    ]
    .join(" ")
}

/// Returns the packages that a gate waits for.
pub(crate) fn concerned(servers: &Servers, hook: Hook) -> impl Iterator<Item = usize> {
    let before = matches!(hook, Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade);
    PACKAGES
        .into_iter()
        .filter(|package| named(servers, &bootstrap(), *package).is_some())
        .filter(|package| *package != 0 || !is_unmanaged(servers))
        .filter(move |package| !before || !policy(servers, *package, "phase", "AfterControlPlane"))
}

/// Whether release and template of a version exist.
pub(crate) fn is_known(servers: &Servers, version: usize) -> bool {
    let selected = selected(servers, version);
    servers.get(&release(selected)).is_some() && servers.get(&template(selected)).is_some()
}
