//! Responses of API servers: status codes, failures and discovery.

use kube::{
    Client,
    api::{ApiResource, GroupVersionKind},
    discovery::{self, Scope},
    error::DiscoveryError,
};
use sluice_core::{
    error_chain::error_chain,
    protocol::{Failure, Server},
};

use crate::kube_client::{bounded::is_too_long, cause::cause};

/// Returns the status code of an error response; `None` without a response.
pub(crate) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// Maps an error to a failure: a refused request, or one without a response.
pub(crate) fn failure(server: Server, error: &kube::Error) -> Failure {
    let text = error_chain(error);
    let (code, message) = match error {
        kube::Error::Api(status) => (Some(status.code), status.message.clone()),
        _ => (None, String::new()),
    };
    Failure {
        server,
        code,
        message,
        too_long: is_too_long(error),
        cause: cause(error),
        text,
        ..Failure::other(server, "")
    }
}

/// Discovers how a kind is served; `None` when it is not served.
pub(crate) async fn served(client: &Client, group: &str, kind: &str) -> kube::Result<Option<ApiResource>> {
    let found = scoped(client, group, kind).await?;
    Ok(found.map(|(resource, _)| resource))
}

/// Discovers how a kind is served, and the scope of its objects; `None` when it is not served.
pub(crate) async fn scoped(
    client: &Client,
    group: &str,
    kind: &str,
) -> kube::Result<Option<(ApiResource, Scope)>> {
    match discovery::group(client, group).await {
        Ok(group) => {
            let found = group.recommended_kind(kind);
            Ok(found.map(|(resource, capabilities)| (resource, capabilities.scope)))
        }
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// Discovers a kind in exactly one version of its group, such as `apps/v1`, by one request; `None` when it is not served there.
pub(crate) async fn served_in(
    client: &Client,
    api_version: &str,
    kind: &str,
) -> kube::Result<Option<(ApiResource, Scope)>> {
    // A tenant writes the text, which becomes a path.
    let is_part = |part: &str| {
        let good =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        part.bytes().all(good) && part.bytes().any(|byte| byte != b'.')
    };
    let (group, version, listed) = match api_version.split_once('/') {
        None if is_part(api_version) => {
            let listed = client.list_core_api_resources(api_version).await;
            ("", api_version, listed)
        }
        Some((group, version)) if is_part(group) && is_part(version) => {
            let listed = client.list_api_group_resources(api_version).await;
            (group, version, listed)
        }
        _ => return Ok(None),
    };
    let listed = match listed {
        Ok(listed) => listed,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    // The name of a subresource has a slash, and its kind may be that of its parent.
    let mut resources = listed.resources.into_iter();
    let found = resources.find(|resource| resource.kind == kind && !resource.name.contains('/'));
    Ok(found.map(|found| {
        let scope = if found.namespaced {
            Scope::Namespaced
        } else {
            Scope::Cluster
        };
        let gvk = GroupVersionKind::gvk(group, version, kind);
        (ApiResource::from_gvk_with_plural(&gvk, &found.name), scope)
    }))
}

/// Discovers a kind in all versions of its group. `None` only if the API server does not list the group, or none of its versions has the
/// kind: a version that cannot be read may have it.
pub(crate) async fn served_in_any_version(
    client: &Client,
    group: &str,
    kind: &str,
) -> kube::Result<Option<ApiResource>> {
    let group = match discovery::group(client, group).await {
        Ok(group) => group,
        Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => return Ok(None),
        Err(error) => return Err(error),
    };
    if let Some((preferred, _)) = group.recommended_kind(kind) {
        return Ok(Some(preferred));
    }
    let mut all = group
        .versions()
        .flat_map(|version| group.versioned_resources(version));
    let found = all.find(|(resource, _)| resource.kind == kind);
    Ok(found.map(|(resource, _)| resource))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::kube_client::scripted_server::{Answer, ScriptedServer};

    fn server() -> ScriptedServer {
        let resource = |name: &str, kind: &str, namespaced| json!({"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["get"]});
        let listed = move |version: &str, resources: Vec<serde_json::Value>| {
            Answer::Body(
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}),
            )
        };
        ScriptedServer::new(move |request| match request.path.as_str() {
            "/apis/apps/v1" => listed(
                "apps/v1",
                vec![
                    resource("deployments/scale", "Scale", true),
                    resource("deployments", "Deployment", true),
                ],
            ),
            "/api/v1" => listed("v1", vec![resource("nodes", "Node", false)]),
            "/apis/broken.example.com/v1" => Answer::Refusal(503),
            _ => Answer::Refusal(404),
        })
    }

    #[rstest]
    #[case::namespaced("apps/v1", "Deployment", Some(("deployments", true)))]
    #[case::cluster_scoped("v1", "Node", Some(("nodes", false)))]
    #[case::of_a_subresource("apps/v1", "Scale", None)]
    #[case::of_another_version("apps/v1beta2", "Deployment", None)]
    #[case::of_no_kind("apps/v1", "Foo", None)]
    #[tokio::test]
    async fn a_kind_is_served_in_one_version(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] expected: Option<(&str, bool)>,
    ) {
        let found = served_in(&server().client(), api_version, kind).await.unwrap();
        let found = found.map(|(resource, scope)| {
            assert_eq!(
                (resource.api_version.as_str(), resource.kind.as_str()),
                (api_version, kind)
            );
            (resource.plural, scope == Scope::Namespaced)
        });
        let expected = expected.map(|(plural, namespaced)| (plural.to_owned(), namespaced));
        assert_eq!(found, expected);
    }

    /// A tenant writes the text, which becomes a path.
    #[tokio::test]
    async fn other_texts_are_no_versions() {
        let server = server();
        for text in [
            "",
            "/",
            "apps/",
            "/v1",
            "apps/v1/x",
            "../api/v1",
            "apps/..",
            "Apps/v1",
            "v1?watch=1",
        ] {
            let found = served_in(&server.client(), text, "Deployment").await;
            assert!(found.is_ok_and(|found| found.is_none()), "{text}");
        }
        assert_eq!(server.count(|_| true), 0, "nothing is asked");
    }

    #[tokio::test]
    async fn a_version_that_cannot_be_read_is_not_missing() {
        let found = served_in(&server().client(), "broken.example.com/v1", "Foo").await;
        assert_eq!(found.as_ref().err().and_then(code), Some(503));
    }
}
