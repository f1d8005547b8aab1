//! What Sluice takes for a fleet of one size: a leader and a standby, from their start to a change of the catalogue.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::join;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::MINORS;
use super::audit::{Asked, Audit, What};
use super::bed::Bed;
use super::catalogue::{package_name, release_name};
use super::command::say;
use super::gauge::Gauge;
use super::kinds::RELEASE;
use super::peer::{self, Peer};
use super::report::{Entry, Seen};
use crate::extension::Replica;
use crate::wait;

/// Between two looks at the logs.
const LOOK: Duration = Duration::from_secs(1);

/// How long a change of the catalogue is waited for.
const SWEEP: Duration = Duration::from_secs(40);

/// How long stores may take to be listed again once the API server is back.
const RELIST: Duration = Duration::from_secs(75);

/// Stores of one replica that are listed at least once when all watches broke.
const STORES: usize = 10;

/// Part of a second that a process takes which is not idle.
const BUSY: f64 = 0.1;

/// What differs between runs.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// How long nothing is done before memory is measured.
    pub(super) rest: Duration,
    /// The sync period of every replica. It is in the PackageInstalls, so that another one would have to be written to all of them.
    pub(super) sync_period: Duration,
    /// Whether each cluster is looked at for the second time.
    pub(super) looks: bool,
    /// The program that Sluice is compared with.
    pub(super) peer: Option<Peer>,
}

/// A moment, and the seconds of processors that the leader had taken by then.
struct Mark {
    at: Timestamp,
    instant: Instant,
    seconds: f64,
}

impl Mark {
    async fn now(running: &Running<'_>) -> Result<Self> {
        Ok(Self {
            at: Timestamp::now(),
            instant: Instant::now(),
            seconds: Gauge::of(running.leader.id().await?).seconds()?,
        })
    }
}

/// The two replicas, running.
pub(super) struct Running<'a> {
    pub(super) bed: &'a Bed,
    pub(super) leader: Replica,
    standby: Replica,
    pub(super) audit: Audit,
}

/// Measures a fleet of so many clusters, whose numbers begin at 0. The replicas run on.
pub(super) async fn measure<'a>(bed: &'a Bed, clusters: u32, setup: &Setup) -> Result<(Entry, Running<'a>)> {
    let sync_period = setup.sync_period;
    let mut entry = Entry::of(clusters, sync_period);
    let leases = Api::<Lease>::namespaced(bed.client(), "sluice-system");
    // A holder that was killed would be waited for.
    leases
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    let mut running = Running {
        leader: bed.replica("leader", sync_period)?,
        standby: bed.replica("standby", sync_period)?,
        audit: bed.audit(),
        bed,
    };
    let began = Timestamp::now();
    entry.start(&running, &leases).await?;
    entry.sweep(&mut running, clusters, began).await?;
    let requests = entry.rest(&mut running, setup.rest).await?;
    // The second look may begin while the peer runs.
    let since = Mark::now(&running).await?;
    if let Some(peer) = &setup.peer {
        let measured = peer::measure(bed, peer, clusters).await?;
        entry.peer_ready_s = Some(measured.ready_s);
        entry.peer_rss_mb = Some(measured.rss_mb);
    }
    if setup.looks {
        let rate = requests / setup.rest.as_secs_f64();
        entry
            .second_look(&mut running, clusters, rate, began, &since)
            .await?;
    }
    entry.catalogue(&mut running, clusters).await?;
    entry.relist(&mut running).await?;
    let asked = running.audit.asked()?.iter().filter(|asked| asked.at >= began);
    let writes = asked.filter(|asked| asked.what == What::Write).count();
    entry.writes = Some(writes);
    Ok((entry, running))
}

/// Long enough for a first look at every cluster, the rest and the peer; short enough for a second look in the time of the bench.
pub(super) fn sync_period(clusters: u32, rest: Duration) -> Duration {
    rest + Duration::from_secs(25 + u64::from(clusters) * 16 / 1000)
}

impl Entry {
    async fn start(&mut self, running: &Running<'_>, leases: &Api<Lease>) -> Result<()> {
        let leader = &running.leader;
        let began = Instant::now();
        let seconds = || began.elapsed().as_secs_f64();
        let discovery = async {
            while leader.discovers().await.is_err() {
                sleep(Duration::from_millis(1)).await;
            }
            seconds() * 1e3
        };
        let ready = async {
            leader.restart().await?;
            anyhow::Ok(seconds())
        };
        let (discovery, ready) = join(discovery, ready).await;
        self.discovery_ms = Some(discovery);
        self.ready_s = Some(ready?);
        let holder = format!("leader_{}_", leader.id().await?);
        wait::until("the leader to hold the lease", Duration::from_mins(3), || async {
            let lease = leases.get("sluice-leader").await?;
            let held_by = lease
                .spec
                .and_then(|spec| spec.holder_identity)
                .unwrap_or_default();
            if held_by.starts_with(&holder) {
                Ok(())
            } else {
                wait::not_yet(held_by)
            }
        })
        .await?;
        self.leads_s = Some(seconds());
        running.standby.restart().await?;
        say(format_args!(
            "discovery after {discovery:.0} ms, ready after {:.2} s, leads after {:.2} s",
            self.ready_s.unwrap_or_default(),
            self.leads_s.unwrap_or_default()
        ));
        Ok(())
    }

