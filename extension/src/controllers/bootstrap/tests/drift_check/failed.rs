//! Packages that fail after their upgrade is completed.

use super::*;

/// Sets the status that kapp-controller reports for a failed run.
fn fail(object: &mut Value) {
    object["status"]["conditions"] = json!([{"type": "ReconcileFailed", "status": "True"}]);
    object["status"]["usefulErrorMessage"] = json!("no such image");
}

fn succeed(object: &mut Value) {
    object["status"]["conditions"] = json!([{"type": "ReconcileSucceeded", "status": "True"}]);
    object["status"]["usefulErrorMessage"] = Value::Null;
}

impl Due {
    /// Returns a Cluster whose drift check has found its failed package.
    async fn failed() -> Self {
        let due = Self::completed().await;
        due.say(fail).await;
        due.requeues_after(30).await;
        due
    }

    /// Changes the status of the package that kapp-controller reports.
    async fn say(&self, what: fn(&mut Value)) {
        for plural in ["apps", "packageinstalls"] {
            change(&self.world.workload, plural, what);
        }
        self.connected().await;
    }

    /// Runs a drift check over a connection that is closed again, and expects the next one after about so many seconds.
    async fn requeues_after(&self, seconds: u64) {
        let written = self.world.workload.asked_to_write();
        let Done::RequeueAfter(next) = self.reconcile().await else {
            panic!("it is never requeued");
        };
        let longest = Duration::from_secs(seconds);
        assert!((longest * 3 / 4..=longest).contains(&next), "{next:?}");
        assert!(self.leader.remotes.is_empty(), "the connection is closed");
        assert_eq!(self.world.workload.asked_to_write(), written);
    }
}

#[tokio::test(start_paused = true)]
async fn a_package_that_fails_later_is_shown_until_it_succeeds() {
    let due = Due::completed().await;
    let before = due.world.record();
    due.say(fail).await;
    due.requeues_after(30).await;
    let record = due.world.record();
    let package = &record.packages[0];
    assert_eq!(
        (package.state, package.message.as_str()),
        (PackageState::Failed, "no such image")
    );
    assert_eq!((record.outcome, &record.gates), (before.outcome, &before.gates));
    assert_eq!(due.conditions(), ["Ready", "Antrea-ReconcileFailed"]);
    assert!(
        due.events().contains(&"PackageFailed".to_owned()),
        "{:?}",
        due.events()
    );

    due.say(succeed).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(due.reconcile().await, due.next_drift_check());
    assert!(due.leader.remotes.is_empty(), "the connection is closed");
    assert_eq!(due.world.record().packages, before.packages);
    assert_eq!(due.conditions(), ["Ready", "Antrea-ReconcileSucceeded"]);
}

/// A dependency of thousands of Clusters, such as a registry, may be down for long.
#[tokio::test(start_paused = true)]
async fn a_failed_package_is_checked_with_growing_delays() {
    let due = Due::failed().await;
    let asked = due.world.workload.requests();
    due.reconcile().await;
    assert_eq!(due.world.workload.requests(), asked, "before its time");
    let written = due.writes();
    sleep(Duration::from_mins(50)).await;
    due.connected().await;
    due.requeues_after(300).await;
    sleep(Duration::from_hours(10)).await;
    due.connected().await;
    due.requeues_after(PERIOD.as_secs()).await;
    assert_eq!(due.writes(), written);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_checks_a_failed_package_at_the_resync_of_its_cluster() {
    let due = Due::failed().await;
    let read = [&due.world.management, &due.world.workload].map(secrets_read);
    assert_eq!(
        due.world.reconcile().await,
        Done::RequeueAfter(spread("uid", PERIOD).saturating_sub(BEGINS))
    );
    assert_eq!(
        [&due.world.management, &due.world.workload].map(secrets_read),
        read
    );
}

/// The inputs of its run are read again before it counts.
#[tokio::test(start_paused = true)]
async fn a_package_that_succeeds_with_another_content_is_not_proven() {
    let due = Due::failed().await;
    change(&due.world.workload, "apps", |app| {
        app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]);
    });
    due.say(succeed).await;
    sleep(Duration::from_secs(30)).await;
    due.requeues_after(30).await;
    let record = due.world.record();
    let package = &record.packages[0];
    assert_eq!(
        (package.state, package.reason.as_str()),
        (PackageState::Reconciling, "AppTemplateMismatch")
    );
}
