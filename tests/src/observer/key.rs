//! Keys of etcd as Kubernetes lays them out: `/<prefix>/<group>/<resource>[/<namespace>]/<name>`.

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
    Machine,
    Release,
    Template,
    Bootstrap,
    Package,
    PackageInstall,
    App,
}

/// A key taken apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Whether the observer reads what is stored there.
pub(super) fn is_of_interest(key: &str) -> bool {
    parse(key).is_some()
}

/// Takes a key apart; none if the observer does not read it.
pub(super) fn parse(key: &str) -> Option<Key> {
    let mut parts = key.strip_prefix('/')?.split('/');
    let place = match parts.next()? {
        "mgmt" => Place::Management,
        "wl" => Place::Workload(parts.next()?.to_owned()),
        _ => return None,
    };
    let kind = kind(parts.next()?, parts.next()?)?;
    if matches!(place, Place::Workload(_)) && !matches!(kind, Kind::PackageInstall | Kind::App) {
        return None;
    }
    let (namespace, name) = match (parts.next()?, parts.next()) {
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
        ("cluster.x-k8s.io", "machines") => Kind::Machine,
        ("harness.test", "harnesscontrolplanes") => Kind::ControlPlane,
        ("run.tanzu.vmware.com", "tanzukubernetesreleases") => Kind::Release,
        ("run.tanzu.vmware.com", "clusterbootstraptemplates") => Kind::Template,
        ("run.tanzu.vmware.com", "clusterbootstraps") => Kind::Bootstrap,
        ("internal.packaging.carvel.dev", "internalpackages") => Kind::Package,
        ("packaging.carvel.dev", "packageinstalls") => Kind::PackageInstall,
        ("kappctrl.k14s.io", "apps") => Kind::App,
        _ => return None,
    })
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
        assert_eq!(parse("/mgmt/leases/kube-system/x"), None);
        assert_eq!(parse("/wl/uid-1/cluster.x-k8s.io/clusters/a/b"), None);
        assert_eq!(parse("compact_rev_key"), None);
    }
}
