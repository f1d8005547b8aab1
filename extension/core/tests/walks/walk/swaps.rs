//! Invariants of swaps: entries in `TKR_DATA` by which machines of one release are replaced by those of another one of their version.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_core::{
    reconcile::cluster::{Verb, Write},
    upgrade::swap::is_cancelled_swap,
};
use sluice_crds::{
    labels::{annotation, name},
    run::{Gate, GateOverride, Hook, Outcome, Swap, UpgradeRecord},
};

use super::{Step, Walk, invariants::ROUNDS};
use crate::{
    capi::{brief, record, version_at},
    kapp::Kapp,
    machines::{
        are_entered, are_replaced, brief_entry, entries, has_image, has_images, images, is_declared,
        labelled, made_of, pinned, release_in, rendered,
    },
    objects::{
        PACKAGES, RELEASES, VERSIONS, bootstrap, cluster, control_plane, is_below, version_of_release, worker,
    },
    servers::{Servers, place_of},
    truth::{Fits, fits, recorded_cluster, version_of},
    users::mend_target,
};

/// Facts about swaps at one moment.
#[derive(Clone)]
pub(super) struct Moment {
    fits: Fits,
    /// Entries that the objects of the API server give, by part, with their release.
    rendered: Vec<(usize, usize, String)>,
    is_declared: bool,
    is_allowed: bool,
    /// Release whose machines have replaced all others.
    replaced: Option<usize>,
    images: [Value; 2],
    /// Release whose entries the record permits to write.
    permitted: Option<usize>,
    /// Whether the Cluster has the entries that it needs, by version.
    entered: [bool; VERSIONS.len()],
}

impl Moment {
    /// Returns the facts; `None` in a walk without images.
    pub(super) fn of(servers: &Servers, kapp: &Kapp) -> Option<Self> {
        if !has_images(servers) {
            return None;
        }
        let rendered = (0..RELEASES.len()).flat_map(|release| {
            let parts = rendered(servers, release).into_iter().enumerate();
            parts.filter_map(move |(part, entry)| Some((part, release, entry?.to_string())))
        });
        Some(Self {
            fits: fits(servers, kapp),
            rendered: rendered.collect(),
            is_declared: is_declared(servers),
            is_allowed: is_allowed(servers),
            replaced: made_of(servers).filter(|_| are_replaced(servers)),
            images: images(servers),
            permitted: opened(record(servers).as_ref()).map(|swap| index_of(&swap.to)),
            entered: std::array::from_fn(|version| are_entered(servers, version)),
        })
    }
}

/// Whether nothing forbids a swap: no pause, no deletion, and no annotation that holds upgrades.
fn is_allowed(servers: &Servers) -> bool {
    let is_paused = |object: Option<&Value>| object.is_some_and(|object| object["spec"]["paused"] == true);
    let Some(cluster) = servers.get(&cluster()) else {
        return false;
    };
    let annotations = cluster["metadata"]["annotations"].as_object();
    let is_held = annotations.is_some_and(|annotations| {
        let mut keys = annotations.keys();
        keys.any(|key| key == annotation::PAUSED || key.starts_with(annotation::BEFORE_UPGRADE_PREFIX))
    });
    !is_held
        && !is_paused(Some(cluster))
        && !is_paused(servers.get(&bootstrap()))
        && cluster["metadata"]["deletionTimestamp"].is_null()
}

/// Last times at which facts were true, and all entries that were written.
#[derive(Clone, Default)]
pub(crate) struct Swaps {
    /// Each package was correctly deployed for each release.
    fit_at: [[Option<u64>; RELEASES.len()]; PACKAGES.len()],
    /// The objects of the API server gave this entry: part, release and entry.
    rendered_at: BTreeMap<(usize, usize, String), u64>,
    /// The class declared the variable.
    declared_at: Option<u64>,
    /// Nothing forbade a swap.
    allowed_at: Option<u64>,
    /// The record permitted to write the entries of each release.
    permitted_at: [Option<u64>; RELEASES.len()],
    /// The Cluster had the entries that it needs, by version.
    entered_at: [Option<u64>; VERSIONS.len()],
    /// Whether the class did not declare the variable at some time.
    was_undeclared: bool,
    /// Versions whose first entries leaders have written, in order.
    pub(crate) entered: Vec<usize>,
    /// Releases whose machines have replaced all others at some time.
    replaced: [bool; RELEASES.len()],
    /// Releases of the entries that leaders have written, in order.
    pub(crate) written: Vec<usize>,
    /// Images that the machines of each part were made of, in order.
    pub(crate) images: [Vec<Value>; 2],
}

