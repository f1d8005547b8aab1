//! HTTP requests for reads and writes.

use http::{HeaderValue, Request, header::CONTENT_TYPE};
use kube::{
    Resource as _,
    core::{
        ApiResource, DynamicObject, GroupVersionKind,
        params::{
            DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
        },
        request::{self, Error},
    },
};

use k8s_openapi::api::core::v1::Secret;
use sluice_crds::{
    foreign::{App, Package, PackageInstall},
    labels::label,
};

use super::{Failure, Key, Read, Resource, Server, Verb, Write};

impl Key {
    /// Returns the request that reads the object.
    ///
    /// # Errors
    /// The name of the object is invalid.
    pub fn request(&self) -> Result<Request<Vec<u8>>, Failure> {
        let request = self.kind().get(&self.name, &GetParams::default());
        request.map_err(|error| Failure::other(self.server, &error.to_string()))
    }

    /// Returns the request that watches the metadata of this object alone for this many seconds. The first event is the object as it is.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn watch(&self, seconds: u32) -> Result<Request<Vec<u8>>, Failure> {
        let only = WatchParams::default()
            .disable_bookmarks()
            .timeout(seconds)
            .fields(&format!("metadata.name={}", self.name));
        let request = self.kind().watch_metadata(&only, "");
        request.map_err(|error| Failure::other(self.server, &error.to_string()))
    }

    /// Returns the request builder for its kind and namespace.
    fn kind(&self) -> request::Request {
        let Resource {
            group,
            version,
            kind,
            plural,
        } = &self.resource;
        let kind = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        request::Request::new(DynamicObject::url_path(&resource, self.namespace.as_deref()))
    }
}

impl Read {
    /// Returns the list request of this read for `cluster`: on its workload cluster, in the system `namespace`, or on the management
    /// cluster. [`Read::Labelled`] names its own namespace and labels. `None` if the read is not a list.
    #[must_use]
    pub fn list(&self, namespace: &str, cluster: &str) -> Option<Result<Request<Vec<u8>>, Failure>> {
        let all = |key: Key| key.kind().list(&ListParams::default());
        let of = Some(namespace);
        let request = match self {
            Self::Installs => all(Key::of::<PackageInstall>(Server::Workload, of, "")),
            Self::Apps => all(Key::of::<App>(Server::Workload, of, "")),
            Self::PackageNames => {
                let kind = Key::of::<Package>(Server::Workload, of, "").kind();
                kind.list_metadata(&ListParams::default())
            }
            Self::LabelledSecrets => {
                let labels = format!("{}={cluster}", label::CLUSTER_NAME);
                let kind = Key::of::<Secret>(Server::Workload, of, "").kind();
                kind.list(&ListParams::default().labels(&labels))
            }
            Self::Machines(beside) => {
                let labels = format!("{}={cluster}", label::CAPI_CLUSTER_NAME);
                let kind = Key::machine(beside, "").kind();
                kind.list_metadata(&ListParams::default().labels(&labels))
            }
            Self::Labelled {
                server,
                resource,
                namespace,
                labels,
                ..
            } => {
                let key = Key {
                    server: *server,
                    resource: resource.clone(),
                    namespace: Some(namespace.clone()),
                    name: String::new(),
                };
                key.kind().list(&ListParams::default().labels(labels))
            }
            _ => return None,
        };
        Some(request.map_err(|error| Failure::other(self.server(), &error.to_string())))
    }
}

/// Returns the request that lists the metadata of one VirtualMachine of `cluster`, for a kind as its API server serves it.
///
/// # Errors
/// The request is invalid.
pub fn virtual_machine(
    kind: &ApiResource,
    namespace: &str,
    cluster: &str,
) -> Result<Request<Vec<u8>>, Failure> {
    let labels = format!("{}={cluster}", label::CAPV_CLUSTER_NAME);
    let path = DynamicObject::url_path(kind, Some(namespace));
    request::Request::new(path)
        .list_metadata(&ListParams::default().labels(&labels).limit(1))
        .map_err(|error| Failure::other(Server::Management, &error.to_string()))
}

