//! Reviews of upgrades of Clusters, whose control plane is at v1.36.3.

use sluice_crds::labels::{annotation, label};

use super::*;
use crate::{
    cache::control_plane::tests::{GROUP, Server},
    kube_client::scripted_server::Answer,
};

pub(super) const USABLE: &str = "v1.37.0---a.1";
pub(super) const DEACTIVATED: &str = "v1.37.0---a.2";
const DEACTIVATED_TOO: &str = "v1.37.0---a.3";
const MISSING: &str = "v1.37.0---a.9";

/// Releases of the version of the control plane.
const STORED: &str = "v1.36.3---a.1";
const SAME_DEACTIVATED: &str = "v1.36.3---a.2";
const SAME_MISSING: &str = "v1.36.3---a.9";

fn release(name: &str) -> Value {
    let labels = if [DEACTIVATED, DEACTIVATED_TOO, SAME_DEACTIVATED].contains(&name) {
        json!({label::DEACTIVATED: ""})
    } else {
        json!({})
    };
    let (version, _) = name.split_once("---").unwrap();
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "version": name.replace("---", "+"), "kubernetes": {"version": version}, "bootstrapPackages": [],
        },
    })
}

fn template(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "system"},
        "spec": {"kapp": {"refName": "kapp-controller.x.1.0.0"}, "cni": {"refName": "antrea.x.1.0.0"}},
    })
}

pub(super) fn cluster(version: &str, release: &str) -> Value {
    json!({
        "metadata": {"name": "one", "namespace": "team-a", "uid": "u-1", "labels": {label::TKR: release}},
        "spec": {
            "controlPlaneRef": {"apiGroup": GROUP, "kind": "Good", "name": "one"},
            "topology": {"classRef": {"name": "class"}, "version": version},
        },
    })
}

/// The stored Cluster.
pub(super) fn stored() -> Value {
    cluster("v1.36.3", STORED)
}

/// Returns webhooks that know this Cluster, five releases and their templates.
async fn checking(
    checks: UpgradeChecks,
    known: Value,
    server: &Server,
) -> (Admission, tokio::task::JoinHandle<()>) {
    checking_with(checks, known, None, server).await
}

/// Returns the same, with a ClusterBootstrap that has the packages of this release.
async fn checking_with(
    checks: UpgradeChecks,
    known: Value,
    merged: Option<&str>,
    server: &Server,
) -> (Admission, tokio::task::JoinHandle<()>) {
    let reads = (settings(), server.client());
    checking_by(plans(checks), known, merged, server, reads).await
}

/// Returns the same with these settings and this client of lookups.
pub(super) async fn checking_by(
    checks: Checks,
    known: Value,
    merged: Option<&str>,
    server: &Server,
    (settings, client): (Settings, kube::Client),
) -> (Admission, tokio::task::JoinHandle<()>) {
    let of_reviews = client;
    let releases = [STORED, SAME_DEACTIVATED, USABLE, DEACTIVATED, DEACTIVATED_TOO];
    let bootstraps = merged.into_iter().map(|release| {
        let mut bootstrap = template(release);
        let annotations = json!({annotation::RESOLVED_TKR: release});
        bootstrap["metadata"] = json!({"name": "one", "namespace": "team-a", "annotations": annotations});
        bootstrap
    });
    let bootstraps: Vec<Value> = bootstraps.collect();
    let client = Frozen::new().client(move |path| {
        if path.ends_with("/clusters") {
            vec![known.clone()]
        } else if path.ends_with("/clusterbootstraps") {
            bootstraps.clone()
        } else if path.ends_with("/clusterclasses") {
            vec![json!({"metadata": {"name": "class", "namespace": "team-a"}, "spec": {}})]
        } else if path.ends_with("/tanzukubernetesreleases") {
            releases.map(release).to_vec()
        } else if path.ends_with("/clusterbootstraptemplates") {
            releases.map(template).to_vec()
        } else if path.ends_with("/packages") {
            vec![package("kapp-controller", "1.0.0"), package("antrea", "1.0.0")]
        } else {
            Vec::new()
        }
    });
    let (stores, following) = filled(&client).await;
    let admission = Admission::new("system".to_owned(), checks, AdmissionMetrics::default());
    let control_planes = ControlPlanes::new(
        server.client(),
        Requeues::default(),
        Vec::new(),
        Rollbacks::default(),
    );
    admission.set_caches(Caches::new(
        stores,
        Arc::new(control_planes),
        settings,
        of_reviews,
    ));
    (admission, following)
}

