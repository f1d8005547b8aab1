//! Plans of upgrades, and what the upgrades do.

use serde_json::Value;
use sluice_core::{
    admission::Verdict,
    reconcile::cluster::Verb,
    upgrade_plan::{Admission, Effect, FindingReason, UpgradePlan},
};
use sluice_crds::{
    labels::{annotation, label},
    run::{Hook, UpgradeRecord},
};

use super::{Step, Walk, invariants::ROUNDS};
use crate::{
    capi::{brief, control_plane_steps, record, skips_minor, version_at},
    defect::Defect,
    leader::{Leader, Surroundings},
    machines::{has_images, labelled},
    objects::{
        LATER_RELEASE, OTHER_RELEASE, PACKAGES, PlannedBy, RELEASES, SAME_RELEASE, VERSIONS, bootstrap,
        cluster, control_plane, is_below, is_unmanaged, package_name, package_place, packages_of, permits,
        planned_by, release, release_of_version, template, version_of_release, worker,
    },
    replica::Reading,
    servers::{Servers, place_of},
    truth::policy,
    users::Edit,
};

/// Rounds after which a held upgrade shows its reason, and one that is not held has begun.
const SHOWN_AFTER: usize = 6;

/// Returns the index of the target.
fn target(servers: &Servers) -> usize {
    let version = servers
        .get(&cluster())
        .map_or(&Value::Null, |cluster| &cluster["spec"]["topology"]["version"]);
    let index = VERSIONS.iter().position(|known| version == known);
    index.expect("a version of the walk")
}

fn is_deactivated(servers: &Servers, index: usize) -> bool {
    let release = servers.get(&release(index));
    release.is_some_and(|release| !release["metadata"]["labels"][label::DEACTIVATED].is_null())
}

/// Returns version and reason of the first step that cannot end, if the label names the release of the target, and each version has one
/// release.
pub(crate) fn obstacle(servers: &Servers) -> Option<(usize, &'static str)> {
    let to = target(servers);
    let steps = control_plane_steps(servers, to);
    if servers.get(&release(to)).is_none() {
        return steps.first().map(|first| (*first, "TKRNotFound"));
    }
    let mut from = version_at(servers, &control_plane(), "spec");
    // Sluice plans no steps, so the hop is the target.
    if let Some(first) = steps.first().filter(|first| skips_minor(from, **first)) {
        return Some((*first, "NoTKRForHop"));
    }
    for step in steps {
        if let Some(reason) = obstacle_of(servers, from, step) {
            return Some((step, reason));
        }
        from = step;
    }
    None
}

/// Returns the reason why a step cannot end.
fn obstacle_of(servers: &Servers, from: usize, step: usize) -> Option<&'static str> {
    let index = release_of_version(step);
    if servers.get(&release(index)).is_none() {
        return Some("NoTKRForHop");
    }
    if is_deactivated(servers, index) {
        return Some("TKRNotUsable");
    }
    if servers.get(&template(index)).is_none() {
        return Some("TemplateNotFound");
    }
    let packages =
        PACKAGES.map(|which| servers.get(&package_place(&package_name(which, packages_of(index)))));
    if packages.iter().any(Option::is_none) {
        return Some("PackageNotFound");
    }
    let mut packages = PACKAGES.into_iter().zip(packages);
    let is_excluded = packages.any(|(which, package)| {
        if which == 0 && is_unmanaged(servers) {
            return false;
        }
        let is_later = policy(servers, which, "phase", "AfterControlPlane");
        let permits = |version: usize| package.is_some_and(|package| permits(package, VERSIONS[version]));
        !permits(step) || !is_later && !permits(from)
    });
    is_excluded.then_some("PackageExcludesKubernetes")
}

/// Returns version and reason of the first finding of a step that blocks.
fn first_blocking(plan: &UpgradePlan) -> Option<(&str, &str)> {
    let mut blocking = plan.findings.iter().filter(|finding| {
        let is_of_gate = matches!(finding.reason, FindingReason::Gate(_));
        finding.effect == Effect::Blocks && is_of_gate
    });
    blocking.find_map(|finding| Some((finding.hop.as_deref()?, finding.reason.as_str())))
}

/// Returns the release that a ClusterBootstrap is annotated with.
fn annotated(bootstrap: &Value) -> Option<usize> {
    let named = &bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR];
    RELEASES.iter().position(|release| named == release)
}