impl Write {
    /// Returns the request of the write, with field manager `manager`.
    ///
    /// # Errors
    /// The name of the object is invalid.
    pub fn request(&self, manager: &str) -> Result<Request<Vec<u8>>, Failure> {
        let request = self.requested(manager);
        request.map_err(|error| Failure::other(self.key.server, &error.to_string()))
    }

    fn requested(&self, manager: &str) -> Result<Request<Vec<u8>>, Error> {
        let Self { key, verb, body, .. } = self;
        let (kind, name) = (key.kind(), key.name.as_str());
        let bytes = || serde_json::to_vec(body).map_err(Error::SerializeBody);
        let (manager, uid) = (Some(manager.to_owned()), body.as_str().map(str::to_owned));
        let post = PostParams {
            field_manager: manager.clone(),
            ..PostParams::default()
        };
        let patch = PatchParams {
            field_manager: manager,
            ..PatchParams::default()
        };
        // The UID protects a recreated object of the same name.
        let exactly = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match verb {
            Verb::Create => kind.create(&post, bytes()?),
            Verb::Replace => kind.replace(name, &post, bytes()?),
            Verb::ReplaceStatus => kind.replace_subresource("status", name, &post, bytes()?),
            Verb::Patch => kind.patch(name, &patch, &Patch::Merge(body)),
            // Both patches are sent in the same way, except for the type of their content.
            Verb::JsonPatch => kind.patch(name, &patch, &Patch::Merge(body)).map(|mut request| {
                let content = HeaderValue::from_static("application/json-patch+json");
                request.headers_mut().insert(CONTENT_TYPE, content);
                request
            }),
            Verb::PatchStatus => kind.patch_subresource("status", name, &patch, &Patch::Merge(body)),
            Verb::Apply => kind.patch(name, &patch.force(), &Patch::Apply(body)),
            Verb::ApplyStatus => kind.patch_subresource("status", name, &patch.force(), &Patch::Apply(body)),
            Verb::Delete => kind.delete(name, &exactly),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Namespace, Secret};
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::{ReadPhase, Server};

    const ALL: &str = "/api/v1/namespaces/team-a/secrets";
    const ONE: &str = "/api/v1/namespaces/team-a/secrets/one";
    const STATUS: &str = "/api/v1/namespaces/team-a/secrets/one/status";

    fn key(name: &str) -> Key {
        Key::of::<Secret>(Server::Workload, Some("team-a"), name)
    }

    #[test]
    fn an_object_is_read_from_the_path_of_its_kind() {
        let request = key("one").request().unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("GET", ONE));
        let of_the_cluster = Key::of::<Namespace>(Server::Management, None, "kube-system").request();
        assert_eq!(
            of_the_cluster.unwrap().uri().path(),
            "/api/v1/namespaces/kube-system"
        );
    }

