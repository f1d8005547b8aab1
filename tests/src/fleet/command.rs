//! The command line of the fleet.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use super::bed::Bed;
use super::bump;
use super::kinds::{BOOTSTRAP, CLUSTER};
use super::measure::{Setup, measure, sync_period};
use super::memory::{Meminfo, Watch};
use super::peer::Peer;
use super::report::{self, Entry};
use super::{gated, plot, seed};
use crate::processes::notice;
use crate::runtime::block_on;

/// Clusters that a real API server is filled with at most: for 10,000 it and etcd need 12 to 16 GB and more than half an hour.
pub(super) const LARGEST: u32 = 2_000;

/// Measures what Sluice takes for fleets of generated clusters.
#[derive(Debug, Parser)]
#[command(name = "fleet", about)]
struct Arguments {
    /// Numbers of clusters, from small to large, 2000 at most.
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1_000])]
    sizes: Vec<u32>,
    /// How many clusters wait for their control plane, and how many are upgraded, beside the smallest size; 0 leaves both out.
    #[arg(long, default_value_t = 200)]
    hot: u32,
    /// How many clusters are upgraded under a gate with ten checks, beside the smallest size. The gate selects all clusters of each size
    /// before; 0 leaves gates out.
    #[arg(long, default_value_t = 100)]
    gates: u32,
    /// Seconds without anything to do before memory is measured.
    #[arg(long, default_value_t = 60)]
    rest: u64,
    /// Skips the second drift check of each cluster.
    #[arg(long)]
    one_look: bool,
    /// Does not build and run the Go informers.
    #[arg(long)]
    without_peer: bool,
    /// Only draws the pictures of docs/performance.md from the report that is there, and prints its table.
    #[arg(long)]
    plot: bool,
    /// Where it is said how much memory is available. Another file shows what is refused and given up.
    #[arg(long, default_value = "/proc/meminfo", hide = true)]
    meminfo: PathBuf,
}

/// The main function of the fleet.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = if arguments.plot {
        drawn()
    } else {
        block_on(fleet(&arguments))
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One line of progress.
pub(super) fn say(text: impl Display) {
    notice(format_args!("fleet: {text}"));
}

async fn fleet(arguments: &Arguments) -> Result<()> {
    let sizes = &arguments.sizes;
    ensure!(
        sizes.is_sorted() && sizes.iter().all(|size| (1..=LARGEST).contains(size)),
        "--sizes {sizes:?} has to go from small to large, between 1 and {LARGEST}"
    );
    let meminfo = Meminfo::of(&arguments.meminfo);
    meminfo.has_enough(sizes, arguments.hot.max(arguments.gates))?;
    let began = Instant::now();
    let rest = Duration::from_secs(arguments.rest);
    let peer = if arguments.without_peer {
        None
    } else {
        Some(Peer::build()?)
    };
    let mut setup = Setup {
        rest,
        sync_period: rest,
        drift_checks: !arguments.one_look,
        peer,
        gates: arguments.gates,
    };
    let memory = meminfo.watched();
    let mut entries = Vec::new();
    // The sync period stands in PackageInstalls, so that each has a fleet of its own.
    for sizes in sizes.chunk_by(|one, next| sync_period(rest, *one) == sync_period(rest, *next)) {
        setup.sync_period = sync_period(rest, sizes[0]);
        let outcome = Box::pin(fill(&memory, sizes, arguments.hot, &setup, &mut entries)).await;
        kept(&mut entries, outcome)?;
    }
    if let Some(least) = memory.least() {
        say(format_args!("{least} of memory were available at least"));
    }
    say(format_args!(
        "{}\n{}",
        report::path().display(),
        report::table(&entries)
    ));
    say(format_args!("{:.0} s in all", began.elapsed().as_secs_f64()));
    let missing = report::missing(&entries);
    let is_partial = arguments.one_look || arguments.hot == 0 || arguments.gates == 0;
    ensure!(
        is_partial || entries.len() < 2 || missing.is_empty(),
        "not measured: {}",
        missing.join(", ")
    );
    Ok(())
}

/// Makes a bed, measures these sizes in it, and stops all of it, also where the memory does not last.
async fn fill(
    memory: &Watch,
    sizes: &[u32],
    hot: u32,
    setup: &Setup,
    entries: &mut Vec<Entry>,
) -> Result<()> {
    let bed = memory.beside(Bed::make()).await?;
    let outcome = Box::pin(memory.beside(grow(&bed, sizes, hot, setup, entries))).await;
    bed.core.directory().close().await?;
    outcome
}

/// Has what was measured so far kept, whatever the outcome, which says so.
fn kept(entries: &mut [Entry], outcome: Result<()>) -> Result<()> {
    if entries.is_empty() {
        return outcome;
    }
    report::complete(entries);
    let path = report::write(entries)?;
    outcome.with_context(|| format!("what was measured before is in {}", path.display()))
}

/// Grows the fleet from size to size, and measures each.
async fn grow(bed: &Bed, sizes: &[u32], hot: u32, setup: &Setup, entries: &mut Vec<Entry>) -> Result<()> {
    let forms = seed::grow(bed, setup.sync_period).await?;
    seed::check(&forms)?;
    say(format_args!(
        "a cluster has {} objects and {} bytes on the management cluster; its Cluster {}, its ClusterBootstrap {}",
        forms.cold.len(),
        forms.cold.bytes(),
        forms.cold.bytes_of(CLUSTER),
        forms.cold.bytes_of(BOOTSTRAP)
    ));
    let store = bed.store()?;
    store
        .delete(&forms.waiting, &bed.workloads, &[seed::WAITING], 6)
        .await?;
    let mut there = 1;
    for size in sizes {
        let began = Instant::now();
        let more: Vec<u32> = (there..*size).collect();
        store.write(&forms.cold, &bed.workloads, &more).await?;
        there = *size;
        say(format_args!(
            "{size} clusters are there after {:.0} s",
            began.elapsed().as_secs_f64()
        ));
        let is_first = entries.is_empty();
        entries.push(Entry::of(*size, setup.sync_period));
        let Some(entry) = entries.last_mut() else { continue };
        let mut running = measure(bed, entry, setup).await?;
        if hot > 0 && is_first {
            match bump::measure(&mut running, &forms, hot).await {
                Ok(measured) => entry.beside(measured),
                // The sizes that follow can be measured all the same.
                Err(error) => say(format_args!(
                    "waiting and hot clusters were not measured: {error:#}"
                )),
            }
        }
        running.end().await?;
        if setup.gates > 0 {
            let hot = if is_first { setup.gates } else { 0 };
            match gated::measure(bed, &forms, (*size, hot), setup).await {
                Ok(measured) => entry.gated(measured),
                Err(error) => say(format_args!("gated clusters were not measured: {error:#}")),
            }
        }
        report::complete(entries);
        // After each size, so that a run that is broken off leaves something.
        report::write(entries)?;
    }
    Ok(())
}

fn drawn() -> Result<()> {
    let entries = report::read()?;
    plot::draw(&entries, &Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs"))?;
    say(format_args!("\n{}", report::table(&entries)));
    Ok(())
}
