//! How long a workload takes to become ready, and the Pod of a Job to end.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::sync::watch;
use tokio::time::Instant;

use super::kapp_controller::KAPP_CONTROLLER_START;

/// On a Deployment or DaemonSet, or on the Pods of real controllers: the delay, `500ms`, `5s` or `never`.
pub const DELAY_ANNOTATION: &str = "harness.test/ready-after";

/// Time from a change of a Deployment or DaemonSet to its being ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// As long.
    After(Duration),
    /// It does not become ready.
    Never,
}

impl Delay {
    /// Ready at once.
    pub const NONE: Self = Self::After(Duration::ZERO);

    /// A delay in seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds))
    }
}

impl std::fmt::Display for Delay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::After(duration) => write!(f, "{}ms", duration.as_millis()),
            Self::Never => f.write_str("never"),
        }
    }
}

impl FromStr for Delay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "never" {
            return Ok(Self::Never);
        }
        let (number, unit): (&str, fn(u64) -> Duration) = match text.strip_suffix("ms") {
            Some(number) => (number, Duration::from_millis),
            None => (text.strip_suffix('s').unwrap_or(text), Duration::from_secs),
        };
        let number = number
            .parse()
            .with_context(|| format!("{text:?} is not a delay such as 500ms, 5s or never"))?;
        Ok(Self::After(unit(number)))
    }
}

/// Delays that a scenario has set from outside. They win over the annotation, and may change while a rollout waits.
#[derive(Debug, Clone)]
pub struct Delays {
    chosen: Arc<watch::Sender<HashMap<Key, Delay>>>,
}

/// Namespace and name of the Cluster, name of the Deployment or DaemonSet.
type Key = (String, String, String);

impl Default for Delays {
    fn default() -> Self {
        Self {
            chosen: Arc::new(watch::Sender::new(HashMap::new())),
        }
    }
}

impl Delays {
    /// Sets the delay of a Deployment or DaemonSet of a Cluster, also for a rollout that is under way.
    pub fn set(&self, namespace: &str, cluster: &str, name: &str, delay: Delay) {
        let key = (namespace.to_owned(), cluster.to_owned(), name.to_owned());
        self.chosen.send_modify(|chosen| {
            chosen.insert(key, delay);
        });
    }

    pub(super) fn get(&self, namespace: &str, cluster: &str, name: &str) -> Option<Delay> {
        let key = (namespace.to_owned(), cluster.to_owned(), name.to_owned());
        self.chosen.borrow().get(&key).copied()
    }

    /// Waits for as long as is set for `name`, also when that changes meanwhile; not at all if nothing is set.
    pub(crate) async fn passed(&self, namespace: &str, cluster: &str, name: &str) {
        let began = Instant::now();
        let mut changes = self.changes();
        loop {
            let due = match self.get(namespace, cluster, name) {
                None => return,
                Some(Delay::After(delay)) => Some(began + delay),
                Some(Delay::Never) => None,
            };
            tokio::select! {
                () = tokio::time::sleep_until(due.unwrap_or(began)), if due.is_some() => return,
                next = changes.changed() => if next.is_err() { return },
            }
        }
    }

    /// How long kapp-controller runs before it is itself, see [`KAPP_CONTROLLER_START`].
    pub(super) fn of_kapp_controller(&self, namespace: &str, cluster: &str) -> Duration {
        match self.get(namespace, cluster, KAPP_CONTROLLER_START) {
            Some(Delay::After(duration)) => duration,
            Some(Delay::Never) | None => Duration::ZERO,
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<HashMap<Key, Delay>> {
        self.chosen.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_endless_delay_ends_on_request() {
        let delays = Delays::default();
        delays.passed("a", "b", "nothing is set").await;
        delays.set("a", "b", "c", Delay::Never);
        let waiting = tokio::spawn({
            let delays = delays.clone();
            async move { delays.passed("a", "b", "c").await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        delays.set("a", "b", "c", Delay::NONE);
        tokio::time::timeout(Duration::from_secs(10), waiting)
            .await
            .unwrap()
            .unwrap();
    }

    #[test]
    fn a_delay_reads_back_as_written() {
        for delay in [
            Delay::NONE,
            Delay::seconds(5),
            Delay::Never,
            Delay::After(Duration::from_millis(1500)),
        ] {
            assert_eq!(delay.to_string().parse::<Delay>().unwrap(), delay);
        }
        assert_eq!("5s".parse::<Delay>().unwrap(), Delay::seconds(5));
        assert!("soon".parse::<Delay>().is_err());
    }
}