impl Swaps {
    pub(super) fn observe(&mut self, moment: &Moment, now: u64) {
        let fits = moment.fits.iter().flatten();
        for (fits, at) in fits.zip(self.fit_at.iter_mut().flatten()) {
            if *fits {
                *at = Some(now);
            }
        }
        for (entered, at) in moment.entered.iter().zip(&mut self.entered_at) {
            if *entered {
                *at = Some(now);
            }
        }
        self.was_undeclared |= !moment.is_declared;
        if let Some(release) = moment.permitted {
            self.permitted_at[release] = Some(now);
        }
        for entry in &moment.rendered {
            self.rendered_at.insert(entry.clone(), now);
        }
        if moment.is_declared {
            self.declared_at = Some(now);
        }
        if moment.is_allowed {
            self.allowed_at = Some(now);
        }
        if let Some(release) = moment.replaced {
            self.replaced[release] = true;
        }
        for (image, known) in moment.images.iter().zip(&mut self.images) {
            if known.last() != Some(image) {
                known.push(image.clone());
            }
        }
    }

    /// Forgets all evidence and all entries: the API server shows an earlier state, or another Cluster.
    pub(super) fn forget(&mut self) {
        *self = Self {
            was_undeclared: self.was_undeclared,
            ..Self::default()
        };
    }

    /// Records an entry that a leader has written. Asserts that none is written again for its release.
    pub(super) fn note(&mut self, before: &Servers, after: &Servers) {
        if before.ptr_eq(after) {
            return;
        }
        let entries_in = |servers: &Servers| {
            let version = version_at(servers, &control_plane(), "spec");
            let cluster = servers.get(&cluster())?;
            Some((
                release_in(entries(cluster, version)[0]),
                entries(cluster, version).map(brief_entry),
            ))
        };
        let (Some((from, old)), Some((to, new))) = (entries_in(before), entries_in(after)) else {
            return;
        };
        if old == new {
            return;
        }
        let to = to.expect("an entry of a release");
        assert!(
            from != Some(to) && !self.written.contains(&to),
            "re-rendered: {old:?} is replaced by {new:?}, and entries of {:?} were written before",
            self.written,
        );
        self.written.push(to);
    }

    /// Asserts that the Cluster had the entries of the version of a gate that opens before the control plane takes it. Caches of the class
    /// may be outdated.
    pub(super) fn judge_gate(&self, gate: &Gate, began: u64) {
        let entered = self.entered_at[version_of(gate)];
        assert!(
            !is_before(gate) || self.was_undeclared || entered.is_some_and(|at| at >= began),
            "unmade: {:?} {} is opened by a reconcile that began at {began}, and the Cluster had its entries last at {entered:?}",
            gate.hook,
            gate.version,
        );
    }

    /// Asserts that the packages of a release, except those that an override passes, were deployed, that its entries could be written, and
    /// that nothing forbade it, at some time during a reconcile.
    fn judge(&self, what: &str, to: usize, passed: [bool; PACKAGES.len()], began: u64) {
        let held = |at: Option<u64>| at.is_some_and(|at| at >= began);
        for package in PACKAGES {
            let fit_at = self.fit_at[package][to];
            assert!(
                passed[package] || held(fit_at),
                "early: {what} by a reconcile that began at {began}, and package {package} was last deployed at {fit_at:?}",
            );
        }
        assert!(
            held(self.allowed_at),
            "paused: {what} by a reconcile that began at {began}, and nothing forbade it last at {:?}",
            self.allowed_at,
        );
        let is_rendered = |part: usize| {
            let mut entries = self.rendered_at.iter();
            entries.any(|((of, release, _), at)| (*of, *release) == (part, to) && *at >= began)
        };
        assert!(
            held(self.declared_at) && is_rendered(0) && is_rendered(1),
            "unconfirmed: {what} by a reconcile that began at {began}, and its entries could be rendered last from {:?}",
            self.rendered_at,
        );
    }
}

