//! Rounds of measurements, and their results.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use futures::future::try_join;
use tokio::time::sleep;

use super::driver::{Load, Sample, load};
use super::servers::{Server, Servers};
use crate::fleet::command::say;
use crate::processes::gauge::Gauge;

/// Duration of the hook calls while clusters are upgraded.
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
    /// Clusters whose packages were all written in that time.
    pub(super) upgraded: usize,
}

impl During {
    /// Asks both for as long as is measured. `upgrade` begins with it; `upgraded` says how far it is.
    pub(super) async fn measure(
        servers: &Servers,
        upgrade: impl Future<Output = Result<()>>,
        upgraded: impl Fn() -> usize,
    ) -> Result<Self> {
        let other = servers.directory.join("other");
        std::fs::create_dir_all(&other)?;
        let asked = try_join(
            load(&servers.sluice, Load::Paced, DURING, &servers.directory),
            load(&servers.echo, Load::Paced, DURING, &other),
        );
        let upgrade = async {
            sleep(BEFORE).await;
            upgrade.await.context("upgrade the clusters")?;
            // It ended before the window does.
            std::future::pending::<Result<()>>().await
        };
        let (sluice, echo) = tokio::select! {
            asked = asked => asked?,
            failed = upgrade => bail!(failed.err().unwrap_or_else(|| anyhow!("the upgrade ended"))),
        };
        for (server, sample) in [(&servers.sluice, &sluice), (&servers.echo, &echo)] {
            say(line(0, 1, Load::Paced, server, sample));
        }
        let upgraded = upgraded();
        say(format_args!(
            "the packages of {upgraded} clusters were written in these {DURING} s; Sluice answered {:?}",
            sluice.holds
        ));
        ensure!(upgraded > 0, "no cluster was upgraded in {DURING} s");
        Ok(Self {
            sluice,
            echo,
            upgraded,
        })
    }
}
