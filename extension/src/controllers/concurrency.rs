//! Concurrency limiter of slow and failing Clusters, and of drift checks.
//!
//! Permits come from fair semaphores. A Cluster that gets none waits outside of the work queue, where it occupies no worker. Its permit
//! requeues it, and the reconcile that follows uses the permit.

use std::{
    collections::HashMap,
    future::pending,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::{FutureExt as _, Stream};
use sluice_core::{
    protocol::LastDriftCheck,
    reconcile::outcomes::{Outcomes, SLOW},
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    clock::now,
    lock::lock,
    queue::{requeues::ClusterRef, work_queue::Feed},
};

/// Fewest workers. A slow reconcile may take minutes, so it must not occupy the only one.
const WORKERS: u16 = 2;

/// Limiter of one controller. Clones share the state.
#[derive(Debug, Clone)]
pub(crate) struct Limiter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    concurrency: u16,
    outcomes: Mutex<Outcomes>,
    stop: CancellationToken,
    /// Permits of other reconciles: as many as `--cluster-concurrency`.
    regular: Arc<Semaphore>,
    /// Permits of slow and failing Clusters: half of `--cluster-concurrency`, at least one.
    slow: Arc<Semaphore>,
    waiting_slow: Line<OwnedSemaphorePermit>,
    /// Permits of drift checks: as many as of slow Clusters.
    drift_checks: Arc<Semaphore>,
    /// Permits that drift checks of workload clusters need as well if the last one was not answered: a quarter, at least one. A network
    /// partition may affect thousands of workload clusters, and each occupies its permit for seconds.
    unanswered: Arc<Semaphore>,
    waiting_drift_checks: Line<DriftCheckPermit>,
    /// Clusters with a permit for their next reconcile.
    granted: Feed<ClusterRef>,
}

/// Permit of a drift check.
#[derive(Debug)]
pub(super) struct DriftCheckPermit {
    _unanswered: Option<OwnedSemaphorePermit>,
    _permit: OwnedSemaphorePermit,
}

/// Result of [`Limiter::run`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ran<T> {
    /// The reconcile ended with this outcome.
    Ended(T),
    /// The reconcile was canceled, because it was slow and there was no permit. The Cluster waits for one.
    Canceled,
    /// The reconcile did not start. The Cluster waits for a permit.
    Waits,
    /// The reconcile did not start, because the controller stops.
    Stopped,
}

impl Limiter {
    /// Returns a limiter with all permits for `concurrency` concurrent reconciles. None starts after `stop`.
    pub(crate) fn new(concurrency: u16, stop: CancellationToken) -> Self {
        let semaphore = |permits: u16| Arc::new(Semaphore::new(permits.max(1).into()));
        let granted = Feed::default();
        Self(Arc::new(Inner {
            concurrency,
            outcomes: Mutex::default(),
            stop,
            regular: semaphore(concurrency),
            slow: semaphore(concurrency / 2),
            waiting_slow: Line::new(&granted),
            drift_checks: semaphore(concurrency / 2),
            unanswered: semaphore(concurrency / 4),
            waiting_drift_checks: Line::new(&granted),
            granted,
        }))
    }

    /// Returns the number of workers that the work queue needs.
    pub(super) fn workers(&self) -> u16 {
        self.0.concurrency.max(WORKERS)
    }

