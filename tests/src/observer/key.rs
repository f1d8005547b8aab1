//! Keys of etcd as Kubernetes lays them out: `/<prefix>[/<group>]/<resource>[/<namespace>]/<name>`. Built-in kinds have no group.

/// Which API server an object belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// The management cluster.
    Management,
    /// The workload cluster of the control plane object with this uid.
    Workload(String),
}

/// Kinds that the observer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Cluster,
    ControlPlane,
    MachineDeployment,
    MachinePool,
    Machine,
    Release,
    Template,
    Bootstrap,
    Package,
    PackageInstall,
    App,
    Secret,
    /// A machine of a Supervisor.
    VirtualMachine,
    UpgradeGate,
    UpgradeOverride,
    /// An object that a check of an UpgradeGate may name, or that proves one.
    Checked(Checked),
    /// Any other custom resource of the management cluster: it may name a Secret with the values of a package.
    Provider,
}

/// Kinds that the observer judges for UpgradeGates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Checked {
    HelmChartProxy,
    HelmReleaseProxy,
    HelmRelease,
    Kustomization,
    /// Names what a Kustomization applies.
    Source(Source),
    CustomResourceDefinition,
    DaemonSet,
    Deployment,
    StatefulSet,
    Job,
}

/// Kinds of Flux that a Kustomization may have as its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    GitRepository,
    OciRepository,
    Bucket,
    ExternalArtifact,
}

impl Source {
    /// The kind that a Kustomization names.
    pub(super) fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "GitRepository" => Self::GitRepository,
            "OCIRepository" => Self::OciRepository,
            "Bucket" => Self::Bucket,
            "ExternalArtifact" => Self::ExternalArtifact,
            _ => return None,
        })
    }
}

