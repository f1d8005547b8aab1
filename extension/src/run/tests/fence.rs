//! Both clusters behind the fence of the lease, from the flags of the process to the requests that reach the API servers.

use clap::Parser as _;
use kube::client::Body;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rstest::rstest;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::controllers::bootstrap::{
    object_server::ObjectServer,
    world::{KUBE_SYSTEM, KUBECONFIG, World, kubeconfig_of, kubeconfig_secret},
};

/// How long a pass waits in the middle.
const HELD: Duration = Duration::from_secs(2);

/// Serves the objects at a port of this host until what is returned is dropped.
async fn served(objects: &ObjectServer, tls: Option<TlsConfig>) -> (SocketAddr, tokio_util::sync::DropGuard) {
    let config = serve::Config {
        tls,
        ..plain(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    };
    let server = Server::bind(config, serve::Metrics::default()).await.unwrap();
    let address = server.local_addr();
    let client = objects.client();
    let answer = move |request: axum::extract::Request| {
        let client = client.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
            let asked = http::Request::from_parts(head, Body::from(body.to_vec()));
            client.send(asked).await.unwrap().map(axum::body::Body::new)
        }
    };
    let drained = CancellationToken::new();
    tokio::spawn(server.run(Router::new().fallback(answer), drained.clone()));
    (address, drained.drop_guard())
}

/// A serving certificate for this host in a directory, and the authority that has signed it.
fn certificate() -> (TempDir, TlsConfig, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()]).unwrap();
    let signed = params.signed_by(&key, &authority).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let files = CertificateFiles::in_dir(dir.path());
    std::fs::write(files.certificate(), signed.pem()).unwrap();
    std::fs::write(files.key(), key.serialize_pem()).unwrap();
    (dir, TlsConfig::new(files), authority.as_ref().pem())
}

/// Waits until `is_so`; a failure says `what` was waited for.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = timeout(Duration::from_secs(20), async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "not within 20 s: {what}");
}

/// A leader that renews its lease late is stopped in the middle of a pass, and goes on after the lease has run out.
#[rstest]
#[case::while_it_is_held(Duration::from_mins(1), true)]
#[case::once_it_has_run_out(HELD, false)]
#[tokio::test]
async fn a_leader_writes_to_both_clusters_only_while_the_lease_is_held(
    #[case] renew_deadline: Duration,
    #[case] writes: bool,
) {
    let world = World::new();
    let (_dir, tls, authority) = certificate();
    let (workload, _workload) = served(&world.workload, Some(tls)).await;
    let kubeconfig = kubeconfig_of(&format!("https://{workload}"), &authority);
    world.management.put(KUBECONFIG, kubeconfig_secret(&kubeconfig));
    let (management, _management) = served(&world.management, None).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        kubeconfig_of(&format!("http://{management}"), &authority),
    )
    .unwrap();
    let args = Args::parse_from([
        "sluice",
        "--leader-elect",
        "--kubeconfig",
        file.path().to_str().unwrap(),
        "--leader-elect-retry-period",
        "5m",
        "--leader-elect-renew-deadline",
        &format!("{}s", renew_deadline.as_secs()),
    ]);
    let parts = Parts {
        index: Index::new(args.system_namespace.clone(), args.cluster_delete_timeout),
        configurations: providers::Configurations::default(),
        passes: PassMetrics::default(),
        health: Health::default(),
    };
    let goes_on = world.management.wait_at(KUBECONFIG);
    let running = tokio::spawn(async move { control(&args, parts, &CancellationToken::new()).await });
    let leads = || {
        world
            .management
            .asked_to_write()
            .iter()
            .any(|asked| asked.ends_with("/leases"))
    };
    until("the leader takes the lease", leads).await;
    let lease_only = || {
        world
            .management
            .asked_to_write()
            .iter()
            .all(|asked| asked.contains("/leases"))
    };
    assert!(lease_only(), "nothing is written before the workload is reached");
    sleep(HELD).await;
    goes_on.send_replace(true);

    until("the pass reaches the workload", || {
        world.workload.was_asked_for(KUBE_SYSTEM)
    })
    .await;
    if writes {
        until("the workload is written to", || {
            !world.workload.asked_to_write().is_empty()
        })
        .await;
        until("the record is written", || world.writes_of_bootstrap() > 0).await;
    } else {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.workload.asked_to_write(), Vec::<String>::new());
        assert!(lease_only(), "{:?}", world.management.asked_to_write());
    }
    assert!(!running.is_finished());
    running.abort();
}
