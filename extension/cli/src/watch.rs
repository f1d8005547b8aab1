//! `sluice watch`: prints each change until the upgrades end.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use sluice_proto::status::v1::{Change, Cluster, Outcome, WatchClustersRequest, WatchClustersResponse};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    NOT_COMPLETED, TIMED_OUT,
    arguments::{Output, WatchArgs},
    connection::{Connection, Ended, Trouble},
    json::json,
    lines::{changes, line},
    terminal::{Terminal, clean, print},
};

/// Time of retries of a service that has never responded.
const FIRST: Duration = Duration::from_secs(10);

/// Delays between two connections.
const AGAIN: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(250))
    .with_max_delay(LONGEST)
    .with_factor(2.0)
    .without_max_times();

/// Longest delay between two connections.
const LONGEST: Duration = Duration::from_secs(5);

/// Outcome of the upgrade of a Cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Cancelled,
    Deleted,
}

pub(super) async fn watch(asked: &WatchArgs, terminal: &Terminal) -> Result<ExitCode, Trouble> {
    let mut watched = Watched::of(asked, terminal);
    let watching = watched.until_the_end();
    let Some(limit) = asked.timeout else {
        return watching.await;
    };
    // A limit of more than a year has no effect.
    match timeout_at(Instant::now() + limit, watching).await {
        Ok(ended) => ended,
        Err(_elapsed) => {
            eprintln!(
                "sluice: --timeout {limit:?} passed, and {} has not ended",
                watched.missing()
            );
            Ok(ExitCode::from(TIMED_OUT))
        }
    }
}

/// State of the watched Clusters.
struct Watched<'a> {
    asked: &'a WatchArgs,
    terminal: &'a Terminal,
    clusters: BTreeMap<&'a str, LastShown>,
    /// Whether a service has ever sent its complete initial state.
    synced: bool,
    /// Lines to print.
    lines: Vec<String>,
}

#[derive(Default)]
struct LastShown {
    cluster: Option<Cluster>,
    /// Whether this stream has sent the Cluster.
    sent: bool,
    end: Option<End>,
    /// Whether the awaited upgrade was observed in progress.
    begun: bool,
}

impl<'a> Watched<'a> {
    fn of(asked: &'a WatchArgs, terminal: &'a Terminal) -> Self {
        let clusters = asked
            .names
            .iter()
            .map(|name| (name.as_str(), LastShown::default()));
        Self {
            asked,
            terminal,
            clusters: clusters.collect(),
            synced: false,
            lines: Vec::new(),
        }
    }

    /// Returns the names of Clusters whose upgrade has not ended.
    fn missing(&self) -> String {
        let left = self.clusters.iter().filter(|(_, known)| known.end.is_none());
        let names: Vec<String> = left
            .map(|(name, _)| format!("{}/{name}", self.asked.namespace))
            .collect();
        names.join(", ")
    }

    async fn until_the_end(&mut self) -> Result<ExitCode, Trouble> {
        let began = Instant::now();
        let mut waits = AGAIN.build();
        let mut interrupted = false;
        loop {
            let synced_before = std::mem::take(&mut self.synced);
            let (trouble, at_once) = match self.one_stream().await {
                Ok(code) => return Ok(code),
                Err(Ended::ForAnotherToken(trouble)) => (trouble, true),
                Err(Ended::By(trouble)) => (trouble, false),
            };
            if self.synced {
                (waits, interrupted) = (AGAIN.build(), false);
            }
            let knows_it = self.synced || synced_before;
            self.synced = knows_it;
            let retries = trouble.is_transient() && (knows_it || began.elapsed() < FIRST);
            if !at_once && !retries {
                return Err(trouble);
            }
            if knows_it && !interrupted {
                let how = if at_once {
                    " with the token that --token-file has now"
                } else {
                    ""
                };
                eprintln!("sluice: {trouble}; watching again{how}");
                interrupted = true;
            }
            if at_once {
                continue;
            }
            sleep(waits.next().unwrap_or(LONGEST)).await;
        }
    }

    /// Reads one stream from its initial state, until all upgrades or the stream end.
    async fn one_stream(&mut self) -> Result<ExitCode, Ended> {
        let mut connection = Connection::open(&self.asked.server).await?;
        let name = match self.asked.names.as_slice() {
            [one] => one.clone(),
            _ => String::new(),
        };
        let request = connection.request(WatchClustersRequest {
            namespace: self.asked.namespace.clone(),
            name,
        });
        let stream = connection.client.watch_clusters(request).await;
        let mut stream = stream.map_err(|status| connection.ended(status))?.into_inner();
        for known in self.clusters.values_mut() {
            known.sent = false;
        }
        loop {
            let message = stream
                .message()
                .await
                .map_err(|status| connection.ended(status))?;
            let ended = || connection.refused(tonic::Status::unavailable("the stream has ended"));
            let code = self.take(&message.ok_or_else(ended)?)?;
            for line in self.lines.drain(..) {
                print(&line).map_err(Trouble::from)?;
            }
            if let Some(code) = code {
                return Ok(code);
            }
        }
    }

