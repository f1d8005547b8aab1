use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::json;
use sluice_crds::run::{
    ClusterBootstrapPackage, ClusterBootstrapSpec, TypedLocalObjectReference, UpgradePolicy, ValuesFrom,
};

use super::*;
use crate::reasons::GateReason;

fn package(name: &str) -> ClusterBootstrapPackage {
    ClusterBootstrapPackage {
        ref_name: name.to_owned(),
        values_from: None,
    }
}

fn inline(value: i64) -> ValuesFrom {
    ValuesFrom {
        inline: Some(serde_json::from_value(json!({"a": value})).unwrap()),
        ..ValuesFrom::default()
    }
}

fn secret(name: &str) -> ValuesFrom {
    ValuesFrom {
        secret_ref: Some(name.to_owned()),
        ..ValuesFrom::default()
    }
}

fn provider(name: &str) -> ValuesFrom {
    let provider = TypedLocalObjectReference {
        api_group: Some("cni.x".to_owned()),
        kind: "Antrea".to_owned(),
        name: name.to_owned(),
    };
    ValuesFrom {
        provider_ref: Some(provider),
        ..ValuesFrom::default()
    }
}

fn with(name: &str, values: ValuesFrom) -> ClusterBootstrapPackage {
    ClusterBootstrapPackage {
        values_from: Some(values),
        ..package(name)
    }
}

/// Every package `<ref>.<version>` for versions 1 and 2.
fn catalogue() -> Catalogue {
    let refs = [
        "kapp.x",
        "antrea.x",
        "antrea-interworking.x",
        "calico.x",
        "cpi.x",
        "metrics.x",
        "own.x",
    ];
    refs.iter()
        .flat_map(|ref_name| {
            ["1", "2"].map(|version| {
                let facts = PackageFacts {
                    ref_name: (*ref_name).to_owned(),
                    version: version.to_owned(),
                    ..PackageFacts::default()
                };
                (format!("{ref_name}.{version}"), facts)
            })
        })
        .collect::<BTreeMap<_, _>>()
}

fn template(version: &str) -> ClusterBootstrapSpec {
    ClusterBootstrapSpec {
        kapp: Some(package(&format!("kapp.x.{version}"))),
        cni: Some(package(&format!("antrea.x.{version}"))),
        additional_packages: vec![package(&format!("metrics.x.{version}"))],
        ..ClusterBootstrapSpec::default()
    }
}

fn merged(
    current: &ClusterBootstrapSpec,
    old: Option<&ClusterBootstrapSpec>,
    new: &ClusterBootstrapSpec,
) -> Result<Draft, Hold> {
    let packages: Vec<String> = ["antrea-interworking.x.2", "antrea.x.2", "calico.x.2", "own.x.2"]
        .map(str::to_owned)
        .into();
    merge(&Inputs {
        cluster: "c",
        current,
        old,
        new,
        release: Release {
            name: "v2",
            packages: &packages,
        },
        catalogue: &catalogue(),
        unmanaged_cni: false,
        kept: &KeptVersions::default(),
    })
}

/// An upgrade leaves the policy to the user.
#[test]
fn the_policy_of_a_template_is_that_of_new_clusters() {
    let policy: UpgradePolicy = serde_json::from_value(json!({"onCancel": "Rollback"})).unwrap();
    let release = ClusterBootstrapSpec {
        upgrade_policy: Some(policy.clone()),
        ..template("2")
    };
    let created = from_template("c", &release, &catalogue()).unwrap();
    assert_eq!(created.spec.upgrade_policy, Some(policy));
    let upgraded = merged(&template("1"), Some(&template("1")), &release).unwrap();
    assert_eq!(upgraded.spec.upgrade_policy, None);
}

