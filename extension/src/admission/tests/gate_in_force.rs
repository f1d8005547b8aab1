//! Reviews of upgrades of Clusters for which Cluster API may not call the hooks.

use std::{convert::Infallible, sync::Mutex};

use bytes::Bytes;
use http_body_util::Full;
use sluice_crds::{labels::annotation, run::Hook};
use tower::service_fn;

use super::{
    upgrades::{DEACTIVATED, USABLE, checked, checking_by, cluster, stored, update},
    *,
};
use crate::{cache::control_plane::tests::Server, lock::lock};

/// Reads of reviews, with what they answer.
#[derive(Clone)]
struct Reads {
    /// The ExtensionConfig, or the code of a failed read; `None` never answers.
    config: Option<Result<Value, u16>>,
    /// Whether its selector selects the namespace.
    selects: bool,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Reads {
    fn of(config: Option<Result<Value, u16>>, selects: bool) -> Self {
        Self {
            config,
            selects,
            asked: Arc::default(),
        }
    }

    fn client(&self) -> kube::Client {
        let reads = self.clone();
        let service = service_fn(move |request: http::Request<kube::client::Body>| {
            let reads = reads.clone();
            async move {
                let asked = request.uri().to_string();
                let is_config = asked.contains("/extensionconfigs/");
                lock(&reads.asked).push(asked);
                let (code, body) = match (is_config, &reads.config) {
                    (true, None) => std::future::pending().await,
                    (true, Some(Ok(config))) => (200, config.clone()),
                    (true, Some(Err(code))) => (
                        *code,
                        json!({"kind": "Status", "status": "Failure", "code": code}),
                    ),
                    (false, _) => {
                        let items = if reads.selects {
                            vec![json!({"metadata": {"name": "team-a"}})]
                        } else {
                            Vec::new()
                        };
                        (200, json!({"metadata": {}, "items": items}))
                    }
                };
                let answer = http::Response::builder().status(code);
                Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body.to_string()))).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }
}

/// Returns a discovered ExtensionConfig that selects namespaces by a label.
fn config() -> Value {
    let handlers: Vec<Value> = Hook::ALL
        .iter()
        .map(|hook| {
            let hook =
                json!({"apiVersion": "hooks.runtime.cluster.x-k8s.io/v1alpha1", "hook": hook.as_str()});
            json!({"requestHook": hook, "failurePolicy": "Fail"})
        })
        .collect();
    json!({
        "metadata": {"name": "sluice"},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}},
        "status": {"handlers": handlers, "conditions": [{"type": "Discovered", "status": "True", "reason": "Any"}]},
    })
}

/// Returns the answer to an update of the stored Cluster, and the number of reads.
async fn answered(gate: GateNotInForce, reads: &Reads, old: &Value, new: &Value) -> (Value, usize) {
    let checks = Checks {
        upgrade: UpgradeChecks::Deny,
        gate,
    };
    let settings = Settings {
        extension_configs: vec!["sluice".to_owned()],
        ..settings()
    };
    let server = Server::new(None);
    let (admission, _following) =
        checking_by(checks, old.clone(), None, &server, (settings, reads.client())).await;
    let answer = checked(&admission, &update(old, new)).await;
    let asked = lock(&reads.asked).len();
    (answer, asked)
}

fn bumped() -> Value {
    cluster("v1.37.0", USABLE)
}

#[rstest]
#[case::in_force(Some(Ok(config())), true, None)]
#[case::unselected(Some(Ok(config())), false, Some("NamespaceNotSelected"))]
#[case::missing(Some(Err(404)), true, Some("ExtensionConfigMissing"))]
#[case::undiscovered(Some(Ok(json!({"metadata": {}}))), true, Some("NotDiscovered"))]
#[tokio::test(start_paused = true)]
async fn a_bump_is_refused_while_its_gate_is_not_in_force(
    #[case] config: Option<Result<Value, u16>>,
    #[case] selects: bool,
    #[case] refused: Option<&str>,
) {
    let reads = Reads::of(config.clone(), selects);
    let (answer, _) = answered(GateNotInForce::Deny, &reads, &stored(), &bumped()).await;
    assert_eq!(answer["allowed"], refused.is_none(), "{answer}");
    if let Some(reason) = refused {
        let text = answer["status"]["message"].as_str().unwrap();
        assert!(
            text.contains("spec.topology.version") && text.contains(reason),
            "{text}"
        );
        let (answer, _) = answered(GateNotInForce::Warn, &reads, &stored(), &bumped()).await;
        assert_eq!(answer["allowed"], true);
        assert!(
            answer["warnings"][0].as_str().unwrap().contains(reason),
            "{answer}"
        );
    }
    let (answer, asked) = answered(
        GateNotInForce::Off,
        &Reads::of(config, selects),
        &stored(),
        &bumped(),
    )
    .await;
    assert_eq!((answer["allowed"].clone(), asked), (json!(true), 0));
}

