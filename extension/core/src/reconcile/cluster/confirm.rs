//! Re-read of the inputs of an opening gate: status of kapp-controller, values, Packages, their copies in the workload cluster, and the
//! template that names the packages. Secrets are not watched, and a watch may be behind.

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use sluice_crds::{
    foreign::{App, Package, PackageInstall},
    run::{ClusterBootstrap, ClusterBootstrapPackage, ClusterBootstrapTemplate},
};

use super::{
    Context, Interrupt, ReadPhase, Server, Step,
    effects::Effects,
    evidence::{Evidence, Input, Inputs, judge},
    failure::silent,
    install::pair,
    interrupt::{needs_of, together},
    management,
    packages::{DriftCheckResult, Packages},
    plan::Planned,
    preserved,
    read::Key,
    validate::Validated,
    values,
    workload::{Reach, is_current},
};
use crate::{
    digest,
    packages::{
        bootstrap::{PackageFacts, Role, packages},
        build::{self, Repair, Values},
    },
    proof::is_made_from,
    reasons::{GateReason, Hold, add_problem},
};

/// PackageInstall and App of one package.
type Pair = (Option<PackageInstall>, Option<App>);

/// Inputs of a package, and the Package that its App must be made from.
type Found = (Inputs, Option<Package>);

/// Judges each package by reads from the API servers, because a watch may be behind. Only a recorded proof counts: the judgement of
/// this reconcile from watches must not confirm itself. No opening gate waits for packages that are `unneeded`.
pub(super) fn confirm(
    context: &Context<'_>,
    effects: &mut Effects,
    validated: &Validated,
    bootstrap: &ClusterBootstrap,
    packages: &mut Packages,
    unneeded: &[String],
) -> Step<()> {
    if !packages.connected && packages.drift_check != DriftCheckResult::Seen {
        return Ok(());
    }
    let inputs = confirm_reads(context, packages, bootstrap);
    let kubeconfig = has_current_kubeconfig(context, packages);
    together([needs_of(&inputs), needs_of(&kubeconfig)])?;
    // A connection may outlive the kubeconfig that it was opened with, which may lead to another workload cluster now.
    match kubeconfig {
        Ok(true) => {}
        Ok(false) => {
            packages.lose(effects);
            judge_unconfirmed(context, packages);
            return Ok(());
        }
        Err(stop) => {
            packages.reach = Reach::NotYet(stop.held()?);
            judge_unconfirmed(context, packages);
            return Ok(());
        }
    }
    // PackageInstalls and Apps come last: the status of kapp-controller changes most often.
    let read = inputs.and_then(|found| Ok((found, workload(context, packages)?)));
    let (found, (uid, pairs)) = match read {
        Ok(read) => read,
        Err(Interrupt::Failed(failure)) if failure.server == Server::Workload => {
            packages.reach = Reach::NotYet(silent(&failure));
            judge_unconfirmed(context, packages);
            return Ok(());
        }
        Err(stop) => return Err(stop),
    };
    if packages.workload_uid.as_deref() != Some(uid.as_str()) {
        packages.lose(effects);
        judge_unconfirmed(context, packages);
        return Ok(());
    }
    let cache = |server| match (server, packages.drift_check) {
        (Server::Workload, DriftCheckResult::Seen) => "the list of the drift check",
        _ => "the watch",
    };
    let (mut judged, mut changed) = (Vec::new(), None);
    let each = packages.planned.iter().zip(&packages.judged).zip(&pairs);
    for (((planned, cached), pair), (inputs, package)) in each.zip(found) {
        let (install, app) = (pair.0.as_ref(), pair.1.as_ref());
        let is_made = package.map(|package| is_made(context, planned, install, &package));
        let mut inputs = Inputs {
            app: is_made.transpose()?.map_or(Input::Unknown, Input::of),
            ..inputs
        };
        // Nothing was deployed yet from a missing object.
        if install.is_none() && app.is_none() {
            (inputs.values, inputs.copy) = (Input::Unknown, Input::Unknown);
        }
        if inputs.source == Input::Differs || inputs.are_altered() {
            // The next reconcile finds and repairs the alteration.
            effects.local.forget_checks();
            let is_needed = !unneeded.contains(&cached.record.name);
            changed = changed.or_else(|| is_needed.then_some(&planned.package_name));
        }
        let watched = packages.watched(context, planned)?;
        let evidence = Evidence {
            objects: Some((install, app)),
            // Only a watch shows every run. There is none after a drift check.
            first_seen_run: watched.and_then(|watched| watched.first_seen.as_ref()),
            inputs,
            altered: packages.altered.contains(&planned.install_name),
        };
        judged.push(
            judge(context.facts, Some(&uid), planned, &evidence).unlike(cached, cache(planned.server())),
        );
    }
    packages.judged = judged;
    packages.reach = Reach::Reached { uid };
    if let Some(hold) = management::confirm(context, packages.ownership)? {
        add_problem(&mut packages.problem, hold);
    }
    let unknown = |message| Hold::new(GateReason::PackagesUnknown, message);
    if let Some(package) = changed {
        let changed = unknown(format!(
            "package {package} changed while Sluice confirmed its proof"
        ));
        add_problem(&mut packages.problem, changed);
    }
    if let Ok(release) = &validated.release
        && !is_template_current(context, release)?
    {
        let changed = unknown(format!(
            "the template of {release} changed while Sluice confirmed its packages"
        ));
        add_problem(&mut packages.problem, changed);
    }
    Ok(())
}

