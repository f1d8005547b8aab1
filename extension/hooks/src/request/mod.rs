//! Requests: decoding of a body into a hook call.
//!
//! Bodies are read whatever their Content-Type, because Cluster API sends none.

mod depth;
mod error;
mod labels;
mod object;
mod wire;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::value::RawValue;
use sluice_core::gate::hook_call::{GENERATE_UPGRADE_PLAN, HookCall};
use sluice_core::gate::plan_call::{PlanCall, pinned_in};
use sluice_core::version::KubernetesVersion;

pub use self::error::RequestError;
use self::labels::{Labels, Text};
use self::object::Object;
use self::wire::{Cluster, Metadata, Step};
use crate::{API_VERSION, Hook};

const CLUSTER_GROUP: &str = "cluster.x-k8s.io/";

/// Longest name in Kubernetes; longer names are neither stored nor logged nor returned.
const LONGEST: usize = 253;

/// The part of a lifecycle hook's request that is read.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    hook: Hook,
    namespace: Cow<'a, str>,
    name: Cow<'a, str>,
    uid: Cow<'a, str>,
    generation: i64,
    deleted_at: Option<Timestamp>,
    label: Option<Cow<'a, str>>,
    /// JSON text of `metadata.labels`.
    labels: Option<&'a str>,
    /// `fromKubernetesVersion` of Before* upgrade hooks.
    from: Option<Cow<'a, str>>,
    version: Cow<'a, str>,
    first_step: Option<Cow<'a, str>>,
}

impl<'a> Request<'a> {
    /// Parses a request of `hook`. A lenient reader might return an empty Cluster; here every field that the decision depends
    /// on is required.
    pub fn parse(hook: Hook, body: &'a [u8]) -> Result<Self, RequestError> {
        let request = decode(body, || format!("{hook}Request"))?;
        let cluster = request.cluster.ok_or_else(|| missing("cluster"))?.0;
        check_cluster_type(&cluster)?;
        let metadata = cluster.metadata.ok_or_else(|| missing("cluster.metadata"))?.0;
        let topology_version = cluster
            .spec
            .and_then(|spec| spec.0.topology)
            .and_then(|topology| topology.0.version);

        let from = request.from_kubernetes_version;
        let to = request.to_kubernetes_version;
        let at = request.kubernetes_version;
        let (from, version) = match hook {
            Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade | Hook::BeforeWorkersUpgrade => (
                Some(version("fromKubernetesVersion", from)?),
                version("toKubernetesVersion", to)?,
            ),
            Hook::AfterControlPlaneUpgrade | Hook::AfterWorkersUpgrade | Hook::AfterClusterUpgrade => {
                (None, version("kubernetesVersion", at)?)
            }
            Hook::BeforeClusterCreate => (None, version("cluster.spec.topology.version", topology_version)?),
            Hook::AfterControlPlaneInitialized | Hook::BeforeClusterDelete => (
                None,
                topology_version.map_or(Ok(Cow::Borrowed("")), |version| {
                    short("cluster.spec.topology.version", version.0)
                })?,
            ),
        };
        let first_step = steps("controlPlaneUpgrades", request.control_plane_upgrades)?;
        steps("workersUpgrades", request.workers_upgrades)?;

        let Metadata {
            name,
            namespace,
            uid,
            generation,
            deletion_timestamp,
            labels,
        } = metadata;
        let labels = labels.map(RawValue::get);
        let tkr = labels.map(Labels::of).transpose()?.and_then(|labels| labels.tkr);
        Ok(Self {
            hook,
            namespace: required("cluster.metadata.namespace", namespace)?,
            name: required("cluster.metadata.name", name)?,
            uid: required("cluster.metadata.uid", uid)?,
            // Without a generation a record of any age would be recent enough.
            generation: generation
                .filter(|generation| *generation > 0)
                .ok_or_else(|| missing("cluster.metadata.generation"))?,
            deleted_at: deletion_timestamp.map(deletion_time).transpose()?,
            label: tkr
                .filter(|label| !label.is_empty())
                .map(|label| short("cluster.metadata.labels", label))
                .transpose()?,
            labels: labels.map(labels::kept),
            from,
            version,
            first_step,
        })
    }

    /// Returns the hook call for a gate, which knows the time of the API server.
    #[must_use]
    pub fn call(&self) -> HookCall<'_> {
        HookCall {
            hook: self.hook,
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            generation: self.generation,
            label: self.label.as_deref(),
            labels: self.labels,
            version: &self.version,
            first_step: self.first_step.as_deref(),
            deleted_at: self.deleted_at,
            now: None,
            clock: None,
        }
    }

    /// Returns `(from, to)` if the control plane would skip minor versions in one step.
    pub(crate) fn skips_minors(&self) -> Option<(&str, &str)> {
        let (from, to) = (self.from.as_deref()?, &*self.version);
        let ahead = to
            .parse::<KubernetesVersion>()
            .ok()?
            .minors_ahead_of(&from.parse().ok()?);
        (ahead > 1).then_some((from, to))
    }
}

