//! Says whether Cluster API asks; see [`sluice_core::registration`]. Only the leader does, so that it is said once.

use std::{collections::BTreeSet, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::{GroupVersionKind, Selector},
    runtime::{
        WatchStreamExt as _, reflector,
        watcher::{self, watcher},
    },
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use sluice_core::{
    cluster::ClusterRef,
    registration::{Asked, Finding, Registration, findings, selector},
};
use tokio::time::{Instant, interval_at};
use tracing::{info, warn};

/// What is installed together is looked at only once it is there.
const FIRST: Duration = Duration::from_secs(30);

/// How often namespaces are looked at, which are not watched.
const EVERY: Duration = Duration::from_mins(5);

/// Of a page of namespaces.
const PAGE: u32 = 500;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NameLabel {
    extension_config: String,
}

/// What was found last. Clones share the gauges.
#[derive(Clone, Debug, Default)]
pub struct RegistrationMetrics {
    discovered: Family<NameLabel, Gauge>,
    unasked: Gauge,
}

impl RegistrationMetrics {
    /// Makes the gauges visible.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "sluice_extension_config_discovered",
            "1 where Cluster API has discovered the hooks of an ExtensionConfig, 0 where it has not",
            self.discovered.clone(),
        );
        registry.register(
            "sluice_unasked_clusters",
            "Clusters with a ClusterBootstrap in namespaces that no ExtensionConfig selects",
            self.unasked.clone(),
        );
    }

    fn show(&self, findings: &[Finding]) {
        let mut unasked = 0;
        for finding in findings {
            match finding {
                Finding::Registered(name, registration) => {
                    let name = NameLabel {
                        extension_config: name.clone(),
                    };
                    let discovered = *registration == Registration::Discovered;
                    self.discovered.get_or_create(&name).set(discovered.into());
                }
                Finding::Unasked { clusters, .. } => unasked = *clusters,
            }
        }
        self.unasked.set(i64::try_from(unasked).unwrap_or(i64::MAX));
    }
}

/// Follows the ExtensionConfigs of these names for as long as it is polled. `clusters` are those with a ClusterBootstrap.
pub async fn run(
    client: Client,
    names: Vec<String>,
    clusters: impl Fn() -> Vec<ClusterRef>,
    metrics: RegistrationMetrics,
) {
    let kind = GroupVersionKind::gvk("runtime.cluster.x-k8s.io", "v1beta2", "ExtensionConfig");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let writer = reflector::store::Writer::new(resource);
    let configs = writer.as_reader();
    let watch = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(reflector(writer, watch));
    let mut ticks = interval_at(Instant::now() + FIRST, EVERY);
    let (mut may_say, mut readable) = (false, true);
    let mut before = Vec::new();
    loop {
        tokio::select! {
            _ = ticks.tick() => may_say = true,
            Some(event) = events.next() => match event {
                Ok(_) => readable = true,
                Err(error) => {
                    if readable {
                        warn!(%error, "Watching ExtensionConfigs; whether Cluster API asks is not known");
                    }
                    readable = false;
                }
            },
        }
        if !may_say || !readable {
            continue;
        }
        match look(&client, &configs, &names, &clusters()).await {
            Ok(now) => {
                metrics.show(&now);
                say(&now, &before);
                before = now;
            }
            Err(error) => warn!(%error, "Looking at the namespaces that ExtensionConfigs select"),
        }
    }
}

async fn look(
    client: &Client,
    configs: &reflector::Store<DynamicObject>,
    names: &[String],
    clusters: &[ClusterRef],
) -> kube::Result<Vec<Finding>> {
    let mut registrations = Vec::new();
    let mut asked = Asked::In(BTreeSet::new());
    for name in names {
        let config = configs.find(|config| config.name_any() == *name);
        let registration = Registration::of(config.as_deref());
        if let Some(config) = config
            && registration == Registration::Discovered
            && let Asked::In(namespaces) = &mut asked
        {
            match selector(&config) {
                Some(selector) => namespaces.extend(selected(client, &selector).await?),
                None => asked = Asked::Everywhere,
            }
        }
        registrations.push((name.clone(), registration));
    }
    Ok(findings(registrations, &asked, clusters))
}

/// The namespaces that there are of a selector.
async fn selected(client: &Client, selector: &Selector) -> kube::Result<Vec<String>> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut names = Vec::new();
    let mut params = ListParams::default().labels_from(selector).limit(PAGE);
    loop {
        let page = namespaces.list_metadata(&params).await?;
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => params = params.continue_token(&next),
            _ => return Ok(names),
        }
    }
}

fn say(now: &[Finding], before: &[Finding]) {
    for finding in now.iter().filter(|finding| finding.is_new(before)) {
        if finding.is_trouble() {
            warn!("{finding}");
        } else {
            info!("{finding}");
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::freshness::tests::Frozen;

    /// An ExtensionConfig that is discovered and selects namespace `team-a`, which is there.
    fn items(path: &str) -> Vec<Value> {
        if path.ends_with("/extensionconfigs") {
            return vec![json!({
                "apiVersion": "runtime.cluster.x-k8s.io/v1beta2",
                "kind": "ExtensionConfig",
                "metadata": {"name": "sluice", "uid": "1", "resourceVersion": "1"},
                "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}},
                "status": {"conditions": [{"type": "Discovered", "status": "True", "reason": "Discovered"}]},
            })];
        }
        assert!(path.ends_with("/namespaces"), "{path}");
        vec![json!({"metadata": {"name": "team-a", "uid": "2"}})]
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_found_is_shown() {
        let metrics = RegistrationMetrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let shown = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let names = ["sluice", "gone"].map(str::to_owned).to_vec();
        let clusters = || {
            ["team-a", "team-b"]
                .map(|namespace| ClusterRef::new(namespace, "one"))
                .to_vec()
        };
        let client = Frozen::new().client(items);
        let running = tokio::spawn(run(client, names, clusters, metrics.clone()));

        sleep(FIRST / 2).await;
        assert!(!shown().contains("gone"), "{}", shown());
        sleep(FIRST).await;
        for line in [
            "sluice_extension_config_discovered{extension_config=\"sluice\"} 1",
            "sluice_extension_config_discovered{extension_config=\"gone\"} 0",
            "sluice_unasked_clusters 1",
        ] {
            assert!(shown().contains(line), "{line} is not in {}", shown());
        }
        running.abort();
    }
}
