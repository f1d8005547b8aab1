//! Resources of Sluice for a fleet of one size: a leader and a standby, from their start to a change of the catalogue.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::join;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use tokio::time::sleep;

use super::MINORS;
use super::audit::{Asked, Audit, What};
use super::bed::Bed;
use super::catalogue::{another_package, release_name};
use super::command::say;
use super::kinds::RELEASE;
use super::peer::{self, Peer};
use super::report::Entry;
use crate::extension::Replica;
use crate::processes::gauge::Gauge;
use crate::wait;

/// Longer than the gaps between the requests of one drift check; shorter than the time between two drift checks of a cluster.
const CHECK_LASTS: Duration = Duration::from_secs(10);

/// Delay of a drift check beyond the sync period: the wait for a slot, and the jitter.
const TIMEOUT: Duration = Duration::from_secs(45);

/// Time between two reads of the logs.
const POLL: Duration = Duration::from_secs(1);

/// How long the leader may take to list a large fleet.
const LEADS: Duration = Duration::from_mins(6);

/// Timeout of the fan-out requeue after a change of the catalogue.
const FAN_OUT: Duration = Duration::from_secs(40);

/// How long stores may take to be listed again once the API server is back.
const RELIST: Duration = Duration::from_secs(75);

/// Stores of one replica that are listed at least once when all watches broke.
const STORES: usize = 10;

/// The API server, its etcd, both replicas and the workloads share two processors.
const CHECKS_PER_SECOND: u32 = 50;

/// Timeout for kube-apiserver to read the fleet from etcd.
const PREPARED: Duration = Duration::from_mins(10);
const SECOND: Duration = Duration::from_secs(1);

/// What differs between runs.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// How long nothing is done before memory is measured.
    pub(super) rest: Duration,
    /// The sync period of every replica. It is in the PackageInstalls, so that another one would have to be written to all of them.
    pub(super) sync_period: Duration,
    /// Whether to wait for the second drift check of each cluster.
    pub(super) drift_checks: bool,
    /// The program that Sluice is compared with.
    pub(super) peer: Option<Peer>,
    /// How many clusters are upgraded under a gate, beside the smallest size; 0 leaves gates out.
    pub(super) gates: u32,
}

/// A time, and the CPU seconds of the leader until then.
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

/// Measures a fleet with the number of clusters in the entry, numbered from 0. The replicas keep running. After a failure or
/// cancellation the entry contains the measurements so far.
pub(super) async fn measure<'a>(bed: &'a Bed, entry: &mut Entry, setup: &Setup) -> Result<Running<'a>> {
    let (clusters, sync_period) = (entry.clusters, setup.sync_period);
    let leases = Api::<Lease>::namespaced(bed.client(), "sluice-system");
    free_lease(&leases).await?;
    let mut running = Running {
        leader: bed.replica("leader", sync_period)?,
        standby: bed.replica("standby", sync_period)?,
        audit: bed.audit(),
        bed,
    };
    at_rest(bed).await?;
    entry.start(&running, &leases).await?;
    let started = Mark::now(&running).await?;
    entry.first_check(&mut running, clusters, &started).await?;
    // The second drift check begins in the rest, and goes on while the peer runs.
    let since = Mark::now(&running).await?;
    entry.rest(&mut running, clusters, setup.rest, &since).await?;
    if let Some(peer) = &setup.peer {
        match peer::measure(bed, peer, clusters).await {
            Ok(measured) => {
                entry.peer_ready_s = Some(measured.ready_s);
                entry.peer_rss_mb = Some(measured.rss_mb);
            }
            Err(error) => say(format_args!("the peer was not measured: {error:#}")),
        }
    }
    if setup.drift_checks {
        entry.second_check(&mut running, clusters, &since).await?;
    }
    entry.catalogue(&mut running, clusters).await?;
    entry.relist(&mut running).await?;
    let asked = running
        .audit
        .asked()?
        .iter()
        .filter(|asked| asked.at >= started.at);
    let writes = asked.filter(|asked| asked.what == What::Write).count();
    entry.writes = Some(writes);
    Ok(running)
}

/// Takes the lease from a holder that was killed, which would be waited for.
async fn free_lease(leases: &Api<Lease>) -> Result<()> {
    leases
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    Ok(())
}

