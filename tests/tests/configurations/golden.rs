//! The golden cases of `extension/core/tests/providers/cases`, made real: each in a namespace of its own. Those that share an
//! object outside it take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use sluice_tests::requests::apply;
use sluice_tests::wait;
use tokio::sync::Mutex;

use crate::around::{class, read, remove, secret, write};
use crate::{TIMEOUT, tells_no_credential};

/// Cases that a definition or Cluster API rejects, and no controller ever sees.
const NEVER_LET_IN: [&str; 2] = [
    "kapp-controller/problem-unreadable.yaml",
    "antrea/problem-range.yaml",
];

/// Repaired form of a case: the neighboring case of this name, `minimal` for all others.
const REPAIRED: [(&str, &str); 10] = [
    ("antrea/problem-gate.yaml", "unlisted-gates.yaml"),
    ("antrea/problem-nsx-both.yaml", "nsx-inline.yaml"),
    ("antrea/problem-nsx-key.yaml", "nsx-inline.yaml"),
    ("antrea/problem-nsx-kind.yaml", "nsx-provider.yaml"),
    ("made-up/problem-unsigned.yaml", "full.yaml"),
    ("vsphere-cpi/problem-identity-for-nobody.yaml", "identity.yaml"),
    ("vsphere-cpi/problem-identity-not-allowed.yaml", "identity.yaml"),
    ("vsphere-cpi/problem-identity-not-ready.yaml", "identity.yaml"),
    (
        "vsphere-cpi/problem-no-supervisor.yaml",
        "paravirtual-cluster-info.yaml",
    ),
    ("vsphere-csi/problem-identity-kind.yaml", "identity-secret.yaml"),
];

/// How many cases run at once. Most of the time they wait for Cluster API, which takes four seconds for a Cluster without a class.
const AT_ONCE: usize = 24;

