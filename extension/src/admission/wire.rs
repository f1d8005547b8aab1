//! Reads an AdmissionReview of `admission.k8s.io/v1`, as far as rules are about it.
//!
//! Any Pod may send any body. So nothing is kept of what no rule needs, and what is kept is bounded.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, value::RawValue};
use sluice_core::admission::{Kind, Review, State};
use sluice_crds::run::{
    ClusterBootstrapPackage, ClusterBootstrapSpec, TypedLocalObjectReference, ValuesFrom,
};

use super::kept::{Annotations, Bounded, Owned, Text};

/// Why a body is no review.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

/// A review that can be answered.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// What the answer has to repeat.
    pub(super) uid: String,
    /// What is asked about; none where no rule is about it.
    pub(super) review: Option<Review>,
    /// The text of the spec; empty without one.
    pub(super) spec: &'a str,
}

/// Reads the body of a review of `kind`.
pub(super) fn parse(kind: Kind, body: &[u8]) -> Result<Asked<'_>, Malformed> {
    let body: Body<'_> = read(body)?;
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
    expected("request.kind.group", &of.group.0, "run.tanzu.vmware.com")?;
    expected("request.kind.version", &of.version.0, "v1alpha3")?;
    expected("request.kind.kind", &of.kind.0, kind.as_str())?;
    let uid = request.uid.0.clone();
    let is_change = matches!(request.operation.0.as_str(), "CREATE" | "UPDATE");
    if !is_change || request.sub_resource.is_some_and(|name| !name.0.is_empty()) {
        return Ok(Asked {
            uid,
            review: None,
            spec: "",
        });
    }
    let new = request
        .object
        .ok_or_else(|| Malformed("request.object is missing".to_owned()))?;
    let old = if request.operation.0 == "UPDATE" {
        let old = request.old_object;
        Some(old.ok_or_else(|| Malformed("request.oldObject is missing".to_owned()))?)
    } else {
        None
    };
    if new.metadata.deletion_timestamp.is_some() {
        return Ok(Asked {
            uid,
            review: None,
            spec: "",
        });
    }
    let spec = text(&new);
    let spec_differs = old.as_ref().is_none_or(|old| text(old) != spec);
    let name = request.name.map(|name| name.0).filter(|name| !name.is_empty());
    Ok(Asked {
        uid,
        spec,
        review: Some(Review {
            kind,
            namespace: request.namespace.map(|namespace| namespace.0).unwrap_or_default(),
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

fn text<'a>(object: &Object<'a>) -> &'a str {
    object.spec.map_or("", RawValue::get)
}

fn state(object: Object<'_>) -> Result<State, Malformed> {
    let spec: Spec = match object.spec {
        Some(spec) => read(spec.get().as_bytes())?,
        None => Spec::default(),
    };
    Ok(State {
        spec: spec.into(),
        annotations: object.metadata.annotations.0,
    })
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Malformed> {
    serde_json::from_slice(text).map_err(|error| Malformed(error.to_string()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(default)]
    api_version: Text,
    #[serde(default)]
    kind: Text,
    #[serde(borrow, default)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: Text,
    kind: GroupVersionKind,
    #[serde(default)]
    sub_resource: Option<Text>,
    #[serde(default)]
    name: Option<Text>,
    #[serde(default)]
    namespace: Option<Text>,
    operation: Text,
    #[serde(borrow, default)]
    object: Option<Object<'a>>,
    #[serde(borrow, default)]
    old_object: Option<Object<'a>>,
}

#[derive(Deserialize)]
struct GroupVersionKind {
    #[serde(default)]
    group: Text,
    version: Text,
    kind: Text,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<Text>,
    deletion_timestamp: Option<IgnoredAny>,
    annotations: Annotations,
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
    inline: Option<IgnoredAny>,
    secret_ref: Option<Text>,
    provider_ref: Option<Reference>,
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
                inline: values.inline.map(|_content| Map::new()),
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
