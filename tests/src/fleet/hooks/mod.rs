//! Hooks under load: Sluice beside an extension in Go and a bare echo, in turn, in one run. `make bench-hooks` runs it.
//!
//! Sluice is the release binary with a management API server and generated clusters whose upgrades wait for their packages, so that it
//! answers from the record of a real ClusterBootstrap. Load is put on all three by the same driver, `sluice-bench load`.

mod driver;
mod report;
mod rounds;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;

use super::bed::Bed;
use super::bump;
use super::command::say;
use super::memory::Meminfo;
use super::{measure, name, seed};
use crate::runtime::block_on;
use rounds::{During, Rounds};
use servers::Servers;

/// Clusters that wait for their packages while the rounds go on.
const HELD: u32 = 4;

/// Clusters that are upgraded during hook calls.
const UPGRADED: u32 = 200;

/// Asked about in turn.
const ASKED: usize = 4;

/// Long enough that no drift check of a cluster falls due.
const SYNC_PERIOD: Duration = Duration::from_mins(10);

/// Compares the hooks of Sluice with those of an extension in Go and with a bare echo.
#[derive(Debug, Parser)]
#[command(name = "bench-hooks", about)]
struct Arguments {
    /// Rounds, in each of which all three are measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Measures latencies while 200 clusters are upgraded, and adds that to the figures that are there.
    #[arg(long)]
    busy: bool,
    /// Where it is said how much memory is available.
    #[arg(long, default_value = "/proc/meminfo", hide = true)]
    meminfo: PathBuf,
}

/// The main function of the comparison.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = block_on(compare(&arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn compare(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.rounds > 0 && arguments.seconds > 0,
        "--rounds and --seconds have to be more than 0"
    );
    let began = Instant::now();
    let clusters = if arguments.busy { UPGRADED } else { HELD };
    let meminfo = Meminfo::of(&arguments.meminfo);
    meminfo.has_enough(&[clusters], 0)?;
    driver::is_built()?;
    let peer = servers::build_peer()?;
    let memory = meminfo.watched();
    let bed = memory.beside(Bed::make()).await?;
    let outcome = Box::pin(memory.beside(measured(&bed, arguments, clusters, &peer))).await;
    bed.core.directory().close().await?;
    let path = outcome?;
    say(format_args!(
        "{} after {:.0} s",
        path.display(),
        began.elapsed().as_secs_f64()
    ));
    Ok(())
}

async fn measured(
    bed: &Bed,
    arguments: &Arguments,
    clusters: u32,
    peer: &std::path::Path,
) -> Result<PathBuf> {
    let forms = seed::grow(bed, SYNC_PERIOD).await?;
    let hot = bump::hot_numbers(clusters);
    bed.store()?.write(&forms.cold, &bed.workloads, &hot).await?;
    let replica = measure::leader(bed, "hooks", SYNC_PERIOD).await?;
    let asked: Vec<String> = hot.iter().take(ASKED).map(|number| name(*number)).collect();
    let path = if arguments.busy {
        let servers = Servers::start(bed, &replica, &asked, peer).await?;
        let during = During::measure(&servers, bump::heat(bed, &hot), || bump::written(bed, &hot)).await?;
        servers.stop().await?;
        report::add(&during)?
    } else {
        bump::heat(bed, &hot).await?;
        servers::are_held(bed, &replica, &asked).await?;
        let servers = Servers::start(bed, &replica, &asked, peer).await?;
        let rounds = Rounds::measure(&servers, arguments.rounds, arguments.seconds).await?;
        servers.stop().await?;
        report::write(&rounds)?
    };
    replica.kill().await?;
    Ok(path)
}