/// Asserts that the last step of a leader did not merge the packages of a next version while its caches showed a deactivated release on the
/// way. Each version must have one release, which the label or nothing names.
pub(super) fn assert_usable(leader: &Leader) {
    let saw = &leader.saw;
    let is_merge = |release: &usize| saw.get(&bootstrap()).and_then(annotated) != Some(*release);
    let written = leader.made.iter().filter(|write| {
        place_of(&write.key) == bootstrap() && !matches!(write.verb, Verb::ReplaceStatus | Verb::PatchStatus)
    });
    let Some(merged) = written.filter_map(|write| annotated(&write.body)).find(is_merge) else {
        return;
    };
    let [at, reported] = ["spec", "status"].map(|part| version_at(saw, &control_plane(), part));
    let to = target(saw);
    let mut others = [OTHER_RELEASE, SAME_RELEASE, LATER_RELEASE].iter();
    let is_certain = labelled(saw) == Some(to)
        && !has_images(saw)
        && others.all(|other| saw.get(&release(*other)).is_none());
    if at != reported || !is_below(at, version_of_release(merged)) || !is_certain {
        return;
    }
    let mut steps = control_plane_steps(saw, to).into_iter();
    let unusable = steps.find(|step| is_deactivated(saw, *step));
    assert!(
        unusable.is_none(),
        "record: TKRNotUsable does not hold: {} is merged, and version {unusable:?} on the way to {} has no usable release",
        RELEASES[merged],
        VERSIONS[to],
    );
}

/// Asserts that the next hop in a record, which a leader has just written, is the first step that its caches show for the target.
pub(super) fn assert_next_step(leader: &Leader, before: Option<&UpgradeRecord>, record: &UpgradeRecord) {
    let saw = &leader.saw;
    let (Some(cluster), Some(hop)) = (saw.get(&cluster()), record.hop.as_deref()) else {
        return;
    };
    let steps = cluster["status"]["controlPlane"]["upgradePlan"].as_array();
    let steps = steps
        .into_iter()
        .flatten()
        .filter_map(|step| step["version"].as_str());
    let steps: Vec<&str> = steps.collect();
    let are_shown = matches!(
        planned_by(saw),
        PlannedBy::Extension | PlannedBy::Sluice { shown: true }
    );
    let at = VERSIONS[version_at(saw, &control_plane(), "spec")];
    let is_new = before.and_then(|before| before.hop.as_deref()) != Some(hop);
    let is_of_target = cluster["spec"]["topology"]["version"] == record.to.as_str()
        && steps.last() == Some(&record.to.as_str());
    if !are_shown || !is_new || !is_of_target || hop <= at || record.to.as_str() <= at {
        return;
    }
    let first = steps.iter().find(|step| **step > at);
    assert!(
        first == Some(&hop),
        "unplanned: {hop} is the next hop of the record, and Cluster API shows {steps:?}"
    );
}

impl Walk {
    /// Returns the versions that control plane and workers had, in order.
    pub(crate) fn taken(&self) -> [Vec<&'static str>; 2] {
        [control_plane(), worker()].map(|place| {
            let states = self.history.iter().filter(|state| state.get(&place).is_some());
            let mut versions: Vec<_> = states
                .map(|state| VERSIONS[version_at(state, &place, "spec")])
                .collect();
            versions.dedup();
            versions
        })
    }

    /// Returns the plan that a user of the command line or admission gets, who may have a planted defect.
    pub(crate) fn plan(&mut self, defect: Option<Defect>) -> UpgradePlan {
        let reader = self.reader(defect);
        reader.plan(&self.surroundings())
    }

    /// Returns the verdict of admission about the update that has set the target.
    fn verdict(&mut self, defect: Option<Defect>) -> Verdict {
        let reader = self.reader(defect);
        let old = self.before_target.clone().expect("a target was set");
        let new = self.servers.get(&cluster()).cloned().expect("a Cluster");
        // An extension plans the steps once the version is stored.
        let is_planned = planned_by(&self.servers) == PlannedBy::Extension;
        let stored = if is_planned { &new } else { &old };
        reader.verdict(&self.surroundings(), [stored, &old, &new])
    }

    fn reader(&self, defect: Option<Defect>) -> Leader {
        let mut reader = Leader::of_plans(defect);
        reader.watch(&self.servers, self.now);
        reader
    }

