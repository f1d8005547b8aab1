//! Library of the Sluice binary, so that tests can use its parts.

pub mod admission;
pub mod app;
pub mod cache;
pub mod cli;
pub mod controllers;
pub mod flags;
pub mod hooks;
pub mod kube_client;
pub mod leader;
pub mod queue;
pub mod server;
pub mod telemetry;
pub mod workload;

mod clock;

use sluice_core::lock;