/// Whether a gate opens before the control plane takes its version.
fn is_before(gate: &Gate) -> bool {
    matches!(
        gate.hook,
        Hook::BeforeClusterUpgrade | Hook::BeforeControlPlaneUpgrade
    )
}

/// Returns the swap of a record that permits to write its entries.
fn opened(record: Option<&UpgradeRecord>) -> Option<&Swap> {
    let swap = record.filter(|record| record.outcome.is_none())?.swap.as_ref()?;
    (swap.open && swap.written_at.is_none()).then_some(swap)
}

/// Returns the index of a release.
fn index_of(release: &str) -> usize {
    let index = RELEASES.iter().position(|known| *known == release);
    index.expect("a release of the walk")
}

/// Returns the spec of a Cluster without entries of a version.
fn without_entries(cluster: &Value, version: usize) -> Value {
    fn remove(value: &mut Value, version: &str) {
        match value {
            Value::Object(fields) => {
                if fields.get("name").is_some_and(|name| name == name::TKR_DATA)
                    && let Some(entries) = fields.get_mut("value").and_then(Value::as_object_mut)
                {
                    entries.remove(version);
                }
                fields.values_mut().for_each(|field| remove(field, version));
            }
            Value::Array(values) => values.iter_mut().for_each(|value| remove(value, version)),
            _ => {}
        }
    }
    let mut spec = cluster["spec"].clone();
    remove(&mut spec, VERSIONS[version]);
    spec
}

impl Walk {
    /// Asserts that the last step of a leader permits and writes only entries whose packages were proven and whose inputs were confirmed
    /// in the reconcile, and that it ends no swap before all machines are replaced.
    pub(super) fn judge_swaps(&mut self, which: usize, before: &Servers) {
        if !has_images(before) {
            return;
        }
        self.observe();
        let (recorded, current) = (record(before), record(&self.servers));
        let began = self.leaders[which].began;
        if let Some(swap) = opened(current.as_ref())
            && opened(recorded.as_ref()).is_none_or(|open| (&open.from, &open.to) != (&swap.from, &swap.to))
            && let Some(current) = &current
        {
            self.judge_opened(current, swap, began);
        }
        let is_patch = |write: &&Write| write.verb == Verb::JsonPatch && place_of(&write.key) == cluster();
        let patches = self.leaders[which].made.iter().filter(is_patch).count();
        assert!(
            patches <= 1,
            "re-rendered: a reconcile writes entries {patches} times"
        );
        if patches == 1 {
            match self.entered(before) {
                Some(version) => {
                    self.judge_entered(before, version, began);
                    self.swaps.entered.push(version);
                }
                None => self.judge_written(before, began),
            }
        }
        self.swaps.note(before, &self.servers);
        let is_over = |record: &UpgradeRecord| record.outcome == Some(Outcome::Completed);
        let ended = current
            .as_ref()
            .filter(|record| is_over(record) && !recorded.as_ref().is_some_and(is_over));
        if let Some(swap) = ended.and_then(|record| record.swap.as_ref())
            && swap.written_at.is_some()
        {
            assert!(
                self.swaps.replaced[index_of(&swap.to)],
                "early: the swap to {} ends, and machines are made of {:?}",
                swap.to,
                images(&self.servers),
            );
        }
    }

    /// Returns the version whose entries have changed, if the control plane does not have it.
    fn entered(&self, before: &Servers) -> Option<usize> {
        let (old, new) = (before.get(&cluster())?, self.servers.get(&cluster())?);
        let is_changed = |version: &usize| {
            entries(old, *version).map(brief_entry) != entries(new, *version).map(brief_entry)
        };
        let version = (0..VERSIONS.len()).find(is_changed)?;
        (version != version_at(before, &control_plane(), "spec")).then_some(version)
    }

