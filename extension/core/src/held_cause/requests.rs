//! Requests of a probe.

use http::Request;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Resource as _,
    core::{ApiResource, DynamicObject, GroupVersionKind, params::ListParams, request},
};
use sluice_crds::{
    foreign::{App, Cluster, PackageInstall},
    labels::label,
};

use super::probe::{Probe, ProbedPackage};
use crate::protocol::{Failure, Key, Server};

/// Longest label selector that is sent.
const LONGEST_SELECTOR: usize = 400;

/// Step of a probe, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Any response of the workload API server.
    Contact,
    /// PackageInstall of the package.
    Install,
    /// App of the package.
    App,
    /// ConfigMap in which kapp keeps the label of the objects of an App from its first run on. The App has the label only once a run has
    /// ended.
    KappApp,
    /// DaemonSets of the package.
    DaemonSets,
    /// Pods of the package that do not run.
    PendingPods,
    /// Machines of the Cluster.
    Machines,
    /// PodDisruptionBudgets of the workload cluster.
    Budgets,
    /// Pods of the package that run. They come last: there may be thousands of them.
    RunningPods,
    /// The probe has ended.
    Ended,
}

impl Step {
    /// Returns the step after this one.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Install => Self::App,
            Self::App => Self::KappApp,
            Self::KappApp => Self::DaemonSets,
            Self::DaemonSets => Self::PendingPods,
            Self::PendingPods => Self::Machines,
            Self::Machines => Self::Budgets,
            Self::Budgets => Self::RunningPods,
            Self::Contact | Self::RunningPods | Self::Ended => Self::Ended,
        }
    }

    /// Returns the API server of the step.
    pub(super) fn server(self, package: Option<&ProbedPackage>) -> Server {
        match self {
            Self::Machines => Server::Management,
            Self::Install | Self::App => package.map_or(Server::Workload, |package| package.server),
            _ => Server::Workload,
        }
    }

    /// Returns the request of the page at a token, or of the only response. `selected` is the label of the objects of the package. `None` if
    /// the step has nothing to read.
    pub(super) fn request(
        self,
        probe: &Probe,
        selected: Option<&str>,
        token: Option<&str>,
    ) -> Option<Result<Request<Vec<u8>>, Failure>> {
        let package = probe.package.as_ref();
        let failed = |error: request::Error| Failure::other(self.server(package), &error.to_string());
        let page = |limit: u32| {
            let first = ListParams::default().limit(limit);
            match token {
                Some(token) => first.continue_token(token),
                None => first,
            }
        };
        let of_package = |limit: u32| selected.map(|selected| page(limit).labels(selected));
        let listed = match self {
            Self::Contact => {
                let version = Request::get("/version").body(Vec::new());
                return Some(version.map_err(|error| failed(request::Error::BuildRequest(error))));
            }
            Self::Install => return package.map(|package| package.key::<PackageInstall>().request()),
            Self::App => return package.map(|package| package.key::<App>().request()),
            Self::KappApp => {
                let package =
                    package.filter(|package| package.server == Server::Workload && selected.is_none())?;
                let name = format!("{}.app", package.name);
                return Some(
                    Key::of::<ConfigMap>(Server::Workload, Some(&package.namespace), &name).request(),
                );
            }
            Self::DaemonSets => all::<DaemonSet>().list(&of_package(20)?),
            Self::PendingPods => all::<Pod>().list(&of_package(20)?.fields("status.phase=Pending")),
            Self::RunningPods => all::<Pod>().list(&of_package(20)?.fields("status.phase=Running")),
            Self::Machines => {
                let labels = format!("{}={}", label::CAPI_CLUSTER_NAME, probe.cluster);
                machines(&probe.namespace).list(&page(50).labels(&labels))
            }
            Self::Budgets => all::<PodDisruptionBudget>().list(&page(100)),
            Self::Ended => return None,
        };
        Some(listed.map_err(failed))
    }
}

impl ProbedPackage {
    /// Returns the key of the PackageInstall or App.
    pub(super) fn key<K: kube::Resource<DynamicType = ()>>(&self) -> Key {
        Key::of::<K>(self.server, Some(&self.namespace), &self.name)
    }
}

/// Returns the label selector in the status of an App, if it is one of a single label. A tenant may write the status.
pub(super) fn selector(label: &str) -> Option<&str> {
    let is_part = |part: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
        !part.is_empty() && part.bytes().all(good)
    };
    let (key, value) = label.split_once('=')?;
    (label.len() <= LONGEST_SELECTOR && is_part(key) && is_part(value)).then_some(label)
}

/// Returns the request builder for a kind in all namespaces.
fn all<K: kube::Resource<DynamicType = ()>>() -> request::Request {
    request::Request::new(K::url_path(&(), None))
}

/// Returns the request builder for Machines in a namespace.
fn machines(namespace: &str) -> request::Request {
    let kind = GroupVersionKind::gvk(&Cluster::group(&()), &Cluster::version(&()), "Machine");
    let resource = ApiResource::from_gvk_with_plural(&kind, "machines");
    request::Request::new(DynamicObject::url_path(&resource, Some(namespace)))
}