/// Every case.
pub(crate) async fn every_case(client: &Client) -> Result<()> {
    let files = files()?;
    ensure!(files.len() > 50, "only {} cases", files.len());
    let let_in = files
        .iter()
        .enumerate()
        .filter(|(_, path)| !NEVER_LET_IN.iter().any(|case| path.ends_with(case)));
    let mut cases = Vec::new();
    for (index, path) in let_in {
        let namespace = format!("case-{index}");
        let case = Case::read(path, &namespace)?;
        let repaired = match case.expect["problem"] {
            Value::Null => None,
            _ => Some(Case::read(&repaired(path), &namespace)?),
        };
        cases.push((path, case, repaired));
    }
    let turns: BTreeMap<String, Mutex<()>> = cases
        .iter()
        .flat_map(|(_, case, repaired)| case.shares(repaired.as_ref()))
        .map(|shared| (shared, Mutex::default()))
        .collect();
    let outcomes: Vec<Result<(), String>> = stream::iter(cases)
        .map(async |(path, case, repaired)| {
            let mut mine = Vec::new();
            // In their order, so that no two cases wait for one another.
            for shared in case.shares(repaired.as_ref()) {
                mine.push(turns[&shared].lock().await);
            }
            let outcome = case.run(client, repaired).await;
            outcome.map_err(|error| format!("{}: {error:#}", path.display()))
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let wrong: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    Ok(())
}

fn files() -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../extension/core/tests/providers/cases");
    let mut files = Vec::new();
    for kind in fs::read_dir(root)? {
        for file in fs::read_dir(kind?.path())? {
            files.push(file?.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The case without the problem of the one in `path`.
fn repaired(path: &Path) -> PathBuf {
    let other = REPAIRED.iter().find(|(case, _)| path.ends_with(case));
    path.with_file_name(other.map_or("minimal.yaml", |(_, repaired)| repaired))
}

/// A configuration with everything around it.
pub(crate) struct Case {
    namespace: String,
    pub(crate) config: Value,
    pub(crate) cluster: Value,
    pub(crate) sources: Vec<Value>,
    expect: Value,
}

impl Case {
    /// The case in `path`, moved to `namespace`.
    pub(crate) fn read(path: &Path, namespace: &str) -> Result<Self> {
        let text = fs::read_to_string(path)?.replace("ns1", namespace);
        let mut document: Value = serde_saphyr::from_str(&text)?;
        let mut part = |name: &str| document[name].take();
        let sources = part("sources");
        Ok(Self {
            namespace: namespace.to_owned(),
            config: part("config"),
            cluster: part("cluster"),
            sources: sources.as_array().cloned().unwrap_or_default(),
            expect: part("expect"),
        })
    }

    /// Judges what comes out; a problem ends by itself once everything is as in `repaired`.
    async fn run(mut self, client: &Client, repaired: Option<Self>) -> Result<()> {
        let outcome = match self.make(client).await {
            Ok(()) => self.comes_out(client).await,
            Err(error) => Err(error.context("make the objects")),
        };
        let mut shared: Vec<Value> = self.shared().cloned().collect();
        let outcome = match (outcome, repaired) {
            (Ok(()), Some(repaired)) => {
                shared.extend(repaired.shared().cloned());
                self.recovers(client, repaired).await.context("recovery")
            }
            (outcome, _) => outcome,
        };
        // Each case has its own namespace, so its objects affect no other case.
        for object in &shared {
            remove(client, object).await?;
        }
        outcome
    }

    /// Makes everything as it is in `repaired`, and waits for its values.
    async fn recovers(&self, client: &Client, mut repaired: Self) -> Result<()> {
        // Cluster API refuses to change a Cluster without it.
        class(client, &self.namespace).await?;
        repaired.settle(client).await.map(drop)
    }

    /// What this case and the one that repairs it share with others: a kind, and the namespace of its objects.
    fn shares(&self, repaired: Option<&Self>) -> BTreeSet<String> {
        iter::once(self)
            .chain(repaired)
            .flat_map(Self::shared)
            .map(|object| format!("{} in {}", object["kind"], object["metadata"]["namespace"]))
            .collect()
    }

    /// What other cases would see.
    fn shared(&self) -> impl Iterator<Item = &Value> {
        self.sources.iter().filter(|object| {
            object["metadata"]["namespace"] != self.namespace.as_str() && object["kind"] != "Namespace"
        })
    }

    /// Writes everything; the configuration last, owned by its Cluster.
    pub(crate) async fn make(&mut self, client: &Client) -> Result<()> {
        apply::namespace(client, &self.namespace).await?;
        for object in &self.sources {
            if let Some(namespace) = object["metadata"]["namespace"].as_str() {
                apply::namespace(client, namespace).await?;
            }
            let uid = write(client, object).await?.uid().context("no uid")?;
            if object["kind"] == "VSphereCluster" {
                self.expect = replaced(&self.expect, "uid-of-infra", &uid)?;
            }
        }
        let uid = write(client, &self.cluster).await?.uid().context("no uid")?;
        self.expect = replaced(&self.expect, "uid-of-c1", &uid)?;
        self.config["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "c1", "uid": uid,
        }]);
        write(client, &self.config).await?;
        Ok(())
    }

    async fn comes_out(&self, client: &Client) -> Result<()> {
        match self.expect["problem"].as_str() {
            None => self.values_are(client, &self.expect["values"]).await,
            Some(reason) => {
                self.is_refused(client, reason).await?;
                self.is_told_once(client, reason).await?;
                let written = Api::<Secret>::namespaced(client.clone(), &self.namespace)
                    .list_metadata(&ListParams::default())
                    .await?;
                let half: Vec<String> = written
                    .iter()
                    .map(ResourceExt::name_any)
                    .filter(|name| name.ends_with("-data-values"))
                    .collect();
                ensure!(half.is_empty(), "written in spite of the problem: {half:?}");
                Ok(())
            }
        }
    }

    /// Writes everything and waits for the values. Returns them, to be changed.
    pub(crate) async fn settle(&mut self, client: &Client) -> Result<Value> {
        self.make(client).await?;
        let values = self.expected();
        self.values_are(client, &values).await?;
        Ok(values)
    }

    /// The name of the Secret with the values.
    fn written(&self) -> Result<String> {
        let addon = self.expect["addon"].as_str().context("no addon")?;
        Ok(format!("c1-{addon}-data-values"))
    }

    /// An object that the configuration needs goes: that is said for `reason`, and the values in use stay. Then it comes back.
    pub(crate) async fn goes_and_comes(&self, client: &Client, object: &Value, reason: &str) -> Result<()> {
        remove(client, object).await?;
        self.is_refused(client, reason).await?;
        let written = read(client, &secret(&self.namespace, &self.written()?)).await?;
        ensure!(written.is_some(), "{reason}: the values in use are gone");
        write(client, object).await?;
        self.values_are(client, &self.expected())
            .await
            .with_context(|| format!("{} is back", object["kind"]))
    }

    /// Waits until the configuration is ready and its Secret holds `values`; then checks the objects beside it.
    pub(crate) async fn values_are(&self, client: &Client, values: &Value) -> Result<()> {
        let name = self.written()?;
        wait::until(
            format!("values in Secret {}/{name}", self.namespace),
            TIMEOUT,
            || async {
                let config = read(client, &self.config)
                    .await?
                    .context("the configuration is gone")?;
                let ready = &config.data["status"]["conditions"][0];
                let current =
                    config.data["status"]["observedGeneration"].as_i64() == config.metadata.generation;
                if ready["status"] != "True"
                    || config.data["status"]["secretRef"] != name.as_str()
                    || !current
                {
                    return wait::not_yet(&config.data["status"]);
                }
                let Some(secret) = read(client, &secret(&self.namespace, &name)).await? else {
                    return wait::not_yet("no Secret");
                };
                let found = content(&secret.data)?;
                if found == *values {
                    Ok(())
                } else {
                    wait::not_yet(format!("expected\n{values:#}\nfound\n{found:#}"))
                }
            },
        )
        .await?;
        for wanted in self.expect["objects"].as_array().into_iter().flatten() {
            let found = read(client, wanted).await?;
            let found = found.with_context(|| format!("{} is missing", wanted["kind"]))?;
            let found = serde_json::to_value(found)?;
            for part in ["spec", "rules"] {
                ensure!(
                    found[part] == wanted[part],
                    "{} has {part} {:#}",
                    wanted["kind"],
                    found[part]
                );
            }
        }
        Ok(())
    }

    /// Waits until the configuration is not ready, for this reason.
    pub(crate) async fn is_refused(&self, client: &Client, reason: &str) -> Result<()> {
        let texts: Vec<&str> = self.expect["says"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let status = wait::until(format!("reason {reason}"), TIMEOUT, || async {
            let config = read(client, &self.config)
                .await?
                .context("the configuration is gone")?;
            let ready = &config.data["status"]["conditions"][0];
            let message = ready["message"].as_str().unwrap_or_default();
            if ready["status"] == "False"
                && ready["reason"] == reason
                && texts.iter().all(|text| message.contains(text))
            {
                Ok(config.data["status"].to_string())
            } else {
                wait::not_yet(&config.data["status"])
            }
        })
        .await?;
        // After the repair no trace of the problem remains.
        tells_no_credential("status", &status)
    }

    /// The event is published before the condition is written.
    async fn is_told_once(&self, client: &Client, reason: &str) -> Result<()> {
        let events = Api::<Event>::namespaced(client.clone(), &self.namespace)
            .list(&ListParams::default())
            .await?;
        let told: Vec<_> = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .map(|event| event.series.as_ref().map(|series| series.count))
            .collect();
        ensure!(
            told == [None],
            "events of reason {reason}, each with its repetitions: {told:?}"
        );
        Ok(())
    }

    /// Fails unless the Secret still holds `values`.
    pub(crate) async fn values_stay(&self, client: &Client, values: &Value) -> Result<()> {
        let written = read(client, &secret(&self.namespace, &self.written()?)).await?;
        let written = written.context("the values in use are gone")?;
        let found = content(&written.data)?;
        ensure!(found == *values, "expected\n{values:#}\nfound\n{found:#}");
        Ok(())
    }

    /// The values that are expected now, to be changed.
    pub(crate) fn expected(&self) -> Value {
        self.expect["values"].clone()
    }
}

/// The values document of a Secret.
fn content(secret: &Value) -> Result<Value> {
    let secret: Secret = serde_json::from_value(secret.clone())?;
    let data = secret.data.unwrap_or_default();
    let document = data.get("values.yaml").context("no values.yaml")?;
    Ok(serde_saphyr::from_slice(&document.0)?)
}

fn replaced(value: &Value, placeholder: &str, text: &str) -> Result<Value> {
    Ok(serde_json::from_str(
        &value.to_string().replace(placeholder, text),
    )?)
}
