//! The stack itself: stacks run side by side, their kapp-controllers really reconcile, an API server can be
//! swapped.

use std::time::Duration;

use crate::support::{NAMESPACE, install};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client};
use serde_json::{Value, json};
use sluice_tests::requests::apply;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::stack::{Options, Stack, StackCore};
use sluice_tests::wait;

/// Has kapp-controller deploy a ConfigMap.
async fn say(client: &Client, said: &str) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "made-by-kapp"},
        "data": {"said": said},
    });
    install(client, &config).await
}

/// Waits until the PackageInstall has succeeded and the ConfigMap contains `wanted`.
async fn hears(client: &Client, wanted: &str) -> Result<()> {
    let path = format!("/apis/packaging.carvel.dev/v1alpha1/namespaces/{NAMESPACE}/packageinstalls/words");
    wait::until(
        format!("a package that says {wanted:?}"),
        Duration::from_mins(1),
        || async {
            let install: Value = client
                .request(http::Request::get(&path).body(Vec::new())?)
                .await?;
            match install["status"]["conditions"]
                .as_array()
                .and_then(|conditions| conditions.first())
            {
                Some(condition)
                    if condition["type"] == "ReconcileSucceeded" && condition["status"] == "True" => {}
                _ => return wait::not_yet(&install["status"]),
            }
            match said(client).await? {
                said if said == wanted => Ok(()),
                said => wait::not_yet(said),
            }
        },
    )
    .await?;
    Ok(())
}

async fn said(client: &Client) -> Result<String> {
    let made = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE)
        .get("made-by-kapp")
        .await?;
    made.data
        .and_then(|data| data.get("said").cloned())
        .context("the ConfigMap says nothing")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stacks_run_side_by_side_and_reconcile_packages_of_their_own() -> Result<()> {
    let (left, right) = tokio::try_join!(
        Stack::start(Options::new("left")),
        Stack::start(Options::new("right"))
    )?;

    let (client_left, client_right) = (left.client(), right.client());

    tokio::try_join!(say(&client_left, "left"), say(&client_right, "right"))?;
    tokio::try_join!(hears(&client_left, "left"), hears(&client_right, "right"))?;

    left.check()?;
    right.check()?;
    tokio::try_join!(left.stop(), right.stop())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_etcd_can_be_killed_and_comes_back() -> Result<()> {
    let stack = Stack::start(Options::new("comes-back")).await?;
    let client = stack.client();
    say(&client, "before").await?;
    hears(&client, "before").await?;

    stack.kapp_controller()?.kill().await?;
    stack.cluster_api().kill().await?;
    stack.management().kill().await?;
    stack.management().restart().await?;
    stack.cluster_api().restart().await?;
    stack.kapp_controller()?.restart().await?;

    say(&client, "after").await?;
    hears(&client, "after").await?;
    stack.check()?;
    stack.stop().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swapped_api_server_is_newer_and_has_kept_everything() -> Result<()> {
    let core = StackCore::start("swap").await?;
    let server = ApiServer::start(&core, "swap", "v1.35.4").await?;
    let client = server.admin_client();
    let url = server.url();
    apply::namespace(&client, NAMESPACE).await?;
    ensure!(client.apiserver_version().await?.git_version == "v1.35.4");

    server.swap("v1.36.3").await?;

    assert_eq!(client.apiserver_version().await?.git_version, "v1.36.3");
    assert_eq!(server.url(), url);
    assert_eq!(server.version(), "v1.36.3");
    assert!(Api::<Namespace>::all(client).get(NAMESPACE).await.is_ok());
    assert_eq!(core.directory().unexpected_exits(), Vec::<String>::new());
    core.directory().close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_etcd_is_as_it_was() -> Result<()> {
    let core = StackCore::start("restored").await?;
    let server = ApiServer::start(&core, "restored", "v1.36.3").await?;
    let client = server.admin_client();
    apply::namespace(&client, "before").await?;
    let backup = core.etcd().back_up().await?;
    // All runs on after a backup.
    apply::namespace(&client, "after").await?;

    server.kill().await?;
    core.etcd().restore(&backup).await?;
    server.restart().await?;

    let namespaces = Api::<Namespace>::all(client);
    assert!(namespaces.get_opt("before").await?.is_some());
    assert!(namespaces.get_opt("after").await?.is_none());
    assert_eq!(core.directory().unexpected_exits(), Vec::<String>::new());
    core.directory().close().await
}
