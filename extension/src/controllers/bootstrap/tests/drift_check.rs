//! Drift check of a Cluster whose upgrade is completed.

use rstest::rstest;
use sluice_core::{protocol::LastDriftCheck, schedule::spread};
use sluice_crds::run::{Outcome, PackageState};

use super::*;
use crate::clock::now;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, KUBE_SYSTEM, PACKAGES, RELEASE, TEMPLATES, VERSION, World, change, cluster,
    package_of, put_release, values,
};

mod failed;
mod repair;

/// `--sync-period` of the world.
const PERIOD: Duration = Duration::from_mins(10);

/// Time until the first reconcile of a leader of the world.
const BEGINS: Duration = Duration::from_secs(1);

/// Completed Cluster and a leader whose drift check of it is due.
struct Due {
    world: World,
    leader: Context,
}

impl Due {
    async fn of(world: World) -> Self {
        let leader = world.leader().await;
        let due = Self { world, leader };
        due.reconcile().await;
        due.comes().await;
        due
    }

    async fn completed() -> Self {
        Self::of(World::completed().await).await
    }

    /// Waits until the next drift check is due and stores are current.
    async fn comes(&self) {
        sleep(PERIOD).await;
        self.connected().await;
    }

    async fn connected(&self) {
        self.world.connect(&self.leader);
        sleep(Duration::from_secs(1)).await;
    }

    /// Returns the requeue at the next drift check.
    fn next_drift_check(&self) -> Done {
        Done::RequeueAfter(self.leader.settings.sync_period.until_resync("uid", now()))
    }

    async fn reconcile(&self) -> Done {
        reconcile_once(&cluster(&self.leader), &self.leader)
            .await
            .unwrap()
    }

    /// Continues after a while with another leader with current stores and the local state of this one.
    async fn shown(self) -> Self {
        sleep(Duration::from_secs(10)).await;
        let local_state = self.leader.local_states().get("uid");
        let leader = self.world.leader().await;
        leader.local_states().keep("uid", local_state);
        self.world.connect(&leader);
        sleep(Duration::from_secs(1)).await;
        Self { leader, ..self }
    }

    /// Runs so many reconciles, each of such a leader.
    async fn shown_reconciles(mut self, count: u8) -> Self {
        for _ in 0..count {
            self = Box::pin(self.shown()).await;
            self.reconcile().await;
        }
        self
    }

    fn writes(&self) -> (Vec<String>, Vec<String>) {
        let of_management = self.world.management.asked_to_write();
        let kept = of_management
            .into_iter()
            .filter(|asked| !asked.contains("/events"));
        (kept.collect(), self.world.workload.asked_to_write())
    }

    fn state(&self) -> PackageState {
        self.world.record().packages[0].state
    }

