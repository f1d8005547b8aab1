//! The ClusterBootstrap of a release: made from its template, or merged with it.

use serde_json::{Value, json};

use crate::objects::{owner, package_secret, short, text};

/// A Package: the name of its object, and what all its versions have in common.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// `metadata.name`.
    pub(crate) name: String,
    /// `spec.refName`.
    pub(crate) ref_name: String,
}

/// Fields of packages that each have one place.
const CORE: [&str; 4] = ["cni", "cpi", "csi", "kapp"];

/// Every package of the spec of a ClusterBootstrap or of a template: kapp-controller's last.
pub(crate) fn entries(spec: &Value) -> Vec<&Value> {
    let core = CORE[..3].iter().map(|field| &spec[*field]);
    let additional = spec["additionalPackages"].as_array().into_iter().flatten();
    let all = core.chain(additional).chain([&spec["kapp"]]);
    all.filter(|entry| !entry.is_null()).collect()
}

/// The Packages that a release names.
pub(crate) fn names_of(release: &Value) -> Vec<String> {
    let packages = release["spec"]["bootstrapPackages"].as_array();
    packages
        .into_iter()
        .flatten()
        .map(|package| text(package, "/name"))
        .collect()
}

/// A new ClusterBootstrap of a Cluster. Secrets with values are named as their copies beside the Cluster are.
pub(crate) fn from_template(cluster: &Value, template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    let name = text(cluster, "/metadata/name");
    each(&mut spec, |entry| own_secret(entry, &name));
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3",
        "kind": "ClusterBootstrap",
        "metadata": {"name": name, "ownerReferences": [owner(cluster, true)]},
        "spec": spec,
    })
}

/// The spec of a ClusterBootstrap with the packages of another release: `release` names its Packages, `template` has their entries.
/// `own` and `of_template` are the additional ones of both. Values stay what they are, and nothing is removed.
///
/// # Errors
/// No Package of the release follows the CNI.
pub(crate) fn merged(
    cluster: &str,
    spec: &Value,
    template: &Value,
    release: &[String],
    own: &[Named],
    of_template: &[Named],
) -> anyhow::Result<Value> {
    let mut merged = spec.clone();
    let following = |old: &str| {
        let named = |name: &&String| name.starts_with(short(old));
        release.iter().find(named).cloned()
    };
    for field in CORE {
        let taken = &template["spec"][field];
        if merged[field].is_null() {
            if !taken.is_null() {
                merged[field] = taken.clone();
                own_secret(&mut merged[field], cluster);
            }
        } else if field == "cni" {
            let old = text(&merged, "/cni/refName");
            let next = following(&old);
            let next = next.ok_or_else(|| anyhow::anyhow!("no Package of the release follows {old}"))?;
            merged["cni"]["refName"] = json!(next);
        } else {
            merged[field]["refName"] = taken["refName"].clone();
        }
    }
    for entry in merged["additionalPackages"].as_array_mut().into_iter().flatten() {
        let old = text(entry, "/refName");
        let ref_name = own.iter().find(|known| known.name == old);
        let next = ref_name.and_then(|known| of_template.iter().find(|next| next.ref_name == known.ref_name));
        if let Some(next) = next.map(|next| next.name.clone()).or_else(|| following(&old)) {
            entry["refName"] = json!(next);
        }
    }
    let is_new = |next: &&Named| !own.iter().any(|known| known.ref_name == next.ref_name);
    for next in of_template.iter().filter(is_new) {
        let entries = template["spec"]["additionalPackages"].as_array();
        let entry = entries
            .into_iter()
            .flatten()
            .find(|entry| entry["refName"] == next.name);
        if let Some(entry) = entry {
            let mut entry = entry.clone();
            own_secret(&mut entry, cluster);
            match merged["additionalPackages"].as_array_mut() {
                Some(all) => all.push(entry),
                None => merged["additionalPackages"] = json!([entry]),
            }
        }
    }
    Ok(merged)
}

/// Name of the Secret beside the Cluster that a package takes its values from; none where it takes none.
pub(crate) fn secret_of(entry: &Value, cluster: &str) -> Option<String> {
    let values = &entry["valuesFrom"];
    let inline = !values["inline"].is_null();
    let own = inline.then(|| package_secret(cluster, &text(entry, "/refName")));
    own.or_else(|| values["secretRef"].as_str().map(str::to_owned))
}

fn each(spec: &mut Value, change: impl Fn(&mut Value)) {
    for field in CORE {
        if !spec[field].is_null() {
            change(&mut spec[field]);
        }
    }
    let additional = spec["additionalPackages"].as_array_mut();
    additional.into_iter().flatten().for_each(change);
}

fn own_secret(entry: &mut Value, cluster: &str) {
    if !entry["valuesFrom"]["secretRef"].is_null() {
        entry["valuesFrom"]["secretRef"] = json!(package_secret(cluster, &text(entry, "/refName")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(short: &str, version: &str) -> Named {
        Named {
            name: format!("{short}.test.{version}"),
            ref_name: format!("{short}.test"),
        }
    }

    #[test]
    fn packages_follow_the_release_and_keep_their_values() {
        let spec = json!({
            "kapp": {"refName": "kapp-controller.test.1"},
            "cni": {"refName": "antrea.test.1", "valuesFrom": {"inline": {"a": 1}}},
            "additionalPackages": [{"refName": "metrics.test.1", "valuesFrom": {"secretRef": "mine"}}],
        });
        let template = json!({"spec": {
            "kapp": {"refName": "kapp-controller.test.2"},
            "cni": {"refName": "calico.test.2"},
            "additionalPackages": [
                {"refName": "metrics.test.2"},
                {"refName": "pinniped.test.2", "valuesFrom": {"secretRef": "pinniped-values"}},
            ],
        }});
        let release = ["antrea.test.2", "calico.test.2", "kapp-controller.test.2"].map(str::to_owned);
        let merged = merged(
            "one",
            &spec,
            &template,
            &release,
            &[named("metrics", "1")],
            &[named("metrics", "2"), named("pinniped", "2")],
        )
        .unwrap();
        assert_eq!(merged["kapp"]["refName"], "kapp-controller.test.2");
        assert_eq!(
            merged["cni"],
            json!({"refName": "antrea.test.2", "valuesFrom": {"inline": {"a": 1}}})
        );
        assert_eq!(
            merged["additionalPackages"],
            json!([
                {"refName": "metrics.test.2", "valuesFrom": {"secretRef": "mine"}},
                {"refName": "pinniped.test.2", "valuesFrom": {"secretRef": "one-pinniped-package"}},
            ])
        );
        assert_eq!(merged.get("cpi"), None);
    }
}
