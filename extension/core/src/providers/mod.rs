//! Configuration kinds: typed settings in, package values out.
//!
//! A kind is one file: a [`Provider`] whose `values` is a function of the configuration, its Cluster and the objects it
//! asks [`Sources`] for. What it asked for is at the same time what has to be watched for it, so that there is no second
//! list to keep. [`kinds`] is the table that the controller runs, and [`pass`] what it does with one configuration.

mod addresses;
pub(crate) mod cluster;
mod credentials;
mod dependencies;
mod kind;
mod output;
mod problem;
pub(crate) mod source;
mod supervisor;
mod table;
mod vsphere;
mod zeros;

mod antrea;
mod antrea_nsx;
mod calico;
mod cloud_csi;
mod kapp_controller;
mod kubevip_cpi;
mod oracle_cpi;
mod vsphere_cpi;
mod vsphere_cpi_paravirtual;
mod vsphere_csi;
mod vsphere_csi_paravirtual;

pub use dependencies::Dependencies;
pub use kind::{Config, Kind, OwnerBy, Provider};
pub use output::Output;
pub use problem::{Problem, Reason};
pub use source::{Single, Source, Sources, ValuesError};
pub use table::kinds;