/// Whether the kubeconfig of the Cluster is that of the connection.
fn has_current_kubeconfig(context: &Context<'_>, packages: &Packages) -> Step<bool> {
    match &packages.kubeconfig {
        Some(digest) => is_current(context, digest, ReadPhase::Confirm),
        None => Ok(false),
    }
}

/// Reads the UID of the workload, and PackageInstall and App of each package, from the API servers.
fn workload(context: &Context<'_>, packages: &Packages) -> Step<(String, Vec<Pair>)> {
    let namespace = context.object(Key::kube_system(), ReadPhase::Confirm);
    // Read by name: objects of other users may exceed the limit of a list.
    let pairs = packages.planned.iter().map(|planned| {
        let at = at(context, planned);
        pair(context, &planned.install_name, at, ReadPhase::Confirm)
    });
    let (namespace, pairs) = match (namespace, together(pairs)) {
        (Err(Interrupt::Need(mut first)), Err(Interrupt::Need(more))) => {
            first.extend(more);
            return Err(Interrupt::Need(first));
        }
        (namespace, pairs) => (namespace?, pairs?),
    };
    let uid = namespace.and_then(|namespace| namespace["metadata"]["uid"].as_str());
    let pairs = pairs.into_iter().collect::<Step<_>>()?;
    Ok((uid.unwrap_or_default().to_owned(), pairs))
}

/// Returns server and namespace of PackageInstall, App and values of a package.
fn at<'a>(context: &Context<'a>, planned: &Planned) -> (Server, Option<&'a str>) {
    let facts = context.facts;
    let namespace = planned.namespace(&facts.owner, &facts.settings.system_namespace);
    (planned.server(), Some(namespace))
}

/// Replaces unconfirmed judgements from watches or a drift check with the recorded proofs.
fn judge_unconfirmed(context: &Context<'_>, packages: &mut Packages) {
    for (planned, judged) in packages.planned.iter().zip(&mut packages.judged) {
        if planned.server() == Server::Workload {
            let silent = Evidence {
                objects: None,
                first_seen_run: None,
                inputs: Inputs::UNKNOWN,
                altered: packages.altered.contains(&planned.install_name),
            };
            *judged = judge(context.facts, None, planned, &silent);
        }
    }
}

/// Re-reads the inputs of all packages.
fn confirm_reads(
    context: &Context<'_>,
    packages: &Packages,
    bootstrap: &ClusterBootstrap,
) -> Step<Vec<Found>> {
    let each = packages
        .planned
        .iter()
        .map(|planned| confirm_read(context, planned, bootstrap));
    together(each)?.into_iter().collect()
}

