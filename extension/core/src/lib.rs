//! Pure domain of Sluice: hook decisions, proofs of packages, upgrade hops and package sets.
//!
//! Nothing here reads a clock, talks to a server or sleeps. A function waits at most for a mutex ([`lock`]). Time and observed objects are
//! arguments, so table tests, property tests and a model checker run every function as the product does.

pub mod admission;
pub mod cache;
pub mod clock;
pub mod cluster;
pub mod decode;
pub mod digest;
pub mod error_chain;
pub mod events;
pub mod explanation;
pub mod fault;
pub mod gate;
pub mod gates;
pub mod held_cause;
pub mod installation;
pub mod kubeconfig;
pub mod limits;
pub mod lock;
pub mod migration;
pub mod names;
pub mod packages;
pub mod proof;
pub mod protocol;
pub mod providers;
pub mod rbac;
pub mod reasons;
pub mod reconcile;
pub mod releases;
pub mod resolver;
pub mod schedule;
pub mod server_time;
pub mod summary;
pub mod text;
pub mod upgrade;
pub mod upgrade_plan;
pub mod value_kinds;
pub mod values_watch;
pub mod version;
pub mod workload;

mod strict_yaml;
