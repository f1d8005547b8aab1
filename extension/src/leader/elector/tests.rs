mod observation;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http::Request;
use kube::client::Body;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;
use tower::service_fn;

use super::*;
use crate::controllers::bootstrap::object_server::ObjectServer;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/system/leases/sluice-leader";

/// API server that edits the lease after it was read, for this many next reads.
#[derive(Clone, Default)]
struct Edited {
    server: ObjectServer,
    times: Arc<AtomicUsize>,
}

impl Edited {
    fn client(&self) -> Client {
        let (edited, client) = (self.clone(), self.server.client());
        let service = service_fn(move |request: Request<Body>| {
            let (edited, client) = (edited.clone(), client.clone());
            async move {
                let reads = request.method().is_safe();
                let answer = client.send(request).await;
                if reads && edited.server.get(PATH).is_some() && edited.one_more() {
                    // Another value each time: an edit without a change is no write.
                    let left = edited.times.load(Ordering::Relaxed).to_string();
                    edited.server.edit(PATH, |lease| {
                        lease["metadata"]["labels"] = json!({"edited": left});
                    });
                }
                answer
            }
        });
        Client::new(service, "default")
    }

    fn one_more(&self) -> bool {
        let less = |times: usize| times.checked_sub(1);
        self.times
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }

    /// Edits the lease after each of the next reads.
    fn edit(&self, times: usize) {
        self.times.store(times, Ordering::Relaxed);
    }

    fn elector(&self, lease_duration: Duration) -> Elector {
        let config = Config {
            namespace: "system".to_owned(),
            identity: "first".to_owned(),
            lease_duration,
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        Elector::new(self.client(), config, Fence::closed())
    }

    fn spec(&self) -> LeaseSpec {
        serde_json::from_value(self.server.get(PATH).unwrap()["spec"].clone()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_edited_at_a_renewal_is_read_again() {
    let api = Edited::default();
    let (mut elector, stop) = (api.elector(Duration::from_secs(15)), CancellationToken::new());
    elector.acquire(&stop).await.unwrap();

    api.edit(1);
    assert_eq!(elector.attempt().await, Some(Attempt::Held), "at once");
    api.edit(2);
    assert_eq!(elector.attempt().await, Some(Attempt::Changed));
    assert_eq!(elector.attempt().await, Some(Attempt::Held));

    api.edit(usize::MAX);
    let renewing = timeout(Duration::from_secs(30), elector.renew(&stop)).await;
    assert!(renewing.is_err(), "its holder is the same: {renewing:?}");
    assert!(elector.fence.lets_write(Instant::now()));
    api.edit(0);
    assert_eq!(elector.attempt().await, Some(Attempt::Held));

    api.server
        .edit(PATH, |lease| lease["spec"]["holderIdentity"] = json!("another"));
    let ended = timeout(Duration::from_secs(30), elector.renew(&stop)).await;
    assert!(matches!(ended, Ok(Err(Error::Lost { .. }))), "{ended:?}");
    assert!(!elector.fence.lets_write(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_lasts_at_least_as_long_as_its_holder_says() {
    for (duration, seconds) in [(15_000, 15), (15_001, 16), (15_999, 16), (1_200, 2)] {
        let api = Edited::default();
        let mut elector = api.elector(Duration::from_millis(duration));
        elector.acquire(&CancellationToken::new()).await.unwrap();
        assert_eq!(
            api.spec().lease_duration_seconds,
            Some(seconds),
            "{duration} ms: others take a lease that has run out"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_leader_is_shown_until_it_hands_the_lease_back_or_loses_it() {
    for is_lost in [false, true] {
        let (metrics, mut registry) = (LeaderMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let shown = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let series = "leader_election_master_status{name=\"sluice-leader\"} ";
            let value = text.lines().find_map(|line| line.strip_prefix(series));
            value.unwrap().to_owned()
        };
        let api = Edited::default();
        let (elector, stop) = (api.elector(Duration::from_secs(15)), CancellationToken::new());
        let mut elector = elector.counted_in(metrics);
        assert_eq!(shown(), "0");
        elector.acquire(&stop).await.unwrap();
        assert_eq!(shown(), "1");
        if is_lost {
            api.server
                .edit(PATH, |lease| lease["spec"]["holderIdentity"] = json!("another"));
        } else {
            stop.cancel();
        }
        assert_eq!(elector.renew(&stop).await.is_err(), is_lost);
        assert_eq!(shown(), "0");
    }
}
