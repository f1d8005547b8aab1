//! Property: the gate accepts every admitted ClusterBootstrap. See also the property of plans in `reconcile/cluster/tests/admitted.rs`.

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{judged, package, review, seen, state};
use crate::{
    admission::{Lookup, LookupResult},
    packages::bootstrap::{Catalogue, Inputs, KeptVersions, Release, below_release, packages},
    reasons::GateReason,
};
use serde_json::{Value, json};
use sluice_crds::labels::annotation;

/// Values sources, most of them valid.
fn values() -> impl Strategy<Value = Value> {
    let antrea = json!({"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "one"});
    let good = vec![
        Value::Null,
        json!({}),
        json!({"inline": {}}),
        json!({"secretRef": "values"}),
        json!({"providerRef": antrea}),
    ];
    prop_oneof![9 => select(good), 1 => bad_values()]
}

fn bad_values() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"secretRef": "no-values"}),
        json!({"secretRef": "credential"}),
        json!({"secretRef": "one-ca"}),
        json!({"secretRef": "other-sa"}),
        json!({"secretRef": "a/b"}),
        json!({"inline": {}, "secretRef": "values"}),
        json!({"providerRef": {"apiGroup": "cni.tanzu.vmware.com", "kind": "AntreaConfig", "name": "no-one"}}),
        json!({"providerRef": {"kind": "Secret", "name": "values"}}),
        json!({"providerRef": {"apiGroup": "", "kind": "Secret", "name": "values"}}),
        json!({"providerRef": {"apiGroup": "cluster.x-k8s.io", "kind": "Cluster", "name": "one"}}),
        json!({"providerRef": {"apiGroup": "a.test", "kind": "Foo", "name": "one"}}),
        json!({"providerRef": {"apiGroup": "a.test", "kind": "Unserved", "name": "one"}}),
        json!({"providerRef": {"apiGroup": "a.tanzu.vmware.com", "kind": "Foo", "name": "one"}}),
        json!({"providerRef": {"apiGroup": "a.tanzu.vmware.com", "kind": "Wide", "name": "one"}}),
        json!({"providerRef": {"apiGroup": "run.tanzu.vmware.com", "kind": "ClusterBootstrap", "name": "one"}}),
    ])
}

fn listed(shorts: &[&'static str]) -> impl Strategy<Value = Value> + use<> {
    let versions = [
        "1.0.0",
        "1.1.0",
        "2.0.0",
        "2.0.0+vmware.1-tkg.1",
        "2.0.0+vmware.1-tkg.2",
    ];
    let version = prop_oneof![20 => select(versions.to_vec()), 1 => Just("0.0.0")];
    (select(shorts.to_vec()), version, values()).prop_map(|(short, version, values)| {
        let mut listed = json!({"refName": package(short, version)});
        if !values.is_null() {
            listed["valuesFrom"] = values;
        }
        listed
    })
}

/// The spec of a ClusterBootstrap, valid or invalid.
pub(crate) fn spec() -> impl Strategy<Value = Value> {
    let one = |shorts: &[&'static str]| option::weighted(0.95, listed(shorts));
    (
        one(&["kapp-controller"]),
        one(&["antrea", "antrea", "antrea", "calico"]),
        one(&["vsphere-csi", "vsphere-csi", "metrics"]),
        vec(listed(&["metrics", "foo", "bar", "antrea"]), 0..3),
    )
        .prop_map(|(kapp, cni, csi, additional)| {
            json!({"kapp": kapp, "cni": cni, "csi": csi, "additionalPackages": additional})
        })
}

/// A spec and its edited version, with some fields of another spec.
fn edited() -> impl Strategy<Value = (Value, Value)> {
    (spec(), spec(), vec(proptest::bool::weighted(0.4), 4)).prop_map(|(old, other, taken)| {
        let mut new = old.clone();
        for (field, _) in ["kapp", "cni", "csi", "additionalPackages"]
            .into_iter()
            .zip(taken)
            .filter(|(_, taken)| *taken)
        {
            new[field] = other[field].clone();
        }
        (old, new)
    })
}

/// Annotations that the rules read.
pub(crate) fn annotations() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let kept = [
        "antrea=1.0.0",
        "metrics=none,foo=1.1.0",
        "vsphere-csi=none",
        "foo",
    ];
    let kept = option::weighted(0.3, select(kept.to_vec()));
    (kept, proptest::bool::weighted(0.1)).prop_map(|(kept, unmanaged)| {
        let unmanaged = unmanaged.then_some((annotation::UNMANAGED_CNI, ""));
        let kept = kept.map(|kept| (annotation::KEEP_PACKAGE_VERSIONS, kept));
        unmanaged.into_iter().chain(kept).collect()
    })
}

/// Facts of the packages that specs list.
pub(crate) fn catalogue<'a>(names: impl IntoIterator<Item = &'a String>) -> Catalogue {
    let facts = |name: &String| match seen(&Lookup::Package(name.clone())) {
        LookupResult::Package(facts) => Some((name.clone(), facts)),
        _ => None,
    };
    names.into_iter().filter_map(facts).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 1_000_000, ..ProptestConfig::with_cases(2_000) })]

    /// After any admitted update a ClusterBootstrap with the packages of a release still has them, or later ones.
    #[test]
    fn no_update_that_is_admitted_is_below_the_release(
        (old, new) in edited(),
        (was, is) in (annotations(), annotations()),
    ) {
        let (old, new) = (state(&old, &was), state(&new, &is));
        prop_assume!(judged(&review("one", None, old.clone())).faults.is_empty());
        let verdict = judged(&review("one", Some(old.clone()), new.clone()));
        // A CSI or CPI may be taken out, and a package may move to another field, each with a warning about the release.
        prop_assume!(old != new && verdict.faults.is_empty() && verdict.warnings.is_empty());
        let listed = packages(&old.spec).into_iter().chain(packages(&new.spec));
        let names: Vec<String> = listed.map(|(_, package)| package.ref_name.clone()).collect();
        let kept = new.annotations.get(annotation::KEEP_PACKAGE_VERSIONS);
        let kept = KeptVersions::parse(kept.map_or("", String::as_str)).unwrap();
        let of_release: Vec<String> = packages(&old.spec).into_iter().map(|(_, package)| package.ref_name.clone()).collect();
        let inputs = Inputs {
            cluster: "one",
            current: &new.spec,
            old: Some(&old.spec),
            new: &old.spec,
            release: Release { name: "release", packages: &of_release },
            catalogue: &catalogue(&names),
            unmanaged_cni: new.annotations.contains_key(annotation::UNMANAGED_CNI),
            kept: &kept,
        };
        let bound = [GateReason::PackageBelowRelease, GateReason::PackageMissing];
        prop_assert_eq!(below_release(&inputs).filter(|hold| bound.contains(&hold.reason)), None);
    }
}
