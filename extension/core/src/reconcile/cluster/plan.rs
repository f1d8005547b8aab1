//! Plan of the packages to install: those of the ClusterBootstrap with their values, names and digests.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use sluice_crds::{
    foreign::PackageInstall,
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec, Phase, Readiness, UpgradePolicy, UpgradeRecord},
};

use super::{
    Context, Facts, Interrupt, ReadPhase, Server, Step,
    interrupt::together,
    management::{Ownership, ownership_of},
    supervisor::OnSupervisor,
    values::{self, Found},
    values_cache::{CachedValues, Digests},
};
use crate::{
    digest::{self, DigestInputs, Installer},
    names,
    packages::{
        bootstrap::{Catalogue, PackageFacts, Role, duplicate_hold, packages},
        build::{self, Install, Owner, Place, Values, with_tkgs_values},
    },
    proof::{JudgedOn, Target},
    protocol::SecretVersion,
    reasons::{GateReason, Hold, add_problem},
};

/// Values of a package in a plan.
#[derive(Debug)]
pub(super) enum PlannedValues {
    Read(Values),
    /// The Secret with the values, which is unchanged since their digests were cached.
    Unread(SecretVersion),
}

/// One package to install.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) role: Role,
    /// Name of the Package object.
    pub(super) package_name: String,
    pub(super) facts: PackageFacts,
    pub(super) values: PlannedValues,
    /// Digest of the values alone.
    pub(super) content_digest: String,
    /// What to cache of the Secret with the values, if they are from one.
    pub(super) cached_values: Option<CachedValues>,
    pub(super) digest: String,
    pub(super) install_name: String,
    pub(super) secret_name: String,
    pub(super) secret_prefix: String,
    /// `spec.syncPeriod` of the PackageInstall.
    pub(super) sync_period: String,
    /// `digest`, `secret_name` and `sync_period` of a PackageInstall made by Sluice.
    pub(super) own: Own,
    /// `digest` of a PackageInstall kept from the addons-manager.
    pub(super) kept_digest: String,
    /// Whether the PackageInstall is kept.
    pub(super) is_kept: bool,
    pub(super) readiness: Readiness,
    pub(super) phase: Phase,
    /// Number of times that its inputs were found altered, which its digest includes.
    pub(super) repairs: u8,
    /// Whether the workload cluster needs a copy of the Package: not if the management API server serves both.
    pub(super) is_copied: bool,
    /// Release whose Nodes it selects, on a Supervisor.
    pub(super) on_supervisor: Option<String>,
}

/// Names and intervals that follow from the digest of a package.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) digest: String,
    pub(super) secret_name: String,
    pub(super) sync_period: String,
}

/// Returns the number of times that the inputs of a package were found altered, by the record.
fn repair_count(record: Option<&UpgradeRecord>, package: &str) -> u8 {
    let mut packages = record.into_iter().flat_map(|record| &record.packages);
    packages
        .find(|record| record.name == package)
        .map_or(0, |record| record.repairs)
}

impl Planned {
    /// Returns the cluster that the package is judged on. kapp-controller is installed from the management cluster and installs the rest.
    pub(super) fn judged_on(&self) -> JudgedOn {
        if self.role == Role::KappController {
            JudgedOn::Management
        } else {
            JudgedOn::Workload
        }
    }

    /// Returns the server that the package is installed from.
    pub(super) fn server(&self) -> Server {
        match self.judged_on() {
            JudgedOn::Management => Server::Management,
            JudgedOn::Workload => Server::Workload,
        }
    }

    /// Whether the workload cluster has a copy of the Package.
    pub(super) fn has_copy(&self) -> bool {
        self.is_copied && self.judged_on() == JudgedOn::Workload
    }

    /// Returns the desired PackageInstall.
    pub(super) fn install(&self, facts: &Facts) -> PackageInstall {
        let install = Install {
            name: &self.install_name,
            place: match self.judged_on() {
                JudgedOn::Management => Place::Management,
                JudgedOn::Workload => Place::Workload(&facts.settings.system_namespace),
            },
            ref_name: &self.facts.ref_name,
            version: &self.facts.version,
            values: &self.secret_name,
            sync_period: &self.sync_period,
        };
        let mut install = build::install(&facts.owner, &install);
        if self.secret_name.is_empty() {
            install.spec.values.clear();
        }
        install
    }

