//! When an object proves a check.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{At, Objects, is_deployed};
use super::{Check, Subject, flux, must};
use crate::observer::conditions::{CLUSTER_NAME, is_false, is_observed, is_true, label, text};
use crate::observer::key::{Checked, Place};

/// On an object of CAAPH: its controllers leave it alone.
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// What a check asks of its object.
struct Wanted<'a> {
    check: &'a Check,
    /// None without `versionKey`.
    version: Option<&'a str>,
}

/// Why a check is not proven at a row, for an upgrade to `hop`; none if it is.
pub(super) fn lack(
    objects: &Objects,
    subject: &Subject<'_>,
    check: &Check,
    row: &BTreeMap<String, String>,
    hop: &str,
) -> Option<String> {
    prove(objects, subject, check, row, hop).err()
}

fn prove(
    objects: &Objects,
    subject: &Subject<'_>,
    check: &Check,
    row: &BTreeMap<String, String>,
    hop: &str,
) -> Result<(), String> {
    let Some(kind) = check.kind else {
        return Err(format!("the observer has no rule for kind {}", check.kind_name));
    };
    let version = match &check.version_key {
        None => None,
        Some(key) => Some(
            row.get(key)
                .ok_or_else(|| format!("the row has no {key}"))?
                .as_str(),
        ),
    };
    let wanted = Wanted { check, version };
    let name = check
        .object_of(subject.name, hop)
        .ok_or("the hop of its name is not known")?;
    let (place, namespace) = if check.is_on_workload {
        (subject.workload.clone(), check.namespace.as_str())
    } else {
        (Place::Management, subject.namespace)
    };
    let namespace = match kind {
        // It has none.
        Checked::CustomResourceDefinition => "",
        _ => namespace,
    };
    let at = (place, kind, (namespace.to_owned(), name.clone()));
    let Some(object) = objects.get(&at) else {
        return match objects.completed(&at) {
            Some(job) if wanted.is_tied() => job_is_complete(job, &wanted),
            _ => Err(format!("there is no {} {name}", check.kind_name)),
        };
    };
    must(!is_deleting(object), || format!("{name} is being deleted"))?;
    let of = label(object, CLUSTER_NAME);
    must(of.is_empty() || of == subject.name, || {
        format!("{name} is of Cluster {of}")
    })?;
    match kind {
        Checked::HelmChartProxy => is_delivered(objects, subject, (&name, object), &wanted),
        Checked::HelmRelease => chart_is_deployed(objects, subject, object, &wanted),
        Checked::Kustomization => source_is_applied(objects, subject, (&at, object), &wanted),
        Checked::CustomResourceDefinition => is_served(object, &wanted),
        Checked::DaemonSet => daemon_set_runs(object, &wanted),
        Checked::Deployment | Checked::StatefulSet => replicas_run(object, &wanted),
        Checked::Job => job_is_complete(object, &wanted),
        Checked::HelmReleaseProxy => Err("HelmReleaseProxy is judged with its HelmChartProxy".to_owned()),
        Checked::Source(_) => Err("a source is judged with its Kustomization".to_owned()),
    }
}

fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The HelmChartProxy asks for the version, and its one HelmReleaseProxy for this Cluster has it deployed.
fn is_delivered(
    objects: &Objects,
    subject: &Subject<'_>,
    (name, proxy): (&str, &Value),
    wanted: &Wanted<'_>,
) -> Result<(), String> {
    let releases: Vec<&Value> = objects
        .releases((subject.namespace, subject.name), name)
        .collect();
    let [release] = releases[..] else {
        return Err(format!(
            "{} HelmReleaseProxies of HelmChartProxy {name}",
            releases.len()
        ));
    };
    let release_name = text(release, "/metadata/name");
    must(!is_deleting(release), || {
        format!("HelmReleaseProxy {release_name} is being deleted")
    })?;
    must(is_controlled_by(release, proxy), || {
        format!("HelmReleaseProxy {release_name} is not that of HelmChartProxy {name}")
    })?;
    let cluster = &release["spec"]["clusterRef"];
    must(
        cluster["name"] == subject.name && cluster["namespace"] == subject.namespace,
        || format!("HelmReleaseProxy {release_name} is for {cluster}"),
    )?;
    for (object, name) in [(proxy, name), (release, release_name.as_str())] {
        must(object["metadata"]["annotations"].get(PAUSED).is_none(), || {
            format!("{name} is paused")
        })?;
        must(object["spec"]["reconcileStrategy"] != "InstallOnce", || {
            format!("{name} is installed once, and never upgraded")
        })?;
        let has = &object["spec"]["version"];
        must(wanted.version.is_none_or(|version| has == version), || {
            format!("{name} is at version {has}, not {:?}", wanted.version)
        })?;
    }
    must(is_deployed(release), || {
        format!(
            "HelmReleaseProxy {release_name} is {} at generation {}, observed {}",
            release["status"]["status"],
            release["metadata"]["generation"],
            release["status"]["observedGeneration"]
        )
    })?;
    // A resync of the same generation takes nothing back, a failure does.
    let goes_on = objects.was_deployed(release) && !is_false(release, "Ready");
    must(is_true(release, "Ready") || goes_on, || {
        format!("HelmReleaseProxy {release_name} is not Ready")
    })
}

fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let uid = &owner["metadata"]["uid"];
    owners.any(|owner| owner["controller"] == true && uid.is_string() && owner["uid"] == *uid)
}

/// helm-controller has deployed the version into the Cluster, with the values that the HelmRelease asks for.
fn chart_is_deployed(
    objects: &Objects,
    subject: &Subject<'_>,
    release: &Value,
    wanted: &Wanted<'_>,
) -> Result<(), String> {
    is_for(subject, release, wanted.check)?;
    let chart = flux::deployed(release)?;
    wanted.is(&chart)?;
    // A resync of the same generation takes nothing back, a failure does.
    let goes_on = objects.was_at_rest(release, &chart) && flux::goes_on(release);
    must(flux::has_values(release) || goes_on, || {
        let tried = &release["status"]["lastAttemptedConfigDigest"];
        format!("values {tried} were tried last, others are deployed")
    })?;
    must(flux::is_at_rest(release) || goes_on, || {
        format!("its conditions are {}", release["status"]["conditions"])
    })
}

/// kustomize-controller has applied the revision that the source of the Kustomization has now.
fn source_is_applied(
    objects: &Objects,
    subject: &Subject<'_>,
    (at, kustomization): (&At, &Value),
    wanted: &Wanted<'_>,
) -> Result<(), String> {
    is_for(subject, kustomization, wanted.check)?;
    let applied = flux::applied(kustomization)?;
    let (place, _, (namespace, _)) = at;
    let source_at = flux::source(kustomization, place, namespace)?;
    let source = objects.get(&source_at).filter(|source| !is_deleting(source));
    let source = source.ok_or_else(|| format!("there is no source {}", source_at.2.1))?;
    let revision = flux::revision(source_at.1, source)?;
    must(applied == revision, || {
        format!("{applied} is applied, its source is at {revision}")
    })?;
    // Without a name, the digest is all of it. A name may have an `@`.
    let named = revision.rsplit_once('@').map_or("", |(named, _)| named);
    wanted.is(named).or_else(|_| wanted.is(&revision))?;
    let goes_on = objects.was_at_rest(kustomization, &applied) && flux::goes_on(kustomization);
    must(flux::is_at_rest(kustomization) || goes_on, || {
        format!("its conditions are {}", kustomization["status"]["conditions"])
    })
}

/// An object of Flux is for the Cluster: by its kubeconfig Secret, or because it is there.
fn is_for(subject: &Subject<'_>, object: &Value, check: &Check) -> Result<(), String> {
    let kubeconfig = &object["spec"]["kubeConfig"];
    let is_its = if check.is_on_workload {
        kubeconfig.is_null()
    } else {
        kubeconfig["secretRef"]["name"] == format!("{}-kubeconfig", subject.name)
    };
    must(is_its, || format!("it is for {kubeconfig}"))
}

