//! Patch that completes the spec of a ClusterBootstrap. Fields of a user stay unchanged, or are copied byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue, value::to_raw_value};
use sluice_core::{
    admission::Completion,
    names::short,
    packages::bootstrap::{Completed, Role, packages},
};
use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec};

/// Operation of RFC 6902.
#[derive(Serialize)]
struct Step {
    op: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
}

impl Step {
    const fn add(path: String, value: Box<RawValue>) -> Self {
        Self {
            op: "add",
            path,
            value: Some(value),
        }
    }

    const fn remove(path: String) -> Self {
        Self {
            op: "remove",
            path,
            value: None,
        }
    }
}

/// Spec and its text in the review.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewedSpec<'a> {
    /// Text; empty without a spec.
    pub(super) text: &'a str,
    pub(super) spec: &'a ClusterBootstrapSpec,
}

impl<'a> ReviewedSpec<'a> {
    /// Returns all packages with their text.
    fn packages(self) -> serde_json::Result<Vec<PackageWithText<'a>>> {
        if self.text.is_empty() {
            return Ok(Vec::new());
        }
        let texts: Texts<'a> = serde_json::from_str(self.text)?;
        let core = [texts.kapp, texts.cni, texts.cpi, texts.csi]
            .into_iter()
            .flatten();
        let texts = core.chain(texts.additional_packages.into_iter().flatten());
        let packages = packages(self.spec).into_iter().zip(texts);
        Ok(packages
            .map(|((role, package), text)| (role, package, text))
            .collect())
    }
}

/// Package, and the text of its entry.
type PackageWithText<'a> = (Role, &'a ClusterBootstrapPackage, &'a RawValue);

/// Texts of the packages of a spec, in their order.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Texts<'a> {
    #[serde(borrow)]
    kapp: Option<&'a RawValue>,
    #[serde(borrow)]
    cni: Option<&'a RawValue>,
    #[serde(borrow)]
    cpi: Option<&'a RawValue>,
    #[serde(borrow)]
    csi: Option<&'a RawValue>,
    #[serde(borrow)]
    additional_packages: Option<Vec<&'a RawValue>>,
}

/// Values of a package.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Values<'a> {
    #[serde(borrow)]
    values_from: Option<&'a RawValue>,
}

/// Returns the RFC 6902 patch of `completion` for the spec `own`, with values of the `stored` one; `None` if nothing changes. `annotated`
/// says whether the object has annotations.
pub(super) fn patch(
    own: ReviewedSpec<'_>,
    stored: Option<ReviewedSpec<'_>>,
    annotated: bool,
    completion: &Completion,
) -> serde_json::Result<Option<String>> {
    let mut steps = Vec::new();
    if !annotated && !completion.restored_annotations.is_empty() {
        steps.push(Step::add(
            "/metadata/annotations".to_owned(),
            to_raw_value(&json!({}))?,
        ));
    }
    for (key, value) in &completion.restored_annotations {
        let key = key.replace('~', "~0").replace('/', "~1");
        let path = format!("/metadata/annotations/{key}");
        steps.push(Step::add(path, to_raw_value(value)?));
    }
    if let Some(completed) = &completion.spec {
        complete_spec(own, stored, completed, &mut steps)?;
    }
    if steps.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(&steps).map(Some)
}

fn complete_spec(
    own: ReviewedSpec<'_>,
    stored: Option<ReviewedSpec<'_>>,
    Completed { named, filled }: &Completed,
    steps: &mut Vec<Step>,
) -> serde_json::Result<()> {
    let stored = stored
        .map(ReviewedSpec::packages)
        .transpose()?
        .unwrap_or_default();
    let was = own.spec;
    for (field, role, was, filled) in [
        ("kapp", Role::KappController, &was.kapp, &filled.kapp),
        ("cni", Role::Cni, &was.cni, &filled.cni),
        ("cpi", Role::Cpi, &was.cpi, &filled.cpi),
        ("csi", Role::Csi, &was.csi, &filled.csi),
    ] {
        let path = format!("/spec/{field}");
        match (was, filled) {
            (None, None) => {}
            (Some(_), None) => steps.push(Step::remove(path)),
            (None, Some(filled)) => {
                let entry = entry(filled, text_with_values(&stored, role, filled))?;
                steps.push(Step::add(path, entry));
            }
            (Some(was), Some(filled)) => {
                complete(&path, was, filled, text_with_values(&stored, role, filled), steps)?;
            }
        }
    }
    if was.additional_packages != filled.additional_packages {
        let texts = own.packages()?.into_iter();
        let written: Vec<_> = texts.filter(|(role, ..)| *role == Role::Additional).collect();
        let mut list: Vec<Box<RawValue>> = Vec::new();
        let mut completions = Vec::new();
        for (index, package) in filled.additional_packages.iter().enumerate() {
            let stored = text_with_values(&stored, Role::Additional, package);
            let mut own = named.additional_packages.iter();
            let place = own.position(|own| own.ref_name == package.ref_name);
            match place.and_then(|place| written.get(place)) {
                None => list.push(entry(package, stored)?),
                Some((_, was, text)) => {
                    list.push((*text).to_owned());
                    let path = format!("/spec/additionalPackages/{index}");
                    complete(&path, was, package, stored, &mut completions)?;
                }
            }
        }
        steps.push(Step::add(
            "/spec/additionalPackages".to_owned(),
            to_raw_value(&list)?,
        ));
        steps.extend(completions);
    }
    Ok(())
}

/// Returns the text of the stored package whose values `filled` has, if it has any: of the same name, otherwise of another version.
fn text_with_values<'a>(
    stored: &[PackageWithText<'a>],
    role: Role,
    filled: &ClusterBootstrapPackage,
) -> Option<&'a RawValue> {
    filled.values_from.as_ref()?;
    let of_role = || stored.iter().filter(move |(of, ..)| *of == role);
    let same_name = of_role().find(|(_, package, _)| package.ref_name == filled.ref_name);
    let found = same_name
        .or_else(|| of_role().find(|(_, package, _)| short(&package.ref_name) == short(&filled.ref_name)));
    found.map(|(.., text)| *text)
}

/// Completes the name and the values of a package that the user lists.
fn complete(
    path: &str,
    was: &ClusterBootstrapPackage,
    filled: &ClusterBootstrapPackage,
    stored: Option<&RawValue>,
    steps: &mut Vec<Step>,
) -> serde_json::Result<()> {
    if was.ref_name != filled.ref_name {
        steps.push(Step::add(
            format!("{path}/refName"),
            to_raw_value(&filled.ref_name)?,
        ));
    }
    if let Some(stored) = stored.filter(|_| was.values_from.is_none()) {
        let values: Values<'_> = serde_json::from_str(stored.get())?;
        if let Some(values) = values.values_from {
            steps.push(Step::add(format!("{path}/valuesFrom"), values.to_owned()));
        }
    }
    Ok(())
}

/// Builds the entry of a package that the user does not list.
fn entry(package: &ClusterBootstrapPackage, stored: Option<&RawValue>) -> serde_json::Result<Box<RawValue>> {
    match stored {
        Some(stored) => Ok(stored.to_owned()),
        None => to_raw_value(&json!({"refName": package.ref_name})),
    }
}
