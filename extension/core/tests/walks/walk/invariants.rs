//! Invariants of a walk.

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::{Server, Verb, Write};
use sluice_crds::{
    labels::{annotation, label},
    lifecycle::OverriddenGate,
    run::{Gate, Hook, Outcome, PackageState, UpgradeRecord},
};

use super::{Step, Walk};
use crate::{
    capi::{brief, record, version_at},
    leader::{Leader, SYNC_PERIOD},
    machines::has_images,
    objects::{
        MANAGEMENT_UID, PACKAGES, VERSIONS, bootstrap, cluster, control_plane, is_own_server, kube_system,
        kubeconfig, of_package, values_source, worker,
    },
    odd::undecodable,
    overridden::gate_of,
    servers::{Place, Servers, place_of},
    truth::{
        assert_in_order, concerned, is_known, opened, recorded_cluster, releases_step, right, version_of,
    },
    users::{Edit, mend},
};

/// Rounds of a fair schedule that complete an upgrade of two hops.
pub(super) const ROUNDS: u32 = 120;

/// Rounds after which a Cluster with a completed upgrade is settled.
const SETTLING: u32 = 12;

/// Rounds of two reconciles after which a gate with an invalid proof is closed.
const CALM_ROUNDS: u32 = 4;

/// The same limit for an unresponsive workload.
const SILENT_ROUNDS: u32 = 9;

impl Walk {
    pub(super) fn judge_installs(&mut self, which: usize) {
        self.observe();
        let leader = &self.leaders[which];
        if is_own_server(&self.servers) {
            self.assert_own_server(leader);
        }
        Self::assert_installs(leader, leader.saw_all, self.first_deployed_at);
    }

    /// Asserts that the last step of a leader wrote no PackageInstall of kapp-controller and no copy of a Package for a workload API server
    /// that is the management API server, and nothing at all if another one was recorded.
    fn assert_own_server(&self, leader: &Leader) {
        let recorded = record(&self.servers).and_then(|record| record.workload_uid);
        let was_another = recorded.is_some_and(|uid| uid != MANAGEMENT_UID);
        for write in &leader.made {
            let place = place_of(&write.key);
            let is_copy = place.0 && place.1 == "packages";
            assert!(
                place != of_package(0, "packageinstalls") && !is_copy,
                "itself: {place:?} is written for the management cluster"
            );
            assert!(
                !place.0 || !was_another,
                "itself: {place:?} is written, and the workload cluster was another one"
            );
        }
    }

    /// Asserts that the last step of a leader wrote no PackageInstall in a pause that the leader saw, and, if its caches were current, none in
    /// the workload before kapp-controller was deployed, or while a user had stopped it. The PackageInstall of the addons-manager does not
    /// show where kapp-controller was deployed.
    pub(crate) fn assert_installs(leader: &Leader, is_current: bool, first_deployed_at: Option<u64>) {
        let is_install =
            |write: &&Write| write.key.resource.plural == "packageinstalls" && write.verb != Verb::Delete;
        let makes_first = leader
            .made
            .iter()
            .any(|write| place_of(&write.key) == of_package(0, "packageinstalls"));
        for write in leader.made.iter().filter(is_install) {
            let place = place_of(&write.key);
            assert!(!is_paused(&leader.saw), "paused: {place:?} is written in a pause");
            let stopped = ["packageinstalls", "apps"].iter().any(|kind| {
                let spec = leader.saw.get(&of_package(0, kind)).map(|object| &object["spec"]);
                spec.is_some_and(|spec| spec["paused"] == json!(true) || spec["canceled"] == json!(true))
            });
            let deployed = first_deployed_at.is_some_and(|at| at >= leader.began)
                || is_of_addons_manager(&leader.saw) && !makes_first;
            assert!(
                !is_current || write.key.server == Server::Management || deployed && !stopped,
                "order: {place:?} is written by a reconcile that began at {}, and kapp-controller was deployed last at {first_deployed_at:?}",
                leader.began,
            );
        }
    }

