//! Parses an AdmissionReview of `admission.k8s.io/v1`, as far as rules need it.
//!
//! Any Pod may send any body. Only parts that a rule needs are kept, with bounded size.

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;
use sluice_core::{
    admission::{Kind, Review, State},
    decode::OF_TENANT,
};
use sluice_crds::{
    FreeForm,
    decode::{self, Limit},
    run::{ClusterBootstrapPackage, ClusterBootstrapSpec, TypedLocalObjectReference, ValuesFrom},
};

use super::kept::{Bounded, Chosen, OfBootstraps, Owned, Text};

/// Reason why a body is no review.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

/// Parsed review.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// UID that the response repeats.
    pub(super) uid: String,
    /// Review of an object; `None` where no rule applies.
    pub(super) review: Option<Review>,
    /// Text of the spec; empty without one.
    pub(super) spec: &'a str,
    /// Text of the old spec; empty without one.
    pub(super) old_spec: &'a str,
    /// Whether the object has annotations.
    pub(super) annotated: bool,
}

/// Parses the body of a review of `kind`.
pub(super) fn parse(kind: Kind, body: &[u8]) -> Result<Asked<'_>, Malformed> {
    let of = ("run.tanzu.vmware.com", "v1alpha3", kind.as_str());
    let Changed {
        uid,
        namespace,
        name,
        objects,
        ..
    } = changed::<Object<'_, Metadata>>(body, of)?;
    let Some((new, old)) = objects.filter(|(new, _)| new.metadata.deletion_timestamp.is_none()) else {
        return Ok(Asked {
            uid,
            review: None,
            spec: "",
            old_spec: "",
            annotated: false,
        });
    };
    let spec = text(&new);
    let old_spec = old.as_ref().map_or("", text);
    let spec_differs = old.is_none() || old_spec != spec;
    Ok(Asked {
        uid,
        spec,
        old_spec,
        annotated: new.metadata.annotations.is_some(),
        review: Some(Review {
            kind,
            namespace,
            name: name
                .or(new.metadata.name.as_ref().map(|name| name.0.clone()))
                .unwrap_or_default(),
            owned: new.metadata.owned.0 || old.as_ref().is_some_and(|old| old.metadata.owned.0),
            spec_missing: new.spec.is_none(),
            old: old.map(state).transpose()?,
            new: state(new)?,
            spec_differs,
        }),
    })
}

/// Fields of a review of any kind.
pub(super) struct Changed<'a, O> {
    /// UID that the response repeats.
    pub(super) uid: String,
    pub(super) namespace: String,
    /// Name of the object; `None` where the API server generates it.
    pub(super) name: Option<String>,
    /// New and old object; `None` where it is neither created nor updated, where the review covers a part of it, or during its deletion.
    pub(super) objects: Option<(O, Option<O>)>,
    /// Account that writes.
    pub(super) user: Option<&'a RawValue>,
}

/// Parses the body of a review of objects of this group, version and kind.
pub(super) fn changed<'a, O: Deserialize<'a>>(
    body: &'a [u8],
    (group, version, kind): (&str, &str, &str),
) -> Result<Changed<'a, O>, Malformed> {
    let body = std::str::from_utf8(body).map_err(|error| Malformed(error.to_string()))?;
    let body: Body<'_, O> = read(body)?;
    let expected = |what: &str, found: &str, wanted: &str| {
        if found == wanted {
            Ok(())
        } else {
            Err(Malformed(format!("{what} is {found:?}, not {wanted:?}")))
        }
    };
    expected("apiVersion", &body.api_version.0, "admission.k8s.io/v1")?;
    expected("kind", &body.kind.0, "AdmissionReview")?;
    let request = body
        .request
        .ok_or_else(|| Malformed("it has no request".to_owned()))?;
    let of = &request.kind;
    expected("request.kind.group", &of.group.0, group)?;
    expected("request.kind.version", &of.version.0, version)?;
    expected("request.kind.kind", &of.kind.0, kind)?;
    let is_change = matches!(request.operation.0.as_str(), "CREATE" | "UPDATE");
    let objects = if is_change && request.sub_resource.is_none_or(|name| name.0.is_empty()) {
        let new = request
            .object
            .ok_or_else(|| Malformed("request.object is missing".to_owned()))?;
        let old = if request.operation.0 == "UPDATE" {
            let old = request.old_object;
            Some(old.ok_or_else(|| Malformed("request.oldObject is missing".to_owned()))?)
        } else {
            None
        };
        Some((new, old))
    } else {
        None
    };
    Ok(Changed {
        uid: request.uid.0,
        namespace: request.namespace.map(|namespace| namespace.0).unwrap_or_default(),
        name: request.name.map(|name| name.0).filter(|name| !name.is_empty()),
        objects,
        user: request.user_info,
    })
}

