//! Ground truth of gates: actual deployments, independent of any status.

use serde_json::Value;
use sluice_crds::run::{Gate, Hook, UpgradeRecord};

use crate::{
    capi::version_at,
    kapp::Kapp,
    objects::{
        PACKAGES, VERSIONS, bootstrap, control_plane, no_values, package_name, package_place, ref_name,
        release, short_name, template, values_source, worker,
    },
    servers::{Place, Servers},
};

/// Whether a package is correctly deployed, by release.
pub(crate) type Right = [bool; VERSIONS.len()];

/// Whether the gate is open and releases a step that Cluster API has not taken yet.
pub(crate) fn releases_step(servers: &Servers, gate: &Gate) -> bool {
    let place = match gate.hook {
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade => control_plane(),
        Hook::AfterControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => worker(),
        _ => return false,
    };
    gate.open && version_at(servers, &place, "spec") < version_of(gate)
}

/// Returns the newly open gates of a record that release a step.
pub(crate) fn opened<'a>(
    servers: &Servers,
    before: Option<&UpgradeRecord>,
    after: &'a UpgradeRecord,
) -> Vec<&'a Gate> {
    let was_open = |gate: &Gate| {
        let mut gates = before.into_iter().flat_map(|record| &record.gates);
        gates.any(|other| other.open && (other.hook, &other.version) == (gate.hook, &gate.version))
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
fn named(servers: &Servers, of: &Place, package: usize) -> Option<String> {
    let spec = &servers.get(of)?["spec"];
    let named = match package {
        0 => &spec["kapp"],
        1 => &spec["cni"],
        _ => &spec["additionalPackages"][0],
    };
    named["refName"].as_str().map(str::to_owned)
}

/// Whether the upgrade policy of a package has this value.
fn policy(servers: &Servers, package: usize, field: &str, value: &str) -> bool {
    let bootstrap = servers.get(&bootstrap());
    let policies = bootstrap.and_then(|bootstrap| bootstrap["spec"]["upgradePolicy"]["packages"].as_array());
    let mut policies = policies.into_iter().flatten();
    policies.any(|policy| policy["package"] == short_name(package) && policy[field] == value)
}

/// Returns the releases for which the package is deployed with its current ClusterBootstrap, Package and values.
pub(crate) fn right(servers: &Servers, kapp: &Kapp, package: usize) -> Right {
    let wrong = [false; VERSIONS.len()];
    let Some(name) = named(servers, &bootstrap(), package) else {
        return wrong;
    };
    let values = match package {
        0 => Some(no_values()),
        1 => servers.get(&values_source()).map(|secret| secret["data"].clone()),
        _ => Some(Value::Null),
    };
    let waits = policy(servers, package, "readiness", "Applied");
    let (Some(values), Some(source)) = (values, servers.get(&package_place(&name))) else {
        return wrong;
    };
    if !kapp.is_right(servers, package, &name, &values, waits) {
        return wrong;
    }
    let version = source["spec"]["version"].as_str().unwrap_or_default();
    let has = |release: usize| {
        // The version of a CNI follows the list of the release.
        let least = match package {
            1 => Some(package_name(package, release)),
            _ => named(servers, &template(release), package),
        };
        least.is_some_and(|least| least <= format!("{}.{version}", ref_name(package)))
    };
    // Packages of a later release count as well.
    [0, 1, 2].map(|version| (version..VERSIONS.len()).any(has))
}

/// Returns the packages that a gate waits for.
pub(crate) fn concerned(servers: &Servers, hook: Hook) -> impl Iterator<Item = usize> {
    let before = matches!(hook, Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade);
    PACKAGES
        .into_iter()
        .filter(|package| named(servers, &bootstrap(), *package).is_some())
        .filter(move |package| !before || !policy(servers, *package, "phase", "AfterControlPlane"))
}

/// Whether release and template of a version exist.
pub(crate) fn is_known(servers: &Servers, version: usize) -> bool {
    servers.get(&release(version)).is_some() && servers.get(&template(version)).is_some()
}
