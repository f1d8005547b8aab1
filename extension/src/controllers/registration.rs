//! Says whether Cluster API asks; see [`sluice_core::installation::registration`]. Only the leader does, so that it is said once.
//!
//! ExtensionConfigs are few and are read again and again: a watch would have to be kept from trouble for the sake of a line in the log.

use std::{
    collections::{BTreeSet, HashMap},
    panic::AssertUnwindSafe,
    time::Duration,
};

use futures::FutureExt as _;
use kube::{Client, api::ListParams, core::Request};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::Value;
use sluice_core::{
    cluster::ClusterRef,
    installation::registration::{Finding, Registration, Scope, selector, unselected},
};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tracing::{info, warn};

/// How often ExtensionConfigs are read, and how long after the beginning: what is installed together is there by then.
const LOOK: Duration = Duration::from_secs(30);

/// How long it is believed which namespaces a selector selects.
const BELIEVED: Duration = Duration::from_mins(5);

/// Namespaces of a page.
const PAGE: u32 = 500;

const CONFIGS: &str = "/apis/runtime.cluster.x-k8s.io/v1beta2/extensionconfigs";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    extension_config: String,
}

/// What was found last. Clones share the gauges.
#[derive(Clone, Debug, Default)]
pub struct RegistrationMetrics {
    discovered: Family<NameLabel, Gauge>,
    unselected: Gauge,
}

impl RegistrationMetrics {
    /// Makes the gauges visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_extension_config_discovered",
            "1 if Cluster API has discovered the hooks of an ExtensionConfig, 0 if not",
            self.discovered.clone(),
        );
        registry.register(
            "sluice_unselected_clusters",
            "Clusters with a ClusterBootstrap in namespaces that no discovered ExtensionConfig selects",
            self.unselected.clone(),
        );
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

/// Reads the ExtensionConfigs of these names for as long as it is polled. `clusters` are those with a ClusterBootstrap.
pub async fn run(
    client: Client,
    names: Vec<String>,
    clusters: impl Fn() -> Vec<ClusterRef>,
    metrics: RegistrationMetrics,
) {
    let mut looks = Looks {
        client,
        metrics,
        selected: HashMap::new(),
        unselected: Vec::new(),
    };
    let mut before = Vec::new();
    let mut ticks = interval_at(Instant::now() + LOOK, LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // A panic here must not end the leader, which it shares a task with; the log has it.
        let look = AssertUnwindSafe(looks.check(&names, &clusters)).catch_unwind();
        if let Ok(now) = look.await {
            log_changes(&now, &before);
            before = now;
        }
    }
}

struct Looks {
    client: Client,
    metrics: RegistrationMetrics,
    /// By selector: the namespaces, and when they were listed.
    selected: HashMap<String, (Instant, BTreeSet<String>)>,
    /// Namespaces of Clusters that were not selected at the last look.
    unselected: Vec<String>,
}

impl Looks {
    async fn check(&mut self, names: &[String], clusters: &impl Fn() -> Vec<ClusterRef>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut discovered = Vec::new();
        for name in names {
            let read = self.read(name).await;
            let registration = match &read {
                Ok(config) => Registration::of(config.as_ref()),
                Err(error) => Registration::unreadable(error),
            };
            self.metrics.show(name, &registration);
            if registration == Registration::Discovered {
                discovered.extend(read.ok().flatten());
            }
            findings.push(Finding::Registered(name.clone(), registration));
        }
        match self.unselected(&discovered, &clusters()).await {
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
        findings
    }

    /// The Clusters that none of these selects.
    async fn unselected(
        &mut self,
        discovered: &[Value],
        clusters: &[ClusterRef],
    ) -> Result<Option<Finding>, String> {
        let namespaces = |found: &Option<Finding>| match found {
            Some(Finding::Unselected { namespaces, .. }) => namespaces.clone(),
            _ => Vec::new(),
        };
        let scope = self.scope(discovered).await?;
        let mut found = scope.and_then(|scope| unselected(&scope, clusters));
        // A namespace may be newer than what is believed.
        if namespaces(&found)
            .iter()
            .any(|namespace| !self.unselected.contains(namespace))
        {
            self.selected.clear();
            let scope = self.scope(discovered).await?;
            found = scope.and_then(|scope| unselected(&scope, clusters));
        }
        self.unselected = namespaces(&found);
        Ok(found)
    }

    async fn read(&self, name: &str) -> kube::Result<Option<Value>> {
        let request = http::Request::get(format!("{CONFIGS}/{name}")).body(Vec::new());
        match self
            .client
            .request(request.map_err(kube::Error::HttpError)?)
            .await
        {
            Ok(config) => Ok(Some(config)),
            // Also where there is no such kind, of which the answer is no Status.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What these ask about together; nothing where there are none.
    async fn scope(&mut self, discovered: &[Value]) -> Result<Option<Scope>, String> {
        let mut namespaces = BTreeSet::new();
        let now = Instant::now();
        self.selected
            .retain(|_, (listed, _)| now.duration_since(*listed) < BELIEVED);
        for config in discovered {
            let Some(selector) = selector(config)? else {
                return Ok(Some(Scope::AllNamespaces));
            };
            let selector = selector.to_string();
            if !self.selected.contains_key(&selector) {
                let listed = self.list(&selector).await.map_err(|error| error.to_string())?;
                self.selected.insert(selector.clone(), (now, listed));
            }
            if let Some((_, selected)) = self.selected.get(&selector) {
                namespaces.extend(selected.iter().cloned());
            }
        }
        Ok((!discovered.is_empty()).then_some(Scope::Namespaces(namespaces)))
    }

    /// The namespaces that there are of a selector.
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
