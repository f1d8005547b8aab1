//! The real-stack harness of Sluice: etcd, kube-apiserver, kube-controller-manager, Cluster API core and
//! kapp-controller as plain processes on loopback.

pub mod compare;
pub mod components;
pub mod demo;
pub mod extension;
pub mod fault_server;
mod figures;
pub mod fleet;
pub mod install;
pub mod objects;
pub mod observer;
pub mod pace;
pub mod processes;
pub mod provider;
pub mod repository;
pub mod requests;
mod runtime;
pub mod scenario;
pub mod soak;
pub mod sources;
pub mod stack;
pub mod status;
pub mod wait;