    fn surroundings(&mut self) -> Surroundings<'_> {
        Surroundings {
            servers: &mut self.servers,
            earlier: &mut self.earlier,
            late: &mut self.late,
            now: self.now,
            epoch: self.epoch,
        }
    }

    /// Sets another target after the creation of the Cluster and these edits.
    pub(crate) fn bump(&mut self, edits: &[Edit], to: usize) {
        self.create(edits);
        self.set_target(to);
    }

    /// Completes the creation of the Cluster, and takes these edits.
    pub(crate) fn create(&mut self, edits: &[Edit]) {
        self.complete(0);
        for edit in edits {
            self.step(Step::User(*edit));
        }
        self.take(&[Step::Round; 2]);
    }

    pub(crate) fn set_target(&mut self, to: usize) {
        self.before_target = self.servers.get(&cluster()).cloned();
        self.step(Step::User(Edit::Target(to)));
        // An extension plans the steps to the target.
        self.take(&[Step::Replica, Step::ClusterApi(Reading::AtOnce)]);
    }

    /// A run of a package of the settled Cluster fails, and the record shows it.
    pub(crate) fn fail(&mut self, package: usize) {
        self.settle();
        self.observe_drift(Step::End(package, false));
    }

    /// Asserts that the Cluster reaches its target without a correction of any input.
    pub(crate) fn complete(&mut self, to: usize) {
        let mut rounds = 0;
        while !self.is_over(to) {
            rounds += 1;
            assert!(
                rounds <= ROUNDS,
                "ready: not at {} after {ROUNDS} rounds: last {:?}, {:?}, {}",
                VERSIONS[to],
                self.leaders[0].last,
                self.kapp,
                brief(record(&self.servers).as_ref()),
            );
            self.round();
        }
    }

    /// Asserts that the plan names the first step that cannot end, that admission refuses the target by the findings of the plan, and that
    /// the upgrade is held for the step, or else completes. Returns whether it is held.
    pub(crate) fn assert_planned(&mut self) -> bool {
        self.assert_planned_by([None, None])
    }

    /// Asserts the same of makers of plan and verdict that may have a planted defect.
    pub(crate) fn assert_planned_by(&mut self, [of_plan, of_admission]: [Option<Defect>; 2]) -> bool {
        let obstacle = obstacle(&self.servers);
        let plan = self.plan(of_plan);
        let found = first_blocking(&plan);
        let wanted = obstacle.map(|(step, reason)| (VERSIONS[step], reason));
        let (_, reason) = obstacle.unwrap_or((0, "nothing"));
        assert!(
            found == wanted,
            "plan: {reason} is to be found at {wanted:?}, not {found:?}; {plan:?}"
        );
        let verdict = self.verdict(of_admission);
        let may_refuse = plan
            .findings
            .iter()
            .any(|finding| finding.admission == Admission::Refuses);
        let mut texts = verdict.faults.iter().map(ToString::to_string);
        let is_named = obstacle.is_none()
            || texts.any(|text| text.contains(reason))
            || verdict.warnings.iter().any(|text| text.contains(reason));
        assert!(
            may_refuse != verdict.faults.is_empty() && is_named,
            "admission: {reason} is to be named, and the target refused: {may_refuse}; {verdict:?}, {plan:?}"
        );
        match obstacle {
            Some((_, reason)) => self.assert_refused(reason),
            None => self.complete(target(&self.servers)),
        }
        obstacle.is_some()
    }

    /// Asserts that plan and record hold the step to a version for this reason.
    pub(crate) fn assert_held(&mut self, version: usize, reason: &str) {
        let plan = self.plan(None);
        assert_eq!(
            first_blocking(&plan),
            Some((VERSIONS[version], reason)),
            "plan: {plan:?}"
        );
        // A reconcile from earlier caches may write.
        self.take(&[Step::Watch(0), Step::Reconcile(0)]);
        self.assert_refused(reason);
    }

    /// Returns the number of writes to the workload, the version of the control plane, and the packages of the ClusterBootstrap.
    fn written(&self) -> (usize, usize, Option<Value>) {
        let spec = self
            .servers
            .get(&bootstrap())
            .map(|bootstrap| bootstrap["spec"].clone());
        let version = version_at(&self.servers, &control_plane(), "spec");
        (self.workload_writes, version, spec)
    }

    /// Asserts that the upgrade is held before its next write, for this reason.
    fn assert_refused(&mut self, reason: &str) {
        let before = self.written();
        self.take(&[Step::Round; SHOWN_AFTER]);
        let after = self.written();
        let record = record(&self.servers);
        let mut gates = record.iter().flat_map(|record| &record.gates);
        let is_shown =
            gates.any(|gate| gate.hook == Hook::BeforeClusterUpgrade && !gate.open && gate.reason == reason);
        assert!(
            is_shown && before == after,
            "record: {reason} does not hold before the next write: {before:?} becomes {after:?}; last {:?}, {}",
            self.leaders[0].last,
            brief(record.as_ref()),
        );
    }
}
