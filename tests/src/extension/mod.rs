//! The extension under test: two replicas of the release binary, of which one leads, at one address.

pub mod admission;
mod ask;
mod front;
pub(crate) mod hook_call;
mod image;
pub mod imposter;
pub mod planner;
pub(crate) mod registration;
mod replica;

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::sleep;

use crate::stack::Stack;
use crate::wait;
pub use ask::HookReply;
use front::Front;
pub use image::Image;
pub use registration::Scope;
pub(crate) use replica::granted;
pub use replica::{BINARY, ELECTION, PATIENT_ELECTION, Replica, Settings, binary};

/// Name of the lease.
const LEASE: &str = "sluice-leader";

/// Its namespace, by default.
const NAMESPACE: &str = "sluice-system";

/// How soon a replica leads after the one before it has died.
const LEADS: Duration = Duration::from_secs(30);

/// How soon a leader that lost its lease has to end.
const ENDS: Duration = Duration::from_secs(15);

/// A running extension.
pub struct Extension {
    client: Client,
    leases: Api<Lease>,
    ca_bundle: String,
    replicas: Vec<Replica>,
    front: Front,
    /// The same for reviews.
    admission: Front,
}

impl Extension {
    /// Applies the manifests of the installation, starts two replicas, `<name>-a` and `<name>-b`, and waits until both are ready.
    pub async fn start(stack: &Stack, settings: Settings) -> Result<Self> {
        let token = settings.granted(&stack.client()).await?;
        let replica = |letter: char| {
            let name = format!("{}-{letter}", settings.name);
            let settings = settings.clone();
            Replica::start_with(stack, Settings { name, ..settings }, &token)
        };
        let replicas = try_join_all(['a', 'b'].map(replica)).await?;
        let pki = stack.management().pki();
        Ok(Self {
            client: stack.client(),
            leases: Api::namespaced(stack.client(), NAMESPACE),
            ca_bundle: pki.ca_bundle(),
            front: Front::start(pki, replicas.iter().map(Replica::hook_url)).await?,
            admission: Front::start(pki, replicas.iter().map(Replica::admission_url)).await?,
            replicas,
        })
    }

    /// Kills all processes that run, starts them again with the same arguments and waits until they are ready.
    pub async fn restart(&self) -> Result<()> {
        self.kill().await?;
        try_join_all(self.replicas.iter().map(Replica::restart)).await?;
        Ok(())
    }

    /// Kills all processes and starts them in a file system of their own, or, where there is none, in the machine's.
    pub async fn restart_in(&self, image: Option<&Image>) -> Result<()> {
        let replicas = self.replicas.iter();
        try_join_all(replicas.map(|replica| replica.restart_in(image.cloned()))).await?;
        Ok(())
    }

