//! Releases and packages: 50 releases of ten minors, each with eight packages of its minor.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::kinds::{ANTREA, CPI, RELEASE};
use crate::stack::SYSTEM_NAMESPACE;

/// Where the values of a package come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Nowhere,
    Inline,
    Secret,
    Antrea,
    Cpi,
}

/// Short names of the packages, in the order in which a ClusterBootstrap has them.
const PACKAGES: [(&str, From); 8] = [
    ("kapp-controller", From::Inline),
    ("antrea", From::Antrea),
    ("vsphere-cpi", From::Cpi),
    ("vsphere-csi", From::Secret),
    ("metrics-server", From::Nowhere),
    ("secretgen-controller", From::Inline),
    ("pinniped", From::Secret),
    ("capabilities", From::Nowhere),
];

const OLDEST: u16 = 27;
const NEWEST: u16 = 36;
const BUILDS: u16 = 5;

/// Settings that a schema of values describes.
const SETTINGS: usize = 40;

/// The package that a release gets once more, of another minor.
const ADDED: &str = "pinniped";

/// Packages of one cluster.
pub(super) const SET: usize = PACKAGES.len();

/// `v1.35.4`.
pub(super) fn kubernetes(minor: u16) -> String {
    format!("v1.{minor}.4")
}

/// Name of a release, `v1.35.4---vmware.1-tkg.1`.
pub(super) fn release_name(minor: u16, build: u16) -> String {
    format!("{}---vmware.1-tkg.{build}", kubernetes(minor))
}

fn ref_name(short: &str) -> String {
    format!("{short}.tanzu.vmware.com")
}

fn version(minor: u16) -> String {
    format!("1.{minor}.0+vmware.1-tkg.1")
}

/// Name of a Package. A `+` is none of a name.
pub(super) fn package_name(short: &str, minor: u16) -> String {
    format!("{}.{}", ref_name(short), version(minor).replace('+', "---"))
}

/// What kapp-controller makes an App of, for `Package.spec.refName` and `Package.spec.version`.
pub(super) fn template(ref_name: &str, version: &str) -> Value {
    json!({
        "fetch": [{"imgpkgBundle": {"image": format!("registry.invalid/packages/{ref_name}:{}", version.replace('+', "_"))}}],
        "template": [
            {"ytt": {"paths": ["config/"], "ignoreUnknownComments": true}},
            {"kbld": {"paths": ["-", ".imgpkg/images.yml"]}},
        ],
        "deploy": [{"kapp": {"rawOptions": ["--wait-timeout=5m", "--kube-api-qps=20", "--kube-api-burst=30"]}}],
    })
}

/// All objects.
pub(super) fn objects() -> Vec<Value> {
    let minors = || OLDEST..=NEWEST;
    let packages = minors().flat_map(|minor| PACKAGES.map(|(short, _)| package(short, minor)));
    let releases = minors().flat_map(|minor| {
        (1..=BUILDS).flat_map(move |build| [bootstrap(minor, build), release(minor, build)])
    });
    let secrets = PACKAGES
        .iter()
        .filter(|(_, from)| *from == From::Secret)
        .map(|(short, _)| secret(short));
    packages.chain(secrets).chain(releases).collect()
}

fn package(short: &str, minor: u16) -> Value {
    let (ref_name, version) = (ref_name(short), version(minor));
    let settings = (0..SETTINGS).map(|setting| {
        let schema = json!({
            "type": "string",
            "default": "",
            "description": format!("Setting {setting} of {short}: what it does, and which values it takes."),
        });
        (format!("setting{setting}"), schema)
    });
    let settings: serde_json::Map<String, Value> = settings.collect();
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1",
        "kind": "Package",
        "metadata": {"name": package_name(short, minor), "namespace": SYSTEM_NAMESPACE},
        "spec": {
            "refName": ref_name,
            "version": version,
            "releaseNotes": format!("{short} {version}"),
            "licenses": ["Apache-2.0"],
            "capacityRequirementsDescription": "Varies with the size of the cluster.",
            "template": {"spec": template(&ref_name, &version)},
            "valuesSchema": {"openAPIv3": {"type": "object", "title": short, "properties": settings}},
        },
    })
}

fn bootstrap(minor: u16, build: u16) -> Value {
    let name = release_name(minor, build);
    let entry = |(short, from): (&str, From)| {
        let mut entry = json!({"refName": package_name(short, minor)});
        match from {
            From::Nowhere => {}
            From::Inline => {
                entry["valuesFrom"] =
                    json!({"inline": {"deployment": {"updateStrategy": "RollingUpdate"}, "replicas": 1}});
            }
            From::Secret => entry["valuesFrom"] = json!({"secretRef": secret_name(short)}),
            From::Antrea => entry["valuesFrom"] = json!({"providerRef": ANTREA.reference(&name)}),
            From::Cpi => entry["valuesFrom"] = json!({"providerRef": CPI.reference(&name)}),
        }
        entry
    };
    let [kapp, cni, cpi, csi, additional @ ..] = PACKAGES.map(entry);
    json!({
        "apiVersion": RELEASE.api_version(),
        "kind": "ClusterBootstrapTemplate",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "spec": {"kapp": kapp, "cni": cni, "cpi": cpi, "csi": csi, "additionalPackages": additional},
    })
}