#[test]
fn a_cluster_starts_as_its_template_with_its_own_values() {
    let mut spec = template("1");
    spec.paused = true;
    spec.kapp = Some(with("kapp.x.1", provider("v1")));
    spec.cni = Some(with("antrea.x.1", secret("shared")));
    spec.additional_packages = vec![with("metrics.x.1", inline(1))];

    let Draft { spec, clones, .. } = from_template("c", &spec, &catalogue()).unwrap();

    assert!(!spec.paused, "the pause of a template is about the template");
    assert_eq!(spec.kapp, Some(with("kapp.x.1", provider("c-kapp-package"))));
    assert_eq!(spec.cni, Some(with("antrea.x.1", secret("c-antrea-package"))));
    assert_eq!(spec.additional_packages, [with("metrics.x.1", inline(1))]);
    let names: Vec<_> = clones
        .iter()
        .map(|clone| match clone {
            ValuesClone::Inline { secret, .. } => ("inline", secret.as_str()),
            ValuesClone::Secret { from, to, .. } => (from.as_str(), to.as_str()),
            ValuesClone::Provider { from, to, .. } => (from.name.as_str(), to.as_str()),
        })
        .collect();
    assert_eq!(
        names,
        [
            ("v1", "c-kapp-package"),
            ("shared", "c-antrea-package"),
            ("inline", "c-metrics-package")
        ]
    );
}

#[test]
fn a_template_that_names_a_missing_package_is_refused_by_name() {
    let spec = ClusterBootstrapSpec {
        csi: Some(package("csi.x.7")),
        ..template("1")
    };
    let hold = from_template("c", &spec, &catalogue()).unwrap_err();
    assert_eq!(hold.reason, GateReason::PackageNotFound);
    assert!(hold.message.contains("csi.x.7"), "{hold}");
}

#[test]
fn two_sources_of_values_are_refused() {
    let both = ValuesFrom {
        secret_ref: Some("s".to_owned()),
        ..inline(1)
    };
    let spec = ClusterBootstrapSpec {
        cni: Some(with("antrea.x.1", both)),
        ..template("1")
    };
    assert_eq!(
        from_template("c", &spec, &catalogue()).unwrap_err().reason,
        GateReason::ValuesSourceAmbiguous
    );
}

#[test]
fn versions_follow_the_release_and_values_stay() {
    let mut current = template("1");
    current.cni = Some(with("antrea.x.1", inline(7)));
    let Draft { spec, clones, .. } = merged(&current, Some(&template("1")), &template("2")).unwrap();
    assert_eq!(
        spec,
        ClusterBootstrapSpec {
            cni: Some(with("antrea.x.2", inline(7))),
            ..template("2")
        }
    );
    assert_eq!(clones, []);
}

#[test]
fn merging_twice_changes_nothing() {
    let once = merged(&template("1"), Some(&template("1")), &template("2"))
        .unwrap()
        .spec;
    assert_eq!(
        merged(&once, Some(&template("1")), &template("2")).unwrap().spec,
        once
    );
}

#[rstest]
#[case::chosen_instead_of_the_default("calico.x.1", "calico.x.2")]
#[case::not_confused_by_a_common_prefix("antrea.x.1", "antrea.x.2")]
fn the_cni_follows_the_release_and_not_the_template(#[case] before: &str, #[case] after: &str) {
    let current = ClusterBootstrapSpec {
        cni: Some(package(before)),
        ..template("1")
    };
    assert_eq!(
        merged(&current, None, &template("2")).unwrap().spec.cni,
        Some(package(after))
    );
}

#[test]
fn a_cni_that_the_release_does_not_list_is_refused() {
    let current = ClusterBootstrapSpec {
        cni: Some(package("cpi.x.1")),
        ..template("1")
    };
    let hold = merged(&current, None, &template("2")).unwrap_err();
    assert_eq!(hold.reason, GateReason::PackageNotInRelease);
    assert!(
        hold.message.contains("v2") && hold.message.contains("cpi.x"),
        "{hold}"
    );
}

