//! Walks of `reconcile` itself between two API servers, a kapp-controller and a Cluster API that are models.
//!
//! Each step of a walk is one thing that happens: a read or a write of a reconcile, a watch event, a run of kapp-controller
//! that begins, ends or is interrupted, an edit of a user, a request that is refused or not answered, a process that ends or is frozen.
//! These are checked:
//! - early: a gate opens only if, at some moment of the reconcile that opens it, each package was really deployed as its source was;
//! - stale: a replica releases only by a record that is not older than its cache may be;
//! - open: a gate whose ground went away is closed within some reconciles;
//! - held: with every input made good, a fair schedule completes the upgrade, or the deletion, within a bound;
//! - settled: then nothing is written, and no gate changes;
//! - missing: then the values that the ClusterBootstrap refers to are there;
//! - drift: what is deleted or edited on the workload of a settled Cluster, or fails there, is put right, or shown, within a sync period;
//! - late: no late write of a process that is gone changes a spec, data or a status that were written since;
//! - a process that ends at any step, a request that is refused or not answered: the end is that of the undisturbed run.
//!
//! `WALKS` says how many walks are made, `SEED` which ones.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that runs outside of test functions, too"
)]

mod capi;
mod connection;
mod ends;
mod fault;
mod kapp;
mod leader;
mod named;
mod objects;
mod odd;
mod random;
mod search;
mod servers;
mod truth;
mod users;
mod walk;
