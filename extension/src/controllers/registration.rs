//! Reports whether Cluster API calls the hooks; see [`sluice_core::installation::registration`]. Only the leader does, so that each
//! finding is logged once.
//!
//! Sluice polls the few ExtensionConfigs. A watch would need its own failure handling for the sake of a log line.

use std::{
    collections::{BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt as _, Stream, stream};
use kube::{Client, api::ListParams, core::Request};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::Value;
use sluice_core::{
    cluster::ClusterRef,
    installation::{
        gate_in_force::{NotInForceReason, ReadConfig},
        registration::{Finding, Registration, Scope, Selected, selected, unasked, unselected},
    },
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tracing::{info, warn};

use crate::{controllers::gate_in_force::GatesInForce, kube_client::extension_configs};

/// Interval between checks of ExtensionConfigs, and the delay of the first one: objects that are installed together exist by then.
const INTERVAL: Duration = Duration::from_secs(30);

/// Time that listed namespaces of a selector stay cached.
const BELIEVED: Duration = Duration::from_mins(5);

/// Page size of namespace lists.
const PAGE: u32 = 500;

/// Interval between two Clusters whose gates are reported.
const PACE: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    extension_config: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Gauges of the last check. Clones share the gauges.
#[derive(Clone, Debug, Default)]
pub struct RegistrationMetrics {
    discovered: Family<NameLabel, Gauge>,
    unselected: Gauge,
    not_in_force: Family<ReasonLabel, Gauge>,
}

impl RegistrationMetrics {
    /// Registers the gauges.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_extension_config_discovered",
            "1 if Cluster API has discovered the hooks of an ExtensionConfig, 0 if not",
            self.discovered.clone(),
        );
        registry.register(
            "sluice_unselected_clusters",
            "Clusters with a ClusterBootstrap or a ClusterUpgrade in namespaces that no discovered ExtensionConfig selects",
            self.unselected.clone(),
        );
        registry.register(
            "sluice_gate_not_in_force_clusters",
            "Clusters with a ClusterBootstrap or a ClusterUpgrade whose gate is not in force for a minute, or may not be",
            self.not_in_force.clone(),
        );
    }

    fn show_gates(&self, counts: impl IntoIterator<Item = (NotInForceReason, usize)>) {
        for (reason, count) in counts {
            let reason = ReasonLabel {
                reason: reason.as_str(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.not_in_force.get_or_create(&reason).set(count);
        }
    }

    fn show(&self, name: &str, registration: &Registration) {
        let name = NameLabel {
            extension_config: name.to_owned(),
        };
        match registration.is_discovered() {
            Some(discovered) => {
                self.discovered.get_or_create(&name).set(discovered.into());
            }
            None => {
                self.discovered.remove(&name);
            }
        }
    }
}

/// Namespaces for which Cluster API calls the hooks, as the leader has seen last. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct HookScope(Arc<watch::Sender<SeenScope>>);

#[derive(Debug, Default, PartialEq, Eq)]
enum SeenScope {
    /// There was no successful read yet.
    #[default]
    Unread,
    /// Scope of the discovered ExtensionConfigs, if there is one.
    Read(Option<Scope>),
}

impl HookScope {
    /// Returns the reason for which Cluster API calls no hook for Clusters of this namespace; `None` if it does.
    pub(crate) fn unasked(&self, namespace: &str) -> Option<String> {
        match &*self.0.borrow() {
            SeenScope::Unread => Some("waiting for the ExtensionConfigs of Sluice to be read".to_owned()),
            SeenScope::Read(scope) => unasked(scope.as_ref(), namespace),
        }
    }

    /// Completes once the ExtensionConfigs were read.
    pub(crate) async fn read(&self) {
        let mut seen = self.0.subscribe();
        // The sender lives as long as this value.
        let _read = seen.wait_for(|seen| *seen != SeenScope::Unread).await;
    }

    /// Returns the changes from now on.
    pub(crate) fn changes(&self) -> impl Stream<Item = ()> + Send + use<> {
        stream::unfold(self.0.subscribe(), |mut seen| async move {
            seen.changed().await.ok()?;
            Some(((), seen))
        })
    }

    fn saw(&self, scope: Option<Scope>) {
        let now = SeenScope::Read(scope);
        self.0.send_if_modified(|seen| {
            let is_changed = *seen != now;
            *seen = now;
            is_changed
        });
    }
}

/// Checks the ExtensionConfigs with these names for as long as it is polled. `clusters` returns the Clusters with a ClusterBootstrap or a
/// ClusterUpgrade, whose gates that are not in force are reported to `reports`.
pub async fn run(
    client: Client,
    names: Vec<String>,
    clusters: impl Fn() -> Vec<ClusterRef>,
    metrics: RegistrationMetrics,
    (scope, reports): (Option<HookScope>, Option<GatesInForce>),
) {
    let mut checks = RegistrationChecks {
        client,
        metrics,
        hook_scope: scope,
        reports,
        selected: HashMap::new(),
        unselected: Vec::new(),
    };
    // The status of UpgradeGates depends on it. Nothing is reported yet.
    if checks.hook_scope.is_some() {
        let _panicked = AssertUnwindSafe(checks.read(&names)).catch_unwind().await;
    }
    let mut before = Vec::new();
    let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pace = interval_at(Instant::now() + PACE, PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => {}
            _ = pace.tick(), if checks.reports.as_ref().is_some_and(GatesInForce::has_due) => {
                let _panicked = AssertUnwindSafe(checks.report()).catch_unwind().await;
                continue;
            }
        }
        // The check shares a task with the leader, which must survive a panic here. The panic hook has logged it.
        let check = AssertUnwindSafe(checks.check(&names, &clusters)).catch_unwind();
        if let Ok(now) = check.await {
            log_changes(&now, &before);
            before = now;
        }
    }
}

struct RegistrationChecks {
    client: Client,
    metrics: RegistrationMetrics,
    /// Scope to keep up to date; `None` if nothing depends on it.
    hook_scope: Option<HookScope>,
    /// Reports of gates that are not in force; `None` without packages.
    reports: Option<GatesInForce>,
    /// Namespaces by selector, with the time of their list.
    selected: HashMap<String, (Instant, BTreeSet<String>)>,
    /// Unselected namespaces of Clusters in the last check.
    unselected: Vec<String>,
}

impl RegistrationChecks {
    async fn check(&mut self, names: &[String], clusters: &impl Fn() -> Vec<ClusterRef>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let configs = self.read(names).await;
        for config in &configs {
            let registration = config.registration();
            self.metrics.show(&config.name, &registration);
            findings.push(Finding::Registered(config.name.clone(), registration));
        }
        let clusters = clusters();
        match self.unselected(&configs, &clusters).await {
            Ok(unselected) => {
                let count = match &unselected {
                    Some(Finding::Unselected { clusters, .. }) => *clusters,
                    _ => 0,
                };
                self.metrics
                    .unselected
                    .set(i64::try_from(count).unwrap_or(i64::MAX));
                findings.extend(unselected);
            }
            Err(why) => findings.push(Finding::ScopeUnknown(why)),
        }
        if let Some(reports) = self.reports.clone() {
            let mut scopes = HashMap::new();
            for config in &configs {
                let called: Vec<&Value> = config.called().into_iter().collect();
                scopes.insert(config.name.as_str(), self.scope(&called).await);
            }
            let selects = |config: &ReadConfig, namespace: &str| match scopes.get(config.name.as_str()) {
                Some(Ok(Some(Scope::AllNamespaces))) => Ok(true),
                Some(Ok(Some(Scope::Namespaces(selected)))) => Ok(selected.contains(namespace)),
                Some(Ok(None)) | None => Ok(false),
                Some(Err(why)) => Err(why.clone()),
            };
            reports.saw(&configs, clusters, selects);
            self.metrics.show_gates(reports.counts());
        }
        findings
    }

    /// Reports the next gate that is not in force.
    async fn report(&self) {
        if let Some(reports) = &self.reports {
            reports.report_next().await;
            self.metrics.show_gates(reports.counts());
        }
    }

    /// Reads each ExtensionConfig. If all are readable, notes the namespaces that they select.
    async fn read(&mut self, names: &[String]) -> Vec<ReadConfig> {
        let mut configs = Vec::new();
        for name in names {
            configs.push(extension_configs::read(&self.client, name).await);
        }
        if let Some(hook_scope) = self.hook_scope.clone()
            && configs.iter().all(|config| config.config.is_ok())
            && let Ok(scope) = self.scope(&discovered(&configs)).await
        {
            hook_scope.saw(scope);
        }
        configs
    }

    /// Returns the Clusters whose namespaces no discovered ExtensionConfig selects.
    async fn unselected(
        &mut self,
        configs: &[ReadConfig],
        clusters: &[ClusterRef],
    ) -> Result<Option<Finding>, String> {
        let namespaces = |found: &Option<Finding>| match found {
            Some(Finding::Unselected { namespaces, .. }) => namespaces.clone(),
            _ => Vec::new(),
        };
        let scope = self.scope(&discovered(configs)).await?;
        let mut found = scope.and_then(|scope| unselected(&scope, clusters));
        // The cached list may be older than the namespace.
        if namespaces(&found)
            .iter()
            .any(|namespace| !self.unselected.contains(namespace))
        {
            self.selected.clear();
            let scope = self.scope(&discovered(configs)).await?;
            found = scope.and_then(|scope| unselected(&scope, clusters));
        }
        self.unselected = namespaces(&found);
        Ok(found)
    }

    /// Returns the union of the namespaces that these ExtensionConfigs select; `None` without any.
    async fn scope(&mut self, configs: &[&Value]) -> Result<Option<Scope>, String> {
        let mut namespaces = BTreeSet::new();
        let now = Instant::now();
        self.selected
            .retain(|_, (listed, _)| now.duration_since(*listed) < BELIEVED);
        for config in configs {
            let selector = match selected(config)? {
                Selected::NoNamespace => continue,
                Selected::AllNamespaces => return Ok(Some(Scope::AllNamespaces)),
                Selected::Matching(selector) => selector.to_string(),
            };
            if !self.selected.contains_key(&selector) {
                let listed = self.list(&selector).await.map_err(|error| error.to_string())?;
                self.selected.insert(selector.clone(), (now, listed));
            }
            if let Some((_, selected)) = self.selected.get(&selector) {
                namespaces.extend(selected.iter().cloned());
            }
        }
        Ok((!configs.is_empty()).then_some(Scope::Namespaces(namespaces)))
    }

    /// Lists the namespaces of a selector.
    async fn list(&self, selector: &str) -> kube::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let mut params = ListParams::default().labels(selector).limit(PAGE);
        loop {
            let request = Request::new("/api/v1/namespaces").list_metadata(&params);
            let page: Value = self
                .client
                .request(request.map_err(kube::Error::BuildRequest)?)
                .await?;
            let items = page["items"].as_array().into_iter().flatten();
            names.extend(items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)));
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => params = params.continue_token(next),
                _ => return Ok(names),
            }
        }
    }
}

/// Returns those whose hooks Cluster API has discovered.
fn discovered(configs: &[ReadConfig]) -> Vec<&Value> {
    configs.iter().filter_map(ReadConfig::discovered).collect()
}

fn log_changes(now: &[Finding], before: &[Finding]) {
    for finding in now.iter().filter(|finding| finding.is_new(before)) {
        if finding.is_trouble() {
            warn!("{finding}");
        } else {
            info!("{finding}");
        }
    }
}

#[cfg(test)]
mod tests;