    #[test]
    fn one_object_is_watched_by_its_name() {
        let request = key("one").watch(30).unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("GET", ALL));
        let query = request.uri().query().map(|query| query.trim_start_matches('&'));
        assert_eq!(
            query,
            Some("watch=true&timeoutSeconds=30&fieldSelector=metadata.name%3Done&resourceVersion="),
            "it begins with the object as it is"
        );
        let accepted = request.headers()["accept"].to_str().unwrap();
        assert!(accepted.contains("as=PartialObjectMetadata;"), "{accepted}");
    }

    #[test]
    fn one_virtual_machine_of_a_cluster_is_listed() {
        let kind = GroupVersionKind::gvk("vmoperator.vmware.com", "v1alpha3", "VirtualMachine");
        let kind = ApiResource::from_gvk_with_plural(&kind, "virtualmachines");
        let request = virtual_machine(&kind, "team-a", "one").unwrap();
        let uri = request.uri();
        let path = "/apis/vmoperator.vmware.com/v1alpha3/namespaces/team-a/virtualmachines";
        assert_eq!((request.method().as_str(), uri.path()), ("GET", path));
        let query = uri.query().unwrap();
        assert!(query.contains("limit=1"), "{query}");
        assert!(query.contains("capv.vmware.com%2Fcluster.name%3Done"), "{query}");
    }

    #[test]
    fn objects_with_labels_are_listed_in_their_namespace() {
        let read = Read::Labelled {
            server: Server::Management,
            resource: Resource {
                group: "addons.cluster.x-k8s.io".into(),
                version: "v1alpha1".into(),
                kind: "HelmReleaseProxy".into(),
                plural: "helmreleaseproxies".into(),
            },
            namespace: "team-a".to_owned(),
            labels: "cluster.x-k8s.io/cluster-name=one,proxy=cilium".to_owned(),
            phase: ReadPhase::Plan,
        };
        assert_eq!(read.server(), Server::Management);
        let request = read.list("system", "other").unwrap().unwrap();
        let uri = request.uri();
        let path = "/apis/addons.cluster.x-k8s.io/v1alpha1/namespaces/team-a/helmreleaseproxies";
        assert_eq!((request.method().as_str(), uri.path()), ("GET", path));
        let query = uri.query().unwrap();
        let labels = "labelSelector=cluster.x-k8s.io%2Fcluster-name%3Done%2Cproxy%3Dcilium";
        assert!(query.contains(labels), "{query}");
    }

    #[test]
    fn an_object_without_a_name_is_not_requested() {
        let failure = key("").request().unwrap_err();
        assert_eq!((failure.server, failure.code), (Server::Workload, None));
        let write = Write::delete(key(""), None, "");
        assert_eq!(write.request("sluice").unwrap_err().server, Server::Workload);
    }

    #[rstest]
    #[case(Verb::Create, "POST", ALL, "fieldManager=sluice", "application/json")]
    #[case(Verb::Replace, "PUT", ONE, "fieldManager=sluice", "application/json")]
    #[case(Verb::ReplaceStatus, "PUT", STATUS, "fieldManager=sluice", "application/json")]
    #[case(
        Verb::Patch,
        "PATCH",
        ONE,
        "fieldManager=sluice",
        "application/merge-patch+json"
    )]
    #[case(
        Verb::PatchStatus,
        "PATCH",
        STATUS,
        "fieldManager=sluice",
        "application/merge-patch+json"
    )]
    #[case(
        Verb::Apply,
        "PATCH",
        ONE,
        "force=true&fieldManager=sluice",
        "application/apply-patch+yaml"
    )]
    #[case(
        Verb::ApplyStatus,
        "PATCH",
        STATUS,
        "force=true&fieldManager=sluice",
        "application/apply-patch+yaml"
    )]
    fn a_write_names_its_field_manager(
        #[case] verb: Verb,
        #[case] method: &str,
        #[case] path: &str,
        #[case] query: &str,
        #[case] content: &str,
    ) {
        let body = json!({"metadata": {"resourceVersion": "7"}});
        let write = Write {
            verb,
            ..Write::patch(key("one"), body.clone(), "")
        };
        let request = write.request("sluice").unwrap();
        let uri = request.uri();
        assert_eq!((request.method().as_str(), uri.path()), (method, path));
        let mut pairs: Vec<&str> = uri
            .query()
            .unwrap()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .collect();
        pairs.sort_by_key(|pair| query.find(pair));
        assert_eq!(pairs.join("&"), query);
        assert_eq!(request.headers()["content-type"], content);
        assert_eq!(serde_json::from_slice::<Value>(request.body()).unwrap(), body);
    }

    #[test]
    fn a_json_patch_tests_the_version() {
        let operation = json!({"op": "replace", "path": "/data/a", "value": "b"});
        let write = Write::json_patch(key("one"), "7", vec![operation.clone()], "");
        let request = write.request("sluice").unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("PATCH", ONE));
        assert_eq!(request.headers()["content-type"], "application/json-patch+json");
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"});
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body, json!([test, operation]));
    }

    #[test]
    fn a_deletion_has_the_uid_as_precondition() {
        let write = Write::delete(key("one"), Some("uid".to_owned()), "");
        let request = write.request("sluice").unwrap();
        assert_eq!((request.method().as_str(), request.uri().path()), ("DELETE", ONE));
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["preconditions"], json!({"uid": "uid"}));
    }
}