/// A key taken apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Takes a key apart; none if the observer does not read it.
pub(super) fn parse(key: &str) -> Option<Key> {
    let mut parts = key.strip_prefix('/')?.split('/');
    let place = match parts.next()? {
        "mgmt" => Place::Management,
        "wl" => Place::Workload(parts.next()?.to_owned()),
        _ => return None,
    };
    let kind = match parts.next()? {
        "secrets" => Kind::Secret,
        "daemonsets" => Kind::Checked(Checked::DaemonSet),
        "deployments" => Kind::Checked(Checked::Deployment),
        "statefulsets" => Kind::Checked(Checked::StatefulSet),
        "jobs" => Kind::Checked(Checked::Job),
        group => kind(group, parts.next()?)?,
    };
    let in_workload = matches!(
        kind,
        Kind::PackageInstall | Kind::App | Kind::Secret | Kind::Checked(_)
    );
    if matches!(place, Place::Workload(_)) && !in_workload {
        return None;
    }
    let (namespace, name) = match (parts.next()?, parts.next()) {
        (_, None) if kind == Kind::Provider => return None,
        (name, None) => ("", name),
        (namespace, Some(name)) => (namespace, name),
    };
    Some(Key {
        place,
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn kind(group: &str, resource: &str) -> Option<Kind> {
    Some(match (group, resource) {
        ("cluster.x-k8s.io", "clusters") => Kind::Cluster,
        ("cluster.x-k8s.io", "machinedeployments") => Kind::MachineDeployment,
        ("cluster.x-k8s.io", "machinepools") => Kind::MachinePool,
        ("cluster.x-k8s.io", "machines") => Kind::Machine,
        ("harness.test", "harnesscontrolplanes") => Kind::ControlPlane,
        ("run.tanzu.vmware.com", "tanzukubernetesreleases") => Kind::Release,
        ("run.tanzu.vmware.com", "clusterbootstraptemplates") => Kind::Template,
        ("run.tanzu.vmware.com", "clusterbootstraps") => Kind::Bootstrap,
        ("internal.packaging.carvel.dev", "internalpackages") => Kind::Package,
        ("packaging.carvel.dev", "packageinstalls") => Kind::PackageInstall,
        ("kappctrl.k14s.io", "apps") => Kind::App,
        ("vmoperator.vmware.com", "virtualmachines") => Kind::VirtualMachine,
        ("lifecycle.sluice.dev", "upgradegates") => Kind::UpgradeGate,
        ("lifecycle.sluice.dev", "upgradeoverrides") => Kind::UpgradeOverride,
        ("addons.cluster.x-k8s.io", "helmchartproxies") => Kind::Checked(Checked::HelmChartProxy),
        ("addons.cluster.x-k8s.io", "helmreleaseproxies") => Kind::Checked(Checked::HelmReleaseProxy),
        ("helm.toolkit.fluxcd.io", "helmreleases") => Kind::Checked(Checked::HelmRelease),
        ("kustomize.toolkit.fluxcd.io", "kustomizations") => Kind::Checked(Checked::Kustomization),
        ("source.toolkit.fluxcd.io", "gitrepositories") => source(Source::GitRepository),
        ("source.toolkit.fluxcd.io", "ocirepositories") => source(Source::OciRepository),
        ("source.toolkit.fluxcd.io", "buckets") => source(Source::Bucket),
        ("source.toolkit.fluxcd.io", "externalartifacts") => source(Source::ExternalArtifact),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            Kind::Checked(Checked::CustomResourceDefinition)
        }
        (group, _) if group.contains('.') => Kind::Provider,
        _ => return None,
    })
}

const fn source(source: Source) -> Kind {
    Kind::Checked(Checked::Source(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_apart() {
        let key = parse("/wl/uid-1/packaging.carvel.dev/packageinstalls/tkg-system/one-antrea").unwrap();
        assert_eq!(key.place, Place::Workload("uid-1".to_owned()));
        assert_eq!(
            (key.namespace.as_str(), key.name.as_str()),
            ("tkg-system", "one-antrea")
        );
        let key = parse("/mgmt/run.tanzu.vmware.com/tanzukubernetesreleases/v1.35.4---a.1").unwrap();
        assert_eq!((key.namespace.as_str(), key.name.as_str()), ("", "v1.35.4---a.1"));
        let key = parse("/mgmt/secrets/a/one-antrea-package").unwrap();
        assert_eq!(
            (key.kind, key.name.as_str()),
            (Kind::Secret, "one-antrea-package")
        );
        let key = parse("/mgmt/cni.tanzu.vmware.com/antreaconfigs/a/one").unwrap();
        assert_eq!(key.kind, Kind::Provider);
        let key = parse("/wl/uid-1/daemonsets/kube-system/cni").unwrap();
        assert_eq!(
            (key.kind, key.name.as_str()),
            (Kind::Checked(Checked::DaemonSet), "cni")
        );
        let key = parse("/mgmt/addons.cluster.x-k8s.io/helmreleaseproxies/a/cni-one-x").unwrap();
        assert_eq!(key.kind, Kind::Checked(Checked::HelmReleaseProxy));
        let key = parse("/wl/uid-1/source.toolkit.fluxcd.io/gitrepositories/flux-system/apps").unwrap();
        assert_eq!(key.kind, Kind::Checked(Checked::Source(Source::GitRepository)));
        let key =
            parse("/wl/uid-1/apiextensions.k8s.io/customresourcedefinitions/backends.example.com").unwrap();
        assert_eq!(
            (key.kind, key.namespace.as_str(), key.name.as_str()),
            (
                Kind::Checked(Checked::CustomResourceDefinition),
                "",
                "backends.example.com"
            )
        );
        assert_eq!(parse("/mgmt/leases/kube-system/x"), None);
        assert_eq!(parse("/mgmt/apiregistration.k8s.io/apiservices/v1.a"), None);
        assert_eq!(parse("/wl/uid-1/cluster.x-k8s.io/clusters/a/b"), None);
        assert_eq!(parse("compact_rev_key"), None);
    }
}