    /// The first look at every cluster.
    async fn sweep(&mut self, running: &mut Running<'_>, clusters: u32, began: Timestamp) -> Result<()> {
        let patience = Duration::from_mins(1) + Duration::from_millis(u64::from(clusters) * 25);
        let seen = running.all_seen(clusters, began, patience).await?;
        self.first_sweep_s = Some(Timestamp::now().duration_since(began).as_secs_f64());
        let quiet = async {
            let mut before = usize::MAX;
            loop {
                let now = running.audit.asked()?.len() + running.bed.workloads.asked().len();
                if now == before {
                    return anyhow::Ok(());
                }
                before = now;
                sleep(2 * LOOK).await;
            }
        };
        // Where it is never quiet, the rest says so.
        if let Ok(failed) = timeout(10 * LOOK, quiet).await {
            failed?;
        }
        say(format_args!(
            "first look at {seen} of {clusters} clusters within {:.0} s",
            self.first_sweep_s.unwrap_or_default()
        ));
        Ok(())
    }

    /// The time between looks. Returns the requests in it.
    async fn rest(&mut self, running: &mut Running<'_>, rest: Duration) -> Result<f64> {
        let (leader, standby) = (
            Gauge::of(running.leader.id().await?),
            Gauge::of(running.standby.id().await?),
        );
        let (began, from) = (Timestamp::now(), Instant::now());
        let before = leader.seconds()?;
        sleep(rest).await;
        let took = from.elapsed().as_secs_f64();
        let percent = (leader.seconds()? - before) / took * 100.0;
        // The log is written in batches.
        sleep(LOOK).await;
        let (management, workload) = running.requests(began, from, |_| true)?;
        self.idle_cpu_percent = Some(percent);
        self.requests_between_looks = Some(as_f64(management + workload));
        self.rss_mb_leader = Some(leader.resident()?);
        self.rss_mb_standby = Some(standby.resident()?);
        self.pss_mb_leader = Some(leader.proportional()?);
        self.pss_mb_standby = Some(standby.proportional()?);
        say(format_args!(
            "after {took:.0} s of rest: leader {:.1} MB, standby {:.1} MB, {percent:.2} % of a core, {management} requests to the \
             management API server, {workload} to workloads",
            leader.resident()?,
            standby.resident()?
        ));
        Ok(as_f64(management + workload))
    }

    /// The second look at every cluster, some time `since` then. `rate` requests a second are none of it.
    async fn second_look(
        &mut self,
        running: &mut Running<'_>,
        clusters: u32,
        rate: f64,
        started: Timestamp,
        since: &Mark,
    ) -> Result<()> {
        let sync_period = Duration::from_secs_f64(self.sync_period_s);
        let &Mark {
            at: began,
            instant: from,
            seconds: before,
        } = since;
        let leader = Gauge::of(running.leader.id().await?);
        let since_start = Duration::try_from(Timestamp::now().duration_since(started)).unwrap_or_default();
        // Jitter, and as long as the first look took.
        let patience = (sync_period.mul_f64(1.3)
            + Duration::from_secs_f64(2.0 * self.first_sweep_s.unwrap_or_default()))
        .saturating_sub(since_start)
            + 10 * LOOK;
        let seen = running.all_seen(clusters, began, patience).await?;
        sleep(3 * LOOK).await;
        let took = from.elapsed().as_secs_f64();
        let (management, workload) = running.requests(began, from, |asked| asked.what != What::List)?;
        self.seen_twice = Some(seen);
        if seen > 0 {
            self.requests_per_look_management =
                Some(((as_f64(management) - rate * took) / f64::from(seen)).max(0.0));
            self.requests_per_look_workload = Some(as_f64(workload) / f64::from(seen));
            self.cpu_ms_per_look = Some((leader.seconds()? - before) / f64::from(seen) * 1e3);
        }
        say(format_args!(
            "second look at {seen} of {clusters} clusters within {took:.0} s: {management} requests to the management API server, \
             {workload} to workloads"
        ));
        Ok(())
    }

