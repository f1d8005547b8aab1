//! Patch that completes the spec of a ClusterBootstrap. Fields of a user stay unchanged, or are copied byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue, value::to_raw_value};
use sluice_core::packages::bootstrap::{Completed, Role, packages};
use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec};

/// Operation of RFC 6902.
#[derive(Serialize)]
struct Step {
    op: &'static str,
    path: String,
    value: Box<RawValue>,
}

impl Step {
    const fn add(path: String, value: Box<RawValue>) -> Self {
        Self {
            op: "add",
            path,
            value,
        }
    }
}

/// Spec and its text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written<'a> {
    /// Text; empty without a spec.
    pub(super) text: &'a str,
    pub(super) spec: &'a ClusterBootstrapSpec,
}

impl<'a> Written<'a> {
    /// Returns all packages with their text.
    fn packages(self) -> serde_json::Result<Vec<(Role, &'a ClusterBootstrapPackage, &'a RawValue)>> {
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

/// Returns the RFC 6902 patch that completes the spec `own`, with values of the `stored` one.
pub(super) fn patch(
    own: Written<'_>,
    stored: Option<Written<'_>>,
    Completed { named, filled }: &Completed,
) -> serde_json::Result<String> {
    let stored = stored.map(Written::packages).transpose()?.unwrap_or_default();
    let was = own.spec;
    let mut steps = Vec::new();
    for (field, role, was, filled) in [
        ("kapp", Role::KappController, &was.kapp, &filled.kapp),
        ("cni", Role::Cni, &was.cni, &filled.cni),
        ("cpi", Role::Cpi, &was.cpi, &filled.cpi),
        ("csi", Role::Csi, &was.csi, &filled.csi),
    ] {
        let Some(filled) = filled else { continue };
        let path = format!("/spec/{field}");
        let stored = valued(&stored, role, filled);
        match was {
            None => steps.push(Step::add(path, entry(filled, stored)?)),
            Some(was) => complete(&path, was, filled, stored, &mut steps)?,
        }
    }
    if was.additional_packages != filled.additional_packages {
        let texts = own.packages()?.into_iter();
        let written: Vec<_> = texts.filter(|(role, ..)| *role == Role::Additional).collect();
        let mut list: Vec<Box<RawValue>> = Vec::new();
        let mut completions = Vec::new();
        for (index, package) in filled.additional_packages.iter().enumerate() {
            let stored = valued(&stored, Role::Additional, package);
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
    serde_json::to_string(&steps)
}

/// Returns the text of the stored package with the values of `filled`, if it has any.
fn valued<'a>(
    stored: &[(Role, &ClusterBootstrapPackage, &'a RawValue)],
    of: Role,
    filled: &ClusterBootstrapPackage,
) -> Option<&'a RawValue> {
    filled.values_from.as_ref()?;
    let mut stored = stored.iter();
    let found = stored.find(|(role, package, _)| *role == of && package.ref_name == filled.ref_name);
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