    /// Asserts that all packages of a gate were correctly deployed when the status opened it.
    pub(super) fn judge(&mut self, before: Option<&UpgradeRecord>, write: &Write, began: u64) {
        self.observe();
        let Some(record) = record(&self.servers) else {
            // A reconcile of an earlier Cluster of the same name: its record releases nothing of this one.
            return;
        };
        self.judge_rollback(before, &record);
        let of = recorded_cluster(&record);
        for gate in opened(&self.servers, before, &record) {
            let seen = self.clusters.get(&of);
            assert!(
                seen.is_some_and(|at| *at >= began),
                "outdated: {:?} {} is opened for {of} by a reconcile that began at {began}, and the Cluster was so last at {seen:?}",
                gate.hook,
                gate.version,
            );
            assert_in_order(&self.servers, &record, gate);
            if has_images(&self.servers) {
                self.swaps.judge_gate(gate, began);
            }
            let version = version_of(gate);
            let overrides = &self.capi.overrides;
            overrides.assert_opens(&record, gate, began);
            for package in concerned(&self.servers, gate.hook) {
                let right = self.right_at[package][version];
                let by = gate.overridden_by.as_ref();
                assert!(
                    right.is_some_and(|at| at >= began) || overrides.passes(by, package),
                    "early: {:?} {} is opened by a reconcile that began at {began}, and package {package} was last correct at {right:?}; \
                     {write:?}; {:?}, {}",
                    gate.hook,
                    gate.version,
                    self.kapp,
                    brief(Some(&record)),
                );
            }
        }
    }

    /// Records which overrides existed when a leader recorded a target.
    pub(super) fn note_target(&mut self, which: usize, before: Option<&UpgradeRecord>) {
        if let Some(record) = record(&self.servers) {
            let began = self.leaders[which].began;
            self.capi.overrides.record(before, &record, began);
        }
    }

    /// Asserts that a record that a leader has written from current caches lists the overrides by which steps were made.
    pub(super) fn judge_spent(&self, which: usize, before: Option<&UpgradeRecord>) {
        let leader = &self.leaders[which];
        let (Some(before), Some(after)) = (before, record(&self.servers)) else {
            return;
        };
        let is_continued = before.outcome.is_none() && before.to == after.to;
        let goes_back = before.rollback.is_some() || after.rollback.is_some();
        let Some(spent) = after.spent_overrides.as_ref().filter(|_| is_continued) else {
            return;
        };
        if goes_back || !leader.saw_all {
            return;
        }
        // A leader that cannot judge a Cluster only closes its gates.
        let stays_open = |gate: &&Gate| {
            let mut gates = after.gates.iter();
            gates.any(|other| other.open && (other.hook, &other.version) == (gate.hook, &gate.version))
        };
        for gate in before.gates.iter().filter(stays_open) {
            let (Some(by), Some(of)) = (&gate.overridden_by, gate_of(gate.hook)) else {
                continue;
            };
            let place = match of {
                OverriddenGate::ControlPlane => control_plane(),
                OverriddenGate::Workers | OverriddenGate::Machines => worker(),
            };
            let is_made = version_at(&leader.saw, &place, "spec") == version_of(gate);
            assert!(
                !is_made || spent.contains(&by.uid),
                "unspent: the step of {:?} {} was made by {by:?}; {}",
                gate.hook,
                gate.version,
                brief(Some(&after)),
            );
        }
    }

