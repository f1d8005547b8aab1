//! The real-stack harness of Sluice: etcd, kube-apiserver, kube-controller-manager, Cluster API core and
//! kapp-controller as plain processes on loopback.

pub mod apiserver;
pub mod apply;
pub mod canary;
pub mod capi;
pub mod components;
pub mod controller_manager;
pub mod definition;
pub mod demo;
mod edit;
pub mod etcd;
pub mod extension;
pub mod fault_server;
mod hook_call;
pub mod kapp_controller;
pub mod kubelet;
pub mod log_search;
pub mod manifests;
pub mod notice;
pub mod objects;
pub mod observer;
pub mod packages;
pub mod pki;
pub mod planner;
pub mod ports;
mod probe;
pub mod process;
pub mod provider;
mod registration;
pub mod relay;
pub mod run_directory;
pub mod scenario;
pub mod slow_file;
pub mod soak;
pub mod stack;
pub mod tls;
pub mod wait;
