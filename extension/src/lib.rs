//! Sluice: the binary crate as a library, so that its parts can be tested.

pub mod admission;
pub mod client;
pub mod contract;
pub mod control_plane;
pub mod controllers;
pub mod edits;
pub mod events;
pub mod flags;
pub mod freshness;
pub mod index;
pub mod kind_watch;
pub mod kube_client;
pub mod leader;
pub mod news;
pub mod queue;
pub mod registration;
pub mod remote;
pub mod retrigger;
pub mod run;
pub mod runner;
pub mod server;
pub mod status;
pub mod store;
pub mod stores;
pub mod sweep;
pub mod telemetry;
pub mod watch;

mod clock;
mod lock;
mod streamed;
mod undecodable;