#[test]
fn a_cni_that_the_release_lists_and_that_does_not_exist_is_refused_by_name() {
    let mut catalogue = catalogue();
    catalogue.remove("antrea.x.2");
    let packages = ["antrea-interworking.x.2", "antrea.x.2", "kapp.x.2"].map(str::to_owned);
    let hold = merge(&Inputs {
        cluster: "c",
        current: &template("1"),
        old: None,
        new: &template("2"),
        release: Release {
            name: "v2",
            packages: &packages,
        },
        catalogue: &catalogue,
        unmanaged_cni: false,
        kept: &KeptVersions::default(),
    })
    .unwrap_err();
    assert_eq!(hold.reason, GateReason::PackageNotFound);
    assert!(
        hold.message.contains("Package antrea.x.2,") && hold.message.contains("v2"),
        "{hold}"
    );
}

#[test]
fn nothing_is_removed_and_new_packages_of_the_template_are_added() {
    let mut current = template("1");
    current.cpi = Some(package("cpi.x.1"));
    current.additional_packages = vec![package("own.x.1"), package("metrics.x.1")];
    let mut new = template("2");
    new.additional_packages.push(package("calico.x.2"));

    let spec = merged(&current, Some(&template("1")), &new).unwrap().spec;

    assert_eq!(
        spec.cpi,
        Some(package("cpi.x.1")),
        "a template without a CPI leaves the cluster's"
    );
    let names: Vec<_> = spec
        .additional_packages
        .iter()
        .map(|package| package.ref_name.as_str())
        .collect();
    assert_eq!(names, ["own.x.2", "metrics.x.2", "calico.x.2"]);
}

#[rstest]
#[case::nobody_chose_values(None, None, true)]
#[case::the_user_did(Some(inline(9)), None, false)]
#[case::the_old_template_had_some(None, Some(inline(1)), false)]
fn new_values_of_a_template_are_used_if_there_were_none(
    #[case] chosen: Option<ValuesFrom>,
    #[case] old_values: Option<ValuesFrom>,
    #[case] taken: bool,
) {
    let metrics = |version: &str, values: Option<ValuesFrom>| ClusterBootstrapSpec {
        additional_packages: vec![ClusterBootstrapPackage {
            values_from: values,
            ..package(&format!("metrics.x.{version}"))
        }],
        ..template(version)
    };
    let draft = merged(
        &metrics("1", chosen.clone()),
        Some(&metrics("1", old_values)),
        &metrics("2", Some(secret("shared"))),
    )
    .unwrap();
    let expected = if taken {
        Some(secret("c-metrics-package"))
    } else {
        chosen
    };
    assert_eq!(draft.spec.additional_packages[0].values_from, expected);
    assert_eq!(draft.clones.len(), usize::from(taken));
}

#[test]
fn a_cni_beside_the_unmanaged_annotation_is_refused() {
    let (current, new, catalogue) = (template("1"), template("2"), catalogue());
    let inputs = Inputs {
        cluster: "c",
        current: &current,
        old: None,
        new: &new,
        release: Release {
            name: "v2",
            packages: &[],
        },
        catalogue: &catalogue,
        unmanaged_cni: true,
        kept: &KeptVersions::default(),
    };
    assert_eq!(
        merge(&inputs).unwrap_err().reason,
        GateReason::UnmanagedCNIConflict
    );
    let without = ClusterBootstrapSpec {
        cni: None,
        ..current.clone()
    };
    let draft = merge(&Inputs {
        current: &without,
        ..inputs
    })
    .unwrap();
    assert_eq!(draft.spec.cni, None, "an unmanaged CNI stays unmanaged");
}

#[test]
fn packages_come_in_the_order_in_which_they_are_waited_for() {
    let spec = ClusterBootstrapSpec {
        cpi: Some(package("cpi.x.1")),
        csi: Some(package("csi.x.1")),
        ..template("1")
    };
    let roles: Vec<_> = packages(&spec).into_iter().map(|(role, _)| role).collect();
    assert_eq!(
        roles,
        [
            Role::KappController,
            Role::Cni,
            Role::Cpi,
            Role::Csi,
            Role::Additional
        ]
    );
}
