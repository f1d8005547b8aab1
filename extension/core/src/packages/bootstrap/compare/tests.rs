use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::run::{
    ClusterBootstrapPackage, ClusterBootstrapSpec, Gate, Hook, Outcome, SCHEMA, UpgradeRecord,
};

use crate::{
    packages::bootstrap::{
        Catalogue, Inputs, KeptVersions, PackageFacts, Release, below_release, merge, must_match_release,
    },
    reasons::GateReason,
    upgrade::hop::{ControlPlaneFacts, Plan, WorkerFacts, progress},
};

const VERSIONS: [&str; 4] = [
    "1.0.0+x.1-tkg.1",
    "1.0.0+x.1-tkg.2",
    "2.0.0+x.1-tkg.1",
    "3.0.0+x.1-tkg.1",
];
const OLD: &str = VERSIONS[0];
const NEW: &str = VERSIONS[2];
const HIGHER: &str = VERSIONS[3];

fn package(ref_name: &str, version: &str) -> ClusterBootstrapPackage {
    ClusterBootstrapPackage {
        ref_name: format!("{ref_name}.{version}"),
        values_from: None,
    }
}

/// Every version of every package.
fn catalogue() -> Catalogue {
    let refs = [
        "kapp.x",
        "antrea.x",
        "calico.x",
        "cpi.x",
        "csi.x",
        "pv-csi.x",
        "metrics.x",
        "own.x",
    ];
    let one = |ref_name: &str, version: &str| {
        let facts = PackageFacts {
            ref_name: ref_name.to_owned(),
            version: version.to_owned(),
            ..PackageFacts::default()
        };
        (format!("{ref_name}.{version}"), facts)
    };
    let all = refs
        .iter()
        .flat_map(|ref_name| VERSIONS.map(|version| one(ref_name, version)));
    all.chain([one("antrea.x", "nightly")]).collect()
}

/// Everything that a release has, at one version.
fn full(version: &str) -> ClusterBootstrapSpec {
    ClusterBootstrapSpec {
        kapp: Some(package("kapp.x", version)),
        cni: Some(package("antrea.x", version)),
        cpi: Some(package("cpi.x", version)),
        csi: Some(package("csi.x", version)),
        additional_packages: vec![package("metrics.x", version)],
        ..ClusterBootstrapSpec::default()
    }
}

fn with(edit: impl FnOnce(&mut ClusterBootstrapSpec)) -> ClusterBootstrapSpec {
    let mut spec = full(NEW);
    edit(&mut spec);
    spec
}

