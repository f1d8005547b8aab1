//! Configuration kinds: typed settings in, package values out.
//!
//! Each kind has one file with a [`Provider`]. Its `values` is a function of the configuration, its Cluster and the objects that it
//! reads from [`Sources`]. The objects read are also the objects to watch, so there is no second list.
//! [`kinds`] is the table that the controller runs; [`crate::reconcile::provider`] reconciles one configuration.

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
