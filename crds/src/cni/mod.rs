//! `cni.tanzu.vmware.com/v1alpha1`: configuration of container networks.

pub mod antrea_config;
pub mod antrea_gates;
pub mod antrea_nsx;
pub mod calico_config;

pub use antrea_config::{
    Antrea, AntreaConfig, AntreaConfigSpec, AntreaConfigStatus, AntreaProxy, AntreaSettings, Egress,
    FlowExporter, Multicast, Multicluster, NodePortLocal, TrafficEncapMode, WireGuard,
};
pub use antrea_gates::FeatureGates;
pub use antrea_nsx::{AntreaNsx, NsxBootstrap, NsxInline, NsxProvider, NsxSettings};
pub use calico_config::{Calico, CalicoConfig, CalicoConfigSpec, CalicoSettings};