/// Parses a request of GenerateUpgradePlan. The version of the workers is not read: Cluster API plans their steps.
pub fn parse_plan(body: &[u8]) -> Result<PlanCall, RequestError> {
    let request = decode(body, || format!("{GENERATE_UPGRADE_PLAN}Request"))?;
    let cluster = request.cluster.ok_or_else(|| missing("cluster"))?.0;
    check_cluster_type(&cluster)?;
    let metadata = cluster.metadata.ok_or_else(|| missing("cluster.metadata"))?.0;
    let topology = cluster.spec.and_then(|spec| spec.0.topology);
    let variables = topology.and_then(|topology| topology.0.variables);
    let from = request.from_control_plane_kubernetes_version;
    Ok(PlanCall {
        namespace: required("cluster.metadata.namespace", metadata.namespace)?.into_owned(),
        name: required("cluster.metadata.name", metadata.name)?.into_owned(),
        uid: required("cluster.metadata.uid", metadata.uid)?.into_owned(),
        from: version("fromControlPlaneKubernetesVersion", from)?.into_owned(),
        to: version("toKubernetesVersion", request.to_kubernetes_version)?.into_owned(),
        pinned: variables.map_or_else(|| Ok(Vec::new()), |variables| pinned(variables.get()))?,
    })
}

/// Reads the pinned versions. They are bounded: a call that waits for a read has no share of the memory for bodies any more.
fn pinned(variables: &str) -> Result<Vec<String>, RequestError> {
    let field = "cluster.spec.topology.variables";
    let pinned = pinned_in(variables);
    let pinned = pinned.map_err(|fault| RequestError::Malformed(format!("{field}: {fault}")))?;
    let checked = pinned
        .into_iter()
        .map(|version| short(field, version.into()).map(Cow::into_owned));
    checked.collect()
}

/// Checks a discovery request, which contains only its type.
pub fn parse_discovery(body: &[u8]) -> Result<(), RequestError> {
    decode(body, || "DiscoveryRequest".to_owned()).map(drop)
}

fn decode(body: &[u8], kind: impl FnOnce() -> String) -> Result<wire::Request<'_>, RequestError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestError::Empty);
    }
    if depth::is_too_deep(body) {
        return Err(RequestError::TooDeep);
    }
    let Object(request): Object<wire::Request<'_>> =
        serde_json::from_slice(body).map_err(|error| RequestError::Malformed(error.to_string()))?;
    check_type("kind", request.kind.as_ref(), &kind())?;
    check_type("apiVersion", request.api_version.as_ref(), API_VERSION)?;
    Ok(request)
}

fn check_type(field: &'static str, found: Option<&Text<'_>>, want: &str) -> Result<(), RequestError> {
    let found = found.map_or("", |found| &found.0);
    if found == want {
        return Ok(());
    }
    Err(RequestError::WrongType {
        field,
        found: found.to_owned(),
        want: want.to_owned(),
    })
}

/// Cluster API 1.11 and 1.12 send a Cluster without a type; one that has a type has to be a Cluster.
fn check_cluster_type(cluster: &Cluster<'_>) -> Result<(), RequestError> {
    let (field, found, want) = match (&cluster.kind, &cluster.api_version) {
        (Some(Text(kind)), _) if kind != "Cluster" => ("cluster.kind", kind, "Cluster"),
        (_, Some(Text(version))) if !version.starts_with(CLUSTER_GROUP) => {
            ("cluster.apiVersion", version, "cluster.x-k8s.io/v1beta2")
        }
        _ => return Ok(()),
    };
    Err(RequestError::WrongType {
        field,
        found: found.clone().into_owned(),
        want: want.to_owned(),
    })
}

fn missing(field: &str) -> RequestError {
    RequestError::Missing(field.to_owned())
}

fn required<'a>(field: &str, text: Option<Text<'a>>) -> Result<Cow<'a, str>, RequestError> {
    match text {
        Some(Text(text)) if !text.is_empty() => short(field, text),
        _ => Err(missing(field)),
    }
}

fn short<'a>(field: &str, text: Cow<'a, str>) -> Result<Cow<'a, str>, RequestError> {
    if text.len() <= LONGEST {
        return Ok(text);
    }
    Err(RequestError::Invalid {
        field: field.to_owned(),
        found: text.into_owned(),
        want: "of at most 253 bytes",
    })
}

fn version<'a>(field: &str, text: Option<Text<'a>>) -> Result<Cow<'a, str>, RequestError> {
    let text = required(field, text)?;
    match text.parse::<KubernetesVersion>() {
        Ok(_) => Ok(text),
        Err(_) => Err(RequestError::Invalid {
            field: field.to_owned(),
            found: text.into_owned(),
            want: "a semantic version",
        }),
    }
}

/// Checks all steps of a plan and returns the first one.
fn steps<'a>(
    field: &str,
    steps: Option<Vec<Object<Step<'a>>>>,
) -> Result<Option<Cow<'a, str>>, RequestError> {
    let mut first = None;
    for (index, Object(step)) in steps.into_iter().flatten().enumerate() {
        let step = version(&format!("{field}[{index}].version"), step.version)?;
        first.get_or_insert(step);
    }
    Ok(first)
}

fn deletion_time(Text(text): Text<'_>) -> Result<Timestamp, RequestError> {
    text.parse().map_err(|_| RequestError::Invalid {
        field: "cluster.metadata.deletionTimestamp".to_owned(),
        found: text.into_owned(),
        want: "a time",
    })
}