    /// Asserts that written entries are the first ones of a version that no machine runs and that Cluster API cannot take yet, and that nothing
    /// else has changed.
    fn judge_entered(&self, before: &Servers, version: usize, began: u64) {
        let (old, new) = (before.get(&cluster()), self.servers.get(&cluster()));
        let (old, new) = old.zip(new).expect("a Cluster");
        let written = entries(new, version);
        let release = release_in(written[0]).expect("an entry of a release");
        let what = format!("the entries of {} are added", RELEASES[release]);
        assert_versions(before, &what, |at| is_below(at, version));
        assert!(
            version_of_release(release) == version && release_in(written[1]) == Some(release),
            "mixed: {what} for {}: {written:?}",
            VERSIONS[version],
        );
        let is_first = !entries(old, version).into_iter().any(has_image);
        assert!(
            is_first && !self.swaps.entered.contains(&version),
            "re-rendered: {what} after {:?}",
            entries(old, version),
        );
        let is_paused = old["spec"]["paused"] == true || !old["metadata"]["deletionTimestamp"].is_null();
        assert!(!is_paused, "paused: {what}");
        let record = record(before).filter(|record| record.outcome.is_none());
        let mut gates = record.iter().flat_map(|record| &record.gates);
        let is_open = gates.any(|gate| gate.open && is_before(gate) && gate.version == VERSIONS[version]);
        assert!(
            !is_open || self.swaps.was_undeclared,
            "open: {what} while Cluster API may take {}",
            VERSIONS[version],
        );
        let (old, new) = (without_entries(old, version), without_entries(new, version));
        assert!(old == new, "other: {what}, and {old} becomes {new}");
        self.assert_rendered(&what, release, written, began);
    }

    /// Asserts that the objects of the API server gave these entries of a release at some time during a reconcile.
    fn assert_rendered(&self, what: &str, release: usize, written: [&Value; 2], began: u64) {
        for (part, entry) in written.iter().enumerate() {
            let key = (part, release, brief_entry(entry).to_string());
            let given = self.swaps.rendered_at.get(&key);
            assert!(
                given.is_some_and(|at| *at >= began),
                "unconfirmed: {what} with {entry} by a reconcile that began at {began}, and the objects gave it last at {given:?}",
            );
        }
    }

    fn judge_opened(&self, record: &UpgradeRecord, swap: &Swap, began: u64) {
        let (of, to) = (recorded_cluster(record), index_of(&swap.to));
        let seen = self.clusters.get(&of);
        assert!(
            seen.is_some_and(|at| *at >= began),
            "outdated: the swap to {} is opened for {of} by a reconcile that began at {began}, and the Cluster was so last at {seen:?}",
            swap.to,
        );
        assert!(
            index_of(&swap.from) < to,
            "lower: the swap from {} to {} is opened",
            swap.from,
            swap.to
        );
        self.capi.overrides.assert_opens_swap(record, swap, began);
        let passed = self.passed(swap.overridden_by.as_ref());
        let what = format!("the swap to {} is opened", swap.to);
        self.swaps.judge(&what, to, passed, began);
    }

    /// Returns which packages an override passes.
    fn passed(&self, by: Option<&GateOverride>) -> [bool; PACKAGES.len()] {
        PACKAGES.map(|package| self.capi.overrides.passes(by, package))
    }

