//! Patch that completes the spec of a ClusterBootstrap. Fields of a user stay unchanged, or are copied byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue, value::to_raw_value};
use sluice_core::admission::Completed;
use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec};

/// Operation of RFC 6902.
#[derive(Serialize)]
struct Step<'a> {
    op: &'static str,
    path: String,
    value: &'a RawValue,
}

/// Additional packages as written by the user.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written<'a> {
    #[serde(borrow)]
    additional_packages: Option<Vec<&'a RawValue>>,
}

/// Returns the RFC 6902 patch of the object that completes the spec `was`, written as `text`.
pub(super) fn patch(
    text: &str,
    was: &ClusterBootstrapSpec,
    Completed { named, filled }: &Completed,
) -> serde_json::Result<String> {
    let mut values: Vec<(String, Box<RawValue>)> = Vec::new();
    for (field, was, filled) in [
        ("kapp", &was.kapp, &filled.kapp),
        ("cni", &was.cni, &filled.cni),
        ("cpi", &was.cpi, &filled.cpi),
        ("csi", &was.csi, &filled.csi),
    ] {
        match (was, filled) {
            (None, Some(filled)) => values.push((format!("/spec/{field}"), reference(filled)?)),
            (Some(was), Some(filled)) if was.ref_name != filled.ref_name => {
                values.push((format!("/spec/{field}/refName"), to_raw_value(&filled.ref_name)?));
            }
            _ => {}
        }
    }
    if was.additional_packages != filled.additional_packages {
        let written: Written<'_> = serde_json::from_str(text)?;
        let written = written.additional_packages.unwrap_or_default();
        let mut list: Vec<Box<RawValue>> = Vec::new();
        let mut names = Vec::new();
        for (index, package) in filled.additional_packages.iter().enumerate() {
            let mut own = named.additional_packages.iter();
            let place = own.position(|own| own.ref_name == package.ref_name);
            let own =
                place.and_then(|place| Some((was.additional_packages.get(place)?, written.get(place)?)));
            let Some((was, text)) = own else {
                list.push(reference(package)?);
                continue;
            };
            list.push((*text).to_owned());
            if was.ref_name != package.ref_name {
                let path = format!("/spec/additionalPackages/{index}/refName");
                names.push((path, to_raw_value(&package.ref_name)?));
            }
        }
        values.push(("/spec/additionalPackages".to_owned(), to_raw_value(&list)?));
        values.extend(names);
    }
    let steps: Vec<Step<'_>> = values
        .iter()
        .map(|(path, value)| Step {
            op: "add",
            path: path.clone(),
            value,
        })
        .collect();
    serde_json::to_string(&steps)
}

/// Builds an entry for a package without values.
fn reference(package: &ClusterBootstrapPackage) -> serde_json::Result<Box<RawValue>> {
    to_raw_value(&json!({"refName": package.ref_name}))
}
