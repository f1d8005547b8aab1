//! Memory of the machine: a fleet that it has no memory for is not begun, and one that takes too much is given up in time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::command::LARGEST;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// Largest memory of a fleet without clusters: etcd, kube-apiserver with all definitions, both replicas, the listener, and the build of the
/// peer.
const BASE: u64 = 2 * GIB;

/// Largest memory per cluster in all programs together: 10,000 clusters needed 12 to 16 GB, including the peer.
const PER_CLUSTER: u64 = 2 * MIB;

/// Memory that must stay available; below it the run stops.
const LEFT: u64 = 3 * GIB;

/// Time between two samples.
const SAMPLE: Duration = Duration::from_secs(1);

/// Source of the available memory.
#[derive(Debug, Clone)]
pub(crate) struct Meminfo(PathBuf);

impl Meminfo {
    /// A file of the form of `/proc/meminfo`.
    pub(crate) fn of(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Bytes that are available without swapping.
    fn available(&self) -> Result<u64> {
        let path = self.0.display();
        let text = fs::read_to_string(&self.0).with_context(|| format!("read {path}"))?;
        available(&text).with_context(|| format!("find MemAvailable in {path}"))
    }

    /// Fails if there is not enough for a fleet of the largest of these sizes, with so many hot clusters beside the smallest.
    pub(super) fn has_enough(&self, sizes: &[u32], hot: u32) -> Result<()> {
        match refused(self.available()?, sizes, hot) {
            Some(why) => bail!("{why} (by {})", self.0.display()),
            None => Ok(()),
        }
    }

    /// Samples from now on, until too little is available.
    pub(crate) fn watched(self) -> Watch {
        let (sender, seen) = watch::channel(Seen::default());
        let samples = async move {
            loop {
                let available = self.available();
                let goes_on = available.as_ref().is_ok_and(|available| *available >= LEFT);
                sender.send_modify(|seen| seen.take(available));
                if !goes_on {
                    return;
                }
                sleep(SAMPLE).await;
            }
        };
        Watch {
            seen,
            task: tokio::spawn(samples).abort_handle(),
        }
    }
}

/// Memory samples so far.
#[derive(Debug, Default)]
struct Seen {
    /// The fewest bytes that were available.
    least: Option<u64>,
    /// Why the run cannot go on.
    stop: Option<String>,
}

impl Seen {
    fn take(&mut self, available: Result<u64>) {
        match available {
            Ok(available) => {
                self.least = Some(self.least.map_or(available, |least| least.min(available)));
                self.stop = (available < LEFT).then(|| {
                    format!(
                        "{} of memory are available, and {} have to stay so",
                        gib(available),
                        gib(LEFT)
                    )
                });
            }
            Err(error) => self.stop = Some(format!("{error:#}")),
        }
    }
}

/// Sampler of the memory beside the run, until it is dropped.
pub(crate) struct Watch {
    seen: watch::Receiver<Seen>,
    task: AbortHandle,
}

impl Watch {
    /// Does the work, or gives it up as soon as too little memory is available: then it is dropped where it is, and this is an error.
    pub(crate) async fn beside<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut seen = self.seen.clone();
        tokio::select! {
            biased;
            low = seen.wait_for(|seen| seen.stop.is_some()) => {
                let why = low.ok().and_then(|seen| seen.stop.clone());
                bail!("given up: {}", why.as_deref().unwrap_or("the sampler of the memory has ended"))
            }
            done = work => done,
        }
    }

    /// The least that was available so far; nothing before the first sample.
    pub(super) fn least(&self) -> Option<String> {
        self.seen.borrow().least.map(gib)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why there is too little memory for the largest of these sizes, with so many hot clusters beside the smallest; none if there is enough.
fn refused(available: u64, sizes: &[u32], hot: u32) -> Option<String> {
    let smallest = sizes.first()?.saturating_add(hot);
    let clusters = smallest.max(*sizes.last()?);
    let needed = BASE + PER_CLUSTER * u64::from(clusters) + LEFT;
    (available < needed).then(|| {
        format!(
            "{clusters} clusters need {} of memory ({} without any, {} MiB for each, and {} that have to stay available), and {} are \
             available: {}",
            gib(needed),
            gib(BASE),
            PER_CLUSTER / MIB,
            gib(LEFT),
            gib(available),
            way_out(available, hot)
        )
    })
}

/// What to ask for instead.
fn way_out(available: u64, hot: u32) -> String {
    let fit = available.saturating_sub(BASE + LEFT) / PER_CLUSTER;
    let fit = u32::try_from(fit).unwrap_or(u32::MAX).min(LARGEST);
    match (fit, fit.saturating_sub(hot)) {
        (0, _) => "no size fits; end other programs".to_owned(),
        (fit, 0) => format!("--sizes {fit} --hot 0 fits"),
        (_, size) => format!("--sizes {size} fits"),
    }
}

/// The figure of `MemAvailable` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// For people.
fn gib(bytes: u64) -> String {
    // Rounded down, so that a value below a limit does not appear as the limit.
    let tenths = bytes * 10 / GIB;
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use tempfile::TempDir;

    use super::*;

    /// A machine whose memory a test takes away.
    struct Machine(TempDir);

    impl Machine {
        fn with(gib: u64) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.has(gib);
            machine
        }

        fn meminfo(&self) -> Meminfo {
            Meminfo::of(self.0.path().join("meminfo"))
        }

        fn has(&self, gib: u64) {
            let text = format!(
                "MemTotal:       24684092 kB\nMemFree:          100000 kB\nMemAvailable:   {} kB\n",
                gib * GIB / 1024
            );
            let new = self.0.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, self.0.path().join("meminfo")).unwrap();
        }
    }