/// Waits until a replica with this name holds the lease.
async fn leads(replica: &Replica, name: &str, leases: &Api<Lease>) -> Result<()> {
    let holder = format!("{name}_{}_", replica.id().await?);
    wait::until(format!("{name} to hold the lease"), LEADS, || async {
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
    Ok(())
}

/// Starts the one replica of a bench, and waits until it leads.
pub(super) async fn leader(bed: &Bed, name: &str, sync_period: Duration) -> Result<Replica> {
    lead(bed, bed.replica(name, sync_period)?, name).await
}

/// The same with gates only.
pub(super) async fn gates_leader(bed: &Bed, name: &str, sync_period: Duration) -> Result<Replica> {
    lead(bed, bed.gates_replica(name, sync_period)?, name).await
}

async fn lead(bed: &Bed, replica: Replica, name: &str) -> Result<Replica> {
    let leases = Api::<Lease>::namespaced(bed.client(), "sluice-system");
    free_lease(&leases).await?;
    replica.restart().await?;
    leads(&replica, name, &leases).await?;
    Ok(replica)
}

/// Waits until kube-apiserver has cached the objects in etcd, which takes longer than their write.
async fn at_rest(bed: &Bed) -> Result<()> {
    let (began, gauge) = (Instant::now(), Gauge::of(bed.management.id().await?));
    wait::until("the management API server to be at rest", PREPARED, || async {
        let before = gauge.seconds()?;
        sleep(SECOND).await;
        let took = gauge.seconds()? - before;
        if took < 0.2 {
            Ok(())
        } else {
            wait::not_yet(format!("{took:.2} s of processors in a second"))
        }
    })
    .await?;
    let took = began.elapsed().as_secs_f64();
    say(format_args!("the API server is at rest after {took:.0} s"));
    Ok(())
}

/// The rest contains the drift checks of some clusters only. The bench has time for two drift checks of each, and two processors for all
/// of one second.
pub(super) fn sync_period(rest: Duration, clusters: u32) -> Duration {
    let least = rest + Duration::from_secs(15);
    least.max(Duration::from_secs(u64::from(clusters / CHECKS_PER_SECOND)))
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
        leads(leader, "leader", leases).await?;
        self.leads_s = Some(seconds());
        running.standby.restart().await?;
        say(format_args!(
            "discovery after {discovery:.0} ms, ready after {:.2} s, leads after {:.2} s",
            self.ready_s.unwrap_or_default(),
            self.leads_s.unwrap_or_default()
        ));
        Ok(())
    }

    /// The first drift check of every cluster.
    async fn first_check(&mut self, running: &mut Running<'_>, clusters: u32, since: &Mark) -> Result<()> {
        let timeout = Duration::from_secs_f64(self.sync_period_s) + TIMEOUT;
        let seen = running.all_checked(clusters, since.instant, timeout).await?;
        self.first_sweep_s = Some(since.instant.elapsed().as_secs_f64());
        say(format_args!(
            "first drift check of {seen} of {clusters} clusters within {:.0} s",
            self.first_sweep_s.unwrap_or_default()
        ));
        Ok(())
    }

    /// The time between drift checks.
    async fn rest(
        &mut self,
        running: &mut Running<'_>,
        clusters: u32,
        rest: Duration,
        since: &Mark,
    ) -> Result<()> {
        let (leader, standby) = (
            Gauge::of(running.leader.id().await?),
            Gauge::of(running.standby.id().await?),
        );
        sleep(rest).await;
        let (took, until) = (since.instant.elapsed().as_secs_f64(), Timestamp::now());
        let percent = (leader.seconds()? - since.seconds) / took * 100.0;
        // The log is written in batches.
        sleep(POLL).await;
        let checked = running.checked(since.instant.checked_sub(CHECK_LASTS).unwrap_or(since.instant));
        let (requests, _) = running.requests(since, |asked| {
            asked.at <= until && asked.cluster.is_none_or(|cluster| !checked.contains(&cluster))
        })?;
        let between = clusters.saturating_sub(u32::try_from(checked.len())?);
        self.idle_cpu_percent = Some(percent);
        self.requests_between_looks = Some(as_f64(requests));
        self.clusters_between_looks = Some(between);
        self.rss_mb_leader = Some(leader.resident()?);
        self.rss_mb_standby = Some(standby.resident()?);
        self.pss_mb_leader = Some(leader.proportional()?);
        self.pss_mb_standby = Some(standby.proportional()?);
        say(format_args!(
            "after {took:.0} s of rest: leader {:.1} MB, standby {:.1} MB, {percent:.2} % of a core, {requests} requests for {between} \
             clusters without a drift check",
            leader.resident()?,
            standby.resident()?
        ));
        Ok(())
    }

    /// The second drift check of every cluster, `since` the beginning of the rest.
    async fn second_check(&mut self, running: &mut Running<'_>, clusters: u32, since: &Mark) -> Result<()> {
        let timeout = Duration::from_secs_f64(self.sync_period_s) + TIMEOUT;
        let seen = running.all_checked(clusters, since.instant, timeout).await?;
        sleep(3 * POLL).await;
        let took = since.instant.elapsed().as_secs_f64();
        let seconds = Gauge::of(running.leader.id().await?).seconds()? - since.seconds;
        let (management, workload) = running.requests(since, |asked| asked.what != What::List)?;
        let checks = running.checks(since.instant);
        self.seen_twice = Some(seen);
        if checks > 0 {
            let each = |requests: usize| Some(as_f64(requests) / as_f64(checks));
            self.requests_per_look_management = each(management);
            self.requests_per_look_workload = each(workload);
            self.cpu_ms_per_look = Some(seconds / as_f64(checks) * 1e3);
        }
        say(format_args!(
            "{checks} more drift checks of {seen} of {clusters} clusters within {took:.0} s: {management} requests to the management API \
             server, {workload} to workloads"
        ));
        Ok(())
    }

    /// A release that gets another package concerns every cluster of it.
    async fn catalogue(&mut self, running: &mut Running<'_>, clusters: u32) -> Result<()> {
        let release = release_name(MINORS[0], 1);
        let objects = running.bed.objects();
        let path = RELEASE.of_the_cluster(&release);
        let reconciles_before = reconciles(&running.leader).await?;
        let before = objects.get(&path).await?;
        let since = Mark::now(running).await?;
        let after = objects.merge(&path, "kubectl", &another_package(&before)).await?;
        ensure!(
            before["spec"] != after["spec"],
            "release {release} is the same after the change of the catalogue as before"
        );
        while since.instant.elapsed() < FAN_OUT {
            if reconciles(&running.leader).await? - reconciles_before >= f64::from(clusters) {
                self.sweep_seconds_after_catalogue_change = Some(since.instant.elapsed().as_secs_f64());
                break;
            }
            sleep(POLL / 4).await;
        }
        // The log is written in batches.
        sleep(POLL).await;
        let (requests, _) = running.requests(&since, |_| true)?;
        self.requests_after_catalogue_change = Some(requests);
        say(format_args!(
            "after a change of the release: fan-out requeue {:?} s, {requests} requests",
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
            sleep(POLL).await;
            let asked = running.audit.asked()?.iter().filter(|asked| asked.at >= began);
            lists = asked.filter(|asked| asked.what == What::List).count();
        }
        // The last of them are being read.
        sleep(8 * POLL).await;
        let peak = leader.peak()?;
        // Without a relist the peak shows nothing.
        self.relist_peak_ratio = (lists > 0).then_some(peak / before);
        self.relists = Some(lists);
        say(format_args!(
            "{lists} stores listed again: {before:.1} MB before, {peak:.1} MB at most"
        ));
        Ok(())
    }
}

impl Running<'_> {
    /// How many requests to the management API server since then are `counted`, and how many there were to workloads.
    fn requests(&mut self, since: &Mark, counted: impl Fn(&Asked) -> bool) -> Result<(usize, usize)> {
        let management = self.audit.asked()?.iter();
        let management = management
            .filter(|asked| asked.at >= since.at && counted(asked))
            .count();
        let workloads = self.bed.workloads.asked();
        let workload = workloads.iter().filter(|(_, at)| *at >= since.instant).count();
        Ok((management, workload))
    }

    /// Clusters whose workloads had requests since then, as in every drift check.
    fn checked(&self, from: Instant) -> HashSet<u32> {
        let asked = self.bed.workloads.asked();
        let since = asked.iter().rev().take_while(|(_, at)| *at >= from);
        since.map(|(number, _)| *number).collect()
    }

    /// Number of drift checks that began since then: the requests of one follow each other.
    fn checks(&self, from: Instant) -> usize {
        let (mut last, mut checks) = (HashMap::new(), 0);
        for &(number, at) in self.bed.workloads.asked().iter() {
            let before = last.insert(number, at);
            if at >= from && before.is_none_or(|before| at.duration_since(before) > CHECK_LASTS) {
                checks += 1;
            }
        }
        checks
    }

    /// Waits for a drift check of every cluster since then. Returns their number, at the latest after the timeout.
    async fn all_checked(&self, clusters: u32, from: Instant, timeout: Duration) -> Result<u32> {
        let began = Instant::now();
        loop {
            let seen = u32::try_from(self.checked(from).len())?;
            if seen >= clusters || began.elapsed() >= timeout {
                return Ok(seen);
            }
            sleep(POLL).await;
        }
    }

    /// Ends both.
    pub(super) async fn end(&self) -> Result<()> {
        self.leader.kill().await?;
        self.standby.kill().await
    }
}

/// Reconciles of Clusters so far.
async fn reconciles(leader: &Replica) -> Result<f64> {
    let metrics = leader.metrics().await?;
    let of_clusters = "controller_runtime_reconcile_total{controller=\"cluster\",";
    let counted: Vec<f64> = metrics
        .lines()
        .filter(|line| line.starts_with(of_clusters))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .collect();
    ensure!(!counted.is_empty(), "the leader counts its reconciles");
    Ok(counted.iter().sum())
}

/// Counts are far below what this cannot tell apart.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(super) fn as_f64(count: usize) -> f64 {
    count as f64
}
