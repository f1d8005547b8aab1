//! Rounds of measurements, and what they come to.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join;
use tokio::time::sleep;

use super::driver::{Load, Sample, load};
use super::servers::{Server, Servers};
use crate::fleet::command::say;
use crate::fleet::gauge::Gauge;

/// How long hooks are asked while clusters are upgraded.
const DURING: u64 = 30;

/// Before the first upgrade is written: the warm-up of the driver.
const BEFORE: Duration = Duration::from_secs(1);

/// One measurement.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) server: &'static str,
    pub(super) load: Load,
    pub(super) sample: Sample,
}

/// All measurements of a run.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) count: usize,
    pub(super) all: Vec<Measured>,
    pub(super) rss_idle_mb: f64,
}

impl Rounds {
    /// Measures each server under each load in each round. All three take turns under one load before the next one.
    pub(super) async fn measure(servers: &Servers, rounds: usize, seconds: u64) -> Result<Self> {
        let rss_idle_mb = Gauge::of(servers.sluice.pid).resident()?;
        let mut all = Vec::new();
        for round in 0..rounds {
            for of in Load::ALL {
                for server in servers.from(round) {
                    let sample = load(server, of, seconds, &servers.directory).await?;
                    sample.is_held(server.name)?;
                    say(line(round, rounds, of, server, &sample));
                    all.push(Measured {
                        server: server.name,
                        load: of,
                        sample,
                    });
                }
            }
        }
        Ok(Self {
            count: rounds,
            all,
            rss_idle_mb,
        })
    }

    /// Figures of one server under one load, round by round.
    pub(super) fn of(&self, server: &str, load: Load, figure: fn(&Sample) -> f64) -> Vec<f64> {
        let of = self
            .all
            .iter()
            .filter(|one| one.server == server && one.load == load);
        of.map(|one| figure(&one.sample)).collect()
    }

    /// The most memory that a server had after a measurement.
    pub(super) fn memory(&self, server: &str) -> f64 {
        let of = self.all.iter().filter(|one| one.server == server);
        of.map(|one| one.sample.process.rss_mb_after).fold(0.0, f64::max)
    }
}

fn line(round: usize, rounds: usize, of: Load, server: &Server, sample: &Sample) -> String {
    format!(
        "round {} of {rounds}, {:9} {:6} {:8.0} answers/s  p50 {:7.3} ms  p99 {:7.3}  {:6.1} µs CPU  {:5.1} MB",
        round + 1,
        of.as_str(),
        server.name,
        sample.throughput,
        sample.latency.p50,
        sample.latency.p99,
        sample.process.cpu_us_per_call,
        sample.process.rss_mb_after
    )
}

/// Sluice and the echo, asked at the same time while clusters are upgraded.
#[derive(Debug)]
pub(super) struct During {
    pub(super) sluice: Sample,
    pub(super) echo: Sample,
    /// Until the packages of all clusters were written.
    pub(super) upgraded_s: f64,
}

impl During {
    /// Asks both for as long as is measured. `upgrade` begins with it, and has to end in it.
    pub(super) async fn measure(
        servers: &Servers,
        upgrade: impl Future<Output = Result<()>>,
    ) -> Result<Self> {
        let other = servers.directory.join("other");
        std::fs::create_dir_all(&other)?;
        let asked = try_join(
            load(&servers.sluice, Load::Paced, DURING, &servers.directory),
            load(&servers.echo, Load::Paced, DURING, &other),
        );
        let upgraded = async {
            sleep(BEFORE).await;
            let began = std::time::Instant::now();
            upgrade.await.context("upgrade the clusters")?;
            anyhow::Ok(began.elapsed())
        };
        let ((sluice, echo), upgraded) = try_join(asked, upgraded).await?;
        for (server, sample) in [(&servers.sluice, &sluice), (&servers.echo, &echo)] {
            say(line(0, 1, Load::Paced, server, sample));
        }
        let upgraded_s = upgraded.as_secs_f64();
        say(format_args!(
            "the packages of all clusters were written after {upgraded_s:.1} of {DURING} s; Sluice answered {:?}",
            sluice.holds
        ));
        ensure!(
            upgraded < Duration::from_secs(DURING),
            "the upgrades took {upgraded_s:.0} s, and hooks were asked for {DURING} s only"
        );
        Ok(Self {
            sluice,
            echo,
            upgraded_s,
        })
    }
}
