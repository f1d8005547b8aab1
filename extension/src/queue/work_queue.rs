//! Work queue: it deduplicates items and runs one reconcile per item at a time.

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    pin::pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{Stream, StreamExt as _, channel::mpsc, stream, stream::FuturesUnordered};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::queue::metrics::WorkQueueMetrics;

/// Channel from event handlers to a work queue. Items before [`Self::listen`] are dropped: a standby may run for months, and a new leader
/// reconciles everything anyway. Clones share the channel.
///
/// The channel is unbounded: the queue receives every item at once and merges duplicates.
#[derive(Debug)]
pub struct Feed<T>(Arc<OnceLock<mpsc::UnboundedSender<T>>>);

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Feed<T> {
    /// Returns the items from now on. Only the first caller receives items.
    #[must_use]
    pub fn listen(&self) -> mpsc::UnboundedReceiver<T> {
        let (sender, receiver) = mpsc::unbounded();
        // Drops the sender of a later caller, which ends its stream.
        let _listened_before = self.0.set(sender);
        receiver
    }

    /// Sends an item. Without a receiver, before this process leads and during shutdown, the item is dropped.
    pub fn send(&self, item: T) {
        if let Some(sender) = self.0.get() {
            let _gone_at_shutdown = sender.unbounded_send(item);
        }
    }
}

/// Delay of an item whose reconcile panicked.
const AFTER_PANIC: Duration = Duration::from_mins(1);

/// Queued items in order of arrival.
#[derive(Debug)]
struct Due<'a, T> {
    /// Items with the time of their addition.
    order: VecDeque<(T, Instant)>,
    known: HashSet<T>,
    metrics: &'a WorkQueueMetrics,
}

impl<T> Drop for Due<'_, T> {
    fn drop(&mut self) {
        self.metrics.dropped(self.order.len());
    }
}

impl<T: Clone + Eq + Hash> Due<'_, T> {
    fn add(&mut self, item: T) {
        if self.known.insert(item.clone()) {
            self.order.push_back((item, Instant::now()));
            self.metrics.added();
        }
    }

    /// Removes the first item that is not busy.
    fn take(&mut self, busy: &HashSet<T>) -> Option<T> {
        let at = self.order.iter().position(|(item, _)| !busy.contains(item))?;
        let (item, added) = self.order.remove(at)?;
        self.known.remove(&item);
        self.metrics.taken(added.elapsed());
        Some(item)
    }
}

