//! Metrics of work queues, with the names and meanings of client-go.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::{MetricType, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

use crate::lock::lock;

/// Buckets of client-go.
const SECONDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3];

/// Both are the name of the controller, as controller-runtime sets them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: &'static str,
    controller: &'static str,
}

impl Labels {
    fn of(controller: &'static str) -> Self {
        Self {
            name: controller,
            controller,
        }
    }
}

/// Metrics of all work queues. Clones share them.
#[derive(Clone, Debug)]
pub struct WorkQueues {
    depth: Family<Labels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queued_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    work_seconds: Family<Labels, Histogram, fn() -> Histogram>,
    processors: Arc<Mutex<BTreeMap<&'static str, Processors>>>,
}

impl Default for WorkQueues {
    fn default() -> Self {
        Self {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            work_seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            processors: Arc::default(),
        }
    }
}

impl WorkQueues {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let Self {
            depth,
            adds,
            retries,
            queued_seconds,
            work_seconds,
            processors: _,
        } = self;
        registry.register("workqueue_depth", "Items that wait in the queue", depth.clone());
        registry.register("workqueue_adds", "Items added to the queue", adds.clone());
        registry.register(
            "workqueue_retries",
            "Items added to the queue after a delay: requeues and retries",
            retries.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time that an item waits in the queue before it is processed, in seconds",
            queued_seconds.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time that processing an item takes, in seconds",
            work_seconds.clone(),
        );
        registry.register_collector(Box::new(self.clone()));
    }

    /// Returns the metrics of the queues of a controller. Their series exist from now on.
    #[must_use]
    pub fn of(&self, controller: &'static str) -> WorkQueueMetrics {
        let labels = Labels::of(controller);
        WorkQueueMetrics {
            depth: self.depth.get_or_create_owned(&labels),
            adds: self.adds.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            queued_seconds: self.queued_seconds.get_or_create_owned(&labels),
            work_seconds: self.work_seconds.get_or_create_owned(&labels),
            processors: lock(&self.processors).entry(controller).or_default().clone(),
        }
    }
}

/// Collector of durations that grow with time; it measures them at each scrape.
impl Collector for WorkQueues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (processors, now) = (lock(&self.processors).clone(), Instant::now());
        let mut gauge = |name, help, value: fn(&[Duration]) -> Duration| -> fmt::Result {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (controller, processors) in &processors {
                let seconds = value(&processors.elapsed(now)).as_secs_f64();
                metric
                    .encode_family(&Labels::of(controller))?
                    .encode_gauge(&seconds)?;
            }
            Ok(())
        };
        gauge(
            "workqueue_unfinished_work_seconds",
            "Time since the start of all items that are being processed, summed up, in seconds",
            |elapsed| elapsed.iter().sum(),
        )?;
        gauge(
            "workqueue_longest_running_processor_seconds",
            "Time since the start of the item that has been processed for longest, in seconds",
            |elapsed| elapsed.iter().max().copied().unwrap_or_default(),
        )
    }
}

/// Start times of the items that are being processed.
#[derive(Clone, Debug, Default)]
struct Processors(Arc<Mutex<Started>>);

#[derive(Debug, Default)]
struct Started {
    next: u64,
    at: BTreeMap<u64, Instant>,
}

impl Processors {
    fn elapsed(&self, now: Instant) -> Vec<Duration> {
        let started = lock(&self.0);
        let elapsed = started.at.values().map(|at| now.duration_since(*at));
        elapsed.collect()
    }
}

/// Metrics of the queues of one controller. Clones share them.
#[derive(Clone, Debug)]
pub struct WorkQueueMetrics {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    queued_seconds: Histogram,
    work_seconds: Histogram,
    processors: Processors,
}

impl WorkQueueMetrics {
    /// Counts an item that is added to the queue.
    pub(super) fn added(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    /// Counts an item that leaves the queue.
    pub(super) fn taken(&self, queued: Duration) {
        self.depth.dec();
        self.queued_seconds.observe(queued.as_secs_f64());
    }

    /// Removes the remaining items of an ended queue.
    pub(super) fn dropped(&self, items: usize) {
        self.depth.dec_by(i64::try_from(items).unwrap_or(i64::MAX));
    }

    /// Counts an item that is added after a delay.
    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    /// Starts processing of an item, which ends when the returned guard is dropped.
    pub(super) fn processing(&self) -> Processing {
        let mut started = lock(&self.processors.0);
        let number = started.next;
        started.next += 1;
        let began = Instant::now();
        started.at.insert(number, began);
        drop(started);
        Processing {
            metrics: self.clone(),
            number,
            began,
        }
    }
}

/// Item in processing.
#[derive(Debug)]
pub(super) struct Processing {
    metrics: WorkQueueMetrics,
    number: u64,
    began: Instant,
}

impl Drop for Processing {
    fn drop(&mut self) {
        let WorkQueueMetrics {
            work_seconds,
            processors,
            ..
        } = &self.metrics;
        work_seconds.observe(self.began.elapsed().as_secs_f64());
        lock(&processors.0).at.remove(&self.number);
    }
}
