//! The stand-in for the nodes of a workload cluster: it brings Deployments and DaemonSets to ready after a delay that a scenario
//! chooses, and really runs one of them, kapp-controller. Pods that a scenario binds to a Node run, and end, without containers.
//!
//! A Deployment with a node selector is ready only while a Node has the labels of the selector. Where a real controller rolls out
//! DaemonSets, it decides which Nodes get Pods, which Pods are replaced (update strategy) and which are removed at once (a selector that
//! no longer matches their Node); the stand-in binds these Pods to their Nodes, as a scheduler does. Where real controllers roll out
//! all kinds of workloads, it binds and runs every Pod, after the delay of its workload, and completes those of Jobs. Beside kube-scheduler
//! it binds none, and reports the containers of Pods too. A Pod of kapp-controller is a process there as well. It runs on when its Pod is
//! deleted, until a Pod with another template takes its place.
//!
//! Images with some names fail ([`MISSING`], [`CRASHING`]).

mod containers;
mod delay;
mod kapp_controller;
mod pods;
mod runtime;
mod workload_kind;

pub use containers::{CRASHING, MISSING};
pub use delay::{DELAY_ANNOTATION, Delay, Delays};
pub use kapp_controller::{KAPP_CONTROLLER_START, RunningProcess};
pub use pods::FAILS_ANNOTATION;
pub use runtime::{Kubelet, Rollouts};
