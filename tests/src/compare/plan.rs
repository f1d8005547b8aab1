//! The upgrades of a comparison, in turn.

use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::{Context as _, Result};
use futures::future::{try_join, try_join3};

use super::command::say;
use super::measure::Upgrade;
use super::side::Side;
use crate::scenario::Cluster;

/// How many upgrades with which delay, in seconds, each flow makes.
#[derive(Debug, Clone)]
pub(super) struct Plan(Vec<(u64, usize)>);

impl Plan {
    /// All delays in the order of their upgrades, `times` each at most.
    pub(super) fn of(times: usize) -> Self {
        Self(
            [(0, 5), (5, 5), (30, 3)]
                .map(|(delay, all)| (delay, times.min(all)))
                .into(),
        )
    }

    /// The delay of each upgrade of one flow.
    fn delays(&self) -> Vec<u64> {
        let each = self.0.iter();
        each.flat_map(|(delay, times)| std::iter::repeat_n(*delay, *times))
            .collect()
    }

    /// Upgrades of both flows together.
    pub(super) fn upgrades(&self) -> usize {
        2 * self.delays().len()
    }

    /// Makes them: each flow in turn, beginning with the other one each time. A Cluster lives for two upgrades.
    pub(super) async fn carry_out(&self, sides: &[Side; 2], done: &Done) -> Result<()> {
        let mut clusters: Option<[Cluster; 2]> = None;
        for (turn, delay) in self.delays().into_iter().enumerate() {
            let hop = turn % 2;
            let pair = match clusters.take() {
                Some(pair) if hop == 1 => pair,
                earlier => replaced(sides, earlier, &format!("turn-{turn}")).await?,
            };
            for offset in 0..2 {
                for side in sides {
                    side.check()?;
                }
                let of = (turn + offset) % 2;
                let upgrade = sides[of].upgrade(&pair[of], hop, delay).await?;
                let count = done.add(upgrade.clone());
                say(line(count, self.upgrades(), &upgrade));
            }
            clusters = Some(pair);
        }
        Ok(())
    }
}

/// Upgrades that have ended.
#[derive(Debug, Default)]
pub(super) struct Done(Mutex<Vec<Upgrade>>);

impl Done {
    fn add(&self, upgrade: Upgrade) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(upgrade);
        all.len()
    }

    /// All of them, in their order.
    pub(super) fn all(&self) -> Vec<Upgrade> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A new Cluster of each flow. Those before are deleted meanwhile.
async fn replaced(sides: &[Side; 2], earlier: Option<[Cluster; 2]>, name: &str) -> Result<[Cluster; 2]> {
    let deleted = async {
        match earlier {
            Some([one, other]) => try_join(one.delete(), other.delete()).await.map(drop),
            None => Ok(()),
        }
    };
    let (one, other, ()) = try_join3(sides[0].create(name), sides[1].create(name), deleted)
        .await
        .with_context(|| format!("replace the Clusters by {name}"))?;
    Ok([one, other])
}

fn line(count: usize, of: usize, upgrade: &Upgrade) -> String {
    let verdict = if upgrade.early {
        format!(
            "EARLY by {:.1} s, {} packages not ready",
            -upgrade.lag_s, upgrade.not_ready
        )
    } else {
        format!("in order, {:.2} s after the last package", upgrade.lag_s)
    };
    format!(
        "{count:2} of {of}  {:10}  delay {:2} s  {verdict}; paused {:.1} s, all of it {:.1} s, writes {} on management and {} on the workload",
        upgrade.flow,
        upgrade.delay_s,
        upgrade.paused_s,
        upgrade.total_s,
        upgrade.management.writes,
        upgrade.workload.writes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_thirteen_upgrades_of_each_flow() {
        let plan = Plan::of(5);
        assert_eq!(plan.delays(), [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 30, 30, 30]);
        assert_eq!(plan.upgrades(), 26);
        assert_eq!(Plan::of(1).delays(), [0, 5, 30]);
    }
}