    /// Asserts the same for written entries, which replace those of the version of all machines, and nothing else.
    fn judge_written(&self, before: &Servers, began: u64) {
        let (old, new) = (before.get(&cluster()), self.servers.get(&cluster()));
        let (old, new) = old.zip(new).expect("a Cluster");
        let version = version_at(before, &control_plane(), "spec");
        let written = entries(new, version);
        let to = release_in(written[0]).expect("an entry of a release");
        let what = format!("the entries of {} are written", RELEASES[to]);
        assert_versions(before, &what, |at| at == version);
        let (target, label) = (&old["spec"]["topology"]["version"], labelled(before));
        assert!(
            *target == VERSIONS[version] && label == Some(to),
            "outdated: {what}, and the Cluster requests {target} of {label:?}",
        );
        let from = release_in(entries(old, version)[0]);
        assert!(
            from.is_none_or(|from| from < to),
            "lower: {what} after those of {from:?}"
        );
        let (old, new) = (without_entries(old, version), without_entries(new, version));
        assert!(old == new, "other: {what}, and {old} becomes {new}");
        let permitted = self.swaps.permitted_at[to];
        assert!(
            permitted.is_some_and(|at| at >= began),
            "unrecorded: {what} by a reconcile that began at {began}, and the record permitted them last at {permitted:?}",
        );
        let permitting = record(&self.servers);
        let swap = permitting.as_ref().and_then(|record| record.swap.as_ref());
        if let Some((record, swap)) = permitting.as_ref().zip(swap) {
            self.capi.overrides.assert_opens_swap(record, swap, began);
        }
        let passed = self.passed(swap.and_then(|swap| swap.overridden_by.as_ref()));
        self.swaps.judge(&what, to, passed, began);
        self.assert_rendered(&what, to, written, began);
    }

    /// Asserts that no record permits entries that must not be written now. The leader's caches are current.
    pub(super) fn assert_swap_is_valid(&self) {
        let record = record(&self.servers);
        let Some(swap) = opened(record.as_ref()) else {
            return;
        };
        let to = index_of(&swap.to);
        assert!(
            is_allowed(&self.servers)
                && labelled(&self.servers) == Some(to)
                && rendered(&self.servers, to).iter().all(Option::is_some)
                && is_declared(&self.servers),
            "open: the swap to {} stays open; last {:?}, {}",
            swap.to,
            self.leaders[0].last,
            brief(record.as_ref()),
        );
    }

    /// Corrects all inputs of the current target, then asserts that the upgrade to it and a swap to the label's release complete, that no
    /// other machines are left, and that the Cluster settles.
    pub(crate) fn finish_swap(&mut self) {
        if self.is_deleting() {
            return self.finish();
        }
        self.take(&[Step::Arrive, Step::EndClusterApi]);
        self.capi.replica.lags = None;
        let mut rounds = 0;
        loop {
            let to = mend_target(&mut self.servers, self.chosen);
            if self.is_over(to) && self.is_swapped(to) {
                break;
            }
            rounds += 1;
            assert!(
                rounds <= ROUNDS,
                "held: no machines of {:?} after {ROUNDS} rounds: entry {:?}, machines {:?}, last {:?}, {:?}, {}",
                labelled(&self.servers),
                made_of(&self.servers),
                images(&self.servers),
                self.leaders[0].last,
                self.kapp,
                brief(record(&self.servers).as_ref()),
            );
            self.round();
        }
        self.settle();
        assert!(
            self.is_swapped(version_at(&self.servers, &control_plane(), "spec")),
            "settled: the machines have changed again: {:?}",
            images(&self.servers),
        );
    }

    /// Whether the machines are those of the label's release, unless no entry names a release. After a cancelled upgrade to a later
    /// Kubernetes version, the packages of that version stay, and the label of another release replaces no machine.
    fn is_swapped(&self, to: usize) -> bool {
        let pinned = pinned(&self.servers, to);
        let is_cancelled = record(&self.servers)
            .is_some_and(|record| record.outcome == Some(Outcome::Cancelled) && !is_cancelled_swap(&record));
        let is_labelled = is_cancelled || pinned == labelled(&self.servers);
        pinned.is_none() || is_labelled && are_replaced(&self.servers)
    }
}

/// Asserts that control plane and workers have versions that entries may be written for.
fn assert_versions(servers: &Servers, what: &str, may_be: impl Fn(usize) -> bool) {
    for (place, part) in [
        (control_plane(), "spec"),
        (control_plane(), "status"),
        (worker(), "spec"),
    ] {
        let at = version_at(servers, &place, part);
        assert!(
            may_be(at),
            "ahead: {what}, and {part} of {place:?} is at {}",
            VERSIONS[at]
        );
    }
}