/// Compares or merges a spec with a release that has all packages at [`NEW`].
fn inputs<T>(
    current: &ClusterBootstrapSpec,
    kept: &str,
    unmanaged_cni: bool,
    judge: impl FnOnce(&Inputs<'_>) -> T,
) -> T {
    let (new, catalogue) = (full(NEW), catalogue());
    let packages =
        ["kapp.x", "antrea.x", "calico.x", "cpi.x", "csi.x", "metrics.x"].map(|name| format!("{name}.{NEW}"));
    judge(&Inputs {
        cluster: "one",
        current,
        old: None,
        new: &new,
        release: Release {
            name: "v2",
            packages: &packages,
        },
        catalogue: &catalogue,
        unmanaged_cni,
        kept: &KeptVersions::parse(kept).unwrap(),
    })
}

fn compared(current: &ClusterBootstrapSpec, kept: &str) -> Result<(), (GateReason, String)> {
    match inputs(current, kept, false, below_release) {
        None => Ok(()),
        Some(hold) => Err((hold.reason, hold.message)),
    }
}

type Spec = ClusterBootstrapSpec;
type Edit = fn(&mut Spec);

#[rstest]
#[case::as_merged(|_: &mut Spec| ())]
#[case::all_higher(|spec: &mut Spec| *spec = full(HIGHER))]
#[case::another_cni_of_the_release(|spec: &mut Spec| spec.cni = Some(package("calico.x", NEW)))]
#[case::an_unlisted_package(|spec: &mut Spec| spec.additional_packages.push(package("own.x", OLD)))]
#[case::another_order(|spec: &mut Spec| spec.additional_packages.insert(0, package("own.x", OLD)))]
fn equal_or_higher_versions_suffice(#[case] edit: Edit) {
    assert_eq!(compared(&with(edit), ""), Ok(()));
}

#[rstest]
#[case::all(|spec: &mut Spec| *spec = full(OLD), "spec.kapp")]
#[case::kapp_controller(|spec: &mut Spec| spec.kapp = Some(package("kapp.x", OLD)), "spec.kapp")]
#[case::cni(|spec: &mut Spec| spec.cni = Some(package("antrea.x", OLD)), "spec.cni")]
#[case::chosen_cni(|spec: &mut Spec| spec.cni = Some(package("calico.x", OLD)), "spec.cni")]
#[case::cpi(|spec: &mut Spec| spec.cpi = Some(package("cpi.x", OLD)), "spec.cpi")]
#[case::csi(|spec: &mut Spec| spec.csi = Some(package("csi.x", OLD)), "spec.csi")]
#[case::additional(|spec: &mut Spec| spec.additional_packages[0] = package("metrics.x", OLD), "spec.additionalPackages")]
#[case::one_of_two(|spec: &mut Spec| spec.additional_packages.push(package("metrics.x", OLD)), "spec.additionalPackages")]
#[case::without_an_order(|spec: &mut Spec| spec.cni.as_mut().unwrap().ref_name = "antrea.x.nightly".to_owned(), "spec.cni")]
fn lower_versions_are_named(#[case] edit: Edit, #[case] field: &str) {
    let (reason, message) = compared(&with(edit), "").unwrap_err();
    assert_eq!(reason, GateReason::PackageBelowRelease, "{message}");
    assert!(message.starts_with(field), "{message}");
    for named in ["one", "v2", NEW, "keep-package-versions"] {
        assert!(message.contains(named), "{named} in {message}");
    }
}

#[test]
fn the_message_contains_the_remedy() {
    let spec = with(|spec| spec.cni = Some(package("antrea.x", OLD)));
    assert_eq!(
        compared(&spec, "").unwrap_err().1,
        "spec.cni of ClusterBootstrap one has antrea.x 1.0.0+x.1-tkg.1, and TanzuKubernetesRelease v2 has 2.0.0+x.1-tkg.1; \
         raise it to antrea.x.2.0.0+x.1-tkg.1, or keep it: \"antrea=1.0.0+x.1-tkg.1\" in annotation \
         lifecycle.sluice.dev/keep-package-versions"
    );
    let spec = with(|spec| spec.csi = None);
    assert_eq!(
        compared(&spec, "").unwrap_err().1,
        "spec.csi of ClusterBootstrap one lacks csi.x, and TanzuKubernetesRelease v2 has 2.0.0+x.1-tkg.1; add \
         csi.x.2.0.0+x.1-tkg.1, or leave it out: \"csi=none\" in annotation lifecycle.sluice.dev/keep-package-versions"
    );
}

#[rstest]
#[case::kapp_controller(|spec: &mut Spec| spec.kapp = None, "spec.kapp")]
#[case::cni(|spec: &mut Spec| spec.cni = None, "spec.cni")]
#[case::cpi(|spec: &mut Spec| spec.cpi = None, "spec.cpi")]
#[case::another_csi(|spec: &mut Spec| spec.csi = Some(package("pv-csi.x", HIGHER)), "spec.csi")]
#[case::additional(|spec: &mut Spec| spec.additional_packages.clear(), "spec.additionalPackages")]
fn missing_packages_are_named(#[case] edit: Edit, #[case] field: &str) {
    let (reason, message) = compared(&with(edit), "").unwrap_err();
    assert_eq!(reason, GateReason::PackageMissing, "{message}");
    assert!(message.starts_with(field), "{message}");
}

#[rstest]
#[case::cni("antrea=1.0.0+x.1-tkg.1", |spec: &mut Spec| spec.cni = Some(package("antrea.x", OLD)))]
#[case::by_ref_name("metrics.x=1.0.0+x.1-tkg.1", |spec: &mut Spec| spec.additional_packages[0] = package("metrics.x", OLD))]
#[case::cni_that_the_release_does_not_list("own=1.0.0+x.1-tkg.1", |spec: &mut Spec| spec.cni = Some(package("own.x", OLD)))]
#[case::left_out("csi=none,metrics=none", |spec: &mut Spec| { spec.csi = None; spec.additional_packages.clear(); })]
#[case::another_csi("csi=none", |spec: &mut Spec| spec.csi = Some(package("pv-csi.x", OLD)))]
#[case::all("kapp=none,antrea=none,cpi=none,csi=none,metrics=none", |spec: &mut Spec| *spec = ClusterBootstrapSpec::default())]
fn gate_and_merge_honour_kept_versions(#[case] kept: &str, #[case] edit: Edit) {
    let spec = with(edit);
    assert!(compared(&spec, "").is_err(), "the case shows nothing");
    assert_eq!(compared(&spec, kept), Ok(()));
    let merged = inputs(&spec, kept, false, merge).unwrap();
    assert_eq!(merged.spec, spec);
    assert_eq!(merged.clones, []);
}

#[rstest]
#[case::another_build("antrea=1.0.0+x.1-tkg.2")]
#[case::another_package("metrics=1.0.0+x.1-tkg.1")]
#[case::left_out_and_there("antrea=none")]
fn nothing_else_is_kept(#[case] kept: &str) {
    let spec = with(|spec| spec.cni = Some(package("antrea.x", OLD)));
    assert_eq!(
        compared(&spec, kept).unwrap_err().0,
        GateReason::PackageBelowRelease
    );
    assert_eq!(inputs(&spec, kept, false, merge).unwrap().spec, full(NEW));
}

#[test]
fn an_unmanaged_cni_is_the_users() {
    let spec = with(|spec| spec.cni = None);
    assert_eq!(inputs(&spec, "", true, below_release), None);
}

#[rstest]
#[case::cni_not_in_the_release(|spec: &mut Spec| spec.cni = Some(package("own.x", NEW)), GateReason::PackageNotInRelease)]
#[case::package_gone(|spec: &mut Spec| spec.additional_packages.push(package("gone.x", NEW)), GateReason::PackageNotFound)]
fn obstacles_to_a_merge_hold_the_comparison(#[case] edit: Edit, #[case] reason: GateReason) {
    assert_eq!(compared(&with(edit), "").unwrap_err().0, reason);
}

fn any_package(ref_name: &'static str) -> impl Strategy<Value = Option<ClusterBootstrapPackage>> {
    let version = proptest::option::of(0..VERSIONS.len());
    version.prop_map(move |index| index.map(|index| package(ref_name, VERSIONS[index])))
}

prop_compose! {
    fn any_spec()(
        kapp in any_package("kapp.x"),
        antrea in any_package("antrea.x"),
        calico in any_package("calico.x"),
        cpi in any_package("cpi.x"),
        csi in any_package("csi.x"),
        pv_csi in any_package("pv-csi.x"),
        metrics in any_package("metrics.x"),
        own in any_package("own.x"),
    ) -> ClusterBootstrapSpec {
        ClusterBootstrapSpec {
            kapp,
            cni: antrea.or(calico),
            cpi,
            csi: csi.or(pv_csi),
            additional_packages: metrics.into_iter().chain(own).collect(),
            ..ClusterBootstrapSpec::default()
        }
    }
}

proptest! {
    /// A merge never leads to an avoidable hold.
    #[test]
    fn a_merged_spec_is_never_below(spec in any_spec(), kept in "((antrea|metrics|csi)=(none|1\\.0\\.0\\+x\\.1-tkg\\.1),?)?") {
        let merged = inputs(&spec, &kept, false, merge).unwrap().spec;
        prop_assert_eq!(compared(&merged, &kept), Ok(()));
        prop_assert_eq!(inputs(&merged, &kept, false, merge).unwrap().spec, merged);
    }

    #[test]
    fn lowering_or_removing_any_package_of_a_release_holds(index in 0_usize..5, version in proptest::option::of(0_usize..2)) {
        let spec = with(|spec| {
            let replaced = |name: &str| version.map(|version| package(name, VERSIONS[version]));
            match index {
                0 => spec.kapp = replaced("kapp.x"),
                1 => spec.cni = replaced("antrea.x"),
                2 => spec.cpi = replaced("cpi.x"),
                3 => spec.csi = replaced("csi.x"),
                _ => spec.additional_packages = replaced("metrics.x").into_iter().collect(),
            }
        });
        let reason = match version {
            Some(_) => GateReason::PackageBelowRelease,
            None => GateReason::PackageMissing,
        };
        prop_assert_eq!(compared(&spec, "").unwrap_err().0, reason);
    }

    #[test]
    fn a_comparison_never_panics_and_is_deterministic(spec in any_spec()) {
        prop_assert_eq!(compared(&spec, ""), compared(&spec, ""));
    }
}

const V35: &str = "v1.35.4";
const V36: &str = "v1.36.3";

fn record(from: Option<&str>, outcome: Option<Outcome>, workers_asked: bool) -> UpgradeRecord {
    UpgradeRecord {
        schema: SCHEMA,
        from: from.map(str::to_owned),
        to: V36.to_owned(),
        hop: Some(V36.to_owned()),
        outcome,
        gates: vec![Gate {
            hook: Hook::AfterWorkersUpgrade,
            version: V36.to_owned(),
            open: workers_asked,
            reason: String::new(),
            message: String::new(),
            overridden_by: None,
        }],
        ..UpgradeRecord::default()
    }
}

fn workers(versions: &[&str]) -> Vec<WorkerFacts> {
    let worker = |version: &&str| WorkerFacts {
        spec_version: Some((*version).to_owned()),
        ..WorkerFacts::default()
    };
    versions.iter().map(worker).collect()
}

#[rstest]
#[case::created("", "", &[], None, false)]
#[case::not_yet_running(V36, "", &[V36], Some(record(None, None, false)), false)]
#[case::installed_for_the_first_time(V36, V36, &[V36], Some(record(None, None, false)), false)]
#[case::adopted_at_rest(V36, V36, &[V36], None, false)]
#[case::seen_first_at_rest(V36, V36, &[V36], Some(record(Some(V36), None, false)), false)]
#[case::at_rest(V36, V36, &[V36], Some(record(Some(V35), Some(Outcome::Completed), true)), false)]
#[case::another_version_is_asked_for(V35, V35, &[V35], Some(record(Some(V35), None, false)), true)]
#[case::after_a_completed_upgrade(V35, V35, &[V35], Some(record(Some(V35), Some(Outcome::Completed), false)), true)]
#[case::without_a_record(V35, V35, &[], None, true)]
#[case::control_plane_takes_it(V36, V35, &[V35], Some(record(Some(V35), None, false)), true)]
#[case::control_plane_has_it(V36, V36, &[], Some(record(Some(V35), None, false)), true)]
#[case::workers_wait(V36, V36, &[V35], Some(record(Some(V35), None, false)), true)]
#[case::one_worker_waits_without_a_record(V36, V36, &[V36, V35], None, true)]
#[case::one_worker_waits_with_a_new_record(V36, V36, &[V36, V35], Some(record(Some(V36), None, false)), true)]
#[case::workers_were_asked(V36, V36, &[V36], Some(record(Some(V35), None, true)), false)]
#[case::target_below("v1.37.0", "v1.37.0", &[], None, false)]
fn packages_are_bound_to_the_release_while_a_version_is_taken(
    #[case] spec: &str,
    #[case] status: &str,
    #[case] asked: &[&str],
    #[case] record: Option<UpgradeRecord>,
    #[case] bound: bool,
) {
    let text = |version: &str| (!version.is_empty()).then(|| version.to_owned());
    let control_plane = ControlPlaneFacts {
        spec_version: text(spec),
        status_version: text(status),
    };
    let workers = workers(asked);
    let progress = progress(
        Some(&control_plane),
        &workers,
        V36,
        &Plan::Direct,
        record.as_ref(),
    );
    assert_eq!(
        must_match_release(&progress, &workers, record.as_ref()),
        bound,
        "{progress:?}"
    );
}

#[test]
fn a_cancelled_upgrade_binds_only_what_workers_still_wait_for() {
    let settled = ControlPlaneFacts {
        spec_version: Some(V35.to_owned()),
        status_version: Some(V35.to_owned()),
    };
    let record = record(Some(V35), None, false);
    let progress = progress(Some(&settled), &[], V35, &Plan::Direct, Some(&record));
    assert!(!must_match_release(&progress, &[], Some(&record)));
    assert!(!must_match_release(&progress, &workers(&[V35]), Some(&record)));
    assert!(must_match_release(
        &progress,
        &workers(&[V35, "v1.34.4"]),
        Some(&record)
    ));
}
