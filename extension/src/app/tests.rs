mod fence;
mod flags;
mod loopback;
mod metrics;
mod status;

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
};

use clap::Parser as _;
use rstest::rstest;
use tokio::time::{sleep, timeout};

use super::leading::{SILENT_RECONCILER, leads, settings};
use super::*;
use crate::{cache::frozen::Frozen, controllers::bootstrap, queue::requeues::Requeues};

/// Starts a reconciler over an API server without objects. Returns its health checks.
fn reconciler(frozen: &Frozen) -> (Health, AbortOnDrop, AbortOnDrop) {
    let client = frozen.client(|_| Vec::new());
    let triggers = Requeues::default();
    let requeues = triggers.listen();
    let (context, following) = bootstrap::world::context(&client, &Fence::open(), &triggers);
    let context = Arc::new(context);
    let health = Health::default();
    let heart = health.heartbeat("reconciler", SILENT_RECONCILER);
    let following = AbortOnDrop(tokio::spawn(following));
    let running = AbortOnDrop(tokio::spawn(async move {
        context.stores.synced().await;
        bootstrap::run(context, requeues, heart, CancellationToken::new()).await;
    }));
    (health, following, running)
}

/// Returns whether a liveness check succeeds.
async fn alive(health: &Health, check: &str) -> bool {
    use tower::ServiceExt as _;
    let request = http::Request::get(format!("/livez/{check}"))
        .body(axum::body::Body::empty())
        .unwrap();
    let answer = health::router(health.clone(), Arc::default())
        .oneshot(request)
        .await;
    match answer.unwrap().status().as_u16() {
        200 => true,
        503 => false,
        other => panic!("{check} is answered with {other}"),
    }
}

/// For example, kapp-controller is not installed. Lists that tell managed Clusters are awaited.
#[rstest]
#[case::without_packages("packages", true)]
#[case::without_pools("machinepools", true)]
#[case::without_bootstraps("clusterbootstraps", false)]
#[tokio::test(start_paused = true)]
async fn a_replica_leads_without_an_api_that_only_managed_clusters_need(
    #[case] plural: &'static str,
    #[case] expected: bool,
) {
    let frozen = Frozen::of(plural);
    frozen.set(true);
    let (stores, following) = Stores::open(
        &frozen.client(|_| Vec::new()),
        "tkg-system",
        &EventHandlers::default(),
    );
    let _following = AbortOnDrop(tokio::spawn(following));
    let stop = CancellationToken::new();
    let within = async |time| timeout(time, leads(None, &stores, &stop)).await == Ok(true);
    assert!(
        !within(Duration::from_secs(10)).await,
        "the first lists may take long"
    );
    assert_eq!(within(Duration::from_mins(1)).await, expected);
    frozen.set(false);
    assert!(within(Duration::from_mins(1)).await);
}

/// No list of packages, of Tanzu kinds or of gates arrives.
#[rstest]
#[case("clusterbootstraps")]
#[case("tanzukubernetesreleases")]
#[case("packageinstalls")]
#[case("upgradegates")]
#[tokio::test(start_paused = true)]
async fn a_replica_without_packages_waits_for_cluster_api_alone(#[case] plural: &'static str) {
    let frozen = Frozen::of(plural);
    frozen.set(true);
    let handlers = EventHandlers {
        without_packages: true,
        with_upgrade_gates: true,
        ..EventHandlers::default()
    };
    let (stores, following) = Stores::open(&frozen.client(|_| Vec::new()), "tkg-system", &handlers);
    let _following = AbortOnDrop(tokio::spawn(following));
    let stop = CancellationToken::new();
    let leads = timeout(Duration::from_secs(10), leads(None, &stores, &stop));
    assert_eq!(leads.await, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_without_a_cluster_is_alive() {
    let (health, _following, _running) = reconciler(&Frozen::new());
    for minute in 0..60 {
        assert!(alive(&health, "reconciler").await, "after {minute} min");
        sleep(Duration::from_mins(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconciler_without_finished_reconciles_is_not_alive() {
    let (health, _following, running) = reconciler(&Frozen::new());
    sleep(Duration::from_mins(10)).await;
    assert!(alive(&health, "reconciler").await);

    // Stands for a reconciler that is never polled again, and for one whose reconciles never end.
    drop(running);
    sleep(SILENT_RECONCILER).await;
    assert!(!alive(&health, "reconciler").await);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_alive_while_it_runs_tasks() {
    let health = Health::default();
    let beating = beat(&health);
    for minute in 0..60 {
        assert!(alive(&health, "runtime").await, "after {minute} min");
        sleep(Duration::from_mins(1)).await;
    }
    drop(beating);
    sleep(SILENT_RUNTIME * 2).await;
    assert!(!alive(&health, "runtime").await);
}

#[test]
fn flags_configure_the_reconciler() {
    let args = Args::parse_from([
        "sluice",
        "--cluster-concurrency=3",
        "--sync-period=7m",
        "--cluster-delete-timeout=8m",
        "--system-namespace=elsewhere",
    ]);
    let settings = settings(&args);
    assert_eq!(args.cluster_concurrency, 3);
    assert_eq!(settings.sync_period.length, Duration::from_mins(7));
    assert_eq!(settings.system_namespace, "elsewhere");
}

/// The runtime has only the thread of the test, which blocks.
#[tokio::test]
async fn hooks_are_answered_while_the_runtime_that_reconciles_is_stuck() {
    let serving = Serving::start().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let hooks = serving.bind(plain(address), serve::Metrics::default());
    let hooks = hooks.await.unwrap();
    let address = hooks.local_addr();
    let index = Index::new("tkg-system".into(), Duration::from_mins(10), Arc::default());
    let router = sluice_hooks::router(index, ());
    let _running = serving.run(hooks, router, &CancellationToken::new());

    let mut connection = std::net::TcpStream::connect(address).unwrap();
    connection
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let body = include_str!("../../hooks/tests/hooks/requests/BeforeClusterUpgrade.json");
    let path = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterupgrade/before-cluster-upgrade";
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: hooks\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    serving.end();

    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(r#""status":"Success""#), "{answer}");
}