    /// Returns the Clusters that get a permit from now on, see [`Feed::listen`].
    pub(super) fn granted(&self) -> impl Stream<Item = ClusterRef> + Send + 'static + use<> {
        self.0.granted.listen()
    }

    /// Returns the outcomes of recent reconciles.
    pub(super) fn outcomes(&self) -> MutexGuard<'_, Outcomes> {
        lock(&self.0.outcomes)
    }

    /// Runs a reconcile of a Cluster. A slow or failing Cluster needs a permit for it, and so does a reconcile that becomes slow. One that
    /// gets none is canceled. Its writes stand, and the next reconcile continues from them.
    pub(super) async fn run<T>(
        &self,
        cluster: &ClusterRef,
        uid: &str,
        reconcile: impl Future<Output = T>,
    ) -> Ran<T> {
        if self.0.stop.is_cancelled() {
            return Ran::Stopped;
        }
        let mut reconcile = pin!(reconcile);
        let _permit = if self.outcomes().needs_permit(uid) {
            let Some(permit) = self.slow_permit(cluster) else {
                drop(self.granted_drift_check(cluster));
                return Ran::Waits;
            };
            permit
        } else {
            self.0.waiting_slow.forget(cluster);
            let regular = acquire(Arc::clone(&self.0.regular));
            let Some(regular) = self.0.stop.run_until_cancelled(regular).await else {
                return Ran::Stopped;
            };
            if let Ok(outcome) = timeout(SLOW, &mut reconcile).await {
                return Ran::Ended(outcome);
            }
            let Some(permit) = self.slow_permit(cluster) else {
                self.outcomes().canceled(uid, now());
                return Ran::Canceled;
            };
            drop(regular);
            permit
        };
        Ran::Ended(reconcile.await)
    }

    /// Returns a permit for a slow or failing Cluster, or makes the Cluster wait for one.
    fn slow_permit(&self, cluster: &ClusterRef) -> Option<OwnedSemaphorePermit> {
        let permit = acquire(Arc::clone(&self.0.slow));
        self.0.waiting_slow.permit(cluster, permit)
    }

    /// Returns a permit for a drift check of a workload cluster, by the result of its last one, or makes the Cluster wait for one.
    pub(super) fn drift_check_permit(
        &self,
        cluster: &ClusterRef,
        last: LastDriftCheck,
    ) -> Option<DriftCheckPermit> {
        let (unanswered, all) = (Arc::clone(&self.0.unanswered), Arc::clone(&self.0.drift_checks));
        self.0.waiting_drift_checks.permit(cluster, async move {
            // In this order: what waits for a permit of the few must not hold one of all.
            let unanswered = match last {
                LastDriftCheck::Answered => None,
                LastDriftCheck::Unanswered => Some(acquire(unanswered).await),
            };
            DriftCheckPermit {
                _unanswered: unanswered,
                _permit: acquire(all).await,
            }
        })
    }

    /// Returns the permit for a drift check that the Cluster has waited for, if it has one by now. A reconcile without a drift check drops
    /// it.
    pub(super) fn granted_drift_check(&self, cluster: &ClusterRef) -> Option<DriftCheckPermit> {
        self.0.waiting_drift_checks.granted(cluster)
    }

    /// Drops the permits of a Cluster, and those that it waits for.
    pub(super) fn forget(&self, cluster: &ClusterRef) {
        self.0.waiting_slow.forget(cluster);
        self.0.waiting_drift_checks.forget(cluster);
    }
}

async fn acquire(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    match semaphore.acquire_owned().await {
        Ok(permit) => permit,
        // Semaphores of the limiter are never closed.
        Err(_closed) => pending().await,
    }
}

/// Clusters that wait for a permit, or for their reconcile with one. The order is that of the semaphore.
#[derive(Debug)]
struct Line<P> {
    waiting: Arc<Mutex<HashMap<ClusterRef, Wait<P>>>>,
    granted: Feed<ClusterRef>,
}

#[derive(Debug)]
enum Wait<P> {
    /// The task gets the permit.
    ForPermit { _task: AbortOnDropHandle<()> },
    /// The Cluster is requeued.
    ForReconcile(P),
}

