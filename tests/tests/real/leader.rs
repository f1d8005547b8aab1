//! Leader election against a real API server: acquisition, loss, and the end of writes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use sluice::kube_client::fence::Fence;
use sluice::leader::elector::{Config, Elector, Error, LEASE};
use sluice_tests::components::KUBERNETES_VERSIONS;
use sluice_tests::processes::relay::Relay;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::{ApiServer, client};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Client-go's times, a little shorter.
const LEASE_DURATION: Duration = Duration::from_secs(9);
const RENEW_DEADLINE: Duration = Duration::from_secs(6);
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Timeout of a takeover by another replica.
const TIMEOUT: Duration = Duration::from_mins(1);

const NAMESPACE: &str = "default";

/// A replica that reaches the API server over a relay of its own.
struct Replica {
    relay: Relay,
    fence: Fence,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
    leads: tokio::sync::watch::Receiver<bool>,
}

impl Replica {
    async fn start(server: &ApiServer, name: &str) -> Result<Self> {
        Self::start_with(server, name, LEASE_DURATION).await
    }

    async fn start_with(server: &ApiServer, name: &str, lease_duration: Duration) -> Result<Self> {
        let relay = Relay::start(server.port()).await?;
        let kubeconfig = server.pki().admin_kubeconfig(&relay.url());
        let (fence, stop) = (Fence::closed(), CancellationToken::new());
        let config = Config {
            namespace: NAMESPACE.to_owned(),
            identity: name.to_owned(),
            lease_duration,
            renew_deadline: RENEW_DEADLINE.min(lease_duration / 2),
            retry_period: RETRY_PERIOD.min(lease_duration / 4),
        };
        let mut elector = Elector::new(client(&kubeconfig).await?, config, fence.clone());
        let (sender, leads) = tokio::sync::watch::channel(false);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            if elector.acquire(&stopped).await.is_none() {
                return Ok(());
            }
            sender.send_replace(true);
            let outcome = elector.renew(&stopped).await;
            sender.send_replace(false);
            outcome
        });
        Ok(Self {
            relay,
            fence,
            stop,
            task,
            leads,
        })
    }

    async fn leads(&mut self) -> Result<()> {
        timeout(TIMEOUT, self.leads.wait_for(|leads| *leads))
            .await
            .context("waited for a replica to lead")??;
        Ok(())
    }

    fn may_write(&self) -> bool {
        self.fence.lets_write(Instant::now())
    }

    /// Its end, requested or not.
    async fn end(self) -> Result<Result<(), Error>> {
        Ok(timeout(TIMEOUT, self.task)
            .await
            .context("waited for a replica to end")??)
    }
}

async fn on_a_server(test: impl AsyncFnOnce(&ApiServer) -> Result<()>) -> Result<()> {
    let core = StackCore::start("leader").await?;
    let server = ApiServer::start(&core, "management", KUBERNETES_VERSIONS[0]).await?;
    let outcome = test(&server).await;
    core.directory().close().await?;
    outcome
}

fn leases(server: &ApiServer) -> Api<Lease> {
    Api::namespaced(server.admin_client(), NAMESPACE)
}

async fn holder(server: &ApiServer) -> Result<String> {
    let spec = leases(server).get(LEASE).await?.spec.unwrap_or_default();
    Ok(spec.holder_identity.unwrap_or_default())
}