    /// Processes one message. Returns the exit code once all upgrades have ended.
    fn take(&mut self, message: &WatchClustersResponse) -> Result<Option<ExitCode>, Trouble> {
        match (message.change(), &message.cluster) {
            (Change::Updated, Some(cluster)) => self.updated(message, cluster)?,
            (Change::Removed, Some(cluster)) => self.removed(cluster)?,
            (Change::Synced, _) => self.synced()?,
            // Message of a later version of the service.
            _ => {}
        }
        Ok(self.code())
    }

    fn updated(&mut self, message: &WatchClustersResponse, now: &Cluster) -> Result<(), Trouble> {
        let (asked, terminal) = (self.asked, self.terminal);
        let lines = &mut self.lines;
        let Some(known) = self.clusters.get_mut(now.name.as_str()) else {
            return Ok(());
        };
        known.sent = true;
        if known.end.is_some() {
            return Ok(());
        }
        if let Some(before) = known.cluster.as_ref().filter(|before| before.uid != now.uid) {
            known.end = Some(End::Deleted);
            lines.push(deleted(asked, before)?);
            return Ok(());
        }
        let before = known.cluster.replace(now.clone());
        if before.as_ref() != Some(now) {
            lines.extend(shown(asked, terminal, message, before.as_ref(), now)?);
        }
        let to = asked.to.as_deref();
        known.begun |= now.upgrade.as_ref().is_some_and(|upgrade| {
            upgrade.outcome() == Outcome::Unspecified && to.is_none_or(|to| to == upgrade.to)
        });
        known.end = ended(now, to, known.begun);
        Ok(())
    }

    fn removed(&mut self, last: &Cluster) -> Result<(), Trouble> {
        let Some(known) = self.clusters.get_mut(last.name.as_str()) else {
            return Ok(());
        };
        // A Cluster without an earlier message was deleted before.
        let is_it = known
            .cluster
            .as_ref()
            .is_some_and(|cluster| cluster.uid == last.uid);
        if known.end.is_some() || !is_it {
            return Ok(());
        }
        known.end = Some(End::Deleted);
        self.lines.push(deleted(self.asked, last)?);
        Ok(())
    }

    /// The initial state is complete, so other Clusters do not exist.
    fn synced(&mut self) -> Result<(), Trouble> {
        self.synced = true;
        let asked = self.asked;
        for (name, known) in &mut self.clusters {
            if known.sent || known.end.is_some() {
                continue;
            }
            let Some(last) = &known.cluster else {
                let line = format!(
                    "there is no Cluster {name:?} in namespace {:?} at {}",
                    asked.namespace, asked.server.server
                );
                return Err(Trouble::Usage(line));
            };
            known.end = Some(End::Deleted);
            self.lines.push(deleted(asked, last)?);
        }
        Ok(())
    }

    fn code(&self) -> Option<ExitCode> {
        let ends: Option<Vec<End>> = self.clusters.values().map(|known| known.end).collect();
        let all_completed = ends?.iter().all(|end| *end == End::Completed);
        Some(if all_completed {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(NOT_COMPLETED)
        })
    }
}

/// Returns the outcome of the awaited upgrade, if it has ended. `begun` tells that it was observed in progress: a cancelled one has the
/// version that the Cluster returned to. An unrecorded pending upgrade is awaited instead, unless it is to another version.
fn ended(cluster: &Cluster, to: Option<&str>, begun: bool) -> Option<End> {
    let upgrade = cluster.upgrade.as_ref()?;
    if cluster.pending && to.is_none_or(|to| to == cluster.topology_version) {
        return None;
    }
    if to.is_some_and(|to| to != upgrade.to) {
        return (begun && matches!(upgrade.outcome(), Outcome::Cancelled | Outcome::RolledBack))
            .then_some(End::Cancelled);
    }
    match upgrade.outcome() {
        Outcome::Unspecified => None,
        Outcome::Completed => Some(End::Completed),
        Outcome::Cancelled | Outcome::RolledBack => Some(End::Cancelled),
    }
}

/// Renders the changes of a Cluster, if there are any.
fn shown(
    asked: &WatchArgs,
    terminal: &Terminal,
    message: &WatchClustersResponse,
    before: Option<&Cluster>,
    now: &Cluster,
) -> Result<Option<String>, Trouble> {
    if asked.output == Output::Json {
        return json("WatchClustersResponse", message, false).map(Some);
    }
    let said = match &now.upgrade {
        Some(_) => changes(terminal, before, now),
        None if before.is_some() => Vec::new(),
        None => vec![
            if now.managed {
                "no record yet"
            } else {
                "not managed"
            }
            .to_owned(),
        ],
    };
    let line = || terminal.fit(&line(terminal, now, &said)).into_owned();
    Ok((!said.is_empty()).then(line))
}

/// Renders the deletion of a Cluster with this last state.
fn deleted(asked: &WatchArgs, last: &Cluster) -> Result<String, Trouble> {
    if asked.output == Output::Json {
        // A later stream shows only existing Clusters.
        let message = WatchClustersResponse {
            change: Change::Removed.into(),
            cluster: Some(last.clone()),
        };
        return json("WatchClustersResponse", &message, false);
    }
    let Cluster { namespace, name, .. } = last;
    Ok(format!("{}/{}  deleted", clean(namespace), clean(name)))
}

#[cfg(test)]
mod tests;
