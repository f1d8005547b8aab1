use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::labels::label;

use super::*;
use crate::controllers::bootstrap::object_server::ObjectServer;

const SYSTEM: &str = "tkg-system";
const RELEASE: &str = "/apis/run.tanzu.vmware.com/v1alpha3/tanzukubernetesreleases/v1.36.3---test.1";
const PACKAGES: &str = "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/tkg-system/packages";
const INSTALLS: &str = "/apis/packaging.carvel.dev/v1alpha1/packageinstalls";

/// Returns a server with a release and its package, and a Package that brings releases.
fn server() -> ObjectServer {
    let server = ObjectServer::default();
    let release = json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {},
        "spec": {
            "version": "v1.36.3+test.1", "kubernetes": {"version": "v1.36.3"},
            "bootstrapPackages": [{"name": "antrea.example.com.1.9.0"}],
        },
    });
    server.put(RELEASE, release);
    for (name, labels) in [
        ("antrea.example.com.1.9.0", json!({})),
        ("tkr.example.com.1.0.0", json!({label::TKR_PACKAGE: ""})),
    ] {
        let (ref_name, version) = name.split_once(".com.").unwrap();
        let package = json!({
            "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package", "metadata": {"labels": labels},
            "spec": {"refName": format!("{ref_name}.com"), "version": version, "template": {"spec": {}}},
        });
        server.put(&format!("{PACKAGES}/{name}"), package);
    }
    server
}

/// Returns the status of a condition of the release.
fn condition(server: &ObjectServer, type_: &str) -> Option<Value> {
    let release = server.get(RELEASE)?;
    let conditions = release["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == type_)?;
    Some(found["status"].clone())
}

/// kapp-controller is missing when this process starts.
#[rstest]
#[case::packages(PACKAGES)]
#[case::installs(INSTALLS)]
#[tokio::test(start_paused = true)]
async fn what_was_never_listed_is_not_taken_for_missing(#[case] list: &'static str) {
    let server = server();
    let listed = server.wait_at(list);
    let (client, event_handlers) = (server.client(), EventHandlers::default());
    let (stores, following) = Stores::open(&client, SYSTEM, &event_handlers);
    let _following = tokio::spawn(following);
    stores.filled_for_managed().await;
    let (reconciles, metrics) = (ReconcileMetrics::default(), ReleaseMetrics::default());
    let context = Context::of(
        client,
        SYSTEM.to_owned(),
        stores,
        &event_handlers,
        reconciles,
        metrics,
    );
    let changes = context.listen();
    let running = tokio::spawn(run(context, changes, CancellationToken::new()));
    event_handlers
        .releases
        .send(ReleaseEvent::Package("tkr.example.com.1.0.0".to_owned()));
    sleep(Duration::from_secs(30)).await;
    let valid = (list == INSTALLS).then(|| json!("True"));
    assert_eq!(condition(&server, "Valid"), valid);
    assert!(condition(&server, "Ready").is_some(), "what is known is said");
    assert_eq!(server.names("packageinstalls"), [""; 0]);

    listed.send(true).unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(condition(&server, "Valid"), Some(json!("True")));
    assert_eq!(server.names("packageinstalls"), ["tkr.example.com.1.0.0"]);
    running.abort();
}
