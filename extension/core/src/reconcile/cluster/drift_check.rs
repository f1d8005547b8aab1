//! Drift check of a settled Cluster: compares its packages, and the objects that they need, with the record.
//!
//! The check lists each kind once, over a connection without watches, and writes nothing. If only kapp-controller has work left, Sluice
//! records the observed state. After any other difference the reconcile continues as for other Clusters: it repairs and records it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use sluice_crds::{
    foreign::{App, PackageInstall},
    run::ClusterBootstrap,
};

use super::{
    Context, Interrupt, ReadPhase, Server, Step,
    context::typed,
    evidence::{Evidence, Input, Inputs, judge},
    failure::silent,
    install::{copy_is_right, identity_is_right, values_are_right},
    interrupt::{needs_of, together},
    management,
    packages::{DriftCheckResult, Packages, watched},
    plan::Planned,
    preserved,
    read::{Key, Read},
    status::{Recorded, compare_with_record},
    validate::Validated,
    workload::{Reach, connect},
};
use crate::{
    packages::build::{self, Repair},
    proof::is_made_from,
    reasons::Hold,
};

/// Result of a drift check.
pub(super) enum DriftCheck {
    /// Everything matches the record.
    AsRecorded,
    /// The state of packages differs, and only the status must be written.
    ToRecord,
    /// Something else differs; described if the record does not show it.
    Differs(Option<String>),
    /// The workload cannot be checked.
    Unseen(Hold),
}

/// Objects of one kind on the workload, by name.
struct Listed<'a>(BTreeMap<&'a str, &'a Value>);

impl<'a> Listed<'a> {
    fn of(context: &'a Context<'_>, read: Read) -> Step<Self> {
        let named = context.listed(read)?.iter().map(|object| {
            let name = object.0["metadata"]["name"].as_str().unwrap_or_default();
            (name, &object.0)
        });
        Ok(Self(named.collect()))
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).copied()
    }

    fn typed<K: serde::de::DeserializeOwned>(&self, name: &str) -> Step<Option<K>> {
        let found = self.get(name);
        found.map(|found| typed(Server::Workload, found)).transpose()
    }
}

/// Listed objects of the workload.
struct Workload<'a> {
    installs: Listed<'a>,
    apps: Listed<'a>,
    packages: Listed<'a>,
    secrets: Listed<'a>,
}

/// Returns the first read of a drift check, which runs alone.
#[must_use]
pub fn first_read() -> Read {
    Read::Object(Key::kube_system(), ReadPhase::Plan)
}

/// Checks `packages`, which the record has all proven, and stores the observed state in them.
pub(super) fn check_drift(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &mut Packages,
) -> Step<DriftCheck> {
    if packages.planned.is_empty() {
        return Ok(DriftCheck::AsRecorded);
    }
    match compare(context, validated, bootstrap, packages) {
        Err(Interrupt::Failed(failure)) if failure.server == Server::Workload => {
            Ok(DriftCheck::Unseen(silent(&failure)))
        }
        Err(stop) => stop.held().map(DriftCheck::Unseen),
        outcome => outcome,
    }
}

fn compare(
    context: &Context<'_>,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &mut Packages,
) -> Step<DriftCheck> {
    let connected = connect(context, &context.facts.owner, Read::DriftCheckConnection)?;
    packages.kubeconfig = Some(connected.digest);
    // Read first and alone: Sluice waits only once for a server that does not respond.
    let namespace = context.object(Key::kube_system(), ReadPhase::Plan)?;
    let uid = namespace.and_then(|namespace| namespace["metadata"]["uid"].as_str());
    let uid = uid.unwrap_or_default();
    let refused = management::refused(context, uid)?;
    if let Some(hold) = refused.filter(|hold| !management::may_compare(context.facts, hold, uid)) {
        return Ok(DriftCheck::Unseen(hold));
    }
    if packages.workload_uid.as_deref() != Some(uid) {
        return Ok(DriftCheck::Differs(Some(
            "the kubeconfig leads to another workload cluster".to_owned(),
        )));
    }
    let reads = [
        Read::Installs,
        Read::Apps,
        Read::PackageNames,
        Read::LabelledSecrets,
    ];
    let [installs, apps, names, secrets] = reads.map(|read| Listed::of(context, read));
    let identity = identity_is_right(context);
    together([
        needs_of(&installs),
        needs_of(&apps),
        needs_of(&names),
        needs_of(&secrets),
        needs_of(&identity),
    ])?;
    let workload = Workload {
        installs: installs?,
        apps: apps?,
        packages: names?,
        secrets: secrets?,
    };
    if !identity? {
        let what =
            "the account that installs packages, its role or their namespace is missing or was altered";
        return Ok(DriftCheck::Differs(Some(what.to_owned())));
    }
    for planned in packages.planned.iter_mut().filter(|planned| planned.is_kept) {
        let install = match planned.server() {
            Server::Management => watched(context, planned)?.0,
            Server::Workload => workload.installs.typed(&planned.install_name)?.map(Arc::new),
        };
        let stays = match install {
            Some(install) => preserved::keep(context, planned, &install)?,
            None => false,
        };
        if !stays {
            let name = &planned.install_name;
            return Ok(DriftCheck::Differs(Some(format!(
                "PackageInstall {name} of the addons-manager was altered or belongs to another Cluster"
            ))));
        }
    }
    let inputs = packages
        .planned
        .iter()
        .map(|planned| workload.inputs(context, planned));
    let inputs: Vec<Inputs> = together(inputs)?.into_iter().collect::<Step<_>>()?;
    let mut each = packages.planned.iter().zip(&inputs);
    if let Some(what) = each.find_map(|(planned, inputs)| altered(planned, *inputs)) {
        return Ok(DriftCheck::Differs(Some(what)));
    }
    workload.judge(context, uid, packages, &inputs)?;
    if let Some(what) = unasked(context, packages) {
        return Ok(DriftCheck::Differs(Some(what)));
    }
    Ok(
        match compare_with_record(context, validated, bootstrap, packages)? {
            Recorded::Same => DriftCheck::AsRecorded,
            Recorded::OtherPackages => DriftCheck::ToRecord,
            Recorded::Other => DriftCheck::Differs(None),
        },
    )
}

