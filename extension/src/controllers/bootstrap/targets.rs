//! What shall be installed: the packages of the ClusterBootstrap with their values, named and digested.

use sluice_core::{
    bootstrap::{Catalogue, PackageFacts, Role, packages},
    build::{Owner, Values},
    digest::{self, Ground},
    hold::{Hold, HoldReason},
    names,
    proof::{JudgedOn, Target},
};
use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec, Phase, Readiness, UpgradePolicy};

use super::{Context, values};

/// One package that shall be installed.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) role: Role,
    /// Name of the Package object.
    pub(super) package_name: String,
    pub(super) facts: PackageFacts,
    pub(super) values: Values,
    pub(super) digest: String,
    pub(super) install_name: String,
    pub(super) secret_name: String,
    pub(super) secret_prefix: String,
    pub(super) readiness: Readiness,
    pub(super) phase: Phase,
}

impl Planned {
    /// kapp-controller is installed from the management cluster, everything else by it.
    pub(super) fn judged_on(&self) -> JudgedOn {
        if self.role == Role::KappController {
            JudgedOn::Management
        } else {
            JudgedOn::Workload
        }
    }

    /// What the proof is asked about.
    pub(super) fn target(&self) -> Target<'_> {
        Target {
            name: names::short(&self.facts.ref_name),
            ref_name: &self.facts.ref_name,
            version: &self.facts.version,
            digest: &self.digest,
            secret_name: &self.secret_name,
            judged_on: self.judged_on(),
            readiness: self.readiness,
            phase: self.phase,
        }
    }
}

/// The package set of `spec`, to be proven on `ground`; and the first thing that is wrong with it.
pub(super) async fn plan(
    ctx: &Context,
    owner: &Owner,
    spec: &ClusterBootstrapSpec,
    catalogue: &Catalogue,
    ground: Ground<'_>,
) -> kube::Result<(Vec<Planned>, Option<Hold>)> {
    let mut planned = Vec::new();
    let mut problem = None;
    let mut installer = None;
    for (role, package) in packages(spec) {
        let values = match values::read(&ctx.client, &owner.namespace, role, package).await? {
            Ok(values) => values,
            Err(hold) => {
                problem = problem.or(Some(hold));
                continue;
            }
        };
        match one(
            owner,
            role,
            package,
            spec.upgrade_policy.as_ref(),
            catalogue,
            values,
            Ground {
                installer: installer.as_deref(),
                ..ground
            },
        ) {
            Ok(one) => {
                if role == Role::KappController {
                    installer = Some(format!("{} {}", one.facts.version, one.digest));
                }
                planned.push(one);
            }
            Err(hold) => problem = problem.or(Some(hold)),
        }
    }
    Ok((planned, problem))
}

fn one(
    owner: &Owner,
    role: Role,
    package: &ClusterBootstrapPackage,
    policy: Option<&UpgradePolicy>,
    catalogue: &Catalogue,
    values: Values,
    ground: Ground<'_>,
) -> Result<Planned, Hold> {
    let name = &package.ref_name;
    let facts = catalogue.get(name).cloned().ok_or_else(|| {
        let field = role.field();
        Hold::new(
            HoldReason::PackageNotFound,
            format!(
                "Package {name}, named by {field} of ClusterBootstrap {}/{}, does not exist",
                owner.namespace, owner.name
            ),
        )
    })?;
    let digest = digest::values(&ground, &values);
    let too_long =
        |error: names::NameTooLong| Hold::new(HoldReason::NameTooLong, format!("package {name}: {error}"));
    let short = names::short(&facts.ref_name);
    let policy = policy.and_then(|policy| policy.packages.iter().find(|each| each.package == short));
    Ok(Planned {
        role,
        package_name: name.clone(),
        install_name: names::package_install(&owner.name, &facts.ref_name).map_err(too_long)?,
        secret_name: names::values_secret(&owner.name, &facts.ref_name, &digest).map_err(too_long)?,
        secret_prefix: names::values_secret_prefix(&owner.name, &facts.ref_name),
        readiness: policy.map_or_else(Readiness::default, |policy| policy.readiness),
        phase: policy.map_or_else(Phase::default, |policy| policy.phase),
        facts,
        values,
        digest,
    })
}