async fn edit(server: &ApiServer, change: serde_json::Value) -> Result<()> {
    leases(server)
        .patch(LEASE, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_partitioned_leader_stops_before_another_one_starts() -> Result<()> {
    on_a_server(async |server| {
        let mut first = Replica::start(server, "first").await?;
        first.leads().await?;
        let mut second = Replica::start(server, "second").await?;
        sleep(LEASE_DURATION * 2).await;
        ensure!(
            first.may_write() && !second.may_write(),
            "one renews, the other one waits"
        );

        first.relay.freeze();
        let frozen = Instant::now();
        while first.may_write() {
            ensure!(!second.may_write(), "two replicas may write");
            ensure!(
                frozen.elapsed() < TIMEOUT,
                "a leader that is cut off still writes"
            );
            sleep(Duration::from_millis(10)).await;
        }
        ensure!(frozen.elapsed() < LEASE_DURATION, "the fence outlives the lease");
        second.leads().await?;
        ensure!(
            second.may_write() && !first.may_write(),
            "the other one has taken over"
        );
        ensure!(
            first.end().await?.is_err(),
            "a leader that lost the lease must end its process"
        );
        second.stop.cancel();
        second.end().await??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_slow_api_server_costs_the_lease_only_when_renewals_come_too_late() -> Result<()> {
    on_a_server(async |server| {
        let mut first = Replica::start(server, "first").await?;
        first.leads().await?;
        let mut second = Replica::start(server, "second").await?;
        // An attempt is two requests, so four times as long, and may take a third of the renew deadline.
        first.relay.delay(RENEW_DEADLINE / 30);
        let slow = Instant::now();
        while slow.elapsed() < LEASE_DURATION * 2 {
            ensure!(
                first.may_write() && !second.may_write(),
                "a server that is slow, and not too slow, cost the lease"
            );
            sleep(Duration::from_millis(10)).await;
        }

        first.relay.delay(RENEW_DEADLINE / 6);
        second.leads().await?;
        ensure!(!first.may_write(), "two replicas may write");
        ensure!(first.end().await?.is_err(), "a leader that lost the lease ends");
        second.stop.cancel();
        second.end().await??;
        Ok(())
    })
    .await
}

/// The effect of a change of the machine's clock.
#[tokio::test]
async fn times_in_a_lease_decide_nothing() -> Result<()> {
    on_a_server(async |server| {
        let mut first = Replica::start(server, "first").await?;
        first.leads().await?;
        let mut second = Replica::start(server, "second").await?;
        let renewed = |time: &str| json!({"spec": {"renewTime": time, "acquireTime": time}});
        let began = Instant::now();
        while began.elapsed() < LEASE_DURATION * 2 {
            edit(server, renewed("2000-01-01T00:00:00.000000Z")).await?;
            ensure!(
                first.may_write() && !second.may_write(),
                "an old time took the lease away"
            );
            sleep(Duration::from_millis(100)).await;
        }

        first.relay.freeze();
        ensure!(first.end().await?.is_err(), "a leader that is cut off ends");
        edit(server, renewed("2100-01-01T00:00:00.000000Z")).await?;
        let edited = Instant::now();
        second.leads().await?;
        ensure!(
            edited.elapsed() < LEASE_DURATION * 2,
            "a late time kept the lease for {:?}",
            edited.elapsed()
        );
        second.stop.cancel();
        second.end().await??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lease_that_is_edited_is_read_again() -> Result<()> {
    on_a_server(async |server| {
        let mut replica = Replica::start(server, "first").await?;
        replica.leads().await?;
        let edited = Instant::now();
        while edited.elapsed() < LEASE_DURATION * 2 {
            edit(
                server,
                json!({"metadata": {"annotations": {"edited-at": format!("{:?}", edited.elapsed())}}}),
            )
            .await?;
            ensure!(replica.may_write(), "an edit took the lease away");
            // On a busy machine, faster edits would come between every reading of the lease and its writing. What one such edit
            // does is shown by a test of the elector itself.
            sleep(RETRY_PERIOD).await;
        }
        leases(server).delete(LEASE, &DeleteParams::default()).await?;
        sleep(RENEW_DEADLINE).await;
        ensure!(
            replica.may_write() && holder(server).await? == "first",
            "a lease that is deleted is made again"
        );

        edit(server, json!({"spec": {"holderIdentity": "another"}})).await?;
        ensure!(
            replica.end().await?.is_err(),
            "a lease that another one holds is lost"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lease_that_its_holder_did_not_hand_back_is_not_free() -> Result<()> {
    on_a_server(async |server| {
        for emptied in [true, false] {
            let mut first = Replica::start(server, "first").await?;
            first.leads().await?;
            let mut second = Replica::start(server, "second").await?;
            sleep(RETRY_PERIOD * 3).await;
            first.relay.freeze();
            if emptied {
                edit(server, json!({"spec": {"holderIdentity": ""}})).await?;
            } else {
                leases(server).delete(LEASE, &DeleteParams::default()).await?;
            }
            while first.may_write() {
                ensure!(!second.may_write(), "two replicas may write; emptied: {emptied}");
                sleep(Duration::from_millis(10)).await;
            }
            second.leads().await?;
            ensure!(first.end().await?.is_err(), "a leader that is cut off ends");
            second.stop.cancel();
            second.end().await??;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_duration_that_was_edited_is_believed_up_to_a_limit() -> Result<()> {
    on_a_server(async |server| {
        let lease_duration = Duration::from_secs(3);
        let mut first = Replica::start_with(server, "first", lease_duration).await?;
        first.leads().await?;
        first.relay.freeze();
        ensure!(first.end().await?.is_err(), "a leader that is cut off ends");
        edit(server, json!({"spec": {"leaseDurationSeconds": i32::MAX}})).await?;
        let began = Instant::now();
        let mut second = Replica::start_with(server, "second", lease_duration).await?;
        let limit = lease_duration * 10;
        timeout(limit + TIMEOUT, second.leads.wait_for(|leads| *leads))
            .await
            .context("waited for ten times the duration")??;
        ensure!(
            began.elapsed() >= limit,
            "a longer duration of another replica is respected"
        );
        second.stop.cancel();
        second.end().await??;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_lease_that_is_handed_back_is_taken_at_once() -> Result<()> {
    on_a_server(async |server| {
        let mut first = Replica::start(server, "first").await?;
        first.leads().await?;
        let mut second = Replica::start(server, "second").await?;
        first.stop.cancel();
        first.end().await??;
        let handed_back = Instant::now();
        second.leads().await?;
        ensure!(
            handed_back.elapsed() < LEASE_DURATION,
            "the next leader waited for the lease to expire"
        );

        second.relay.freeze();
        second.stop.cancel();
        let stopped = Instant::now();
        second.end().await??;
        ensure!(
            stopped.elapsed() <= RENEW_DEADLINE,
            "it waited for an API server that is silent"
        );
        Ok(())
    })
    .await
}