    /// Asserts that a record that a leader has completed from current caches had proofs of all packages, whatever was overridden.
    pub(super) fn judge_completion(&self, which: usize, before: Option<&UpgradeRecord>) {
        let is_complete = |record: &UpgradeRecord| record.outcome == Some(Outcome::Completed);
        let Some(record) = record(&self.servers).filter(is_complete) else {
            return;
        };
        let leader = &self.leaders[which];
        if self.capi.overrides.is_empty() || !leader.saw_all || before.is_some_and(is_complete) {
            return;
        }
        let version = VERSIONS.iter().position(|version| *version == record.to);
        let version = version.expect("a version of the walk");
        let mut needed = concerned(&self.servers, Hook::AfterClusterUpgrade);
        let unproven = needed.find(|package| self.right_at[*package][version].is_none());
        assert!(
            unproven.is_none(),
            "incomplete: package {unproven:?} was never correct; {}",
            brief(Some(&record)),
        );
    }

    /// Whether an override keeps a gate open. Asserts that it is in force, unless the step of the gate was made, or no gate changes any more.
    fn is_kept_open(&self, record: &UpgradeRecord, gate: &Gate) -> bool {
        let Some(by) = &gate.overridden_by else {
            return false;
        };
        let mut gates = record.gates.iter();
        let is_made = gates.any(|other| {
            other.open && other.hook == Hook::AfterWorkersUpgrade && other.version == gate.version
        });
        let began = self.leaders[0].began;
        assert!(
            is_made || self.is_deleting() || self.capi.overrides.is_in_force(by, began),
            "open: {:?} {} stays open by {by:?} at {began}; {}",
            gate.hook,
            gate.version,
            brief(Some(record)),
        );
        true
    }

    /// Runs only reconciles, then asserts that all gates with invalid proofs are closed.
    pub(crate) fn calm(&mut self) {
        let rounds = if self.servers.silent {
            SILENT_ROUNDS
        } else {
            CALM_ROUNDS
        };
        for _ in 0..rounds {
            self.come_to_an_end(0);
            self.watch();
            self.come_to_an_end(0);
            self.now += 10;
            self.tick();
        }
        let Some(record) = record(&self.servers).filter(|record| record.outcome.is_none()) else {
            return;
        };
        // An undecodable object holds hooks regardless of the record, and no reconcile can write another record.
        let is_odd = |place: Place| {
            self.servers
                .get(&place)
                .is_some_and(|found| undecodable(found).is_some())
        };
        if is_odd(cluster()) || is_odd(bootstrap()) {
            return;
        }
        self.assert_swap_is_valid();
        let unseen = self.servers.silent || self.servers.get(&kubeconfig()).is_none();
        let is_paused = !self.is_deleting() && is_paused(&self.servers);
        for gate in record
            .gates
            .iter()
            .filter(|gate| releases_step(&self.servers, gate))
        {
            let version = version_of(gate);
            let is_kept = self.is_kept_open(&record, gate);
            let stays = match gate.hook {
                Hook::AfterControlPlaneUpgrade => true,
                // A gate of a passed version stays open, and an unresponsive workload closes none.
                Hook::BeforeWorkersUpgrade => unseen || record.hop.as_ref() != Some(&gate.version),
                _ => false,
            };
            if stays {
                continue;
            }
            let (overrides, by) = (&self.capi.overrides, gate.overridden_by.as_ref());
            let wrong: Vec<usize> = concerned(&self.servers, gate.hook)
                .filter(|package| !right(&self.servers, &self.kapp, *package)[version])
                .filter(|package| !(is_kept && overrides.passes(by, *package)))
                .collect();
            let is_silent = self.servers.silent && !overrides.passes_every(by);
            assert!(
                wrong.is_empty() && !is_silent && !is_paused && is_known(&self.servers, version),
                "open: {:?} {} stays open, packages {wrong:?} are wrong, paused: {is_paused}; last {:?}, {:?}, {}",
                gate.hook,
                gate.version,
                self.leaders[0].last,
                self.kapp,
                brief(Some(&record)),
            );
        }
    }