    /// Returns the namespace of the PackageInstall.
    pub(super) fn namespace<'a>(&self, owner: &'a Owner, system_namespace: &'a str) -> &'a str {
        match self.judged_on() {
            JudgedOn::Management => &owner.namespace,
            JudgedOn::Workload => system_namespace,
        }
    }

    /// Returns the values.
    ///
    /// # Errors
    /// The read of their Secret, if this plan is made from the cache. With its answer, the reconcile plans again.
    pub(super) fn values(&self) -> Step<&Values> {
        match &self.values {
            PlannedValues::Read(values) => Ok(values),
            PlannedValues::Unread(secret) => Err(Interrupt::Need(vec![secret.read()])),
        }
    }

    /// Returns values of its source with those for a Supervisor, if the Cluster is on one.
    pub(super) fn completed(&self, values: Values) -> Values {
        match &self.on_supervisor {
            Some(release) => with_tkgs_values(values, release, self.facts.lacked),
            None => values,
        }
    }

    /// Returns the desired Secret with its `values`, in that namespace.
    pub(super) fn values_secret(&self, owner: &Owner, system_namespace: &str, values: &Values) -> Secret {
        build::values_secret(
            owner,
            &self.secret_name,
            self.namespace(owner, system_namespace),
            &self.package_name,
            values,
            self.judged_on() == JudgedOn::Management,
        )
    }

    /// Returns the target of the proof.
    pub(super) fn target(&self) -> Target<'_> {
        Target {
            name: names::short(&self.facts.ref_name),
            ref_name: &self.facts.ref_name,
            version: &self.facts.version,
            digest: &self.digest,
            secret_name: &self.secret_name,
            kept: self.is_kept,
            sync_period: (!self.facts.takes_values).then_some(self.sync_period.as_str()),
            judged_on: self.judged_on(),
            readiness: self.readiness,
            phase: self.phase,
        }
    }
}

/// Plan of a package set.
pub(super) struct Plan {
    pub(super) planned: Vec<Planned>,
    /// First problem of the package set. It keeps gates closed.
    pub(super) problem: Option<Hold>,
    /// Whether the problem forbids all writes. If only values are missing, the other packages are written, unless they are the values of
    /// kapp-controller, which comes first.
    pub(super) forbids_writes: bool,
    /// Installer of kapp-controller. The plan lacks kapp-controller if that is another client.
    pub(super) ownership: Ownership,
}

/// Plans the package set of `spec` with these digest inputs, and with what it gets `on` a Supervisor.
pub(super) fn plan(
    context: &Context<'_>,
    spec: &ClusterBootstrapSpec,
    inputs: DigestInputs<'_>,
    on: Option<&OnSupervisor>,
) -> Step<Plan> {
    let facts = context.facts;
    let ownership = ownership_of(context, inputs.workload)?;
    let leaves_out = ownership.leaves_out(facts.record());
    let mut asked = packages(spec);
    asked.retain(|(role, _)| !(leaves_out && *role == Role::KappController));
    // A missing Package needs no values.
    let each = asked.iter().map(|(role, package)| {
        if !facts.catalogue.contains_key(&package.ref_name) {
            return Ok(Found::Read(Values::new(), None));
        }
        values::find(context, *role, package, ReadPhase::Plan)
    });
    let all_values = together(each)?;
    let problem = duplicate_hold(spec, &facts.catalogue);
    let mut plan = Plan {
        planned: Vec::new(),
        forbids_writes: problem.is_some(),
        problem,
        ownership,
    };
    let mut installer: Option<(String, String)> = None;
    let mut needs = Vec::new();
    for ((role, package), found) in asked.into_iter().zip(all_values) {
        let found = match found {
            Ok(found) => found,
            Err(stop) => {
                plan.forbids_writes |= role == Role::KappController;
                add_problem(&mut plan.problem, stop.held()?);
                continue;
            }
        };
        match one(
            &facts.owner,
            facts.settings.sync_period.length,
            (role, package),
            (spec.upgrade_policy.as_ref(), on),
            (&facts.catalogue, facts.record()),
            found,
            DigestInputs {
                installer: installer
                    .as_ref()
                    .map(|(version, digest)| Installer { version, digest }),
                ..inputs
            },
        ) {
            Ok(mut one) => {
                one.is_copied = !ownership.is_own_server();
                if role == Role::KappController {
                    installer = Some((one.facts.version.clone(), one.own.digest.clone()));
                }
                let unlabelled = on.and_then(|on| on.unlabelled.as_ref());
                if let Some(hold) = unlabelled.filter(|_| one.facts.lacked.selects_nodes()) {
                    plan.forbids_writes = true;
                    add_problem(&mut plan.problem, hold.clone());
                }
                plan.planned.push(one);
            }
            Err(Interrupt::Need(reads)) => needs.extend(reads),
            Err(stop) => {
                plan.forbids_writes = true;
                add_problem(&mut plan.problem, stop.held()?);
            }
        }
    }
    if needs.is_empty() {
        Ok(plan)
    } else {
        Err(Interrupt::Need(needs))
    }
}