/// Runs `reconcile` for each item of `requeues` until `stop` or the end of `requeues`, then waits for the running ones.
///
/// At most `concurrency` reconciles run at once, each as a task, and one per item. An item that is requeued during its reconcile runs
/// again afterwards. A reconcile returns the delay of its requeue; `None` waits for the next event. Items run in the order in which they
/// are due.
pub(crate) async fn run<T, F>(
    requeues: impl Stream<Item = T>,
    concurrency: u16,
    stop: &CancellationToken,
    metrics: &WorkQueueMetrics,
    mut reconcile: impl FnMut(T) -> F,
) where
    T: Clone + Eq + Hash + Unpin,
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    let (again, waiting) = mpsc::unbounded();
    let now = |message| ScheduleRequest {
        message,
        run_at: Instant::now(),
    };
    let mut schedule = pin!(scheduler(stream::select(requeues.map(now), waiting)));
    let mut due = Due::<T> {
        order: VecDeque::new(),
        known: HashSet::new(),
        metrics,
    };
    let (mut running, mut busy) = (FuturesUnordered::new(), HashSet::new());
    loop {
        while running.len() < usize::from(concurrency)
            && let Some(item) = due.take(&busy)
        {
            busy.insert(item.clone());
            let (processing, reconcile) = (metrics.processing(), reconcile(item.clone()));
            let task = AbortOnDropHandle::new(tokio::spawn(async move {
                let _processing = processing;
                reconcile.await
            }));
            running.push(async move { (item, task.await.unwrap_or(Some(AFTER_PANIC))) });
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some((item, wait)) = running.next(), if !running.is_empty() => {
                busy.remove(&item);
                if let Some(wait) = wait {
                    metrics.retried();
                    let run_at = Instant::now() + wait;
                    let _ends = again.unbounded_send(ScheduleRequest { message: item, run_at });
                }
            }
            Some(item) = schedule.next() => due.add(item),
        }
    }
    while running.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use futures::FutureExt as _;
    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tokio::time::{advance, sleep};

    use super::*;
    use crate::queue::metrics::WorkQueues;

    const SECOND: Duration = Duration::from_secs(1);

    /// Reconciled items, each with the second of its start.
    type Began = Arc<Mutex<Vec<(u64, &'static str)>>>;

    fn metrics() -> WorkQueueMetrics {
        WorkQueues::default().of("test")
    }

    /// Runs a queue whose reconciles take a second each and requeue after `wait`.
    fn started(concurrency: u16, wait: Option<Duration>) -> (mpsc::UnboundedSender<&'static str>, Began) {
        let ((sender, requeues), began, start) = (mpsc::unbounded(), Began::default(), Instant::now());
        let seen = Arc::clone(&began);
        tokio::spawn(async move {
            let reconcile = |item| {
                seen.lock().unwrap().push((start.elapsed().as_secs(), item));
                async move {
                    sleep(SECOND).await;
                    wait
                }
            };
            run(
                requeues,
                concurrency,
                &CancellationToken::new(),
                &metrics(),
                reconcile,
            )
            .await;
        });
        (sender, began)
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_requeued_during_its_reconcile_runs_again() {
        let (sender, began) = started(2, None);
        sender.unbounded_send("a").unwrap();
        sleep(SECOND / 2).await;
        for _ in 0..3 {
            sender.unbounded_send("a").unwrap();
        }
        sleep(10 * SECOND).await;
        assert_eq!(*began.lock().unwrap(), [(0, "a"), (1, "a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrency_limits_running_reconciles() {
        let (sender, began) = started(2, None);
        for item in ["a", "b", "c", "d", "e"] {
            sender.unbounded_send(item).unwrap();
        }
        sleep(10 * SECOND).await;
        let seconds: Vec<u64> = began.lock().unwrap().iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [0, 0, 1, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_runs_again_after_its_delay_or_a_requeue() {
        let (sender, began) = started(1, Some(10 * SECOND));
        sender.unbounded_send("a").unwrap();
        sleep(15 * SECOND).await;
        sender.unbounded_send("a").unwrap();
        sleep(15 * SECOND).await;
        assert_eq!(
            *began.lock().unwrap(),
            [(0, "a"), (11, "a"), (15, "a"), (26, "a")]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn running_reconciles_end_after_a_stop() {
        let ((sender, requeues), stop) = (mpsc::unbounded(), CancellationToken::new());
        let metrics = metrics();
        let ended = Arc::<AtomicUsize>::default();
        for item in ["a", "b", "c"] {
            sender.unbounded_send(item).unwrap();
        }
        let reconciles = run(requeues, 2, &stop, &metrics, |_| {
            let ended = Arc::clone(&ended);
            async move {
                sleep(SECOND).await;
                ended.fetch_add(1, Relaxed);
                None
            }
        });
        let stopping = async {
            advance(SECOND / 2).await;
            stop.cancel();
        };
        tokio::join!(reconciles, stopping);
        assert_eq!(ended.load(Relaxed), 2, "none begins any more");
    }

    /// However often some items are requeued.
    #[tokio::test(start_paused = true)]
    async fn no_item_starves_with_more_items_than_slots() {
        let (sender, began) = started(1, None);
        let items = ["a", "b", "c", "d", "e", "f", "g", "h"];
        for second in 0..40 {
            for item in &items[..4] {
                sender.unbounded_send(item).unwrap();
            }
            if second == 0 {
                for item in &items[4..] {
                    sender.unbounded_send(item).unwrap();
                }
            }
            sleep(SECOND).await;
        }
        let began = began.lock().unwrap();
        for item in items {
            let first = began.iter().find(|(_, other)| *other == item).unwrap();
            assert!(first.0 < 10, "{item} had its first turn in second {}", first.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_whose_reconcile_panics_runs_again() {
        let ((sender, requeues), reconciles) = (mpsc::unbounded(), Arc::<AtomicUsize>::default());
        sender.unbounded_send("a").unwrap();
        let counted = Arc::clone(&reconciles);
        tokio::spawn(async move {
            let reconcile = |_| {
                let first = counted.fetch_add(1, Relaxed) == 0;
                async move {
                    assert!(!first, "a bug");
                    None
                }
            };
            run(requeues, 1, &CancellationToken::new(), &metrics(), reconcile).await;
        });
        sleep(AFTER_PANIC + SECOND).await;
        assert_eq!(reconciles.load(Relaxed), 2);
    }

    /// The metrics of queue `test`, but for buckets.
    fn shown(queues: &WorkQueues) -> Vec<String> {
        let (mut text, mut registry) = (String::new(), Registry::default());
        queues.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let labels = r#"{name="test",controller="test"}"#;
        let series = text
            .lines()
            .filter(|line| line.contains(labels) && !line.contains("_bucket"));
        series
            .map(|line| line.replace(labels, "").replace("workqueue_", ""))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_follow_items_through_the_queue() {
        let ((sender, requeues), queues) = (mpsc::unbounded(), WorkQueues::default());
        let (metrics, stop) = (queues.of("test"), CancellationToken::new());
        let nothing = [
            "depth 0",
            "adds_total 0",
            "retries_total 0",
            "queue_duration_seconds_sum 0.0",
            "queue_duration_seconds_count 0",
            "work_duration_seconds_sum 0.0",
            "work_duration_seconds_count 0",
            "unfinished_work_seconds 0.0",
            "longest_running_processor_seconds 0.0",
        ];
        assert_eq!(shown(&queues), nothing, "series exist from the start");
        for item in ["a", "b", "c", "d", "d"] {
            sender.unbounded_send(item).unwrap();
        }
        let again = |_| async {
            sleep(4 * SECOND).await;
            Some(Duration::from_hours(1))
        };
        let measure = async {
            sleep(SECOND).await;
            let working = [
                "depth 2",
                "adds_total 4",
                "retries_total 0",
                "queue_duration_seconds_sum 0.0",
                "queue_duration_seconds_count 2",
                "work_duration_seconds_sum 0.0",
                "work_duration_seconds_count 0",
                "unfinished_work_seconds 2.0",
                "longest_running_processor_seconds 1.0",
            ];
            assert_eq!(shown(&queues), working);
            sleep(4 * SECOND).await;
            let half = [
                "depth 0",
                "adds_total 4",
                "retries_total 2",
                "queue_duration_seconds_sum 8.0",
                "queue_duration_seconds_count 4",
                "work_duration_seconds_sum 8.0",
                "work_duration_seconds_count 2",
                "unfinished_work_seconds 2.0",
                "longest_running_processor_seconds 1.0",
            ];
            assert_eq!(shown(&queues), half);
            // These items are not processed before the end.
            sender.unbounded_send("a").unwrap();
            sender.unbounded_send("b").unwrap();
            sender.unbounded_send("e").unwrap();
            sleep(SECOND).await;
            assert_eq!(shown(&queues)[0], "depth 3");
            stop.cancel();
        };
        tokio::join!(run(requeues, 2, &stop, &metrics, again), measure);
        let ended = shown(&queues);
        assert_eq!(ended[0], "depth 0", "an ended queue leaves nothing behind");
        assert_eq!(ended[7..], nothing[7..]);
    }

    #[test]
    fn a_feed_without_a_listener_keeps_nothing() {
        let feed = Feed::default();
        for number in 0..1000 {
            feed.send(number);
        }
        let mut sent = feed.listen();
        assert!(sent.next().now_or_never().is_none(), "nothing was kept");
        feed.send(1000);
        assert_eq!(sent.next().now_or_never(), Some(Some(1000)));
    }

    #[test]
    fn a_second_listener_receives_nothing() {
        let feed = Feed::default();
        let (mut first, mut second) = (feed.listen(), feed.listen());
        feed.send("one");
        assert_eq!(second.next().now_or_never(), Some(None));
        assert_eq!(first.next().now_or_never(), Some(Some("one")));
    }
}