    fn conditions(&self) -> Vec<String> {
        let bootstrap = self.world.management.get(BOOTSTRAP).unwrap();
        let conditions = bootstrap["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .iter()
            .map(|condition| condition["type"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns the reasons of published events.
    fn events(&self) -> Vec<String> {
        let events = self.world.management.all("events").into_iter();
        events
            .filter_map(|(_, event)| event["reason"].as_str().map(str::to_owned))
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_drift_check_without_drift_writes_nothing() {
    let due = Due::completed().await;
    let before = due.writes();
    let read = due.world.workload.requests();
    assert_eq!(due.reconcile().await, due.next_drift_check());
    assert!(due.world.workload.requests() > read, "the workload was checked");
    assert_eq!(due.writes(), before);
    assert!(due.leader.remotes.is_empty(), "the connection is closed");
}

/// Otherwise the start of a leader would check all Clusters at once.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_of_a_settled_cluster_when_a_leader_begins() {
    let world = World::completed().await;
    let read = [&world.management, &world.workload].map(secrets_read);
    let leader = world.leader().await;
    leader.remotes.close("uid");
    reconcile_once(&cluster(&leader), &leader).await.unwrap();
    let after = [&world.management, &world.workload].map(secrets_read);
    assert_eq!(after, read);
}

fn secrets_read(server: &object_server::ObjectServer) -> usize {
    server.times_asked_below("/secrets/")
}

/// Returns a world with so many more packages, `extra-1` and so on, with values in `values-1` and so on.
fn with_extra(number: u8) -> World {
    let world = World::new();
    let added: Vec<Value> = (1..=number)
        .map(|number| {
            let (name, secret) = (format!("extra-{number}.example.com"), format!("values-{number}"));
            world.management.put(
                &format!("{PACKAGES}/{name}.1.0.0"),
                package_of(&name, "1.0.0", "a"),
            );
            world.management.put(
                &format!("/api/v1/namespaces/team-a/secrets/{secret}"),
                values(number.into()),
            );
            json!({"refName": format!("{name}.1.0.0"), "valuesFrom": {"secretRef": secret}})
        })
        .collect();
    world.management.edit(BOOTSTRAP, |bootstrap| {
        bootstrap["spec"]["additionalPackages"] = json!(added);
    });
    world
}

#[tokio::test(start_paused = true)]
async fn a_drift_check_of_eight_packages_sends_few_requests() {
    let due = Due::of(with_extra(7).complete().await).await;
    let count = || (due.world.management.requests(), due.world.workload.requests());
    let before = count();
    assert_eq!(due.reconcile().await, due.next_drift_check());
    let after = count();
    assert_eq!(due.world.record().packages.len(), 8);
    assert!(
        after.0 - before.0 <= 8 + 4,
        "{} on the management server",
        after.0 - before.0
    );
    let asked = due.world.workload.asked_last(after.1 - before.1);
    assert!(asked.len() <= 10, "{asked:?}");
}

type Damage = fn(&World);

fn remove(world: &World, plural: &str) {
    let path = world.workload.all(plural).remove(0).0;
    world.workload.remove(&path);
}

#[rstest]
#[case::its_package_install((|world| { remove(world, "packageinstalls"); remove(world, "apps"); }) as Damage)]
#[case::its_values((|world| remove(world, "secrets")) as Damage)]
#[case::its_edited_values((|world| change(&world.workload, "secrets", |secret| secret["data"] = values(9)["data"].clone())) as Damage)]
#[case::its_package((|world| remove(world, "packages")) as Damage)]
#[case::its_edited_package((|world| {
    change(&world.workload, "packages", |package| package["spec"] = package_of("antrea.example.com", "1.9.0", "b")["spec"].clone());
    change(&world.workload, "apps", |app| app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]));
}) as Damage)]
#[case::the_account((|world| remove(world, "serviceaccounts")) as Damage)]
#[case::the_role((|world| change(&world.workload, "clusterroles", |role| role["rules"] = json!([]))) as Damage)]
#[case::the_binding((|world| remove(world, "clusterrolebindings")) as Damage)]
#[tokio::test(start_paused = true)]
async fn what_was_deleted_or_edited_on_a_settled_cluster_is_healed(#[case] damage: Damage) {
    let world = World::completed().await;
    let gates = world.record().gates;
    damage(&world);
    let due = Due::of(world).await;
    let next = due.reconcile().await;
    assert_eq!(next, Done::RequeueAfter(Duration::from_secs(10)), "hot");
    assert_eq!(
        due.events()
            .iter()
            .filter(|reason| *reason == "DriftFound")
            .count(),
        1,
        "{:?}",
        due.events()
    );

    let mut due = due;
    for _ in 0..3 {
        due = due.shown_reconciles(1).await;
        due.world.deployed();
    }
    let due = due.shown_reconciles(2).await;
    let before = (due.writes(), due.world.workload.requests());
    due.reconcile().await;
    let after = (due.writes(), due.world.workload.requests());
    assert_eq!(after, before, "at rest again: {:?}", due.world.record());
    let record = due.world.record();
    assert_eq!(
        (record.outcome, due.state()),
        (Some(Outcome::Completed), PackageState::Ready)
    );
    assert_eq!(record.gates, gates);
    for kind in [
        "packageinstalls",
        "serviceaccounts",
        "clusterroles",
        "clusterrolebindings",
        "packages",
    ] {
        assert_eq!(due.world.workload.names(kind).len(), 1, "{kind}");
    }
}

/// An outage of many workload clusters leaves the permits for slow Clusters to others.
#[tokio::test(start_paused = true)]
async fn an_unanswered_drift_check_is_not_slow() {
    let due = Due::completed().await;
    let _unanswered = due.world.workload.wait_at(KUBE_SYSTEM);
    let reconciled = timeout(SLOW, reconcile(&cluster(&due.leader), &due.leader)).await;
    let soon = Done::RequeueAfter(Duration::from_secs(30));
    assert_eq!(reconciled.map(Result::ok), Ok(Some(soon)));
    assert!(!due.leader.limiter.outcomes().needs_permit("uid"));
}

