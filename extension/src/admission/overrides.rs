//! Reviews of new UpgradeOverrides, see [`sluice_core::admission::upgrade_override`].

use serde::Deserialize;
use serde_json::json;
use sluice_core::{
    admission::{
        Verdict,
        upgrade_override::{NewOverride, OverrideVerdict, decoded, judge},
    },
    decode::OF_TENANT,
};
use sluice_crds::{
    decode::{self, Limit},
    lifecycle::UpgradeOverrideSpec,
};

use super::{
    kept::Text,
    wire::{Changed, Malformed, Object, changed, text},
};
use crate::{cache::stores::Stores, clock::clock};

/// Review of an UpgradeOverride.
#[derive(Debug)]
pub(super) struct Review {
    /// UID that the response repeats.
    pub(super) uid: String,
    pub(super) namespace: String,
    /// Name of the override; empty where the API server generates it.
    pub(super) name: String,
    /// The created override, or the verdict if it cannot be decoded; `None` for any other request: the spec is immutable.
    pub(super) new: Option<Result<New, Verdict>>,
}

/// Created UpgradeOverride.
#[derive(Debug)]
pub(super) struct New {
    /// User who creates it.
    user: String,
    spec: UpgradeOverrideSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: Option<Text>,
}

/// Account in a review. Its name is not cut: another account may have the shorter name.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
}

/// Parses the body of a review of an UpgradeOverride.
pub(super) fn parse(body: &[u8]) -> Result<Review, Malformed> {
    let of = ("lifecycle.sluice.dev", "v1alpha1", "UpgradeOverride");
    let Changed {
        uid,
        namespace,
        name,
        objects,
        user,
    } = changed::<Object<'_, Metadata>>(body, of)?;
    let created = objects.and_then(|(new, old)| old.is_none().then_some(new));
    let Some(created) = created else {
        return Ok(Review {
            uid,
            namespace,
            name: name.unwrap_or_default(),
            new: None,
        });
    };
    let user = user.ok_or_else(|| Malformed("request.userInfo is missing".to_owned()))?;
    let read = decode::from_str::<UserInfo>(user.get(), Limit::projected(OF_TENANT));
    let (user, _) = read.map_err(|error| Malformed(format!("request.userInfo: {error}")))?;
    let spec = match text(&created) {
        "" => "{}",
        spec => spec,
    };
    let new = match decoded(spec) {
        Ok(spec) => Ok(New {
            user: user.username,
            spec,
        }),
        Err(fault) => Err(Verdict {
            faults: vec![fault],
            ..Verdict::default()
        }),
    };
    let name = name.or(created.metadata.name.map(|name| name.0));
    Ok(Review {
        uid,
        namespace,
        name: name.unwrap_or_default(),
        new: Some(new),
    })
}

/// Judges a new override from the caches.
pub(super) fn judged(
    namespace: &str,
    New { user, spec }: &New,
    stores: &Stores,
    system_namespace: &str,
) -> OverrideVerdict {
    let new = NewOverride {
        namespace,
        user,
        spec,
    };
    judge(&new, stores, system_namespace, clock().now)
}

/// Returns the RFC 6902 patch that fills in the fields of a verdict; `None` if nothing changes.
pub(super) fn patch(
    OverrideVerdict {
        requested_by,
        cluster_uid,
        ..
    }: &OverrideVerdict,
) -> Option<String> {
    let fields = [("requestedBy", requested_by), ("clusterUID", cluster_uid)];
    let steps: Vec<_> = fields
        .into_iter()
        .filter_map(|(field, value)| {
            let value = value.as_ref()?;
            Some(json!({"op": "add", "path": format!("/spec/{field}"), "value": value}))
        })
        .collect();
    (!steps.is_empty()).then(|| serde_json::Value::from(steps).to_string())
}
