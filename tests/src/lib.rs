//! The real-stack harness of Sluice: etcd, kube-apiserver, kube-controller-manager, Cluster API core and kapp-controller
//! as plain processes on loopback.

pub mod wait;
