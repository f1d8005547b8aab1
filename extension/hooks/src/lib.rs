//! The hooks of Cluster API's Runtime SDK over HTTP: wire types, routes, discovery.
//!
//! [`router`] serves them for any [`Gate`]. There is no Kubernetes client, no HTTP client and no scheduler among the
//! dependencies of this crate, so a hold cannot do I/O. A release is confirmed by the gate.

mod body;
mod discovery;
mod gate;
mod profile;
mod refusal;
mod repeats;
mod reply;
mod request;
mod router;

pub use self::body::{Budget, Peer, Share, Unread, in_turn, with_body};
pub use self::discovery::{DiscoveryResponse, TIMEOUT_SECONDS};
pub use self::gate::{Answer, Endpoint, Gate, Observer, Outcome};
pub use self::profile::Profile;
pub use self::repeats::Repeats;
pub use self::reply::Reply;
pub use self::request::{Request, RequestError, parse_discovery, parse_plan};
pub use self::router::router;
pub use sluice_core::gate::hook_call::{Hook, handler};
pub use sluice_core::gate::plan_call::{NoPlan, PlanCall};

/// Group and version of the hooks, the first segments of every path.
pub const GROUP_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";

/// `apiVersion` of every request and of every advertised hook.
pub const API_VERSION: &str = GROUP_VERSION;