    /// Ends all processes in good order, so that no lease has to run out, and starts them again with the flags of another election.
    pub async fn restart_with(&self, election: [&'static str; 4]) -> Result<()> {
        let change = move |settings: &mut Settings| settings.election = election;
        let replicas = self.replicas.iter();
        try_join_all(replicas.map(|replica| replica.restart_with(change))).await?;
        Ok(())
    }

    /// Replaces one process after the other, as the rollout of a Deployment does: ends it in good order, starts it with changed
    /// settings and waits until it is ready.
    pub async fn roll_out(&self, change: impl Fn(&mut Settings)) -> Result<()> {
        for replica in &self.replicas {
            replica.restart_with(&change).await?;
        }
        Ok(())
    }

    /// Kills all processes.
    pub async fn kill(&self) -> Result<()> {
        try_join_all(self.replicas.iter().map(Replica::kill)).await?;
        Ok(())
    }

    /// Asks all processes to end, as a kubelet does; kills them after `grace`. Fails if one did not end well.
    pub async fn terminate(&self, grace: Duration) -> Result<()> {
        let statuses = try_join_all(self.replicas.iter().map(|replica| replica.terminate(grace))).await?;
        for status in statuses {
            ensure!(status.success(), "a replica failed on SIGTERM: {status}");
        }
        Ok(())
    }

    /// The replica that leads, waited for while none does.
    pub async fn leader(&self) -> Result<&Replica> {
        let leader = wait::until("a replica to lead", LEADS, || async {
            let lease = self.lease().await?;
            let holder = lease.holder_identity.unwrap_or_default();
            for replica in &self.replicas {
                if replica.is(&holder).await {
                    return Ok(replica);
                }
            }
            wait::not_yet(format!("the lease says {holder:?}"))
        });
        Ok(leader.await?)
    }

    /// A replica that does not lead.
    pub async fn standby(&self) -> Result<&Replica> {
        let leader = self.leader().await?;
        let mut others = self
            .replicas
            .iter()
            .filter(|replica| !std::ptr::eq(*replica, leader));
        others.next().context("all replicas lead")
    }

    /// Kills the leader and starts it again once the other replica leads.
    pub async fn take_over(&self) -> Result<()> {
        let before = self.leader().await?;
        before.kill().await?;
        let after = self.leader().await;
        before.restart().await?;
        ensure!(
            !std::ptr::eq(before, after?),
            "the leader that was killed leads without a process"
        );
        Ok(())
    }

    /// Kills the leader and starts it again after `away`: the other replica takes over, or it comes back before.
    pub async fn kill_leader(&self, away: Duration) -> Result<()> {
        let leader = self.leader().await?;
        leader.kill().await?;
        sleep(away).await;
        leader.restart().await
    }

    /// Stops the leader where it stands for `time`; see [`Self::thaw`].
    pub async fn freeze_leader(&self, time: Duration) -> Result<Option<ExitStatus>> {
        let leader = self.leader().await?;
        leader.freeze().await?;
        sleep(time).await;
        self.thaw(leader).await
    }

    /// Resumes a stopped leader. If it has lost its lease, it must end by itself; then this starts it again and returns its exit
    /// status.
    pub async fn thaw(&self, leader: &Replica) -> Result<Option<ExitStatus>> {
        let thawed = Timestamp::now();
        leader.thaw().await?;
        wait::until(
            "the thawed leader to renew its lease, or to end",
            ENDS,
            || async {
                if leader.exited().await.is_some() {
                    return Ok(());
                }
                let lease = self.lease().await?;
                let leads = leader.is(&lease.holder_identity.unwrap_or_default()).await;
                match lease.renew_time {
                    Some(renewed) if leads && renewed.0 > thawed => Ok(()),
                    _ => wait::not_yet("it neither ended nor renewed its lease"),
                }
            },
        )
        .await?;
        leader.ends_no_more().await
    }

    /// Registers it with Cluster API under `name` and waits until its hooks are discovered.
    pub async fn register(&self, name: &str, scope: &Scope) -> Result<()> {
        self.register_at(name, "", scope).await
    }

    /// [`Self::register`] with a path of its own, which begins with `/`.
    pub async fn register_at(&self, name: &str, path: &str, scope: &Scope) -> Result<()> {
        let url = format!("{}{path}", self.front.url());
        registration::register(&self.client, name, &url, &self.ca_bundle, scope).await
    }

    /// Waits until condition `Discovered` of an ExtensionConfig is `True` or `False`, with a text in its message.
    pub async fn discovered_is(&self, name: &str, status: &str, text: &str) -> Result<()> {
        registration::discovered_is(&self.client, name, status, text).await
    }

    /// Takes the registration back. To be done before the processes are stopped for good while Cluster API may
    /// be restarted.
    pub async fn unregister(&self, name: &str) -> Result<()> {
        registration::unregister(&self.client, name).await
    }

    /// Has the API server ask it about writes in `namespaces`; see [`admission`].
    pub async fn admit(&self, name: &str, namespaces: &[&str]) -> Result<()> {
        admission::register(
            &self.client,
            name,
            self.admission.url(),
            &self.ca_bundle,
            namespaces,
        )
        .await
    }

    /// Has the API server ask it about UpgradeGates of a namespace; see [`admission`].
    pub async fn admit_gates(&self, name: &str, namespace: &str) -> Result<()> {
        admission::register_gates(
            &self.client,
            name,
            self.admission.url(),
            &self.ca_bundle,
            namespace,
        )
        .await
    }

    /// Has the API server ask it about upgrades of Clusters in `namespaces`, and about nothing else; see [`admission`].
    pub async fn admit_upgrades(&self, name: &str, namespaces: &[&str]) -> Result<()> {
        admission::register_upgrades(
            &self.client,
            name,
            self.admission.url(),
            &self.ca_bundle,
            namespaces,
        )
        .await
    }

    /// Has the API server ask it about UpgradeOverrides of a namespace, which has this Cluster, and about nothing else; see [`admission`].
    pub async fn admit_overrides(&self, name: &str, namespace: &str, cluster: &str) -> Result<()> {
        admission::register_overrides(
            &self.client,
            name,
            self.admission.url(),
            &self.ca_bundle,
            (namespace, cluster),
        )
        .await
    }

    /// All replicas.
    #[must_use]
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Responses of `/metrics` of all replicas, in order.
    pub async fn metrics(&self) -> Result<String> {
        Ok(try_join_all(self.replicas.iter().map(Replica::metrics))
            .await?
            .concat())
    }

    /// The sum of a metric over its labels and all replicas; `series` is its name, with labels where only one is meant.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let text = self.metrics().await?;
        sum(&text, series).with_context(|| format!("no replica shows metric {series}"))
    }

    /// The log files of all replicas.
    pub fn logs(&self) -> impl Iterator<Item = PathBuf> {
        self.replicas.iter().map(Replica::log)
    }

    /// Takes the lease from a holder that was killed, so that the next leader need not wait for its end.
    pub async fn free_lease(&self) -> Result<()> {
        let free = json!({"spec": {"holderIdentity": ""}});
        self.leases
            .patch(LEASE, &PatchParams::default(), &Patch::Merge(free))
            .await?;
        Ok(())
    }

    async fn lease(&self) -> Result<LeaseSpec, kube::Error> {
        let lease = self.leases.get_opt(LEASE).await?;
        Ok(lease.and_then(|lease| lease.spec).unwrap_or_default())
    }
}

/// The sum of a metric over its labels in a response of `/metrics`; none if it is not there.
fn sum(text: &str, series: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let (named, value) = line.rsplit_once(' ')?;
        let is_it = named == series || named.split_once('{').is_some_and(|(name, _)| name == series);
        is_it.then(|| value.parse::<f64>().ok())?
    });
    values.reduce(|sum, value| sum + value)
}