    /// Corrects all inputs, then asserts that the upgrade or the deletion completes and the Cluster settles.
    pub(crate) fn finish(&mut self) {
        self.take(&[Step::Arrive, Step::EndClusterApi]);
        self.capi.replica.lags = None;
        // The kubeconfig is the first one again, whichever API server it leads to.
        self.earlier = None;
        let to = mend(&mut self.servers, self.chosen);
        let mut rounds = 0;
        while !self.is_over(to) {
            rounds += 1;
            assert!(
                rounds <= ROUNDS,
                "held: not at {} after {ROUNDS} rounds: last {:?}, {:?}, {}",
                VERSIONS[to],
                self.leaders[0].last,
                self.kapp,
                brief(record(&self.servers).as_ref()),
            );
            self.round();
            // The packages of the release may have been merged since.
            mend(&mut self.servers, self.chosen);
        }
        self.settle();
        if self.chosen && !self.is_deleting() {
            // The annotation of the release, which a user may have removed, is written again.
            mend(&mut self.servers, self.chosen);
            self.settle();
        }
        let clone = self.servers.get(&values_source());
        assert!(
            clone.is_some() || self.is_deleting(),
            "missing: the values that the ClusterBootstrap refers to"
        );
    }

    /// Asserts that writes end, also those of resyncs.
    pub(super) fn settle(&mut self) {
        for _ in 0..SETTLING {
            self.round();
            let before = self.servers.writes();
            for _ in 0..3 {
                self.come_to_an_end(0);
                self.watch();
                self.now += 10;
            }
            self.now += SYNC_PERIOD.as_secs();
            self.tick();
            self.come_to_an_end(0);
            if self.servers.writes() == before {
                return;
            }
        }
        panic!("settled: writes to the Cluster never end");
    }

    /// Asserts that a settled Cluster repairs or reports drift within a sync period.
    pub(crate) fn drift(&mut self) {
        let closed = record(&self.servers).filter(|record| record.outcome == Some(Outcome::Completed));
        let (Some(closed), false) = (closed, self.is_deleting()) else {
            return;
        };
        let drifts = [
            Step::User(Edit::Remove("packageinstalls", 0)),
            Step::User(Edit::Remove("secrets", 0)),
            Step::User(Edit::Remove("packages", 1)),
            Step::User(Edit::Remove("clusterroles", 0)),
            Step::User(Edit::Remove("serviceaccounts", 0)),
            Step::User(Edit::Alter("secrets", 1)),
            Step::User(Edit::Alter("packages", 0)),
            Step::User(Edit::Install(1, "values")),
            Step::User(Edit::ReplaceServer),
            Step::End(1, false),
        ];
        // The kind of drift varies between walks.
        let which = usize::try_from(self.servers.writes()).unwrap_or_default() % drifts.len();
        self.drifts(&closed, drifts[which]);
    }

    /// Drift happens, and the leader observes it at the next drift check.
    pub(super) fn observe_drift(&mut self, drift: Step) {
        if let Step::End(package, _) = drift {
            self.step(Step::Begin(package));
        }
        self.step(drift);
        for package in PACKAGES {
            self.kapp.sync(&mut self.servers, package);
        }
        self.now += SYNC_PERIOD.as_secs();
        self.tick();
        // The stores of a connection may fill only after the reconcile that opened it.
        for _ in 0..2 {
            self.come_to_an_end(0);
            self.watch();
            self.now += 10;
        }
    }

    /// Asserts the same for this drift.
    pub(crate) fn drifts(&mut self, closed: &UpgradeRecord, drift: Step) {
        self.observe_drift(drift);
        let seen = record(&self.servers).expect("a record");
        assert_eq!(
            (seen.outcome, &seen.gates),
            (closed.outcome, &closed.gates),
            "settled: {drift:?} reopens the record"
        );
        let failed = seen
            .packages
            .iter()
            .any(|package| package.state == PackageState::Failed);
        assert!(
            failed || !matches!(drift, Step::End(..)),
            "drift: a failed package is not reported: {:?}",
            seen.packages
        );
        self.settle();
        let version = VERSIONS.iter().position(|version| *version == closed.to);
        let version = version.expect("a version of the walk");
        let healed = record(&self.servers).expect("a record");
        let wrong = PACKAGES
            .iter()
            .find(|package| !right(&self.servers, &self.kapp, **package)[version]);
        assert!(
            wrong.is_none()
                && healed
                    .packages
                    .iter()
                    .all(|package| package.state == PackageState::Ready),
            "drift: {drift:?} is not repaired, package {wrong:?} is wrong; last {:?}, {:?}, {:?}",
            self.leaders[0].last,
            self.kapp,
            healed.packages,
        );
        assert_eq!(healed.gates, closed.gates, "settled: {drift:?} changes a gate");
    }

