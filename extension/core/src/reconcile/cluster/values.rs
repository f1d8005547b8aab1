//! Values of a package, from the values source in the ClusterBootstrap.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;
use sluice_crds::{
    FreeForm,
    foreign::Cluster,
    labels::name,
    run::{ClusterBootstrap, ClusterBootstrapPackage, ClusterBootstrapSpec},
};

use super::{
    Context, Failure, Interrupt, Key, ReadPhase, Server, Step,
    context::typed,
    owners::Owners,
    provider,
    values_cache::{CachedValues, unchanged},
};
use crate::{
    names,
    packages::{
        bootstrap::{
            Provided, Role, Source, credential_of, credential_refused, is_credential, packages, source,
        },
        build::{Owner, Values, inline_document},
    },
    reasons::{GateReason, Hold},
};

/// Empty values: a PackageInstall always names a Secret, because the name of the Secret carries the stage.
const EMPTY: &[u8] = b"{}\n";

/// Values of a package, as far as a plan needs them.
pub(super) enum Found<'a> {
    /// Values, and the metadata of the Secret that has them, if any.
    Read(Values, Option<Box<ObjectMeta>>),
    /// Values of a Secret that is unchanged since their digests were cached.
    Unchanged(&'a CachedValues),
}

/// Returns the values of `package`.
///
/// # Errors
/// Returns a [`Hold`] for a problem that an operator must fix.
pub(crate) fn values(
    context: &Context<'_>,
    role: Role,
    package: &ClusterBootstrapPackage,
    phase: ReadPhase,
) -> Step<Values> {
    match find(context, role, package, phase)? {
        Found::Read(values, _) => Ok(values),
        Found::Unchanged(cached) => Err(Interrupt::Need(vec![cached.version().read()])),
    }
}

/// Returns the values of `package`. Only a plan takes them from the cache, never a confirmation.
///
/// # Errors
/// Returns a [`Hold`] for a problem that an operator must fix.
pub(super) fn find<'a>(
    context: &Context<'a>,
    role: Role,
    package: &ClusterBootstrapPackage,
    phase: ReadPhase,
) -> Step<Found<'a>> {
    let of = &package.ref_name;
    match source(package)? {
        Source::Defaults => Ok(Found::Read(empty(), None)),
        Source::Inline(inline) => {
            let text = inline_text(context, inline, of, phase)?;
            Ok(Found::Read(inline_document(&text), None))
        }
        Source::Secret(secret) => secret_of(context, secret, (of, "valuesFrom.secretRef"), phase, |_| Ok(())),
        Source::Provider(by) => {
            let asked = Provided {
                role,
                package: of,
                by,
                namespace: &context.facts.owner.namespace,
            };
            let provider::Found { key, object: by } = provider::find(context, &asked, phase)?;
            // Values computed by Sluice follow from one Cluster; other providers may serve several Clusters.
            if asked.is_ours()
                && let Some(another) = Owners::of(context, by.owner_references())?.another()
            {
                let message = format!(
                    "{key}, the values source of package {of}, belongs to {} {} and has its values; give the package its own \
                     configuration",
                    another.kind, another.name
                );
                return Err(Hold::new(GateReason::ValuesOwnerMismatch, message).into());
            }
            let (named, field) = (asked.secret(&by)?, "status.secretRef of its provider");
            secret_of(context, named, (of, field), phase, |metadata| {
                asked.check(&by, metadata, &context.facts.owner.uid)
            })
        }
    }
}

/// Returns the text of inline values of the ClusterBootstrap. Text too long for the cache is read from the API server.
pub(super) fn inline_text<'k>(
    context: &'k Context<'_>,
    inline: &'k FreeForm,
    package: &str,
    phase: ReadPhase,
) -> Step<Cow<'k, str>> {
    if let Some(text) = inline.text() {
        return Ok(Cow::Borrowed(text));
    }
    let whole = whole_bootstrap(context, phase)?;
    let text = inline_of(&whole.spec, inline).and_then(FreeForm::text);
    text.map(|text| Cow::Owned(text.to_owned())).ok_or_else(|| {
        let what = format!("valuesFrom.inline of package {package} was edited while it was read");
        Interrupt::Failed(Failure::overtaken(Server::Management, &what))
    })
}

