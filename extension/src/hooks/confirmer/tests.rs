use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tower::service_fn;

use super::*;

const ADA: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const BOB: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn object(name: impl std::fmt::Display) -> ReleaseObject {
    ReleaseObject::cluster_bootstrap("team-a", &name.to_string())
}

/// Reads an object for a call that arrives now.
async fn read(
    confirmer: &Confirmer,
    object: &ReleaseObject,
    peer: IpAddr,
) -> Result<ObjectRead, NotConfirmed> {
    confirmer
        .read(object, peer, Instant::now() + CONFIRM_WITHIN)
        .await
}

/// An API server whose objects carry the time of the request, in milliseconds since its start, as resourceVersion.
#[derive(Clone, Default)]
struct Server {
    /// Reads in progress, and their highest number so far.
    running: Arc<(AtomicUsize, AtomicUsize)>,
    sent: Arc<AtomicUsize>,
}

impl Server {
    fn client(&self, began: Instant, takes: impl Fn(usize) -> Duration + Clone + Send + 'static) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (server, takes) = (server.clone(), takes.clone());
            async move {
                let sent = began.elapsed().as_millis();
                let _running = Running::of(&server.running);
                sleep(takes(server.sent.fetch_add(1, Relaxed))).await;
                let path = request.uri().path();
                assert_eq!(
                    request.uri().query().unwrap_or_default(),
                    "",
                    "no resourceVersion"
                );
                let object = json!({
                    "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "ClusterBootstrap", "spec": {},
                    "metadata": {"name": path.rsplit('/').next(), "namespace": "team-a", "resourceVersion": sent.to_string()},
                });
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }
}

struct Running(Arc<(AtomicUsize, AtomicUsize)>);

impl Running {
    fn of(running: &Arc<(AtomicUsize, AtomicUsize)>) -> Self {
        let now = running.0.fetch_add(1, Relaxed) + 1;
        running.1.fetch_max(now, Relaxed);
        Self(Arc::clone(running))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

fn version(read: &ObjectRead) -> u128 {
    read.resource_version().unwrap().parse().unwrap()
}

#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: u64,
    object: u8,
    peer: u8,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let arrival = (0..900_u64, 0..40_u8, 0..4_u8).prop_map(|(at, object, peer)| Arrival { at, object, peer });
    prop::collection::vec(arrival, 1..120)
}

proptest! {
    /// Each answer rests on a read that was sent after its call, and no more reads run at once than allowed.
    #[test]
    fn an_answer_rests_on_a_read_that_was_sent_after_its_call(
        arrivals in arrivals(),
        delays in prop::collection::vec(0..700_u64, 1..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (server, confirmed) = runtime.block_on(async {
            let (server, began) = (Server::default(), Instant::now());
            let takes = move |read: usize| Duration::from_millis(delays[read % delays.len()]);
            let confirmer = Confirmer::new(server.client(began, takes));
            let calls = arrivals.into_iter().map(|Arrival { at, object, peer }| {
                let confirmer = confirmer.clone();
                async move {
                    sleep(Duration::from_millis(at)).await;
                    let peer = Ipv4Addr::new(10, 0, 0, peer).into();
                    let arrived = began.elapsed().as_millis();
                    (arrived, read(&confirmer, &self::object(object), peer).await)
                }
            });
            let confirmed: Vec<_> = join_all(calls).await;
            sleep(Duration::from_secs(5)).await;
            assert!((0..40_u8).all(|name| !lock(&confirmer.0.flights).has(&self::object(name))), "a read never ends");
            (server, confirmed)
        });
        prop_assert!(server.running.1.load(Relaxed) <= READS);
        for (arrived, read) in confirmed {
            if let Ok(read) = read {
                prop_assert!(version(&read) >= arrived, "a call of {arrived} by a read of {}", version(&read));
            }
        }
    }
}

/// Returns a client whose every response takes this long.
fn steady(server: &Server, milliseconds: u64) -> Client {
    server.client(Instant::now(), move |_| Duration::from_millis(milliseconds))
}

/// Returns the results of reads of these objects, one for each call, all at once.
async fn reads(
    confirmer: &Confirmer,
    objects: std::ops::Range<u32>,
    peer: IpAddr,
) -> Vec<Result<ObjectRead, NotConfirmed>> {
    let each = objects.map(|name| async move { read(confirmer, &object(name), peer).await });
    join_all(each).await
}

fn limited(found: &[Result<ObjectRead, NotConfirmed>]) -> usize {
    let limited = found
        .iter()
        .filter(|read| matches!(read, Err(NotConfirmed::Limited)));
    limited.count()
}

/// While each read takes 400 ms, there is time for one after another.
#[tokio::test(start_paused = true)]
async fn a_flood_of_one_address_leaves_reads_for_another() {
    let server = Server::default();
    let confirmer = Confirmer::new(steady(&server, 400));
    let flood = tokio::spawn({
        let confirmer = confirmer.clone();
        async move { reads(&confirmer, 0..1_000, ADA).await }
    });
    sleep(Duration::from_millis(1)).await;
    assert_eq!(server.running.0.load(Relaxed), READS / 2);
    assert!(read(&confirmer, &object("of-bob"), BOB).await.is_ok());
    // The second half of its reads does not end in time.
    assert_eq!(limited(&flood.await.unwrap()), 1_000 - READS);
}

/// The calls of Cluster API start together. Each gets its turn within the time of a call.
#[tokio::test(start_paused = true)]
async fn a_burst_waits_for_its_turn() {
    let server = Server::default();
    let confirmer = Confirmer::new(steady(&server, 10));
    assert_eq!(limited(&reads(&confirmer, 0..100, ADA).await), 0);
    assert_eq!(server.running.1.load(Relaxed), READS / 2);
}

/// Calls of one address that wait for the next read of an object keep no share of another address.
#[tokio::test(start_paused = true)]
async fn a_read_belongs_to_a_call_that_waits_for_it() {
    let server = Server::default();
    let confirmer = Confirmer::new(steady(&server, 100));
    let of_bob = (0..READS / 2).map(|name| {
        let confirmer = confirmer.clone();
        tokio::spawn(async move { read(&confirmer, &object(name), BOB).await })
    });
    let of_bob: Vec<_> = of_bob.collect();
    sleep(Duration::from_millis(50)).await;
    // Each joins a read of the other address.
    let joined = tokio::spawn({
        let confirmer = confirmer.clone();
        async move { reads(&confirmer, 0..8, ADA).await }
    });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(server.running.0.load(Relaxed), READS / 2);
    let more = reads(&confirmer, 100..104, BOB).await;
    assert_eq!(limited(&more), 0, "the address has its share again");
    assert!(
        join_all(of_bob)
            .await
            .into_iter()
            .all(|read| read.unwrap().is_ok())
    );
    assert_eq!(limited(&joined.await.unwrap()), 0);
}

#[tokio::test]
async fn an_address_leaves_calls_for_others() {
    let confirmer = Confirmer::new(steady(&Server::default(), 0));
    let of_ada: Vec<_> = std::iter::from_fn(|| confirmer.admit(ADA)).collect();
    assert_eq!(of_ada.len(), CALLS / 2);
    assert!(confirmer.admit(BOB).is_some());
}

/// Calls for one object share the read that starts next.
#[tokio::test(start_paused = true)]
async fn calls_for_one_object_wait_together() {
    let server = Server::default();
    let confirmer = Confirmer::new(steady(&server, 100));
    let one = object("one");
    let many = join_all((0..10_000).map(|_| read(&confirmer, &one, ADA))).await;
    assert!(many.iter().all(Result::is_ok));
    assert_eq!(server.sent.load(Relaxed), 2);
}

/// Returns the result of a read that the server answers with this status and body.
async fn answered(code: u16, body: &'static str) -> Result<ObjectRead, NotConfirmed> {
    let service = service_fn(move |_: Request<Body>| async move {
        if code == 0 {
            return Err(std::io::Error::other("connection reset"));
        }
        let response = Response::builder().status(code);
        Ok(response
            .body(Full::new(bytes::Bytes::from_static(body.as_bytes())).boxed())
            .unwrap())
    });
    read(
        &Confirmer::new(Client::new(service, "default")),
        &object("one"),
        ADA,
    )
    .await
}

const FOUND: &str = r#"{"apiVersion":"run.tanzu.vmware.com/v1alpha3","kind":"ClusterBootstrap","metadata":{"name":"one","namespace":"team-a"},"spec":{}}"#;
const NOT_FOUND: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"clusterbootstraps.run.tanzu.vmware.com \"one\" not found","reason":"NotFound","details":{"name":"one","group":"run.tanzu.vmware.com","kind":"clusterbootstraps"},"code":404}"#;
const UNSERVED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#;
const STATUS: &str =
    r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","code":500}"#;

#[rstest]
#[case::found(200, FOUND, None)]
#[case::not_found(404, NOT_FOUND, None)]
#[case::not_served(404, UNSERVED, Some(NotConfirmed::Failed))]
#[case::not_served_by_an_older_server(404, "404 page not found", Some(NotConfirmed::Failed))]
#[case::found_by_a_cache(203, FOUND, Some(NotConfirmed::Failed))]
#[case::forbidden(403, STATUS, Some(NotConfirmed::Failed))]
#[case::busy(429, STATUS, Some(NotConfirmed::Failed))]
#[case::broken(500, "", Some(NotConfirmed::Failed))]
#[case::proxy(200, "<html>busy</html>", Some(NotConfirmed::Invalid))]
#[case::half(200, "{\"apiVersion\":\"run.tanzu", Some(NotConfirmed::Invalid))]
#[case::nothing(200, "", Some(NotConfirmed::Invalid))]
#[case::reset(0, "", Some(NotConfirmed::Failed))]
#[tokio::test]
async fn only_the_object_or_its_absence_confirms(
    #[case] code: u16,
    #[case] body: &'static str,
    #[case] expected: Option<NotConfirmed>,
) {
    assert_eq!(answered(code, body).await.err(), expected);
}

#[rstest]
#[case::in_time(499, None)]
#[case::late(501, Some(NotConfirmed::Late))]
#[tokio::test(start_paused = true)]
async fn a_response_after_half_a_second_is_late(
    #[case] milliseconds: u64,
    #[case] expected: Option<NotConfirmed>,
) {
    let confirmer = Confirmer::new(steady(&Server::default(), milliseconds));
    assert_eq!(read(&confirmer, &object("one"), ADA).await.err(), expected);
}

#[tokio::test]
async fn a_panic_ends_no_later_read() {
    let reads = AtomicUsize::new(0);
    let service = service_fn(move |_: Request<Body>| {
        let first = reads.fetch_add(1, Relaxed) == 0;
        async move {
            assert!(!first, "a defect");
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(FOUND.as_bytes().to_vec())))
        }
    });
    let confirmer = Confirmer::new(Client::new(service, "default"));
    let one = object("one");
    assert_eq!(
        read(&confirmer, &one, ADA).await.err(),
        Some(NotConfirmed::Failed)
    );
    assert!(read(&confirmer, &one, ADA).await.is_ok());
}
