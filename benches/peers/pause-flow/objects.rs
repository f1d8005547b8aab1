//! Names, paths and objects that both clusters get.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Label of a Cluster: its release.
pub(crate) const TKR: &str = "run.tanzu.vmware.com/tkr";

/// Annotation of a paused Cluster: the release that it is paused for.
pub(crate) const PAUSED: &str = "tkg.tanzu.vmware.com/paused";

/// Type of the Secrets that hold values of packages beside a Cluster.
pub(crate) const BOOTSTRAP_SECRET: &str = "clusterbootstrap-secret";

/// ServiceAccount that packages are installed with on a workload cluster.
pub(crate) const ACCOUNT: &str = "tanzu-cluster-bootstrap-sa";

/// Sync period of kapp-controller.
const SYNC_PERIOD: &str = "10m0s";

/// A string of an object; empty if there is none.
pub(crate) fn text(object: &Value, pointer: &str) -> String {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// The release that the label of a Cluster names; empty without one.
pub(crate) fn release_of(cluster: &Value) -> String {
    cluster["metadata"]["labels"][TKR]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A name up to the first dot.
pub(crate) fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// Path of a collection of core objects.
pub(crate) fn core(namespace: &str, resource: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

/// Path of a collection of a group.
pub(crate) fn of_group(group: &str, namespace: &str, resource: &str) -> String {
    format!("/apis/{group}/namespaces/{namespace}/{resource}")
}

/// Path of the PackageInstalls of a namespace.
pub(crate) fn installs(namespace: &str) -> String {
    of_group("packaging.carvel.dev/v1alpha1", namespace, "packageinstalls")
}

/// Path of the Packages of a namespace, which kapp-controller serves through the API server.
pub(crate) fn packages(namespace: &str) -> String {
    of_group("data.packaging.carvel.dev/v1alpha1", namespace, "packages")
}

/// An owner reference.
pub(crate) fn owner(of: &Value, controls: bool) -> Value {
    json!({
        "apiVersion": of["apiVersion"],
        "kind": of["kind"],
        "name": of["metadata"]["name"],
        "uid": of["metadata"]["uid"],
        "controller": controls,
        "blockOwnerDeletion": controls,
    })
}

/// Name of the Secret beside the Cluster with the values of a package.
pub(crate) fn package_secret(cluster: &str, ref_name: &str) -> String {
    format!("{cluster}-{}-package", short(ref_name))
}

/// The Secret beside the Cluster that holds values written in the ClusterBootstrap.
pub(crate) fn inline_secret(cluster: &Value, name: &str, values: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": BOOTSTRAP_SECRET,
        "metadata": {"name": name, "ownerReferences": [owner(cluster, false)]},
        "stringData": {"values.yaml": values.to_string()},
    })
}

/// The Secret on the workload cluster with all files of one beside the Cluster.
pub(crate) fn values_secret(name: &str, of: &Value) -> Value {
    // As text, which the API server never gives back: each time it differs from what is there.
    let files = of["data"].as_object().into_iter().flatten();
    let files: serde_json::Map<String, Value> = files
        .map(|(file, content)| {
            let content = BASE64_STANDARD.decode(content.as_str().unwrap_or_default());
            let content = String::from_utf8_lossy(&content.unwrap_or_default()).into_owned();
            (file.clone(), content.into())
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name},
        "stringData": files,
    })
}

/// A PackageInstall of exactly one version, without what says where and as whom it installs.
pub(crate) fn install(cluster: &Value, package: &Value, secret: Option<&str>) -> Value {
    let (name, ref_name) = (text(cluster, "/metadata/name"), text(package, "/spec/refName"));
    let mut install = json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1",
        "kind": "PackageInstall",
        "metadata": {
            "name": format!("{name}-{}", short(&ref_name)),
            "annotations": {
                "tkg.tanzu.vmware.com/cluster-name": name,
                "tkg.tanzu.vmware.com/cluster-namespace": cluster["metadata"]["namespace"],
            },
        },
        "spec": {
            "syncPeriod": SYNC_PERIOD,
            "packageRef": {
                "refName": ref_name,
                "versionSelection": {"constraints": package["spec"]["version"], "prereleases": {}},
            },
        },
    });
    if let Some(secret) = secret {
        install["spec"]["values"] = json!([{"secretRef": {"name": secret}}]);
    }
    install
}

/// Namespace, account and role that packages are installed with, each with the path of its collection.
pub(crate) fn identity(namespace: &str) -> [(String, Value); 4] {
    let (rbac, role) = (
        "rbac.authorization.k8s.io/v1",
        "tanzu-cluster-bootstrap-clusterrole",
    );
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    [
        (
            "/api/v1/namespaces".to_owned(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        ),
        (
            core(namespace, "serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}),
        ),
        (
            format!("/apis/{rbac}/clusterroles"),
            json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role}, "rules": everything}),
        ),
        (
            format!("/apis/{rbac}/clusterrolebindings"),
            json!({
                "apiVersion": rbac,
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "tanzu-cluster-bootstrap-clusterrolebinding"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
            }),
        ),
    ]
}