/// Returns a release without OSImages: a release that names missing ones holds the upgrades to it.
fn release(minor: u16, build: u16) -> Value {
    let packages = PACKAGES.map(|(short, _)| json!({"name": package_name(short, minor)}));
    json!({
        "apiVersion": RELEASE.api_version(),
        "kind": "TanzuKubernetesRelease",
        "metadata": {"name": release_name(minor, build)},
        "spec": {
            "version": format!("{}+vmware.1-tkg.{build}", kubernetes(minor)),
            "kubernetes": {
                "version": kubernetes(minor),
                "imageRepository": "registry.invalid/tkg",
                "etcd": {"imageTag": "v3.6.4_vmware.1"},
                "pause": {"imageTag": "3.10"},
                "coredns": {"imageTag": "v1.12.1_vmware.1"},
            },
            "bootstrapPackages": packages,
        },
    })
}

/// A change of a release: it names a package of the next minor beside its own, and no longer one that an earlier change has brought.
/// So each change in a row makes another release of it.
pub(super) fn another_package(release: &Value) -> Value {
    let own = release["spec"]["kubernetes"]["version"]
        .as_str()
        .unwrap_or_default();
    let names = release["spec"]["bootstrapPackages"].as_array();
    let listed: Vec<&str> = names
        .into_iter()
        .flatten()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let others = || (OLDEST..=NEWEST).filter(|minor| kubernetes(*minor) != own);
    let brought = |minor: &u16| listed.contains(&package_name(ADDED, *minor).as_str());
    let next = match others().find(brought) {
        Some(brought) => others().find(|minor| *minor > brought),
        None => None,
    };
    let added = next.or_else(|| others().next()).unwrap_or(OLDEST);
    let kept = listed
        .iter()
        .filter(|name| !others().any(|minor| **name == package_name(ADDED, minor)));
    let mut packages: Vec<Value> = kept.map(|name| json!({"name": name})).collect();
    packages.push(json!({"name": package_name(ADDED, added)}));
    json!({"spec": {"bootstrapPackages": packages}})
}

fn secret_name(short: &str) -> String {
    format!("{short}-default-values")
}

fn secret(short: &str) -> Value {
    let values = format!("{short}:\n  replicas: 1\n  logLevel: info\n");
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": secret_name(short), "namespace": SYSTEM_NAMESPACE},
        "data": {"values.yaml": BASE64_STANDARD.encode(values)},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fleet::MINORS;

    fn of_kind(kind: &str) -> Vec<Value> {
        objects()
            .into_iter()
            .filter(|object| object["kind"] == kind)
            .collect()
    }

    #[test]
    fn every_release_has_a_template_whose_packages_exist() {
        let names = |kind| -> BTreeSet<String> {
            let names = of_kind(kind).into_iter();
            names
                .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let packages = names("Package");
        assert_eq!((packages.len(), names("TanzuKubernetesRelease").len()), (80, 50));
        assert_eq!(names("TanzuKubernetesRelease"), names("ClusterBootstrapTemplate"));
        for release in of_kind("TanzuKubernetesRelease") {
            let listed = release["spec"]["bootstrapPackages"].as_array().unwrap();
            assert_eq!(listed.len(), SET);
            assert!(
                listed
                    .iter()
                    .all(|package| packages.contains(package["name"].as_str().unwrap()))
            );
        }
        for minor in MINORS {
            assert!(names("TanzuKubernetesRelease").contains(&release_name(minor, 1)));
        }
    }

    #[test]
    fn two_packages_have_values_of_a_configuration() {
        let template = &of_kind("ClusterBootstrapTemplate")[0]["spec"];
        for (field, kind) in [("cni", "AntreaConfig"), ("cpi", "VSphereCPIConfig")] {
            assert_eq!(template[field]["valuesFrom"]["providerRef"]["kind"], kind);
        }
        assert_eq!(template["additionalPackages"].as_array().unwrap().len(), SET - 4);
    }

    #[test]
    fn consecutive_changes_all_differ() {
        let mut now = release(MINORS[0], 1);
        let mut seen = vec![now["spec"]["bootstrapPackages"].clone()];
        for size in 0..5 {
            let change = another_package(&now);
            let packages = change["spec"]["bootstrapPackages"].clone();
            assert_eq!(packages.as_array().unwrap().len(), SET + 1);
            assert!(!seen.contains(&packages), "change {size}");
            now["spec"]["bootstrapPackages"] = packages.clone();
            seen.push(packages);
        }
    }
}
