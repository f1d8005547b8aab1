//! Connection to a workload cluster, and its reachability.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use sluice_crds::labels::name;

use super::{
    Context, ReadPhase, ReadResult, Server, Step,
    failure::{silent, unanswered},
    local_state::CHECK_INTERVAL,
    read::{Contact, ParsedKubeconfig, Read, ReadPoint},
};
use crate::{
    kubeconfig,
    packages::build::Owner,
    protocol::{self, Reconciler},
    reasons::{GateReason, Hold},
    upgrade::record::Workload,
};

/// Silence after which a connection is reopened once the server responds.
const REOPEN_AFTER: SignedDuration = SignedDuration::from_secs(15);

/// Connection to a workload cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Connected {
    /// Number of the connection.
    pub(crate) number: u64,
    /// Digest of its kubeconfig.
    pub(crate) digest: String,
}

/// Connection that the last reconcile used, and the time at which its kubeconfig was read.
#[derive(Debug, Clone)]
pub(super) struct LastConnection {
    pub(super) connected: Connected,
    pub(super) read_at: Instant,
}

/// Reachability of the workload cluster.
#[derive(Debug, Clone)]
pub(super) enum Reach {
    NotYet(Hold),
    Unreachable {
        since: Timestamp,
        hold: Hold,
    },
    Reached {
        uid: String,
    },
    /// The connection leads to another server or has ended; a new one must be opened.
    Lost(Hold),
}

impl Reach {
    /// Returns the initial state, in which nothing is known.
    pub(super) fn creating() -> Self {
        Self::NotYet(Hold::new(
            GateReason::ControlPlaneCreating,
            "waiting for the control plane",
        ))
    }

    /// Returns the state of a connection that must be closed; the next reconcile opens another one.
    pub(super) fn lost() -> Self {
        Self::Lost(Hold::new(
            GateReason::WorkloadUnreachable,
            "opening another connection to the workload API server",
        ))
    }

    /// Returns the same state for the record.
    pub(super) fn seen(&self) -> Workload<'_> {
        match self {
            Self::NotYet(hold) | Self::Lost(hold) => Workload::NotYet(hold.clone()),
            Self::Unreachable { since, hold } => Workload::Unreachable {
                since: *since,
                hold: hold.clone(),
            },
            Self::Reached { uid } => Workload::Reached { uid },
        }
    }

    pub(super) fn uid(&self) -> Option<&str> {
        match self {
            Self::Reached { uid } => Some(uid),
            _ => None,
        }
    }
}

/// Returns the connection to the workload of the Cluster `owner` that `read` requests.
///
/// # Errors
/// Returns a [`Hold`] for a problem that an operator must fix first.
pub(crate) fn connect<S: Reconciler<Hold = Hold>>(
    context: &protocol::Context<'_, S>,
    owner: &Owner,
    read: fn(Box<ParsedKubeconfig>) -> Read,
) -> Step<Connected> {
    let bytes = kubeconfig_of(context, owner, ReadPhase::Plan)?;
    // The reason names the field and never repeats its value.
    let refused = |why: &dyn std::fmt::Display| {
        let Owner { namespace, name, .. } = owner;
        let suffix = name::KUBECONFIG_SUFFIX;
        Hold::new(
            GateReason::KubeconfigInvalid,
            format!("kubeconfig in Secret {namespace}/{name}{suffix}: {why}"),
        )
    };
    let parsed = kubeconfig::parse(&bytes).map_err(|error| refused(&error))?;
    let digest = kubeconfig::digest(&bytes);
    let by = ParsedKubeconfig {
        parsed,
        digest: digest.clone(),
    };
    match context.answer(read(Box::new(by)))? {
        ReadResult::Connected(number) => Ok(Connected {
            number: *number,
            digest,
        }),
        ReadResult::NotConnected(why) => Err(refused(why).into()),
        _ => Err(unanswered(None).into()),
    }
}