/// Returns the first package without a proof whose PackageInstall does not request the planned state.
fn unasked(context: &Context<'_>, packages: &Packages) -> Option<String> {
    let reads = |planned: &Planned, install: Option<&PackageInstall>| {
        install.is_some_and(|install| build::update(&planned.install(context.facts), install).is_none())
    };
    let each = packages.planned.iter().zip(&packages.installs);
    let (_, judged) = each
        .zip(&packages.judged)
        .find(|((planned, install), judged)| !judged.ready() && !reads(planned, install.as_deref()))?;
    let record = &judged.record;
    Some(format!(
        "package {} {}: {}",
        record.name, record.version, record.message
    ))
}

/// Names a missing or altered input of a package, if any.
fn altered(planned: &Planned, inputs: Inputs) -> Option<String> {
    let (name, server) = (&planned.package_name, planned.server());
    if inputs.values == Input::Differs {
        return Some(format!(
            "the values Secret of package {name} is missing or was altered on the {server} API server"
        ));
    }
    (inputs.copy == Input::Differs)
        .then(|| format!("the copy of Package {name} is missing or was altered on the {server} API server"))
}

impl Workload<'_> {
    /// Returns the inputs of a package.
    fn inputs(&self, context: &Context<'_>, planned: &Planned) -> Step<Inputs> {
        let (values, copy) = match planned.server() {
            // kapp-controller itself has no copy, and the cached App lacks the steps to compare.
            Server::Management => (values_are_right(context, planned), Ok((true, Input::Unknown))),
            Server::Workload => (self.has_values(context, planned), self.has_copy(context, planned)),
        };
        together([needs_of(&values), needs_of(&copy)])?;
        let (has_copy, app) = copy?;
        Ok(Inputs {
            // The Package is the cached one.
            source: Input::Unknown,
            values: Input::of(values?),
            copy: Input::of(has_copy),
            app,
        })
    }

    /// Whether the values Secret of a package exists as written. A Secret without its label is not listed, so it is read by name.
    fn has_values(&self, context: &Context<'_>, planned: &Planned) -> Step<bool> {
        if planned.is_kept {
            return values_are_right(context, planned);
        }
        let facts = context.facts;
        let values = planned.values()?;
        let wanted = planned.values_secret(&facts.owner, &facts.settings.system_namespace, values);
        let found: Option<Secret> = self.secrets.typed(&planned.secret_name)?;
        if found.is_some_and(|found| build::repair_values_secret(&wanted, &found) == Repair::NotNeeded) {
            return Ok(true);
        }
        values_are_right(context, planned)
    }

    /// Whether the copy of a Package exists as written, and the comparison of the App with the Package. kapp-controller makes the App from
    /// the copy, including its edits. The copy itself is therefore read only if it is not listed, or if the App is not made from the
    /// Package.
    fn has_copy(&self, context: &Context<'_>, planned: &Planned) -> Step<(bool, Input)> {
        let name = &planned.install_name;
        let install: Option<PackageInstall> = self.installs.typed(name)?;
        let source = context.package(&planned.package_name)?;
        let spec = self.apps.get(name).map(|app| &app["spec"]);
        let app = match (source, spec, &install) {
            (Some(source), Some(spec), Some(install)) => Input::of(is_made_from(spec, source, install)),
            _ => Input::Unknown,
        };
        let is_listed = self.packages.get(&planned.package_name).is_some();
        let is_right = is_listed && app == Input::AsPlanned || copy_is_right(context, planned)?;
        Ok((is_right, app))
    }

    /// Judges `packages` by the listed objects.
    fn judge(
        &self,
        context: &Context<'_>,
        uid: &str,
        packages: &mut Packages,
        inputs: &[Inputs],
    ) -> Step<()> {
        packages.judged.clear();
        packages.installs.clear();
        for (planned, inputs) in packages.planned.iter().zip(inputs) {
            let name = &planned.install_name;
            let (install, app) = match planned.server() {
                Server::Management => watched(context, planned)?,
                Server::Workload => (
                    self.installs.typed::<PackageInstall>(name)?.map(Into::into),
                    self.apps.typed::<App>(name)?.map(Into::into),
                ),
            };
            let evidence = Evidence {
                objects: Some((install.as_deref(), app.as_deref())),
                // A list shows only the latest run.
                first_seen_run: None,
                inputs: *inputs,
                altered: false,
            };
            packages
                .judged
                .push(judge(context.facts, Some(uid), planned, &evidence));
            packages.installs.push(install);
        }
        packages.reach = Reach::Reached { uid: uid.to_owned() };
        packages.drift_check = DriftCheckResult::Seen;
        Ok(())
    }
}
