//! One fault on some Clusters, and the requirements on Sluice meanwhile.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sluice_tests::extension::Replica;
use sluice_tests::fault_server::Fault;
use sluice_tests::processes::notice;
use sluice_tests::stack::Stack;
use sluice_tests::wait;

use crate::SLOTS;
use crate::figures::{DISTURBED, FIRST, Figures, UNDISTURBED};
use crate::hundred::{CLUSTERS, Hundred, Values, install};
use crate::memory::{MEBIBYTE, Memory};

/// Duration of a round. Values that are not written by then count as that long.
const ROUND: Duration = Duration::from_secs(40);

/// Time that a slow reconcile may have any slot. After that it needs one of the slots for slow Clusters.
const UNNOTICED: Duration = Duration::from_secs(3);

/// Time that a fault gets to be noticed.
const NOTICED: Duration = Duration::from_mins(1);

/// Time that the Clusters which were hit get to be as all others again: a server is left alone for a minute at most.
const RECOVERED: Duration = Duration::from_mins(2);

/// Memory that a failing Cluster may take: half of the memory limit of the Deployment.
const GROWTH: u64 = 128 * MEBIBYTE;

const REASON: &str = "WorkloadUnreachable";

/// A fault, and how many Clusters it hits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) fault: Fault,
    pub(crate) hits: usize,
    /// Whether CI runs it for each submission.
    pub(crate) each_time: bool,
}

impl Case {
    pub(crate) const fn one(fault: Fault) -> Self {
        Self {
            fault,
            hits: 1,
            each_time: false,
        }
    }

    pub(crate) const fn every_slot(fault: Fault) -> Self {
        Self {
            hits: SLOTS,
            ..Self::one(fault)
        }
    }

    pub(crate) const fn each_time(self) -> Self {
        Self {
            each_time: true,
            ..self
        }
    }
}

/// Judges the cases in turn. A complaint ends none of them, so that one run shows all.
pub(crate) struct Judge<'a> {
    stack: &'a Stack,
    replica: &'a Replica,
    hundred: Hundred,
    /// Number of concurrent reconciles.
    concurrency: usize,
    memory: Memory,
    without: Vec<Duration>,
    judged: usize,
    /// How many Clusters were hit so far; they are the first ones.
    hit: usize,
    complaints: Vec<String>,
}

impl<'a> Judge<'a> {
    pub(crate) async fn new(
        stack: &'a Stack,
        replica: &'a Replica,
        mut hundred: Hundred,
        concurrency: usize,
    ) -> Result<Self> {
        // The first writes to each workload bring more than the values.
        let first = hundred.round(0..CLUSTERS, RECOVERED).await?;
        let without = hundred.some(0..CLUSTERS, ROUND).await?;
        let mut judge = Self {
            memory: Memory::of_sluice(stack)?,
            stack,
            replica,
            hundred,
            concurrency,
            without: without.clone(),
            judged: 0,
            hit: 0,
            complaints: Vec::new(),
        };
        judge.limit("the first round", first, &FIRST);
        judge.limit("without any fault", without, &UNDISTURBED);
        Ok(judge)
    }

