//! Objects of a management cluster with one Cluster.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sluice_crds::labels::{annotation, label};

use crate::controllers::bootstrap::object_server::ObjectServer;

/// System namespace.
pub(crate) const SYSTEM: &str = "tkg-system";
/// Target version of the Cluster, and its release.
pub(crate) const VERSION: &str = "v1.36.3";
pub(crate) const RELEASE: &str = "v1.36.3---test.1";
/// Only package of the release.
pub(crate) const PACKAGE: &str = "antrea.example.com.1.9.0";
pub(crate) const BOOTSTRAP: &str =
    "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/team-a/clusterbootstraps/one";
pub(crate) const CLUSTER: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/clusters/one";
pub(crate) const CONTROL_PLANE: &str = "/apis/controlplane.example.com/v1/namespaces/team-a/goods/one";
pub(crate) const PACKAGES: &str = "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packages";
pub(crate) const KUBECONFIG: &str = "/api/v1/namespaces/team-a/secrets/one-kubeconfig";
pub(crate) const VALUES: &str = "/api/v1/namespaces/team-a/secrets/antrea-values";
pub(crate) const APPS: &str = "/apis/kappctrl.k14s.io/v1alpha1/namespaces/tkg-system/apps";
pub(crate) const KUBE_SYSTEM: &str = "/api/v1/namespaces/kube-system";
pub(crate) const TEMPLATES: &str =
    "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/tkg-system/clusterbootstraptemplates";

/// Returns a management API server with a Cluster whose target is [`VERSION`]. Its control plane is missing.
pub(super) fn management() -> ObjectServer {
    let management = ObjectServer::default();
    serve_control_planes(&management);
    management.put(
        CLUSTER,
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": {"uid": "uid", "generation": 1, "labels": {label::TKR: RELEASE}},
            "spec": {
                "topology": {"classRef": {"name": "class"}, "version": VERSION},
                "controlPlaneRef": {"apiGroup": "controlplane.example.com", "kind": "Good", "name": "one"},
            },
        }),
    );
    put_release(&management, RELEASE, VERSION);
    let spec = json!({"cni": {"refName": PACKAGE, "valuesFrom": {"secretRef": "antrea-values"}}});
    management.put(
        &format!("{TEMPLATES}/{RELEASE}"),
        json!({"apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrapTemplate", "metadata": {}, "spec": spec}),
    );
    management.put(
        BOOTSTRAP,
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap",
            "metadata": {
                "generation": 1, "annotations": {annotation::RESOLVED_TKR: RELEASE},
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "one", "uid": "uid",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": spec,
        }),
    );
    management.put(VALUES, values(1));
    management.put(&format!("{PACKAGES}/{PACKAGE}"), package("a"));
    management.put(KUBECONFIG, kubeconfig_secret(&kubeconfig()));
    management
}

/// Serves the control plane kind with its contract label.
fn serve_control_planes(management: &ObjectServer) {
    let group = "controlplane.example.com";
    let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
    let groups = json!([{"name": group, "versions": [version], "preferredVersion": version}]);
    management.put("/apis", json!({"kind": "APIGroupList", "groups": groups}));
    let kind = json!({"name": "goods", "singularName": "", "namespaced": true, "kind": "Good", "verbs": ["get", "list", "watch"]});
    management.put(
        &format!("/apis/{group}/v1"),
        json!({"kind": "APIResourceList", "groupVersion": format!("{group}/v1"), "resources": [kind]}),
    );
    management.put(
        &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/goods.{group}"),
        json!({"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": "v1"}}}),
    );
}

/// Adds a release with the package.
pub(crate) fn put_release(management: &ObjectServer, name: &str, kubernetes: &str) {
    management.put(
        &format!("/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases/{name}"),
        json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {},
            "spec": {
                "version": name.replace("---", "+"), "kubernetes": {"version": kubernetes},
                "bootstrapPackages": [{"name": PACKAGE}],
            },
        }),
    );
}

/// Returns a Secret with values of the package.
pub(crate) fn values(replicas: u32) -> Value {
    let document = BASE64_STANDARD.encode(format!("replicas: {replicas}\n"));
    let labels = json!({label::CLUSTER_NAME: "one", label::PACKAGE_NAME: PACKAGE});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": labels}, "data": {"values.yaml": document}})
}

/// Returns the package with this path in its template.
pub(crate) fn package(step: &str) -> Value {
    package_of("antrea.example.com", "1.9.0", step)
}

/// Returns a Package with this path in its template.
pub(crate) fn package_of(ref_name: &str, version: &str, step: &str) -> Value {
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "metadata": {},
        "spec": {
            "refName": ref_name, "version": version,
            "template": {"spec": {"template": [{"ytt": {"paths": [step]}}], "deploy": [{"kapp": {}}]}},
        },
    })
}

/// Name of a package that no template contains.
pub(crate) const METRICS: &str = "metrics.example.com.1.9.0";

/// Returns a kubeconfig of an unreachable server.
pub(super) fn kubeconfig() -> String {
    kubeconfig_of(
        "https://127.0.0.1:1",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
}

/// Returns the kubeconfig of a server with this certificate authority.
pub(crate) fn kubeconfig_of(server: &str, authority: &str) -> String {
    let authority = BASE64_STANDARD.encode(authority);
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "one", "user": {"token": "token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    })
    .to_string()
}

/// Returns the Secret with a kubeconfig.
pub(crate) fn kubeconfig_secret(kubeconfig: &str) -> Value {
    let value = BASE64_STANDARD.encode(kubeconfig);
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {}, "data": {"value": value}})
}