    #[test]
    fn the_memory_of_this_machine_is_read() {
        assert!(Meminfo::of("/proc/meminfo").available().unwrap() > MIB);
        assert_eq!(
            available("MemTotal: 1 kB\nMemAvailable:    2048 kB\n"),
            Some(2 * MIB)
        );
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn a_fleet_begins_with_memory_for_its_largest_size_and_no_less() {
        let needed = BASE + LEFT + 1_000 * PER_CLUSTER;
        assert_eq!(refused(needed, &[100, 1_000], 200), None);
        let why = refused(needed - 1, &[100, 1_000], 200).unwrap();
        assert_eq!(
            why,
            "1000 clusters need 6.9 GiB of memory (2.0 GiB without any, 2 MiB for each, and 3.0 GiB that have to stay available), and \
             6.9 GiB are available: --sizes 799 fits"
        );
    }

    #[test]
    fn hot_clusters_are_there_beside_the_smallest_size() {
        let needed = BASE + LEFT + 1_200 * PER_CLUSTER;
        assert_eq!(refused(needed, &[1_000], 200), None);
        assert!(refused(needed - 1, &[1_000], 200).is_some());
        assert_eq!(refused(needed - 1, &[1_000], 0), None);
    }

    #[test]
    fn the_way_out_fits() {
        let base = BASE + LEFT;
        assert_eq!(way_out(base + 50 * PER_CLUSTER, 200), "--sizes 50 --hot 0 fits");
        assert_eq!(way_out(base + 250 * PER_CLUSTER, 200), "--sizes 50 fits");
        assert_eq!(refused(base + 250 * PER_CLUSTER, &[50], 200), None);
        assert_eq!(way_out(base, 200), "no size fits; end other programs");
        assert_eq!(way_out(64 * GIB, 0), format!("--sizes {LARGEST} fits"));
    }

    #[test]
    fn a_fleet_is_refused_if_memory_is_short() {
        let machine = Machine::with(4);
        let error = machine
            .meminfo()
            .has_enough(&[100, 1_000], 200)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("4.0 GiB are available") && error.contains("no size fits"),
            "{error}"
        );
        machine.has(8);
        machine.meminfo().has_enough(&[100, 1_000], 200).unwrap();
    }

    #[tokio::test]
    async fn a_run_is_given_up_when_memory_is_taken_away() {
        /// Says when it is dropped, as processes of a fleet are stopped then.
        struct Work<'a>(&'a AtomicBool);
        impl Drop for Work<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        let (machine, stopped) = (Machine::with(8), AtomicBool::new(false));
        let watch = machine.meminfo().watched();
        let mut measured = Vec::new();
        let work = async {
            let _work = Work(&stopped);
            measured.push(100);
            sleep(2 * SAMPLE).await;
            machine.has(2);
            sleep(Duration::from_mins(10)).await;
            measured.push(1_000);
            Ok(())
        };
        let began = Instant::now();
        let error = watch.beside(work).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "given up: 2.0 GiB of memory are available, and 3.0 GiB have to stay so"
        );
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(stopped.load(Ordering::SeqCst));
        assert_eq!(measured, [100]);
        assert_eq!(watch.least(), Some("2.0 GiB".to_owned()));
        // What would come after it is not begun.
        let next = watch.beside(async { Ok(()) }).await;
        assert!(next.is_err());
    }

    #[tokio::test]
    async fn a_run_with_enough_memory_goes_to_its_end() {
        let machine = Machine::with(8);
        let watch = machine.meminfo().watched();
        let done = watch.beside(async {
            sleep(2 * SAMPLE).await;
            Ok(7)
        });
        assert_eq!(done.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_run_is_given_up_when_the_memory_cannot_be_read() {
        let machine = Machine::with(8);
        let watch = Meminfo::of(machine.0.path().join("gone")).watched();
        let error = watch
            .beside(std::future::pending::<Result<()>>())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("gone"), "{error}");
    }
}