    pub(super) fn is_over(&self, to: usize) -> bool {
        if self.is_deleting() {
            return self.capi.deleted;
        }
        // An upgrade with a reverted target is cancelled.
        let closed =
            record(&self.servers).is_some_and(|record| record.outcome.is_some() && record.to == VERSIONS[to]);
        closed && version_at(&self.servers, &worker(), "status") == to && !self.capi.awaits_hooks()
    }
}

/// Whether objects forbid writes of packages: a pause, a deletion, or an annotation that keeps the next upgrade from starting.
fn is_paused(servers: &Servers) -> bool {
    let (Some(cluster), bootstrap) = (servers.get(&cluster()), servers.get(&bootstrap())) else {
        return false;
    };
    let is_set = |object: &Value| object["spec"]["paused"] == json!(true);
    is_set(cluster)
        || bootstrap.is_some_and(is_set)
        || !cluster["metadata"]["deletionTimestamp"].is_null()
        || is_start_held(servers, cluster)
}

/// Whether an annotation keeps a settled Cluster at its version.
fn is_start_held(servers: &Servers, cluster: &Value) -> bool {
    let annotations = cluster["metadata"]["annotations"].as_object();
    let is_held = annotations.is_some_and(|annotations| {
        annotations
            .keys()
            .any(|key| key.starts_with(annotation::BEFORE_UPGRADE_PREFIX))
    });
    let Some(settled) = record(servers).filter(|record| record.outcome == Some(Outcome::Completed)) else {
        return false;
    };
    let parts = [
        (control_plane(), "spec"),
        (control_plane(), "status"),
        (worker(), "spec"),
        (worker(), "status"),
    ];
    let is_settled = parts.iter().all(|(place, part)| {
        servers.get(place).is_some() && VERSIONS[version_at(servers, place, part)] == settled.to
    });
    is_held && is_settled && cluster["spec"]["topology"]["version"].as_str() > Some(settled.to.as_str())
}

/// Whether the addons-manager made the PackageInstall of kapp-controller of the current Cluster, for its current workload cluster.
fn is_of_addons_manager(servers: &Servers) -> bool {
    let Some(install) = servers.get(&of_package(0, "packageinstalls")) else {
        return false;
    };
    let uid = |object: &serde_json::Value| object["metadata"]["uid"].clone();
    let workload = record(servers).and_then(|record| record.workload_uid);
    install["spec"]["values"][0]["secretRef"]["name"] == "one-kapp-controller-data-values"
        && servers.get(&cluster()).map(uid) == Some(install["metadata"]["ownerReferences"][0]["uid"].clone())
        && workload.is_none_or(|recorded| servers.get(&kube_system()).map(uid) == Some(json!(recorded)))
}

/// Returns UID, generation, label and target of the Cluster.
pub(crate) fn cluster_state(servers: &Servers) -> Option<String> {
    let cluster = servers.get(&cluster())?;
    let (metadata, topology) = (&cluster["metadata"], &cluster["spec"]["topology"]);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let generation = metadata["generation"].as_i64().unwrap_or_default().to_string();
    let of = [
        text(&metadata["uid"]),
        generation,
        text(&metadata["labels"][label::TKR]),
        text(&topology["version"]),
    ];
    Some(of.join(" "))
}