/// Returns the values in `whole`, with their text, that `inline` stands for.
pub(super) fn inline_of<'w>(whole: &'w ClusterBootstrapSpec, inline: &FreeForm) -> Option<&'w FreeForm> {
    let packages = packages(whole).into_iter();
    let mut inlines = packages.filter_map(|(_, package)| package.values_from.as_ref()?.inline.as_ref());
    inlines.find(|found| inline.is_of(found))
}

/// Reads the ClusterBootstrap from the API server: the cached one lacks long values and unused fields.
pub(super) fn whole_bootstrap(context: &Context<'_>, phase: ReadPhase) -> Step<ClusterBootstrap> {
    let Owner { namespace, name, .. } = &context.facts.owner;
    let whole: Option<ClusterBootstrap> = context.read(name, (Server::Management, Some(namespace)), phase)?;
    whole.ok_or_else(|| {
        let what = format!("ClusterBootstrap {namespace}/{name} was deleted while it was read");
        Interrupt::Failed(Failure::overtaken(Server::Management, &what))
    })
}

fn empty() -> Values {
    BTreeMap::from([(name::VALUES_KEY.to_owned(), EMPTY.to_vec())])
}

/// Returns the values in the Secret that `field` names for the values of `package`, if its metadata passes the `check`.
fn secret_of<'a>(
    context: &Context<'a>,
    secret: &str,
    (package, field): (&str, &str),
    phase: ReadPhase,
    check: impl FnOnce(&ObjectMeta) -> Result<(), Hold>,
) -> Step<Found<'a>> {
    let namespace = &context.facts.owner.namespace;
    if !names::is_object_name(secret) {
        let message = format!(
            "{field} of package {package} is {secret:?}, which is not a valid Secret name; correct it"
        );
        return Err(Hold::new(GateReason::ValuesNotFound, message).into());
    }
    let refused = || Interrupt::from(credential_refused(namespace, secret, package));
    let cached = match phase {
        ReadPhase::Plan => unchanged(context, package, secret)?,
        ReadPhase::Confirm => None,
    };
    if let Some(cached) = cached {
        if is_of_cluster(context, namespace, secret)? {
            return Err(refused());
        }
        check(cached.metadata())?;
        return Ok(Found::Unchanged(cached));
    }
    let key = Key::of::<Secret>(Server::Management, Some(namespace), secret);
    // A clone created by this reconcile was read before.
    let made = context.written(&key).filter(|_| phase == ReadPhase::Plan);
    let found = match made {
        Some(made) => Some(typed(Server::Management, made)?),
        None => context.read::<Secret>(secret, (Server::Management, Some(namespace)), phase)?,
    };
    let missing = || {
        Hold::new(
            GateReason::ValuesNotFound,
            format!(
                "Secret {namespace}/{secret} with the values of package {package} ({field}) does not exist"
            ),
        )
    };
    let found = found.ok_or_else(missing)?;
    if is_credential(&found) || is_of_cluster(context, namespace, secret)? {
        return Err(refused());
    }
    check(&found.metadata)?;
    Ok(Found::Read(content(&found), Some(Box::new(found.metadata))))
}

/// Whether a Secret has the name of a credential of an existing Cluster.
pub(super) fn is_of_cluster(context: &Context<'_>, namespace: &str, secret: &str) -> Step<bool> {
    let owner = &context.facts.owner;
    let place = (Server::Management, Some(namespace));
    for cluster in credential_of(secret) {
        let is_own = (namespace, cluster) == (&*owner.namespace, &*owner.name);
        if is_own
            || context
                .read::<Cluster>(cluster, place, ReadPhase::Plan)?
                .is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the keys of a Secret as values. A Secret without keys has empty values.
pub(super) fn content(secret: &Secret) -> Values {
    let data = secret.data.as_ref().filter(|data| !data.is_empty());
    data.map_or_else(empty, |data| {
        data.iter()
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_secret_without_keys_has_empty_values() {
        for data in [None, Some(BTreeMap::new())] {
            let secret = Secret {
                data,
                ..Secret::default()
            };
            assert_eq!(content(&secret), empty());
        }
        let data = BTreeMap::from([("a.yaml".to_owned(), ByteString(b"a: 1".to_vec()))]);
        let secret = Secret {
            data: Some(data),
            ..Secret::default()
        };
        assert_eq!(
            content(&secret),
            BTreeMap::from([("a.yaml".to_owned(), b"a: 1".to_vec())])
        );
    }
}
