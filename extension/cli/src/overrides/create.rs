//! `sluice override create`.

use std::{process::ExitCode, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use sluice_core::upgrade::overrides::Override;
use sluice_crds::{
    lifecycle::{
        EVERY_PACKAGE, MAX_DAYS, MAX_PACKAGES, OverrideTarget, UpgradeOverride, UpgradeOverrideSpec,
    },
    run::{ClusterBootstrap, PackageState, SCHEMA, UpgradeRecord},
};

use super::{not_answered, step};
use crate::{
    arguments::CreateOverrideArgs,
    connection::Trouble,
    documents, management,
    reader::{Reader, in_time},
    terminal::{clean, escaped, print},
};

/// Maximum length of the name of a Cluster in the name of an UpgradeOverride.
const LONGEST_CLUSTER: usize = 200;

/// An override, and the packages that its gate waits for all the same.
#[derive(Debug)]
pub(super) struct Planned {
    /// The object to create.
    pub(super) object: UpgradeOverride,
    /// Short names of packages of the step that are neither named nor proven.
    pub(super) unproven: Vec<String>,
}

pub(super) async fn create(asked: &CreateOverrideArgs) -> Result<ExitCode, Trouble> {
    let now = Timestamp::now();
    let expires = expiry(asked, now)?;
    let (client, of_context) = management::client(&asked.management).await?;
    let namespace = asked.namespace.as_deref().unwrap_or(&of_context);
    let reader = Reader::new(client.clone());
    let Planned { object, unproven } = planned(&reader, namespace, asked, (now, expires)).await?;
    if asked.dry_run {
        print(escaped(&documents::yaml(&object)?).trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let stored = created(client, namespace, &object, now).await?;
    let spec = &stored.spec;
    print(&clean(&format!(
        "UpgradeOverride {namespace}/{} created by {}: gate {} of {} at {}, until {}",
        stored.name_any(),
        spec.requested_by.as_deref().unwrap_or_default(),
        spec.gate.as_str(),
        spec.cluster_name,
        spec.target.kubernetes_version,
        spec.expires_at.0,
    )))?;
    if !unproven.is_empty() {
        let unproven = unproven.join(", ");
        print(&clean(&format!("not named and not proven: {unproven}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the time at which the override expires.
///
/// # Errors
/// It has passed, or is too far ahead.
pub(super) fn expiry(asked: &CreateOverrideArgs, now: Timestamp) -> Result<Timestamp, Trouble> {
    let (flag, expires) = match (asked.expires_at, asked.expires_in) {
        (Some(expires), _) => ("--expires-at", Some(expires)),
        (None, after) => ("--expires-in", now.checked_add(after.unwrap_or_default()).ok()),
    };
    let longest = SignedDuration::from_hours(24 * MAX_DAYS);
    let Some(expires) = expires.filter(|expires| expires.duration_since(now) <= longest) else {
        return Err(Trouble::Flag(format!(
            "{flag} is more than {MAX_DAYS} days ahead"
        )));
    };
    if expires <= now {
        return Err(Trouble::Flag(format!("{flag} is not in the future")));
    }
    Ok(expires)
}

/// Returns the override of the step that waits at the gate, or of the step that the user names.
///
/// # Errors
/// The Cluster is not held at the gate, or a package is none of the step.
pub(super) async fn planned(
    reader: &Reader,
    namespace: &str,
    asked: &CreateOverrideArgs,
    (now, expires): (Timestamp, Timestamp),
) -> Result<Planned, Trouble> {
    let cluster = &asked.cluster;
    let refused = |why: &str| Trouble::NotAnswered(format!("Cluster {namespace}/{cluster} {why}"));
    let bootstrap: Option<Arc<ClusterBootstrap>> = reader.get(Some(namespace), cluster).await?;
    let bootstrap =
        bootstrap.ok_or_else(|| refused("has no ClusterBootstrap, so Sluice holds no gate of it"))?;
    let record = bootstrap
        .status
        .as_ref()
        .and_then(|status| status.upgrade.as_ref());
    let record = record.ok_or_else(|| refused("has no record of an upgrade yet"))?;
    if record.schema != SCHEMA {
        return Err(refused("has a record of another version of Sluice"));
    }
    let packages = packages(asked)?;
    let (target, unproven) = if let (Some(version), Some(release)) = (&asked.to_version, &asked.release) {
        let target = OverrideTarget {
            kubernetes_version: version.clone(),
            release: release.clone(),
        };
        (target, Vec::new())
    } else {
        let target = step::held(record, asked.gate, asked.all_packages);
        let target = target.map_err(|why| refused(&why.to_string()))?;
        (target, unproven(record, asked)?)
    };
    let spec = UpgradeOverrideSpec {
        cluster_name: cluster.clone(),
        // A Cluster that replaces this one meanwhile has another UID, so admission refuses the override.
        cluster_uid: Some(record.cluster_uid.clone()),
        target,
        gate: asked.gate.gate(),
        packages,
        reason: asked.reason.clone(),
        expires_at: Time(expires),
        requested_by: None,
    };
    let name = asked.named.clone().unwrap_or_else(|| name(asked, now));
    let mut object = UpgradeOverride::new(&name, spec);
    object.metadata.namespace = Some(namespace.to_owned());
    Ok(Planned { object, unproven })
}

/// Returns the packages of the spec, each once.
fn packages(asked: &CreateOverrideArgs) -> Result<Vec<String>, Trouble> {
    if asked.all_packages {
        return Ok(vec![EVERY_PACKAGE.to_owned()]);
    }
    let mut packages = asked.packages.clone();
    packages.sort();
    packages.dedup();
    if packages.len() > MAX_PACKAGES {
        let why = format!("--package names more than {MAX_PACKAGES} packages");
        return Err(Trouble::Flag(why));
    }
    Ok(packages)
}

/// Returns the packages of the step that are neither named nor proven.
///
/// # Errors
/// A named package is none of the step.
fn unproven(record: &UpgradeRecord, asked: &CreateOverrideArgs) -> Result<Vec<String>, Trouble> {
    if asked.all_packages {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = record
        .packages
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    if let Some(unknown) = asked.packages.iter().find(|name| !names.contains(&name.as_str())) {
        let names = names.join(", ");
        return Err(Trouble::Flag(format!(
            "--package {unknown} is none of the packages of the step: {names}"
        )));
    }
    let unproven = record
        .packages
        .iter()
        .filter(|package| package.state != PackageState::Ready && !asked.packages.contains(&package.name));
    Ok(unproven.map(|package| package.name.clone()).collect())
}

/// Returns a name that no earlier override of the gate has. A request that is repeated after a lost response must not create a second
/// override, so the API server does not generate the name.
fn name(asked: &CreateOverrideArgs, now: Timestamp) -> String {
    let cluster = asked.cluster.get(..LONGEST_CLUSTER).unwrap_or(&asked.cluster);
    let cluster = cluster.trim_end_matches(['.', '-']);
    format!(
        "{cluster}-{}-{}",
        asked.gate.as_str(),
        now.strftime("%Y%m%d%H%M%S")
    )
}

/// Creates an override, and returns it as it is stored.
///
/// # Errors
/// It is refused, or has no effect as it is stored.
pub(super) async fn created(
    client: Client,
    namespace: &str,
    object: &UpgradeOverride,
    now: Timestamp,
) -> Result<UpgradeOverride, Trouble> {
    let name = object.name_any();
    let api: Api<UpgradeOverride> = Api::namespaced(client, namespace);
    let stored = in_time(api.create(&PostParams::default(), object)).await;
    let stored = stored.map_err(|failure| not_answered("create", (namespace, &name), &failure.text))?;
    let uid = object.spec.cluster_uid.as_deref().unwrap_or_default();
    match Override::of(&stored, uid, now) {
        Ok(_) => Ok(stored),
        Err(why) => Err(Trouble::NotAnswered(format!(
            "UpgradeOverride {namespace}/{name} was created, but has no effect: {}",
            why.text()
        ))),
    }
}