impl<P: Send + 'static> Line<P> {
    fn new(granted: &Feed<ClusterRef>) -> Self {
        Self {
            waiting: Arc::default(),
            granted: granted.clone(),
        }
    }

    /// Returns the permit of a Cluster. Without one the Cluster waits for that of `acquire`, unless it waits already.
    fn permit(&self, cluster: &ClusterRef, acquire: impl Future<Output = P> + Send + 'static) -> Option<P> {
        if let Some(permit) = self.granted(cluster) {
            return Some(permit);
        }
        let mut waiting = lock(&self.waiting);
        if waiting.contains_key(cluster) {
            return None;
        }
        let mut acquire = Box::pin(acquire);
        // Polled here and not only in the task, so that Clusters are served in the order in which they ask.
        if let Some(permit) = (&mut acquire).now_or_never() {
            return Some(permit);
        }
        let (shared, granted, waits) = (Arc::clone(&self.waiting), self.granted.clone(), cluster.clone());
        let task = tokio::spawn(async move {
            let permit = acquire.await;
            let mut waiting = lock(&shared);
            let Some(wait) = waiting.get_mut(&waits) else {
                return;
            };
            *wait = Wait::ForReconcile(permit);
            drop(waiting);
            granted.send(waits);
        });
        waiting.insert(
            cluster.clone(),
            Wait::ForPermit {
                _task: AbortOnDropHandle::new(task),
            },
        );
        None
    }

    /// Returns the permit that the Cluster has waited for, if it has one by now.
    fn granted(&self, cluster: &ClusterRef) -> Option<P> {
        let mut waiting = lock(&self.waiting);
        let Some(Wait::ForReconcile(_)) = waiting.get(cluster) else {
            return None;
        };
        match waiting.remove(cluster)? {
            Wait::ForReconcile(permit) => Some(permit),
            Wait::ForPermit { .. } => None,
        }
    }

    fn forget(&self, cluster: &ClusterRef) {
        lock(&self.waiting).remove(cluster);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt as _, stream};
    use rstest::rstest;
    use sluice_core::protocol::{Error, ReconcileFailure};
    use tokio::{
        sync::Notify,
        task::yield_now,
        time::{Instant, sleep},
    };

    use super::*;
    use crate::queue::{metrics::WorkQueues, work_queue};

    const SECOND: Duration = Duration::from_secs(1);

    fn cluster(name: &str) -> ClusterRef {
        ClusterRef::new("team-a", name)
    }

    /// Runs a reconcile of the Cluster with this name and UID.
    async fn run<T>(limiter: &Limiter, name: &str, reconcile: impl Future<Output = T>) -> Ran<T> {
        limiter.run(&cluster(name), name, reconcile).await
    }

    /// Starts an endless reconcile of another Cluster, which takes a permit for slow Clusters.
    async fn taken(limiter: &Limiter, name: &'static str) -> AbortOnDropHandle<()> {
        let limiter = limiter.clone();
        limiter.outcomes().failed(name, now());
        let task = tokio::spawn(async move {
            run(&limiter, name, pending::<()>()).await;
        });
        yield_now().await;
        AbortOnDropHandle::new(task)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reconcile_takes_a_free_permit_and_releases_it() {
        let limiter = Limiter::new(2, CancellationToken::new());
        for name in ["a", "b"] {
            assert_eq!(run(&limiter, name, sleep(SLOW * 10)).await, Ran::Ended(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reconcile_without_a_permit_is_canceled_and_waits_for_one() {
        let limiter = Limiter::new(1, CancellationToken::new());
        let mut granted = limiter.granted();
        let other = taken(&limiter, "other").await;
        let began = Instant::now();
        assert_eq!(run(&limiter, "a", sleep(SECOND * 3600)).await, Ran::Canceled);
        assert_eq!(began.elapsed(), SLOW);
        assert_eq!(run(&limiter, "a", async {}).await, Ran::Waits);
        assert_eq!(
            run(&limiter, "b", async {}).await,
            Ran::Ended(()),
            "others have no limit"
        );

        drop(other);
        assert_eq!(granted.next().await, Some(cluster("a")));
        let long = run(&limiter, "a", sleep(SLOW * 10)).await;
        assert_eq!(long, Ran::Ended(()), "one that has a permit is not canceled");
    }

    #[rstest]
    #[case(1, 1)]
    #[case(4, 2)]
    #[case(5, 2)]
    #[tokio::test(start_paused = true)]
    async fn half_of_the_reconciles_may_be_slow(#[case] concurrency: u16, #[case] permits: usize) {
        let limiter = Limiter::new(concurrency, CancellationToken::new());
        let mut running = Vec::new();
        for name in ["a", "b", "c", "d"] {
            running.push(taken(&limiter, name).await);
        }
        let waiting = running.iter().filter(|task| task.is_finished()).count();
        assert_eq!(4 - waiting, permits);
    }

    /// Events may requeue a Cluster that waits, which neither loses nor improves its place.
    #[tokio::test(start_paused = true)]
    async fn permits_are_granted_in_order() {
        let limiter = Limiter::new(2, CancellationToken::new());
        let mut granted = limiter.granted();
        let first = taken(&limiter, "first").await;
        for name in ["c", "a", "b", "c", "b"] {
            limiter.outcomes().failed(name, now());
            assert_eq!(run(&limiter, name, async {}).await, Ran::Waits, "{name}");
        }
        limiter.forget(&cluster("a"));
        drop(first);
        for name in ["c", "b"] {
            assert_eq!(granted.next().await, Some(cluster(name)));
            assert!(
                granted.next().now_or_never().is_none(),
                "{name} has the only permit"
            );
            assert_eq!(
                run(&limiter, "late", sleep(SLOW * 2)).await,
                Ran::Canceled,
                "it is not before them"
            );
            limiter.forget(&cluster("late"));
            limiter.outcomes().forget("late");
            assert_eq!(run(&limiter, name, async {}).await, Ran::Ended(()));
        }
    }

    /// Otherwise a Cluster that needs no permit any more, or that is deleted, would keep it.
    #[rstest]
    #[case::of_a_deleted_cluster(true)]
    #[case::of_a_cluster_without_need(false)]
    #[tokio::test(start_paused = true)]
    async fn unused_permits_are_released(#[case] deleted: bool) {
        let limiter = Limiter::new(2, CancellationToken::new());
        let mut granted = limiter.granted();
        let other = taken(&limiter, "other").await;
        limiter.outcomes().failed("a", now());
        assert_eq!(run(&limiter, "a", async {}).await, Ran::Waits);
        drop(other);
        granted.next().await;
        if deleted {
            limiter.forget(&cluster("a"));
        } else {
            limiter.outcomes().forget("a");
            assert_eq!(run(&limiter, "a", async {}).await, Ran::Ended(()));
        }
        limiter.outcomes().failed("b", now());
        assert_eq!(run(&limiter, "b", async {}).await, Ran::Ended(()));
    }

    #[tokio::test(start_paused = true)]
    async fn drift_checks_of_silent_workloads_leave_permits_to_others() {
        let limiter = Limiter::new(16, CancellationToken::new());
        let permits = |last, names: std::ops::Range<u32>| -> Vec<_> {
            let permit = |name: u32| limiter.drift_check_permit(&cluster(&name.to_string()), last);
            names.filter_map(permit).collect()
        };
        let silent = permits(LastDriftCheck::Unanswered, 0..10);
        assert_eq!(silent.len(), 4);
        let answered = permits(LastDriftCheck::Answered, 10..20);
        assert_eq!(answered.len(), 4, "of eight");

        let mut granted = limiter.granted();
        drop(silent);
        let mut next = Vec::new();
        for _ in 0..4 {
            next.push(granted.next().await.unwrap());
        }
        assert!(granted.next().now_or_never().is_none(), "no more than four");
        // The answered ones have waited for a permit of all; the others only for one of the few.
        assert_eq!(next, ["14", "15", "16", "17"].map(cluster));
        assert!(limiter.granted_drift_check(&cluster("14")).is_some());
        assert!(
            limiter.granted_drift_check(&cluster("14")).is_none(),
            "it is used up"
        );
        assert!(
            limiter.granted_drift_check(&cluster("4")).is_none(),
            "it still waits"
        );
        assert_eq!(granted.next().await, Some(cluster("18")));
    }

    /// Behavior of the workload cluster of a Cluster.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Workload {
        Answers,
        /// Each request times out.
        Silent,
        /// Answers after seconds.
        Late,
        /// The reconcile never ends by itself.
        Endless,
        /// Refuses each request.
        Refuses,
        /// Answers late, then in time for longer than a Cluster counts as slow, and so on.
        Alternates,
    }

    /// Clusters whose workload answers.
    const ANSWERING: usize = 100;

    /// Clusters whose workload does not.
    const BROKEN: usize = 4;

    /// Interval between the edits of a Cluster.
    const EDITS: Duration = Duration::from_secs(10);

    /// Times of the last attempt to reconcile a Cluster to its end, and the longest time without one.
    #[derive(Debug, Clone, Copy)]
    struct Served {
        last: Instant,
        longest: Duration,
    }

    /// Reconciles all Clusters for `time`. Returns how each was served: first those whose workload answers.
    async fn fleet(concurrency: u16, broken: Workload, time: Duration) -> Vec<Served> {
        let limiter = Limiter::new(concurrency, CancellationToken::new());
        let first = Served {
            last: Instant::now(),
            longest: Duration::ZERO,
        };
        let served = Arc::new(Mutex::new(vec![first; ANSWERING + BROKEN]));
        let names = (0..ANSWERING + BROKEN).map(|number| cluster(&number.to_string()));
        // The broken ones first.
        let requeues = stream::iter(names.rev()).chain(limiter.granted());
        let stop = CancellationToken::new();
        let (metrics, workers) = (WorkQueues::default().of("test"), limiter.workers());
        let turn = |cluster: ClusterRef| {
            let (limiter, served) = (limiter.clone(), Arc::clone(&served));
            async move {
                let number: usize = cluster.name().parse().unwrap();
                let workload = if number < ANSWERING {
                    Workload::Answers
                } else {
                    broken
                };
                let (began, uid) = (now(), cluster.name());
                let ran = limiter
                    .run(&cluster, uid, reconcile(workload, first.last.elapsed()))
                    .await;
                if let Ran::Ended(_) = &ran {
                    let mut served = lock(&served);
                    let one = &mut served[number];
                    one.longest = one.longest.max(one.last.elapsed());
                    one.last = Instant::now();
                }
                match ran {
                    Ran::Ended(Ok(())) => {
                        limiter.outcomes().ended(uid, Ok(()), began, now());
                        Some(EDITS)
                    }
                    Ran::Ended(Err(error)) => {
                        let mut outcomes = limiter.outcomes();
                        outcomes.ended(uid, Err(&error), began, now());
                        Some(outcomes.again(uid, &error, now()).wait())
                    }
                    Ran::Canceled | Ran::Waits | Ran::Stopped => limiter.outcomes().waits(uid, now()).ok(),
                }
            }
        };
        let running = work_queue::run(requeues, workers, &stop, &metrics, turn);
        // Ends the reconciles, too.
        let _running = timeout(time, running).await;
        lock(&served).clone()
    }

    /// Runs a reconcile that starts `after` the first one.
    async fn reconcile(workload: Workload, after: Duration) -> Result<(), Error> {
        let failed = || Err(Error::Failed(ReconcileFailure::TimedOut));
        match workload {
            Workload::Answers => {
                sleep(Duration::from_millis(20)).await;
                Ok(())
            }
            Workload::Silent => {
                sleep(SECOND * 10).await;
                failed()
            }
            Workload::Late => {
                sleep(SECOND * 8).await;
                Ok(())
            }
            Workload::Endless => {
                sleep(SECOND * 120).await;
                failed()
            }
            Workload::Refuses => failed(),
            Workload::Alternates => {
                let is_late = (after.as_secs() / 150).is_multiple_of(2);
                sleep(if is_late { SECOND * 8 } else { SECOND / 10 }).await;
                Ok(())
            }
        }
    }

    /// The limits of `walls` for Clusters beside a fault.
    #[rstest]
    #[tokio::test(start_paused = true)]
    async fn no_cluster_starves_beside_broken_workloads(
        #[values(1, 4)] concurrency: u16,
        #[values(
            Workload::Silent,
            Workload::Late,
            Workload::Endless,
            Workload::Refuses,
            Workload::Alternates
        )]
        broken: Workload,
    ) {
        let served = fleet(concurrency, broken, Duration::from_mins(20)).await;
        let (answering, broken) = served.split_at(ANSWERING);
        let waited = |one: &Served| one.longest.max(one.last.elapsed()).saturating_sub(EDITS);
        let longest = answering.iter().map(waited).max();
        // A single regular reconcile serves the others in 10 s, and waits 3 s for each of the broken ones.
        let limit = if concurrency == 1 { 25 } else { 16 };
        assert!(longest <= Some(SECOND * limit), "{longest:?}");
        // Every broken one has a turn of two minutes, and a delay of one.
        let turn = SECOND * 120 * u32::try_from(BROKEN).unwrap() + SECOND * 60;
        let starved: Vec<_> = broken
            .iter()
            .map(waited)
            .filter(|waited| *waited > turn)
            .collect();
        assert!(starved.is_empty(), "{starved:?}");
    }

    /// A slow reconcile holds the only permit, and a second one waits in the queue.
    #[tokio::test(start_paused = true)]
    async fn a_slow_reconcile_leaves_the_worker_of_others_free() {
        let limiter = Limiter::new(1, CancellationToken::new());
        assert_eq!(limiter.workers(), 2);
        let (slow, others, done) = (limiter.clone(), limiter.clone(), Arc::new(Notify::new()));
        let finished = Arc::clone(&done);
        let slow = tokio::spawn(async move { run(&slow, "slow", finished.notified()).await });
        yield_now().await;
        let began = Instant::now();
        assert_eq!(run(&others, "a", async {}).await, Ran::Ended(()));
        assert_eq!(began.elapsed(), SLOW, "one regular reconcile at once");
        assert_eq!(run(&others, "b", async {}).await, Ran::Ended(()));
        assert_eq!(began.elapsed(), SLOW);
        done.notify_one();
        assert_eq!(slow.await.unwrap(), Ran::Ended(()));
    }

    /// The second worker waits for the permit of the first one.
    #[tokio::test(start_paused = true)]
    async fn no_reconcile_starts_after_the_stop() {
        let stop = CancellationToken::new();
        let limiter = Limiter::new(1, stop.clone());
        let (first, second, third) = (limiter.clone(), limiter.clone(), limiter);
        let first = tokio::spawn(async move { run(&first, "first", sleep(SECOND)).await });
        yield_now().await;
        let second = tokio::spawn(async move { run(&second, "second", async {}).await });
        yield_now().await;
        stop.cancel();
        assert_eq!(second.await.unwrap(), Ran::Stopped);
        assert_eq!(first.await.unwrap(), Ran::Ended(()), "a running one ends");
        third.outcomes().failed("third", now());
        assert_eq!(
            run(&third, "third", async {}).await,
            Ran::Stopped,
            "also with a free permit"
        );
    }
}
