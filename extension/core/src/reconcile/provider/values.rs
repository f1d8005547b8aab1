//! Values of a configuration, and the reads of their sources.

use serde_json::Value;
use sluice_crds::foreign::Cluster;

use super::{Context, Interrupt, Step};
use crate::{
    packages::bootstrap::{credential, credential_of, is_credential_type},
    protocol::{Failure, Key, Read, ReadPhase, ReadResult, Server, context::unexpected},
    providers::{self, Output, Problem, Reason, Source, Sources},
};

/// Returns the output of a configuration and its sources. Sets `unwatched` if a source has no watch.
pub(super) fn values(
    context: &Context<'_>,
    cluster: &Cluster,
    unwatched: &mut bool,
) -> Step<(Output, Sources)> {
    let config = context.facts;
    let mut sources = Sources::default();
    loop {
        match config.kind.values(&config.object, cluster, &sources) {
            Ok(output) => return Ok((output, sources)),
            Err(providers::ValuesError::Problem(problem)) => return Err(problem.into()),
            Err(providers::ValuesError::Unread(source)) => {
                *unwatched |= source.is_secret();
                let found = found(context, &source)?;
                *unwatched |= found.is_none();
                sources.insert(source, found.into_iter().flatten().cloned().collect());
            }
        }
    }
}

/// Returns the objects of `source`; `None` if their kind is not served. Secrets are read by name, other objects through a watch.
pub(super) fn found<'a>(context: &'a Context<'_>, source: &Source) -> Step<Option<Vec<&'a Value>>> {
    if let Source::Object {
        namespace: Some(namespace),
        name,
        ..
    } = source
        && source.is_secret()
    {
        let key = Key::of::<k8s_openapi::api::core::v1::Secret>(Server::Management, Some(namespace), name);
        let found = context.object(key, ReadPhase::Plan)?;
        if let Some(secret) = found
            && is_credential(context, secret, (namespace, name))?
        {
            let message = format!("{}; name another Secret", credential(&source.to_string()));
            return Err(Problem::new(Reason::CredentialsNotAllowed, message).into());
        }
        return Ok(Some(found.into_iter().collect()));
    }
    let answer = context.answer(Read::Source(source.clone()));
    let answer = answer.map_err(|stop| match stop {
        Interrupt::Failed(Failure {
            undecodable: Some(object),
            ..
        }) => Problem::new(Reason::ObjectUndecodable, object.to_string()).into(),
        stop => stop,
    })?;
    match answer {
        ReadResult::Listed(objects) => Ok(Some(objects.iter().map(|object| &object.0).collect())),
        ReadResult::Absent => Ok(None),
        // Only the user of the Cluster can correct a kind that the Cluster names.
        ReadResult::Unwatchable(why) if source.kind_is_given() => {
            let (group, kind) = source.group_kind();
            let message =
                format!("control plane kind {kind} in group {group:?} of spec.controlPlaneRef: {why}");
            Err(Problem::new(Reason::ControlPlaneKindUnreadable, message).into())
        }
        ReadResult::Unwatchable(why) => {
            let failure = Failure::other(Server::Management, &format!("watch {source}: {why}"));
            Err(Interrupt::Failed(failure))
        }
        _ => Err(unexpected(Server::Management)),
    }
}

/// Returns whether a Secret is a credential of Kubernetes or Cluster API. The author of a configuration may lack permission to read those.
fn is_credential(context: &Context<'_>, secret: &Value, (namespace, name): (&str, &str)) -> Step<bool> {
    if is_credential_type(secret["type"].as_str()) {
        return Ok(true);
    }
    for cluster in credential_of(name) {
        if context.cluster(namespace, cluster)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