    pub(crate) fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Two rounds with the fault, before it is noticed and after that, between two without.
    pub(crate) async fn judge(&mut self, case: &Case) -> Result<()> {
        let began = Instant::now();
        let hit = self.hit..self.hit + case.hits;
        let others = hit.end..CLUSTERS;
        (self.hit, self.judged) = (hit.end, self.judged + 1);
        let complaints = self.complaints.len();
        let title = format!("{:?} on {}", case.fault, case.hits);

        let before = self.memory.begin()?;
        self.hundred.server(self.judged - 1).strike();
        let written = self.hundred.values();
        self.hundred.edit(hit.clone()).await?;
        let unnoticed = Figures::of(self.hundred.some(others.clone(), ROUND).await?);
        let noticed = self.is_noticed(case, hit.clone(), &written).await;
        self.complain(&title, noticed);
        let held = self.hundred.is_held(self.replica, CLUSTERS - 1).await;
        self.complain(&title, held);
        self.hundred.edit(hit).await?;
        let with = Figures::of(self.hundred.some(others.clone(), ROUND).await?);
        let growth = self.memory.highest().saturating_sub(before);
        let asked = self.hundred.server(self.judged - 1).asked();
        self.hundred.server(self.judged - 1).heal();

        // Effects after a fault do not count for its round, so the round after it is only one half of the reference.
        let after = self.hundred.some(others, ROUND).await?;
        self.limit(&format!("after {title}"), after.clone(), &UNDISTURBED);
        let mut without = std::mem::replace(&mut self.without, after.clone());
        without.extend(after);
        let without = Figures::of(without);
        notice(format_args!(
            "{title}: others {unnoticed} before it was noticed, {with} after that, {without} without (median, nine of ten, last), ratios {}, {}; memory +{} MiB; asked {asked} times; {:.0} s",
            unnoticed.ratio(&without),
            with.ratio(&without),
            growth / MEBIBYTE,
            began.elapsed().as_secs_f64(),
        ));
        // Those that are hit are reconciled for so long one after the other, as many at once as there are slots.
        let turns = u32::try_from(case.hits.div_ceil(self.concurrency))?;
        let as_long = || {
            ensure!(
                unnoticed.are_as(&without, UNNOTICED * turns) && with.are_as(&without, Duration::ZERO),
                "others took {unnoticed} before it was noticed, {with} after that, and {without} without"
            );
            for round in [&unnoticed, &with] {
                ensure!(
                    round.are_within(&DISTURBED),
                    "others took {round}, and may take {DISTURBED}"
                );
            }
            Ok(())
        };
        self.complain(&title, as_long());
        let little = || {
            ensure!(growth < GROWTH, "memory grew by {} MiB", growth / MEBIBYTE);
            Ok(())
        };
        self.complain(&title, little());
        self.complain(&title, self.memory.process_is_the_same(self.stack));
        if self.complaints.len() > complaints {
            // The next fault is judged by itself.
            self.replica.restart().await?;
            self.memory = Memory::of_sluice(self.stack)?;
            self.hundred.round(self.hit..CLUSTERS, RECOVERED).await?;
            self.without = self.hundred.some(self.hit..CLUSTERS, ROUND).await?;
        }
        Ok(())
    }

    /// Every Cluster that was hit takes values again, and none waits for its server any more.
    pub(crate) async fn all_recover(&mut self) -> Result<()> {
        let began = Instant::now();
        let took = self.hundred.round(0..CLUSTERS, RECOVERED).await?;
        for (index, took) in took.iter().enumerate().filter(|(_, took)| **took >= RECOVERED) {
            let reasons = self.hundred.reasons(index).await?;
            self.complaints.push(format!(
                "Cluster {index} has not recovered after {took:?}: {reasons:?}"
            ));
        }
        if self.complaints.is_empty() {
            self.none_is_held().await?;
        }
        notice(format_args!(
            "all of them recovered: {:.0} s",
            began.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    async fn none_is_held(&self) -> Result<()> {
        let hundred = &self.hundred;
        wait::until("no Cluster to be unreachable", RECOVERED, || async {
            for index in 0..self.hit {
                let reasons = hundred.reasons(index).await?;
                if reasons.iter().any(|reason| reason == REASON) {
                    return wait::not_yet(format!("Cluster {index}: {reasons:?}"));
                }
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Affected Clusters report the fault, if Sluice promises that; otherwise they take values that are not those `before`.
    async fn is_noticed(&self, case: &Case, hit: Range<usize>, before: &Values) -> Result<()> {
        let hundred = &self.hundred;
        let what = "the Clusters that are hit to say so, or to take values all the same";
        let hit = &hit;
        wait::until(what, NOTICED, || async move {
            if !case.fault.makes_unreachable() {
                let now = hundred.values();
                let same = |index: &usize| now.get(&install(*index)) == before.get(&install(*index));
                return match hit.clone().find(same) {
                    None => Ok(()),
                    Some(index) => wait::not_yet(format!("Cluster {index} has its old values")),
                };
            }
            for index in hit.clone() {
                let reasons = hundred.reasons(index).await?;
                if !reasons.iter().any(|reason| reason == REASON) {
                    return wait::not_yet(format!("Cluster {index}: {reasons:?}"));
                }
            }
            Ok(())
        })
        .await?;
        Ok(())
    }

    /// Complains about a round that took longer than it may, whatever the others took.
    fn limit(&mut self, title: &str, took: Vec<Duration>, limits: &Figures) {
        let took = Figures::of(took);
        notice(format_args!("{title}: {took}"));
        let within = || {
            ensure!(
                took.are_within(limits),
                "the Clusters took {took}, and may take {limits}"
            );
            Ok(())
        };
        self.complain(title, within());
    }

    fn complain(&mut self, title: &str, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.complaints.push(format!("{title}: {error:#}"));
        }
    }
}