/// The API server serves the version of a definition.
fn is_served(definition: &Value, wanted: &Wanted<'_>) -> Result<(), String> {
    // API servers before some version do not write it.
    let is_current = definition["status"]["observedGeneration"].is_null() || is_observed(definition);
    must(is_current, || "its generation is not observed".to_owned())?;
    for kind in ["Established", "NamesAccepted"] {
        must(is_true(definition, kind), || format!("it is not {kind}"))?;
    }
    let Some(wanted) = wanted.version else {
        return Ok(());
    };
    let versions = definition["spec"]["versions"].as_array();
    let mut versions = versions.into_iter().flatten();
    must(
        versions.any(|version| version["name"] == wanted && version["served"] == true),
        || format!("version {wanted} is not served"),
    )
}

/// Every Pod that a DaemonSet should have is there, at its current template, and available.
fn daemon_set_runs(object: &Value, wanted: &Wanted<'_>) -> Result<(), String> {
    wanted.runs_version(object)?;
    let status = &object["status"];
    let [desired, updated, available] = [
        "desiredNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
    ]
    .map(|field| status[field].as_i64().unwrap_or_default());
    must(
        is_observed(object) && desired >= 1 && updated == desired && available == desired,
        || format!("a DaemonSet with status {status}"),
    )
}

/// Every replica is there, at the current template, and available.
fn replicas_run(object: &Value, wanted: &Wanted<'_>) -> Result<(), String> {
    wanted.runs_version(object)?;
    must(object["spec"]["paused"] != true, || "it is paused".to_owned())?;
    let status = &object["status"];
    let asked = object["spec"]["replicas"].as_i64().unwrap_or_default();
    let are_all = ["replicas", "updatedReplicas", "availableReplicas"]
        .iter()
        .all(|field| status[*field].as_i64() == Some(asked));
    must(is_observed(object) && asked >= 1 && are_all, || {
        format!("{asked} replicas are asked for, status {status}")
    })
}

fn job_is_complete(job: &Value, wanted: &Wanted<'_>) -> Result<(), String> {
    wanted.runs_version(job)?;
    must(job["spec"]["suspend"] != true, || "it is suspended".to_owned())?;
    must(is_true(job, "Complete"), || "it is not complete".to_owned())
}

impl Wanted<'_> {
    /// An object has this version.
    fn is(&self, version: &str) -> Result<(), String> {
        must(self.version.is_none_or(|wanted| wanted == version), || {
            format!("it is at version {version:?}, not {:?}", self.version)
        })
    }

    /// Whether what is proven belongs to one upgrade.
    fn is_tied(&self) -> bool {
        self.version.is_some() || self.check.is_named_by_hop()
    }

    /// The container of the Pod template has the version as tag or digest of its image.
    fn runs_version(&self, object: &Value) -> Result<(), String> {
        let Some(version) = self.version else {
            return Ok(());
        };
        let containers = object["spec"]["template"]["spec"]["containers"].as_array();
        let containers: Vec<&Value> = containers.into_iter().flatten().collect();
        let named = self.check.container.as_deref();
        let container = match (named, &containers[..]) {
            (Some(name), all) => all.iter().copied().find(|container| container["name"] == name),
            (None, [only]) => Some(*only),
            (None, _) => None,
        };
        let image = container.and_then(|container| container["image"].as_str());
        let image = image.ok_or_else(|| format!("no container {named:?}"))?;
        must(is_of(image, version), || {
            format!("{image} is not of version {version}")
        })
    }
}

/// Whether a version is the tag or the digest of an image.
fn is_of(image: &str, version: &str) -> bool {
    let (reference, digest) = match image.split_once('@') {
        Some((reference, digest)) => (reference, Some(digest)),
        None => (image, None),
    };
    // A registry may have a port.
    let name = reference.rsplit('/').next().unwrap_or_default();
    let tag = name.split_once(':').map(|(_, tag)| tag);
    tag == Some(version) || digest == Some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_tag_or_a_digest() {
        let digest = "sha256:0123";
        assert!(is_of("registry:5000/a/cni:v1.18.2", "v1.18.2"));
        assert!(is_of("cni@sha256:0123", digest));
        assert!(is_of("cni:v1.18.2@sha256:0123", digest));
        assert!(!is_of("registry:5000/a/cni", "5000/a/cni"));
        assert!(!is_of("cni:v1.18.20", "v1.18.2"));
        assert!(!is_of("cni", ""));
    }
}