/// Returns a review of an update from `old` to `new`.
pub(super) fn update(old: &Value, new: &Value) -> Value {
    let mut review = body(&Value::Null, Some(&Value::Null));
    let request = &mut review["request"];
    request["kind"] = json!({"group": "cluster.x-k8s.io", "version": "v1beta2", "kind": "Cluster"});
    request["oldObject"] = old.clone();
    request["object"] = new.clone();
    review
}

pub(super) async fn checked(admission: &Admission, review: &Value) -> Value {
    let (status, text) = ask_of(admission, Webhook::Upgrade, review.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["response"].take()
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_that_its_gate_would_hold_is_refused_with_the_reason_and_the_way_out() {
    let (admission, _following) = checking(UpgradeChecks::Deny, stored(), &Server::new(None)).await;
    let usable = update(&stored(), &cluster("v1.37.0", USABLE));
    assert_eq!(checked(&admission, &usable).await["allowed"], true);
    let refused = checked(&admission, &update(&stored(), &cluster("v1.37.0", DEACTIVATED))).await;
    assert_eq!(
        (&refused["allowed"], &refused["status"]["code"]),
        (&json!(false), &json!(422))
    );
    let message = refused["status"]["message"].as_str().unwrap();
    for says in [
        "Cluster.cluster.x-k8s.io \"one\" is invalid: spec.topology.version: Invalid value: \"v1.37.0\": TKRNotUsable at v1.37.0: ",
        DEACTIVATED,
        "lifecycle.sluice.dev/skip-upgrade-checks=v1.37.0",
    ] {
        assert!(message.contains(says), "{message}");
    }
}

#[rstest]
#[case::back_from_it(STORED, STORED, SAME_DEACTIVATED, STORED)]
#[case::back_to_a_deactivated_release_of_the_machines(
    SAME_DEACTIVATED,
    SAME_MISSING,
    SAME_MISSING,
    SAME_DEACTIVATED
)]
#[tokio::test(start_paused = true)]
async fn the_release_of_the_machines_is_never_refused(
    #[case] machines: &str,
    #[case] merged: &str,
    #[case] old: &str,
    #[case] new: &str,
) {
    let labelled = |release: &str| {
        let mut cluster = cluster("v1.36.3", release);
        let entry = json!({"v1.36.3": {"osImageRef": {}, "labels": {label::TKR: machines}}});
        cluster["spec"]["topology"]["variables"] = json!([{"name": "TKR_DATA", "value": entry}]);
        cluster
    };
    let (old, new) = (labelled(old), labelled(new));
    let (checks, server) = (UpgradeChecks::Deny, Server::new(None));
    let (admission, _following) = checking_with(checks, old.clone(), Some(merged), &server).await;
    let answer = checked(&admission, &update(&old, &new)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
}

type Edited = fn() -> (Value, Value);

#[rstest]
#[case::a_way_back(|| (cluster("v1.37.0", USABLE), cluster("v1.36.3", MISSING)), true)]
#[case::an_edit_that_removes_the_finding(|| (cluster("v1.37.0", DEACTIVATED), cluster("v1.37.0", USABLE)), true)]
#[case::an_edit_that_moves_the_finding(|| (cluster("v1.37.0", DEACTIVATED), cluster("v1.37.0", DEACTIVATED_TOO)), false)]
#[case::another_edit(|| {
    let mut scaled = cluster("v1.37.0", DEACTIVATED);
    scaled["spec"]["topology"]["controlPlane"] = json!({"replicas": 3});
    (cluster("v1.37.0", DEACTIVATED), scaled)
}, true)]
#[case::paused(|| {
    let mut paused = cluster("v1.37.0", DEACTIVATED);
    paused["spec"]["paused"] = json!(true);
    (stored(), paused)
}, true)]
#[case::exempt(|| {
    let mut exempt = cluster("v1.37.0", DEACTIVATED);
    exempt["metadata"]["annotations"] = json!({annotation::SKIP_UPGRADE_CHECKS: "v1.37.0"});
    (stored(), exempt)
}, true)]
#[case::exempt_for_an_earlier_version(|| {
    let mut exempt = cluster("v1.37.0", DEACTIVATED);
    exempt["metadata"]["annotations"] = json!({annotation::SKIP_UPGRADE_CHECKS: "v1.36.3"});
    (stored(), exempt)
}, false)]
#[case::being_deleted(|| {
    let mut gone = cluster("v1.37.0", DEACTIVATED);
    gone["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    (stored(), gone)
}, true)]
#[case::unmanaged(|| {
    let mut unmanaged = cluster("v1.37.0", DEACTIVATED);
    unmanaged["metadata"]["labels"] = json!({});
    (stored(), unmanaged)
}, true)]
#[case::managed_from_now_on(|| {
    let mut before = stored();
    before["metadata"]["labels"] = json!({});
    (before, cluster("v1.36.3", MISSING))
}, true)]
#[case::unknown(|| {
    let (mut before, mut after) = (stored(), cluster("v1.37.0", DEACTIVATED));
    for object in [&mut before, &mut after] {
        object["metadata"]["name"] = json!("other");
    }
    (before, after)
}, true)]
#[tokio::test(start_paused = true)]
async fn no_way_out_is_refused(#[case] edited: Edited, #[case] allowed: bool) {
    let (admission, _following) = checking(UpgradeChecks::Deny, stored(), &Server::new(None)).await;
    let (old, new) = edited();
    let answer = checked(&admission, &update(&old, &new)).await;
    assert_eq!(answer["allowed"], allowed, "{answer}");
}

