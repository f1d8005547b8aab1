//! The object that provides the values of a package: read, and given the label of the package that they are for.

use kube::{ResourceExt, core::DynamicObject};
use serde_json::json;
use sluice_crds::run::ClusterBootstrapSpec;

use super::{
    Known, Server, Sight, Step, Stop,
    ask::{Ask, Key, Resource},
    known::typed,
    write::Write,
};
use crate::{
    bootstrap::{Provided, Role},
    hold::GateReason,
};

/// A provider and where it is.
pub(super) struct Found {
    key: Key,
    pub(super) object: DynamicObject,
}

/// What an operator has to add so that Sluice may do `verbs` to a kind of another project.
#[must_use]
pub fn missing_rule(verbs: &str, resource: &Resource) -> String {
    let Resource { group, plural, .. } = resource;
    format!(
        "add a ClusterRole that allows to {verbs} {plural} in group {group} and has the label \
         sluice.dev/aggregate-to-extension: \"true\""
    )
}

/// Labels the provider of the CNI with the CNI's package, if it is not already.
///
/// # Errors
/// What keeps it from being labelled is a [`Hold`].
pub(super) fn label(known: &Known<'_>, spec: &ClusterBootstrapSpec) -> Step<()> {
    let cni = spec.cni.as_ref();
    let Some(asked) = cni.and_then(|cni| Provided::of(&known.facts.owner.namespace, Role::Cni, cni)) else {
        return Ok(());
    };
    let (found, Some((key, value))) = (find(known, &asked, Sight::First), asked.label()) else {
        return Ok(());
    };
    let found = match found {
        Ok(found) => found,
        // It is what its values are waited for with.
        Err(stop) => return stop.held().map(drop),
    };
    if asked.is_labelled(&found.object) {
        return Ok(());
    }
    let version = found.object.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version, "labels": {key: value}}});
    match known.write(Write::patch(
        found.key,
        patch,
        "the values of a CNI depend on its package",
    )) {
        Ok(_) => Ok(()),
        Err(Stop::Failed(failure)) if failure.code == Some(403) => Err(asked
            .hold(
                GateReason::WriteRefused,
                &format!(
                    "cannot be labelled with this package; allow Sluice to patch it: {}",
                    failure.message
                ),
            )
            .into()),
        Err(stop) => Err(stop),
    }
}

/// The provider of a package.
///
/// # Errors
/// What an operator has to put right is a [`Hold`].
pub(super) fn find(known: &Known<'_>, asked: &Provided<'_>, sight: Sight) -> Step<Found> {
    let missing = |what: &str| Stop::from(asked.hold(GateReason::ValuesNotFound, what));
    let resource = match asked.ours() {
        Some(ours) => Resource::from(&ours),
        None => match served(known, asked) {
            Ok(Some(served)) => served,
            Ok(None) => return Err(missing("is of a kind that is not served")),
            Err(Stop::Failed(failure)) => {
                // The group may be served by another server than all the rest.
                let Some(code) = failure.code else {
                    return Err(Stop::Failed(failure));
                };
                return Err(missing(&format!(
                    "is of a group that the API server answers for with {code}"
                )));
            }
            Err(stop) => return Err(stop),
        },
    };
    let key = Key {
        server: Server::Management,
        resource,
        namespace: Some(asked.namespace.to_owned()),
        name: asked.by.name.clone(),
    };
    match known.object(key.clone(), sight) {
        Ok(Some(found)) => Ok(Found {
            object: typed(key.server, found)?,
            key,
        }),
        Ok(None) => Err(missing("does not exist")),
        Err(Stop::Failed(failure)) if failure.code == Some(403) => {
            let rule = missing_rule("get, list, watch and patch", &key.resource);
            Err(missing(&format!("may not be read by Sluice; {rule}")))
        }
        Err(stop) => Err(stop),
    }
}

/// How the kind of a provider is served.
fn served(known: &Known<'_>, asked: &Provided<'_>) -> Step<Option<Resource>> {
    let ask = Ask::Served {
        group: asked.group().to_owned(),
        kind: asked.by.kind.clone(),
    };
    known.served(ask)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::run::TypedLocalObjectReference;

    use super::*;
    use crate::pass::{Answer, Failure, Memory, tests::facts};

    fn resource() -> Resource {
        Resource {
            group: "config.example.com".into(),
            version: "v1".into(),
            kind: "FooConfig".into(),
            plural: "fooconfigs".into(),
        }
    }

    fn answered(code: u16) -> Answer {
        Answer::Failed(Failure {
            code: Some(code),
            ..Failure::other(Server::Management, "")
        })
    }

    #[rstest]
    #[case::it_does_not_exist(Answer::Served(resource()), Some(Answer::Absent), Some("does not exist"))]
    #[case::its_kind_is_not_served(Answer::Absent, None, Some("is of a kind that is not served"))]
    #[case::its_rule_is_missing(
        Answer::Served(resource()),
        Some(answered(403)),
        Some("get, list, watch and patch fooconfigs in group config.example.com")
    )]
    #[case::its_group_is_away(answered(503), None, Some("with 503"))]
    #[case::the_server_is_in_trouble(Answer::Served(resource()), Some(answered(500)), None)]
    fn a_provider_that_cannot_be_read_is_the_matter_of_its_cluster(
        #[case] served: Answer,
        #[case] read: Option<Answer>,
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
        let (facts, memory) = (facts(), Memory::default());
        let mut known = Known::new(&facts, &memory, crate::pass::tests::clock());
        for answer in [Some(served), read].into_iter().flatten() {
            let Err(Stop::Need(mut asks)) = find(&known, &asked, Sight::First) else {
                panic!("nothing is asked for");
            };
            known.record_answer(asks.remove(0), answer);
        }
        let Err(stop) = find(&known, &asked, Sight::First) else {
            panic!("it was found");
        };
        let Some(says) = says else {
            assert!(matches!(stop, Stop::Failed(_)), "tried again");
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
