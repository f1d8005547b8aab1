//! The object that provides the values of a package: read, and told which package they are for.

use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch},
};
use serde_json::json;
use sluice_core::{
    bootstrap::{Provided, Role},
    build::Values,
    hold::{Hold, HoldReason},
};
use sluice_crds::run::ClusterBootstrapSpec;

use super::{values, write::patch_params};
use crate::controllers::{missing_rule, served};

/// The values that the provider of a package has written, or what keeps them from being read.
///
/// # Errors
/// The API server does not answer. What an operator has to put right is a [`Hold`].
pub(super) async fn values(client: &Client, asked: &Provided<'_>) -> kube::Result<Result<Values, Hold>> {
    let (_, provider) = match find(client, asked).await? {
        Ok(found) => found,
        Err(hold) => return Ok(Err(hold)),
    };
    let secret = match asked.secret(&provider) {
        Ok(secret) => secret,
        Err(hold) => return Ok(Err(hold)),
    };
    let field = "status.secretRef of its provider";
    let found = values::find(client, asked.namespace, secret, asked.package, field).await?;
    Ok(found.and_then(|found| {
        asked.check(&provider, found.labels())?;
        Ok(values::content(&found))
    }))
}

/// Labels the provider of the CNI with the CNI's package, if it is not already. Returns what keeps it from being labelled.
///
/// # Errors
/// The API server does not answer, or somebody else has just written the provider.
pub(super) async fn label(
    client: &Client,
    namespace: &str,
    spec: &ClusterBootstrapSpec,
) -> kube::Result<Option<Hold>> {
    let cni = spec.cni.as_ref();
    let Some(asked) = cni.and_then(|cni| Provided::of(namespace, Role::Cni, cni)) else {
        return Ok(None);
    };
    let (Ok((api, provider)), Some((key, value))) = (find(client, &asked).await?, asked.label()) else {
        return Ok(None);
    };
    if asked.is_labelled(&provider) {
        return Ok(None);
    }
    let patch = json!({"metadata": {"resourceVersion": provider.resource_version(), "labels": {key: value}}});
    match api
        .patch_metadata(&asked.by.name, &patch_params(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(asked.hold(
            HoldReason::WriteRefused,
            &format!(
                "cannot be labelled with this package; allow Sluice to patch it: {}",
                status.message
            ),
        ))),
        Err(error) => Err(error),
    }
}

type Found = (Api<DynamicObject>, DynamicObject);

async fn find(client: &Client, asked: &Provided<'_>) -> kube::Result<Result<Found, Hold>> {
    let missing = |what: &str| Ok(Err(asked.hold(HoldReason::ValuesNotFound, what)));
    let by = asked.by;
    let resource = match asked.ours() {
        Some(ours) => ours,
        None => match served(client, asked.group(), &by.kind).await {
            Ok(Some(served)) => served,
            Ok(None) => return missing("is of a kind that is not served"),
            // The group may be served by another server than all the rest.
            Err(kube::Error::Api(status)) => {
                let code = status.code;
                return missing(&format!(
                    "is of a group that the API server answers for with {code}"
                ));
            }
            Err(error) => return Err(error),
        },
    };
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), asked.namespace, &resource);
    match api.get_opt(&by.name).await {
        Ok(Some(found)) => Ok(Ok((api, found))),
        Ok(None) => missing("does not exist"),
        Err(kube::Error::Api(status)) if status.code == 403 => missing(&format!(
            "may not be read by Sluice; {}",
            missing_rule("get, list, watch and patch", &resource)
        )),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use rstest::rstest;
    use serde_json::Value;
    use sluice_crds::run::TypedLocalObjectReference;
    use tower::service_fn;

    use super::*;

    const DISCOVERY: &str = "/apis/config.example.com/v1";

    /// An API server of one kind of providers that answers for one path with `code`.
    fn server(path: &'static str, code: u16) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            let asked = request.uri().path();
            let version = json!({"groupVersion": "config.example.com/v1", "version": "v1"});
            let answer: Value = match asked {
                _ if asked == path => {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "", "message": "", "code": code})
                }
                "/apis" => {
                    json!({"kind": "APIGroupList", "groups": [{"name": "config.example.com", "versions": [version], "preferredVersion": version}]})
                }
                DISCOVERY => {
                    json!({"kind": "APIResourceList", "groupVersion": "config.example.com/v1", "resources": [
                        {"name": "fooconfigs", "singularName": "", "namespaced": true, "kind": "FooConfig", "verbs": ["get", "list", "watch"]},
                    ]})
                }
                _ => {
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "", "code": 404})
                }
            };
            let code = answer["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, Infallible>(
                Response::builder()
                    .status(code.unwrap_or(200))
                    .body(body)
                    .unwrap(),
            )
        });
        Client::new(service, "default")
    }

    #[rstest]
    #[case::it_does_not_exist("", 404, Some("does not exist"))]
    #[case::its_rule_is_missing(
        "/apis/config.example.com/v1/namespaces/team-a/fooconfigs/one",
        403,
        Some("get, list, watch and patch fooconfigs in group config.example.com")
    )]
    #[case::its_group_is_away(DISCOVERY, 503, Some("with 503"))]
    #[case::the_server_is_in_trouble(
        "/apis/config.example.com/v1/namespaces/team-a/fooconfigs/one",
        500,
        None
    )]
    #[tokio::test]
    async fn a_provider_that_cannot_be_read_is_the_matter_of_its_cluster(
        #[case] path: &'static str,
        #[case] code: u16,
        #[case] says: Option<&str>,
    ) {
        let by = TypedLocalObjectReference {
            api_group: Some("config.example.com".to_owned()),
            kind: "FooConfig".to_owned(),
            name: "one".to_owned(),
        };
        let asked = Provided {
            role: Role::Additional,
            package: "foo.example.com.1.0.0",
            by: &by,
            namespace: "team-a",
        };
        let hold = values(&server(path, code), &asked).await;
        let Some(says) = says else {
            assert!(hold.is_err(), "tried again");
            return;
        };
        let hold = hold.unwrap().unwrap_err();
        assert_eq!(hold.reason, HoldReason::ValuesNotFound);
        assert!(
            hold.message.contains("FooConfig team-a/one") && hold.message.contains(says),
            "{}",
            hold.message
        );
    }
}