#[rstest]
#[case::refused(Some(Err(403)))]
#[case::silent(None)]
#[tokio::test(start_paused = true)]
async fn a_failed_read_is_a_warning(#[case] config: Option<Result<Value, u16>>) {
    let began = Later::now();
    let (answer, _) = answered(
        GateNotInForce::Deny,
        &Reads::of(config, true),
        &stored(),
        &bumped(),
    )
    .await;
    assert_eq!(answer["allowed"], true);
    assert!(
        answer["warnings"][0].as_str().unwrap().contains("Unreadable"),
        "{answer}"
    );
    assert!(began.elapsed() <= GATE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn only_a_raised_version_of_a_managed_cluster_is_read_for() {
    let absent = Reads::of(Some(Err(404)), true);
    let mut scaled = stored();
    scaled["spec"]["topology"]["workers"] =
        json!({"machineDeployments": [{"class": "a", "name": "a", "replicas": 9}]});
    let mut paused = bumped();
    paused["spec"]["paused"] = json!(true);
    let (mut unmanaged, mut of_none) = (stored(), bumped());
    for cluster in [&mut unmanaged, &mut of_none] {
        cluster["metadata"]["labels"] = json!({});
    }
    let others = [
        (stored(), scaled),
        (stored(), paused),
        (bumped(), stored()),
        (stored(), cluster("v1.36.3", DEACTIVATED)),
        (unmanaged, of_none),
    ];
    for (old, new) in others {
        let (_, asked) = answered(GateNotInForce::Deny, &absent, &old, &new).await;
        assert_eq!(asked, 0, "{new}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_annotation_exempts_a_version() {
    let mut new = bumped();
    new["metadata"]["annotations"] = json!({annotation::SKIP_UPGRADE_CHECKS: "v1.37.0"});
    let (answer, _) = answered(
        GateNotInForce::Deny,
        &Reads::of(Some(Err(404)), true),
        &stored(),
        &new,
    )
    .await;
    assert_eq!(answer["allowed"], false, "{answer}");
}

/// The update may bring the label by which Sluice manages the Cluster.
#[tokio::test(start_paused = true)]
async fn a_bump_with_the_first_label_is_refused() {
    let mut old = stored();
    old["metadata"]["labels"] = json!({});
    let absent = Reads::of(Some(Err(404)), true);
    let (answer, _) = answered(GateNotInForce::Deny, &absent, &old, &bumped()).await;
    assert_eq!(answer["allowed"], false, "{answer}");
}

/// After a cancellation, a Cluster goes back to what its machines run.
#[tokio::test(start_paused = true)]
async fn a_version_that_the_control_plane_has_is_admitted() {
    let lowered = cluster("v1.35.4", "v1.36.3---a.1");
    let absent = Reads::of(Some(Err(404)), true);
    let (answer, asked) = answered(GateNotInForce::Deny, &absent, &lowered, &stored()).await;
    assert_eq!((answer["allowed"].clone(), asked), (json!(true), 0), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_has_just_started_warns() {
    let checks = Checks {
        upgrade: UpgradeChecks::Off,
        gate: GateNotInForce::Deny,
    };
    let admission = Admission::new("system".to_owned(), checks, AdmissionMetrics::default());
    let answer = checked(&admission, &update(&stored(), &bumped())).await;
    assert_eq!(answer["allowed"], true);
    assert!(
        answer["warnings"][0].as_str().unwrap().contains("just started"),
        "{answer}"
    );
}
