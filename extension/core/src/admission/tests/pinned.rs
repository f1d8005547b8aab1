//! Releases that the annotation of a ClusterBootstrap pins.

use super::*;

const KEY: &str = annotation::ADD_MISSING_FIELDS;
const PINNED: &str = "v1.36.3---sluice.1";
const NEWEST: &str = "v1.36.3---sluice.2";

fn cluster(label: &str, follows: Option<&str>) -> LookupResult {
    LookupResult::Cluster {
        label: label.to_owned(),
        deleting: false,
        stopped: false,
        follows: follows.map(str::to_owned),
    }
}

/// Completes with the results of all lookups.
fn completed(review: &Review, cluster: &LookupResult) -> Completion {
    let found = |lookup: &Lookup| match lookup {
        Lookup::Cluster(_) => cluster.clone(),
        Lookup::Release(name) => LookupResult::Release {
            kubernetes: name.split("---").next().unwrap_or_default().to_owned(),
            packages: Vec::new(),
        },
        Lookup::Template(_) => LookupResult::Template(Box::new(state(&good(), &[]).spec)),
        other => seen(other),
    };
    let mut finished = Lookups::new();
    loop {
        match complete(review, &finished) {
            Ok(completion) => return completion,
            Err(needed) => finished.extend(needed.into_iter().map(|lookup| (lookup.clone(), found(&lookup)))),
        }
    }
}

/// The reconcile changes the label of such a Cluster.
#[rstest]
#[case::of_a_new_cluster(PINNED, NEWEST, Some("v1.36.3"), true)]
#[case::of_its_label(PINNED, PINNED, None, true)]
#[case::of_a_cluster_that_is_made(PINNED, NEWEST, None, false)]
#[case::of_another_version("v1.35.4---sluice.1", NEWEST, Some("v1.36.3"), false)]
fn a_release_that_differs_from_the_label(
    #[case] release: &str,
    #[case] label: &str,
    #[case] follows: Option<&str>,
    #[case] admitted: bool,
) {
    let partial = review("one", None, state(&json!({}), &[(KEY, release)]));
    let completion = completed(&partial, &cluster(label, follows));
    assert_eq!(
        (completion.faults.is_empty(), completion.spec.is_some()),
        (admitted, admitted),
        "{:?}",
        completion.faults
    );
    if let Some(fault) = completion.faults.first() {
        assert!(fault.text.contains("write the same release in both"), "{fault}");
    }
}

#[rstest]
#[case::added(&[], PINNED, NEWEST, true)]
#[case::changed(&[(KEY, "v1.35.4---sluice.1")], PINNED, NEWEST, true)]
#[case::as_it_was_before_an_upgrade(&[(KEY, PINNED)], PINNED, NEWEST, false)]
#[case::that_the_packages_have(&[], NEWEST, NEWEST, false)]
#[case::that_the_label_names_already(&[], PINNED, PINNED, false)]
#[case::without_a_name(&[], "", NEWEST, false)]
fn a_release_that_is_pinned_late(
    #[case] before: &[(&str, &str)],
    #[case] pinned: &str,
    #[case] label: &str,
    #[case] refused: bool,
) {
    let recorded = (annotation::RESOLVED_TKR, NEWEST);
    let old = [before, &[recorded][..]].concat();
    let new = [(KEY, pinned), recorded];
    let update = Review {
        owned: true,
        ..review("one", Some(state(&good(), &old)), state(&good(), &new))
    };
    let completion = completed(&update, &cluster(label, None));
    assert_eq!(
        (completion.faults.len(), completion.spec),
        (usize::from(refused), None),
        "{:?}",
        completion.faults
    );
    let Some(fault) = completion.faults.first().map(ToString::to_string) else {
        return;
    };
    assert!(
        fault.starts_with(&format!("metadata.annotations[{KEY}]: Invalid value: {pinned:?}")),
        "{fault}"
    );
    for said in [
        "ClusterBootstrap team-a/one",
        NEWEST,
        "run.tanzu.vmware.com/tkr",
        "remove the annotation",
        annotation::CUSTOM_CLUSTER_BOOTSTRAP,
    ] {
        assert!(fault.contains(said), "{said}: {fault}");
    }
}

/// A Cluster of the addons-manager records the release only in the status.
#[test]
fn an_owned_bootstrap_without_a_record_is_admitted() {
    let update = Review {
        owned: true,
        ..review("one", Some(state(&good(), &[])), state(&good(), &[(KEY, PINNED)]))
    };
    assert_eq!(completed(&update, &cluster(NEWEST, None)), Completion::default());
}
