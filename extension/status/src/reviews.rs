//! Authorization of callers: a TokenReview maps a token to a user, a SubjectAccessReview allows the user a namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::Resource as _;
use sluice_crds::run::ClusterBootstrap;

/// A user of the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// Its name, `system:serviceaccount:ci:pipeline`.
    pub(crate) name: String,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// Reason to refuse a caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The API server does not accept the token.
    #[error("the API server does not accept the token; it may have expired, or be one of another cluster")]
    Unknown,
    /// The user lacks the right.
    #[error(
        "user {user:?} may not get clusterbootstraps.run.tanzu.vmware.com in {place}; a Role or ClusterRole has to allow it"
    )]
    Denied {
        /// The user.
        user: String,
        /// The namespace, or all of them.
        place: String,
    },
}

/// Builds the TokenReview of a token.
#[must_use]
pub(crate) fn token_review(token: &str) -> TokenReview {
    TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    }
}

/// Returns the user of a reviewed token.
///
/// # Errors
/// The API server does not accept the token.
pub(crate) fn user(review: TokenReview) -> Result<User, Refusal> {
    let status = review.status.filter(|status| status.authenticated == Some(true));
    let user = status.and_then(|status| status.user).ok_or(Refusal::Unknown)?;
    let name = user
        .username
        .filter(|name| !name.is_empty())
        .ok_or(Refusal::Unknown)?;
    Ok(User {
        name,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
    })
}

/// Builds the SubjectAccessReview of `get` on the ClusterBootstraps of a namespace; of all namespaces if it is empty.
#[must_use]
pub(crate) fn access_review(user: &User, namespace: &str) -> SubjectAccessReview {
    let resource = ResourceAttributes {
        group: Some(ClusterBootstrap::group(&()).into_owned()),
        resource: Some(ClusterBootstrap::plural(&()).into_owned()),
        verb: Some("get".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            resource_attributes: Some(resource),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// Checks the result of [`access_review`].
///
/// # Errors
/// The API server does not allow the access.
pub(crate) fn allowed(review: &SubjectAccessReview, user: &User, namespace: &str) -> Result<(), Refusal> {
    let allows = |status: &k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus| {
        status.allowed && status.denied != Some(true)
    };
    if review.status.as_ref().is_some_and(allows) {
        return Ok(());
    }
    let place = if namespace.is_empty() {
        "all namespaces".to_owned()
    } else {
        format!("namespace {namespace:?}")
    };
    Err(Refusal::Denied {
        user: user.name.clone(),
        place,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reviewed(status: &Value) -> Result<User, Refusal> {
        user(serde_json::from_value(json!({"spec": {"token": "t"}, "status": status})).unwrap())
    }

    #[test]
    fn a_user_is_one_that_was_authenticated_and_has_a_name() {
        let ada = json!({"username": "ada", "groups": ["ops"], "uid": "7", "extra": {"scope": ["x"]}});
        let found = reviewed(&json!({"authenticated": true, "user": ada})).unwrap();
        assert_eq!(found.name, "ada");
        let asked = serde_json::to_value(access_review(&found, "demo")).unwrap();
        assert_eq!(
            asked["spec"],
            json!({
                "user": "ada", "groups": ["ops"], "uid": "7", "extra": {"scope": ["x"]},
                "resourceAttributes": {
                    "group": "run.tanzu.vmware.com", "resource": "clusterbootstraps", "verb": "get", "namespace": "demo",
                },
            })
        );
        for wrong in [
            json!({"authenticated": false, "user": {"username": "ada"}}),
            json!({"user": {"username": "ada"}}),
            json!({"authenticated": true}),
            json!({"authenticated": true, "user": {"username": ""}}),
            Value::Null,
        ] {
            assert_eq!(reviewed(&wrong), Err(Refusal::Unknown), "{wrong}");
        }
    }

    #[test]
    fn only_allowed_and_not_denied_access_is_allowed() {
        let ada = User {
            name: "ada".to_owned(),
            ..User::default()
        };
        let may = |status: &Value, namespace: &str| {
            let review = json!({"spec": {}, "status": status});
            allowed(&serde_json::from_value(review).unwrap(), &ada, namespace)
        };
        assert_eq!(may(&json!({"allowed": true}), "demo"), Ok(()));
        for wrong in [
            json!({"allowed": false}),
            json!({"allowed": true, "denied": true}),
            Value::Null,
        ] {
            let denied = may(&wrong, "demo").unwrap_err().to_string();
            assert!(
                denied.contains("\"ada\"") && denied.contains("namespace \"demo\""),
                "{denied}"
            );
        }
        let everywhere = may(&json!({"allowed": false}), "").unwrap_err().to_string();
        assert!(everywhere.contains("in all namespaces"), "{everywhere}");
    }
}