/// Re-reads the inputs of one package, except its App.
fn confirm_read(context: &Context<'_>, planned: &Planned, bootstrap: &ClusterBootstrap) -> Step<Found> {
    let system = &context.facts.settings.system_namespace;
    let (server, namespace) = at(context, planned);
    let values = asked(bootstrap, planned)
        .map(|(role, package)| values::values(context, role, package, ReadPhase::Confirm));
    let source = context.read::<Package>(
        &planned.package_name,
        (Server::Management, Some(system)),
        ReadPhase::Confirm,
    );
    // Its content is compared below, with values that were read as well.
    let secret = (!planned.secret_name.is_empty()).then(|| {
        let key = Key::of::<Secret>(server, namespace, &planned.secret_name);
        context.object(key, ReadPhase::Confirm)
    });
    let copy = planned
        .has_copy()
        .then(|| context.read::<Package>(&planned.package_name, (server, namespace), ReadPhase::Confirm));
    let needs = [
        values.as_ref().map_or(Ok(()), needs_of),
        needs_of(&source),
        secret.as_ref().map_or(Ok(()), needs_of),
        copy.as_ref().map_or(Ok(()), needs_of),
    ];
    together(needs)?;

    let values = match values {
        None | Some(Err(Interrupt::Held(_))) => None,
        Some(values) => Some(planned.completed(values?)),
    };
    // The plan may be made from cached digests.
    let values = values.filter(|values| digest::content(values) == planned.content_digest);
    let source = source?.filter(|found| PackageFacts::of(found) == planned.facts);
    let Some((source, values)) = source.zip(values) else {
        let inputs = Inputs {
            source: Input::Differs,
            ..Inputs::UNKNOWN
        };
        return Ok((inputs, None));
    };
    let package = match copy {
        None => Some(source),
        Some(copy) => {
            let wanted = build::package(&source, system);
            copy?.filter(|copy| build::repair_package(&wanted, copy) == Repair::NotNeeded)
        }
    };
    let inputs = Inputs {
        source: Input::AsPlanned,
        values: Input::of(has_right_values(context, planned, (server, namespace), &values)?),
        // kapp-controller itself, and the packages of a management cluster, are deployed from the Package of the management cluster.
        copy: Input::of(package.is_some()),
        app: Input::Unknown,
    };
    Ok((inputs, package))
}

/// Whether the Secret of a package has the planned `values`.
fn has_right_values(
    context: &Context<'_>,
    planned: &Planned,
    at: (Server, Option<&str>),
    values: &Values,
) -> Step<bool> {
    if planned.is_kept {
        return preserved::has_right_values(context, planned, values, ReadPhase::Confirm);
    }
    let facts = context.facts;
    let wanted = planned.values_secret(&facts.owner, &facts.settings.system_namespace, values);
    let found = context.read::<Secret>(&planned.secret_name, at, ReadPhase::Confirm)?;
    Ok(found.is_some_and(|found| build::repair_values_secret(&wanted, &found) == Repair::NotNeeded))
}

/// Returns the package of the spec that `planned` stands for.
fn asked<'b>(
    bootstrap: &'b ClusterBootstrap,
    planned: &Planned,
) -> Option<(Role, &'b ClusterBootstrapPackage)> {
    packages(&bootstrap.spec)
        .into_iter()
        .find(|(role, package)| *role == planned.role && package.ref_name == planned.package_name)
}

/// Whether the App is made from `package`.
fn is_made(
    context: &Context<'_>,
    planned: &Planned,
    install: Option<&PackageInstall>,
    package: &Package,
) -> Step<bool> {
    let (server, namespace) = at(context, planned);
    let key = Key::of::<App>(server, namespace, &planned.install_name);
    let app = context.object(key, ReadPhase::Confirm)?;
    let spec = app.map_or(&Value::Null, |app| &app["spec"]);
    Ok(install.is_some_and(|install| is_made_from(spec, package, install)))
}

/// Whether the template of a release matches its watch. The template names the packages that a gate waits for.
fn is_template_current(context: &Context<'_>, release: &str) -> Step<bool> {
    let system = &context.facts.settings.system_namespace;
    let at = (Server::Management, Some(system.as_str()));
    let found = context.read::<ClusterBootstrapTemplate>(release, at, ReadPhase::Confirm)?;
    Ok(found.as_ref().map(|template| &template.spec.0) == context.template(release)?)
}