/// Returns the text of the spec; empty without one.
pub(super) fn text<'a, M>(object: &Object<'a, M>) -> &'a str {
    object.spec.map_or("", RawValue::get)
}

fn state(object: Object<'_, Metadata>) -> Result<State, Malformed> {
    let spec: Spec = match object.spec {
        Some(spec) => read(spec.get())?,
        None => Spec::default(),
    };
    Ok(State {
        spec: spec.into(),
        annotations: object.metadata.annotations.unwrap_or_default().0,
    })
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Malformed> {
    let read = decode::from_str(text, Limit::whole(OF_TENANT));
    read.map(|(read, _)| read)
        .map_err(|error| Malformed(error.to_string()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: Deserialize<'de>"))]
struct Body<'a, O> {
    #[serde(default)]
    api_version: Text,
    #[serde(default)]
    kind: Text,
    #[serde(borrow)]
    request: Option<Request<'a, O>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "O: Deserialize<'de>"))]
struct Request<'a, O> {
    uid: Text,
    kind: GroupVersionKind,
    #[serde(default)]
    sub_resource: Option<Text>,
    #[serde(default)]
    name: Option<Text>,
    #[serde(default)]
    namespace: Option<Text>,
    operation: Text,
    object: Option<O>,
    old_object: Option<O>,
    #[serde(borrow, default)]
    user_info: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    #[serde(default)]
    group: Text,
    version: Text,
    kind: Text,
}

/// Object with an unparsed spec.
#[derive(Deserialize)]
#[serde(bound(deserialize = "M: Default + Deserialize<'de>"))]
pub(super) struct Object<'a, M> {
    #[serde(default)]
    pub(super) metadata: M,
    #[serde(borrow, default)]
    pub(super) spec: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<Text>,
    deletion_timestamp: Option<IgnoredAny>,
    annotations: Option<Chosen<OfBootstraps>>,
    #[serde(rename = "ownerReferences")]
    owned: Owned,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    cni: Option<Package>,
    csi: Option<Package>,
    cpi: Option<Package>,
    kapp: Option<Package>,
    additional_packages: Bounded<Package>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    #[serde(default)]
    ref_name: Text,
    #[serde(default)]
    values_from: Option<Values>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Values {
    inline: Option<Inline>,
    secret_ref: Option<Text>,
    provider_ref: Option<Reference>,
}

/// Inline values, of which only the digest is kept.
struct Inline(FreeForm);

impl<'de> Deserialize<'de> for Inline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let decode::Text(json) = decode::Text::deserialize(deserializer)?;
        // The definition rejects values that are no object, with the path of the field.
        Ok(Self(FreeForm::digest_of(&json).unwrap_or_default()))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    api_group: Option<Text>,
    kind: Text,
    name: Text,
}

impl From<Spec> for ClusterBootstrapSpec {
    fn from(spec: Spec) -> Self {
        let package = |package: Option<Package>| package.map(Into::into);
        Self {
            cni: package(spec.cni),
            csi: package(spec.csi),
            cpi: package(spec.cpi),
            kapp: package(spec.kapp),
            additional_packages: spec.additional_packages.0.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

impl From<Package> for ClusterBootstrapPackage {
    fn from(package: Package) -> Self {
        Self {
            ref_name: package.ref_name.0,
            values_from: package.values_from.map(|values| ValuesFrom {
                inline: values.inline.map(|Inline(digest)| digest),
                secret_ref: values.secret_ref.map(|name| name.0),
                provider_ref: values.provider_ref.map(|by| TypedLocalObjectReference {
                    api_group: by.api_group.map(|group| group.0),
                    kind: by.kind.0,
                    name: by.name.0,
                }),
            }),
        }
    }
}