#[tokio::test(start_paused = true)]
async fn a_workload_without_a_drift_check_is_reported_if_it_lasts() {
    let due = Due::completed().await;
    let (before, record) = (due.writes(), due.world.record());
    due.world.workload.refuse(KUBE_SYSTEM, 503);
    let soon = Done::RequeueAfter(Duration::from_secs(30));
    assert_eq!(due.reconcile().await, soon);
    assert_eq!(due.writes(), before, "once is nothing");

    sleep(Duration::from_secs(30)).await;
    due.connected().await;
    let Done::RequeueAfter(later) = due.reconcile().await else {
        panic!("it is requeued");
    };
    assert!((PERIOD * 3 / 8..=PERIOD / 2).contains(&later), "{later:?}");
    assert_eq!(
        due.conditions(),
        ["Ready", "Antrea-ReconcileSucceeded", "WorkloadUnseen"]
    );
    assert!(
        due.events().contains(&"WorkloadUnreachable".to_owned()),
        "{:?}",
        due.events()
    );
    assert_eq!(due.world.record(), record);

    due.world.workload.refuse("/nothing", 503);
    sleep(later).await;
    let due = Box::pin(due.shown()).await;
    assert_eq!(due.reconcile().await, due.next_drift_check());
    assert_eq!(due.conditions(), ["Ready", "Antrea-ReconcileSucceeded"]);
    assert_eq!(due.world.record(), record);
}

/// Another release of the version has the same packages: all recorded facts are known already.
#[tokio::test(start_paused = true)]
async fn a_drift_check_without_a_response_adopts_no_release() {
    const OTHER: &str = "v1.36.3---test.2";
    let due = Due::completed().await;
    let management = &due.world.management;
    put_release(management, OTHER, VERSION);
    let template = management.get(&format!("{TEMPLATES}/{RELEASE}")).unwrap();
    management.put(&format!("{TEMPLATES}/{OTHER}"), template);
    management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"][label::TKR] = json!(OTHER);
    });
    due.world.workload.refuse(KUBE_SYSTEM, 503);
    let due = due.shown_reconciles(3).await;
    let record = due.world.record();
    assert_eq!(record.label, OTHER, "{record:?}");
    assert_eq!(record.outcome, None, "{record:?}");
}

/// It lists nothing, and everything is deployed and proven there.
#[tokio::test(start_paused = true)]
async fn a_drift_check_finds_another_workload_behind_the_kubeconfig() {
    let due = Due::completed().await;
    for plural in ["packageinstalls", "apps", "secrets", "packages"] {
        remove(&due.world, plural);
    }
    due.world
        .workload
        .put(KUBE_SYSTEM, json!({"metadata": {"uid": "another"}}));
    due.connected().await;
    due.reconcile().await;
    due.world.deployed();
    let due = due.shown_reconciles(2).await;
    let record = due.world.record();
    assert_eq!(record.workload_uid.as_deref(), Some("another"));
    assert_eq!(
        (record.outcome, record.to.as_str()),
        (Some(Outcome::Completed), VERSION)
    );
    assert_eq!(due.state(), PackageState::Ready);
}

/// A partition may silence thousands of workload clusters at once.
#[tokio::test(start_paused = true)]
async fn a_drift_check_without_a_permit_waits_for_its_turn() {
    let due = Due::completed().await;
    let (limiter, other) = (&due.leader.limiter, ClusterRef::new("team-a", "other"));
    let (read, mut granted) = (due.world.workload.requests(), limiter.granted());
    let taken = limiter.drift_check_permit(&other, LastDriftCheck::Answered);
    assert!(taken.is_some(), "the only one");
    let Done::RequeueAfter(next) = due.reconcile().await else {
        panic!("it is never requeued");
    };
    assert!((PERIOD * 3 / 40..=PERIOD / 10).contains(&next), "{next:?}");
    assert_eq!(due.world.workload.requests(), read);
    let read_before = due.world.management.requests();
    due.reconcile().await;
    assert_eq!(
        due.world.management.requests(),
        read_before,
        "it rests until then"
    );
    drop(taken);
    assert_eq!(granted.next().await, Some(ClusterRef::new("team-a", "one")));
    due.connected().await;
    assert_eq!(due.reconcile().await, due.next_drift_check());
    assert!(due.world.workload.requests() > read);
    let released = limiter.drift_check_permit(&other, LastDriftCheck::Answered);
    assert!(released.is_some(), "it is released");
}

/// Others wait for the permit that it does not need any more.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_not_managed_any_more_leaves_its_permit() {
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    world.management.edit(CLUSTER, |cluster| {
        cluster["metadata"]["labels"] = json!({});
    });
    let leader = world.leader().await;
    let [one, other] = ["one", "other"].map(|name| ClusterRef::new("team-a", name));
    let (permit, mut granted) = (
        |cluster| {
            leader
                .limiter
                .drift_check_permit(cluster, LastDriftCheck::Answered)
        },
        leader.limiter.granted(),
    );
    let taken = permit(&other);
    assert!(permit(&one).is_none());
    drop(taken);
    assert_eq!(granted.next().await.as_ref(), Some(&one));
    let done = reconcile_once(&cluster(&leader), &leader).await.unwrap();
    assert_eq!(done, Done::AwaitChange);
    assert!(permit(&other).is_some(), "it is released");
}