/// GitOps tools apply a Cluster before its release, and stop at the first refusal.
#[tokio::test(start_paused = true)]
async fn what_is_missing_only_warns() {
    let (admission, _following) = checking(UpgradeChecks::Deny, stored(), &Server::new(None)).await;
    let mut review = update(&stored(), &cluster("v1.37.0", MISSING));
    let answer = checked(&admission, &review).await;
    assert_eq!(answer["allowed"], true);
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("will be held: TKRNotFound"), "{answer}");
    review["request"]["object"] = cluster("v1.37.0", DEACTIVATED);
    assert_eq!(checked(&admission, &review).await["allowed"], false);
}

#[tokio::test(start_paused = true)]
async fn checks_may_only_warn_or_be_off() {
    let review = update(&stored(), &cluster("v1.37.0", DEACTIVATED));
    let (admission, _following) = checking(UpgradeChecks::Warn, stored(), &Server::new(None)).await;
    let warned = checked(&admission, &review).await;
    assert_eq!(warned["allowed"], true);
    let warnings = warned["warnings"].to_string();
    assert!(
        warnings.contains("will be held: TKRNotUsable at v1.37.0"),
        "{warned}"
    );
    for known in [true, false] {
        let (admission, _following) = if known {
            let (admission, following) = checking(UpgradeChecks::Off, stored(), &Server::new(None)).await;
            (admission, Some(following))
        } else {
            let metrics = AdmissionMetrics::default();
            (
                Admission::new("system".to_owned(), plans(UpgradeChecks::Off), metrics),
                None,
            )
        };
        let answer = checked(&admission, &review).await;
        assert_eq!(answer, json!({"uid": "f3c1", "allowed": true}));
    }
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_is_admitted_before_the_caches_are_filled() {
    let admission = Admission::new(
        "system".to_owned(),
        plans(UpgradeChecks::Deny),
        AdmissionMetrics::default(),
    );
    let answer = checked(&admission, &update(&stored(), &cluster("v1.37.0", DEACTIVATED))).await;
    assert_eq!(answer["allowed"], true);
    let says = "the upgrade was not checked: Sluice has just started";
    assert_eq!(answer["warnings"], json!([says]));
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_waits_two_seconds_for_its_control_plane() {
    let mut slow = stored();
    slow["spec"]["controlPlaneRef"]["kind"] = json!("Bad");
    let server = Server::new(Some(Answer::Never));
    let (admission, _following) = checking(UpgradeChecks::Deny, slow, &server).await;
    let began = Later::now();
    let answer = checked(&admission, &update(&stored(), &cluster("v1.37.0", DEACTIVATED))).await;
    assert_eq!(began.elapsed().as_secs(), LOOKUP_TIMEOUT.as_secs());
    assert_eq!(answer["allowed"], true);
    let says = "the upgrade was not checked: its control plane is not listed yet";
    assert_eq!(answer["warnings"], json!([says]));
}