/// Returns the connection that the last reconcile used, if it is still open and its kubeconfig was read within [`CHECK_INTERVAL`]. This
/// reconcile may have `read` another kubeconfig since.
///
/// The kubeconfig is not watched: its Secret lacks the label of the watched ones. It may have changed, so the result permits no more than to
/// plan, write and wait: it is read again once the workload API server refuses a request or does not respond, and before a gate opens.
pub(super) fn still_open(context: &Context<'_>, read: Option<&str>) -> Step<Option<Connected>> {
    let is_read = |last: &&LastConnection| read.is_none_or(|read| read == last.connected.digest);
    let Some(last) = context.local.connection.as_ref().filter(is_read) else {
        return Ok(None);
    };
    let age = context.began.instant.saturating_duration_since(last.read_at);
    if age >= CHECK_INTERVAL {
        return Ok(None);
    }
    let open = context.answer(Read::OpenConnection(last.connected.number))?;
    let is_open = matches!(open, ReadResult::Connected(_));
    Ok(is_open.then(|| last.connected.clone()))
}

/// Whether the kubeconfig of the Cluster still has this digest.
///
/// # Errors
/// Returns a [`Hold`] without a kubeconfig.
pub(super) fn is_current(context: &Context<'_>, digest: &str, phase: ReadPhase) -> Step<bool> {
    let bytes = kubeconfig_of(context, &context.facts.owner, phase)?;
    Ok(kubeconfig::digest(&bytes) == digest)
}

/// Reads the kubeconfig of the Cluster `owner`.
fn kubeconfig_of<S: Reconciler<Hold = Hold>>(
    context: &protocol::Context<'_, S>,
    owner: &Owner,
    phase: ReadPhase,
) -> Step<Vec<u8>> {
    let Owner { namespace, name, .. } = owner;
    let secret = format!("{name}{}", name::KUBECONFIG_SUFFIX);
    let found = context.read::<Secret>(&secret, (Server::Management, Some(namespace)), phase)?;
    let bytes = found.and_then(|found| found.data?.remove(name::KUBECONFIG_KEY));
    let missing = || {
        Hold::new(
            GateReason::KubeconfigNotFound,
            format!(
                "waiting for Secret {namespace}/{secret} with key {}",
                name::KUBECONFIG_KEY
            ),
        )
    };
    Ok(bytes.ok_or_else(missing)?.0)
}

/// Returns the identity of the workload API server, or the reason why it is unknown. A connection to a server with other data than
/// before is lost: its stores are invalid, and everything is read again.
pub(super) fn reach(context: &Context<'_>, point: ReadPoint) -> Step<Reach> {
    Ok(match context.contact(point)? {
        Contact::Ended | Contact::Replaced => Reach::lost(),
        Contact::Silent {
            since,
            now,
            last_answer,
            cause,
        } => {
            // A resumed watch sends nothing until a change, although the server responded.
            let silent_for = now.duration_since(*since);
            // After the clock was set back, the time is unknown.
            let silent_for = if silent_for.is_negative() {
                REOPEN_AFTER
            } else {
                silent_for
            };
            let within = |time: Duration| last_answer.is_some_and(|answered| answered < time);
            if silent_for >= REOPEN_AFTER && Duration::try_from(silent_for).is_ok_and(within) {
                return Ok(Reach::lost());
            }
            Reach::Unreachable {
                since: *since,
                hold: unanswered(cause.as_deref()),
            }
        }
        Contact::GivenUp(why) => {
            let message = format!("PackageInstalls or Apps of the workload cluster cannot be cached: {why}");
            Reach::NotYet(Hold::new(GateReason::WorkloadUnreachable, message))
        }
        Contact::Serves { uid } => Reach::Reached { uid: uid.clone() },
        Contact::Unread { since, failure } => match since {
            None => Reach::NotYet(silent(failure)),
            Some(since) => Reach::Unreachable {
                since: *since,
                hold: silent(failure),
            },
        },
    })
}
