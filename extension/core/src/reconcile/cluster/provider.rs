//! Values provider of a package, and the holds for one that is missing or unreadable.

use crate::rbac::missing_rule;
use k8s_openapi::api::core::v1::Secret;
use kube::core::DynamicObject;
use serde_json::Value;

use super::{
    Context, Interrupt, ReadPhase, Server, Step,
    context::typed,
    read::{Key, Read, Resource},
};
use crate::{
    names,
    packages::bootstrap::Provided,
    reasons::{GateReason, Hold},
    value_kinds::{own_resource, provides_values},
};

/// Verbs that Sluice needs for a kind that it clones.
pub(super) const COPYING: &str = "get, list, watch, create, patch and delete";

/// Verbs that Sluice needs for a kind that provides values.
const VERBS: &str = "get, list, watch and patch";

/// A provider and its key.
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) object: DynamicObject,
}

/// Missing object that values depend on, for the hold of the package.
pub(super) struct Missing {
    /// Description of the object, and of the field that names it.
    object: String,
    /// Verbs that Sluice needs for its kind.
    verbs: &'static str,
}

impl Missing {
    pub(super) fn new(object: String, verbs: &'static str) -> Self {
        Self { object, verbs }
    }

    /// Returns the result of a read of `key`, with a [`Hold`] for a forbidden one.
    pub(super) fn explain<T>(&self, read: Step<T>, key: &Key) -> Step<T> {
        match read {
            Err(Interrupt::Failed(failure)) if failure.code == Some(403) => {
                let rule = missing_rule(self.verbs, &key.resource.group, &key.resource.plural);
                Err(self.hold(&format!("may not be read by Sluice; {rule}")).into())
            }
            read => read,
        }
    }

    /// Returns the hold of a package that waits for the object because of `what`.
    pub(super) fn hold(&self, what: &str) -> Hold {
        Hold::new(GateReason::ValuesNotFound, format!("{} {what}", self.object))
    }
}

/// Returns the provider of a package.
///
/// # Errors
/// Returns a [`Hold`] for a problem that an operator must fix.
pub(super) fn find(context: &Context<'_>, asked: &Provided<'_>, phase: ReadPhase) -> Step<Found> {
    let missing = Missing::new(asked.subject(), VERBS);
    check_kind(asked.group(), &asked.by.kind, &missing)?;
    if !names::is_object_name(&asked.by.name) {
        return Err(missing
            .hold("has an invalid name; correct providerRef.name")
            .into());
    }
    let key = Key {
        server: Server::Management,
        resource: resource(context, asked.group(), &asked.by.kind, &missing)?,
        namespace: Some(asked.namespace.to_owned()),
        name: asked.by.name.clone(),
    };
    let found = object(context, &key, phase, &missing)?;
    let found = found.ok_or_else(|| missing.hold("does not exist"))?;
    Ok(Found {
        object: typed(key.server, found)?,
        key,
    })
}

/// Checks that a kind may provide values.
///
/// # Errors
/// Returns a [`Hold`] for a kind to which Sluice has more rights than the tenants that reference it.
pub(super) fn check_kind(group: &str, kind: &str, missing: &Missing) -> Result<(), Hold> {
    if provides_values(group, kind) {
        return Ok(());
    }
    let what = format!(
        "is of a kind in group {group:?}, which provides no values; name a configuration, or a custom resource of another group"
    );
    Err(missing.hold(&what))
}

/// Returns an object of any kind, if it exists. Outside of a confirmation, this is the version that this reconcile has written, if any.
///
/// # Errors
/// Returns a [`Hold`] for a forbidden read.
fn object<'a>(
    context: &'a Context<'_>,
    key: &Key,
    phase: ReadPhase,
    missing: &Missing,
) -> Step<Option<&'a Value>> {
    if let Some(written) = context.written(key).filter(|_| phase == ReadPhase::Plan) {
        return Ok(Some(written));
    }
    missing.explain(context.object(key.clone(), phase), key)
}