    /// A release that gets one more package concerns every cluster of it.
    async fn catalogue(&mut self, running: &mut Running<'_>, clusters: u32) -> Result<()> {
        let release = release_name(MINORS[0], 1);
        let objects = running.bed.objects();
        let path = RELEASE.of_the_cluster(&release);
        let leader = Gauge::of(running.leader.id().await?);
        let passes = passes(&running.leader).await?;
        let shows = self.requests_between_looks == Some(0.0);
        let (began, from) = (Timestamp::now(), Instant::now());
        let packages = [MINORS[0], MINORS[1]].map(|minor| json!({"name": package_name("pinniped", minor)}));
        let change = json!({"spec": {"bootstrapPackages": packages}});
        objects.merge(&path, "kubectl", &change).await?;
        let (mut busy_until, mut before) = (0.0, leader.seconds()?);
        while from.elapsed() < SWEEP {
            sleep(LOOK).await;
            let seconds = leader.seconds()?;
            if seconds - before > BUSY * LOOK.as_secs_f64() {
                busy_until = from.elapsed().as_secs_f64();
            }
            before = seconds;
            let now = self::passes(&running.leader).await?;
            let counted = passes.zip(now).map(|(before, now)| now - before);
            // What is asked all the time says nothing.
            let seen = shows && running.seen(clusters, began, from)? == clusters;
            if counted.is_some_and(|counted| counted >= f64::from(clusters)) || seen {
                self.sweep_seconds_after_catalogue_change = Some(from.elapsed().as_secs_f64());
                self.sweep_seen_by = Some(if seen { Seen::Requests } else { Seen::Metrics });
                break;
            }
        }
        self.busy_s_after_catalogue_change = Some(busy_until);
        let requests = running
            .audit
            .asked()?
            .iter()
            .filter(|asked| asked.at >= began)
            .count();
        self.requests_after_catalogue_change = Some(requests);
        say(format_args!(
            "after a change of the release: sweep {:?} s, the leader was busy until {busy_until:.0} s, {requests} requests",
            self.sweep_seconds_after_catalogue_change
        ));
        Ok(())
    }

    /// All watches break, and every store is listed again.
    async fn relist(&mut self, running: &mut Running<'_>) -> Result<()> {
        let leader = Gauge::of(running.leader.id().await?);
        let before = leader.resident()?;
        leader.forget_peak()?;
        let began = Timestamp::now();
        running.bed.management.restart().await?;
        let from = Instant::now();
        let mut lists = 0;
        // The standby lists them, too.
        while from.elapsed() < RELIST && lists < 2 * STORES {
            sleep(LOOK).await;
            let asked = running.audit.asked()?.iter().filter(|asked| asked.at >= began);
            lists = asked.filter(|asked| asked.what == What::List).count();
        }
        // The last of them are being read.
        sleep(8 * LOOK).await;
        let peak = leader.peak()?;
        self.relist_peak_ratio = Some(peak / before);
        self.relists = Some(lists);
        say(format_args!(
            "{lists} stores listed again: {before:.1} MB before, {peak:.1} MB at most"
        ));
        Ok(())
    }
}

impl Running<'_> {
    /// How many requests to the management API server since then are `counted`, and how many there were to workloads.
    fn requests(
        &mut self,
        since: Timestamp,
        from: Instant,
        counted: impl Fn(&Asked) -> bool,
    ) -> Result<(usize, usize)> {
        let management = self.audit.asked()?.iter();
        let management = management
            .filter(|asked| asked.at >= since && counted(asked))
            .count();
        let workloads = self.bed.workloads.asked();
        let workload = workloads.iter().filter(|(_, at)| *at >= from).count();
        Ok((management, workload))
    }

    /// How many clusters were asked about since then.
    fn seen(&mut self, clusters: u32, since: Timestamp, from: Instant) -> Result<u32> {
        let management = self
            .audit
            .asked()?
            .iter()
            .rev()
            .take_while(|asked| asked.at >= since);
        let mut seen: HashSet<u32> = management.filter_map(|asked| asked.cluster).collect();
        let workloads = self.bed.workloads.asked();
        seen.extend(
            workloads
                .iter()
                .rev()
                .take_while(|(_, at)| *at >= from)
                .map(|(number, _)| *number),
        );
        seen.retain(|number| *number < clusters);
        u32::try_from(seen.len()).context("count clusters")
    }

    /// Waits until every cluster was asked about since then. Returns how many were when that, or the patience, was over.
    pub(super) async fn all_seen(
        &mut self,
        clusters: u32,
        since: Timestamp,
        patience: Duration,
    ) -> Result<u32> {
        let began = Instant::now();
        let ago = Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default();
        let from = began.checked_sub(ago).unwrap_or(began);
        loop {
            let seen = self.seen(clusters, since, from)?;
            if seen == clusters || began.elapsed() >= patience {
                return Ok(seen);
            }
            sleep(LOOK).await;
        }
    }

    /// Ends both.
    pub(super) async fn end(&self) -> Result<()> {
        self.leader.kill().await?;
        self.standby.kill().await
    }
}

/// Passes over Clusters so far, if the leader counts them.
async fn passes(leader: &Replica) -> Result<Option<f64>> {
    let metrics = leader.metrics().await?;
    let of = |name: &str| {
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    Ok(["sluice_passes_total", "sluice_looks_total"]
        .into_iter()
        .find_map(of))
}

/// Counts are far below what this cannot tell apart.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(super) fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_time_for_a_look_at_every_cluster_before_the_next_one() {
        let rest = Duration::from_mins(1);
        assert_eq!(sync_period(100, rest), Duration::from_secs(86));
        assert_eq!(sync_period(10_000, rest), Duration::from_secs(245));
    }
}