fn one(
    owner: &Owner,
    every: Duration,
    (role, package): (Role, &ClusterBootstrapPackage),
    (policy, on): (Option<&UpgradePolicy>, Option<&OnSupervisor>),
    (catalogue, record): (&Catalogue, Option<&UpgradeRecord>),
    found: Found<'_>,
    inputs: DigestInputs<'_>,
) -> Step<Planned> {
    let name = &package.ref_name;
    let facts = catalogue.get(name).cloned().ok_or_else(|| {
        let field = role.field();
        Hold::new(
            GateReason::PackageNotFound,
            format!(
                "Package {name}, named by {field} of ClusterBootstrap {}/{}, does not exist",
                owner.namespace, owner.name
            ),
        )
    })?;
    let short = names::short(&facts.ref_name);
    let completed = |values: Values| match on {
        Some(on) => with_tkgs_values(values, &on.release, facts.lacked),
        None => values,
    };
    let repairs = repair_count(record, short);
    let inputs = DigestInputs {
        template: &facts.template,
        repairs,
        ..inputs
    };
    // The digest of empty values covers all inputs but the values.
    let of_inputs = digest::values(&inputs, &completed(Values::new()));
    let (values, digests, cached_values) = match found {
        Found::Read(values, secret) => {
            let values = completed(values);
            let digests = Digests::of(inputs, &values);
            let cached = secret
                .and_then(|secret| CachedValues::of(&secret, (owner, name), of_inputs, digests.clone()));
            (PlannedValues::Read(values), digests, cached)
        }
        Found::Unchanged(cached) => (
            PlannedValues::Unread(cached.version().clone()),
            cached.digests(&of_inputs)?.clone(),
            Some(cached.clone()),
        ),
    };
    let Digests {
        content: content_digest,
        own: digest,
        kept: kept_digest,
    } = digests;
    let too_long =
        |error: names::NameTooLong| Hold::new(GateReason::NameTooLong, format!("package {name}: {error}"));
    let policy = policy.and_then(|policy| policy.packages.iter().find(|each| each.package == short));
    let own = Own {
        secret_name: names::values_secret(&owner.name, &facts.ref_name, &digest).map_err(too_long)?,
        sync_period: build::sync_period(every, facts.takes_values, &digest),
        digest,
    };
    let Own {
        digest,
        secret_name,
        sync_period,
    } = own.clone();
    Ok(Planned {
        role,
        package_name: name.clone(),
        install_name: names::package_install(&owner.name, &facts.ref_name).map_err(too_long)?,
        secret_name,
        secret_prefix: names::values_secret_prefix(&owner.name, &facts.ref_name),
        sync_period,
        own,
        kept_digest,
        is_kept: false,
        is_copied: true,
        readiness: policy.map_or_else(
            || on.map_or_else(Readiness::default, |on| on.readiness),
            |policy| policy.readiness,
        ),
        phase: policy.map_or_else(Phase::default, |policy| policy.phase),
        repairs,
        on_supervisor: on.map(|on| on.release.clone()),
        facts,
        values,
        content_digest,
        cached_values,
        digest,
    })
}