/// Returns the resource that serves a namespaced kind.
///
/// # Errors
/// Returns a [`Hold`] for a kind that is not served, or is cluster-scoped.
pub(super) fn resource(context: &Context<'_>, group: &str, kind: &str, missing: &Missing) -> Step<Resource> {
    if let Some(ours) = own_resource(group, kind) {
        return Ok(Resource::from(&ours));
    }
    if (group, kind) == ("", "Secret") {
        return Ok(Key::of::<Secret>(Server::Management, None, "").resource);
    }
    let read = Read::Served {
        group: group.to_owned(),
        kind: kind.to_owned(),
    };
    match context.served(read.clone()) {
        // Clusters of all namespaces would share its objects, and none of them could own one.
        Ok(Some(_)) if context.is_cluster_wide(&read) => Err(missing
            .hold("is of a cluster-scoped kind; name an object of a namespaced kind")
            .into()),
        Ok(Some(served)) => Ok(served),
        Ok(None) => Err(missing.hold("is of a kind that is not served").into()),
        // An aggregated API server may serve the group.
        Err(Interrupt::Failed(failure)) => match failure.code {
            Some(code) => {
                let what = format!("is of a group whose discovery fails with {code}");
                Err(missing.hold(&what).into())
            }
            None => Err(Interrupt::Failed(failure)),
        },
        Err(stop) => Err(stop),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::TypedLocalObjectReference;

    use super::*;
    use crate::{
        packages::bootstrap::Role,
        reconcile::cluster::{Failure, LocalState, ReadResult, tests::facts},
    };

    fn resource() -> Resource {
        Resource {
            group: "config.example.com".into(),
            version: "v1".into(),
            kind: "FooConfig".into(),
            plural: "fooconfigs".into(),
        }
    }

    fn answered(code: u16) -> ReadResult {
        ReadResult::Failed(Failure {
            code: Some(code),
            ..Failure::other(Server::Management, "")
        })
    }

    #[rstest]
    #[case::it_does_not_exist(
        ReadResult::Served(resource()),
        Some(ReadResult::Absent),
        Some("does not exist")
    )]
    #[case::its_kind_is_not_served(ReadResult::Absent, None, Some("is of a kind that is not served"))]
    #[case::its_rule_is_missing(
        ReadResult::Served(resource()),
        Some(answered(403)),
        Some("get, list, watch and patch fooconfigs in group config.example.com")
    )]
    #[case::its_kind_is_cluster_scoped(
        ReadResult::ServedClusterWide(resource()),
        None,
        Some("is of a cluster-scoped kind; name an object of a namespaced kind")
    )]
    #[case::its_group_is_away(answered(503), None, Some("with 503"))]
    #[case::its_server_fails(ReadResult::Served(resource()), Some(answered(500)), None)]
    fn an_unreadable_provider_holds_its_cluster(
        #[case] served: ReadResult,
        #[case] read: Option<ReadResult>,
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
        let (facts, local) = (facts(), LocalState::default());
        let mut context = Context::new(&facts, &local, crate::reconcile::cluster::tests::clock());
        for answer in [Some(served), read].into_iter().flatten() {
            let Err(Interrupt::Need(mut asks)) = find(&context, &asked, ReadPhase::Plan) else {
                panic!("nothing is read");
            };
            context.record_answer(asks.remove(0), answer);
        }
        let Err(stop) = find(&context, &asked, ReadPhase::Plan) else {
            panic!("it was found");
        };
        let Some(says) = says else {
            assert!(matches!(stop, Interrupt::Failed(_)), "tried again");
            return;
        };
        let hold = stop.held().unwrap();
        assert_eq!(hold.reason, GateReason::ValuesNotFound);
        assert!(
            hold.message.contains("FooConfig team-a/one") && hold.message.contains(says),
            "{}",
            hold.message
        );
    }
}
