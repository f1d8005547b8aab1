//! Values from kinds of other projects, written by their own controller.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice_tests::objects::definition;
use sluice_tests::objects::{Provider, Release, Values};
use sluice_tests::requests::apply;
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use tokio::task::JoinSet;

use crate::common::{given, proven_before_written};

pub(crate) const GROUP: &str = "fleet.test";
pub(crate) const KIND: &str = "FleetConfig";
/// Group of another project below the domain of Tanzu.
const OF_TANZU: &str = "fleet.tanzu.vmware.com";
const NAME: &str = "one-fleet-package";
const TEMPLATE: &str = "tkg.tanzu.vmware.com/template-config";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "third-party",
        "a kind of another project, copied from the template, gives a package its values; while its controller is away, an edit of it holds the upgrade; a kind below tanzu.vmware.com holds until its operator grants a role",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    define(&scene).await?;
    apply::apply_crds(&scene.client(), &[definition_in(OF_TANZU)]).await?;
    let (old, new) = (
        release(&scene, VERSIONS[1], "1.0.0")?,
        release(&scene, VERSIONS[2], "2.0.0")?
            .additional(scene.package("yacht", "2.0.0"))
            .values("yacht", fleets_in(OF_TANZU, 5)),
    );
    scene.publish(&old).await?;
    scene.publish(&new).await?;

    let controller = start(&scene);
    let cluster = scene.cluster("one").at(&old).create().await?;
    cluster.packages_proven(&old, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let values = given(&cluster, &old, "fleet").await?;
    ensure!(
        values == json!({"fleet": {"ships": 2}}),
        "fleet runs with {values}"
    );

    drop(controller);
    let edit = Patch::Merge(json!({"spec": {"ships": 3}}));
    configs(&scene)
        .patch(NAME, &PatchParams::default(), &edit)
        .await?;
    let before = cluster.upgrade(&new).await?;
    cluster.says("ValuesNotFound", TIMEOUT).await?;
    let rule = format!("create, patch and delete fleetconfigs in group {OF_TANZU}");
    cluster.says(&rule, TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;

    scene.apply(&[reader_role(OF_TANZU)]).await?;
    cluster.says("ValuesNotReady", TIMEOUT).await?;
    cluster
        .says(&format!("{KIND} {}/{NAME}", scene.namespace()), TIMEOUT)
        .await?;
    cluster.control_plane_is_untouched(before).await?;

    let _controllers = [start(&scene), start_in(&scene, OF_TANZU)];
    proven_before_written(&cluster, &new, before).await?;
    cluster.is_settled(TIMEOUT).await?;
    let values = given(&cluster, &new, "fleet").await?;
    ensure!(
        values == json!({"fleet": {"ships": 3}}),
        "fleet runs with {values}"
    );
    let values = given(&cluster, &new, "yacht").await?;
    ensure!(
        values == json!({"fleet": {"ships": 5}}),
        "yacht runs with {values}"
    );
    Ok(())
}

fn release(scene: &Scene, kubernetes: &str, version: &str) -> Result<Release> {
    Ok(scene
        .release(kubernetes, version, Delay::NONE)?
        .additional(scene.package("fleet", version))
        .values("fleet", fleets(2)))
}

/// The object that the template names, of which each Cluster gets a copy.
pub(crate) fn fleets(ships: u32) -> Values {
    fleets_in(GROUP, ships)
}

fn fleets_in(group: &'static str, ships: u32) -> Values {
    Values::Provider(Provider {
        group,
        version: "v1",
        kind: KIND,
        spec: json!({"ships": ships}),
    })
}

/// The kind, and the role that allows Sluice to read it.
pub(crate) async fn define(scene: &Scene) -> Result<()> {
    apply::apply_crds(&scene.client(), &[definition_in(GROUP)]).await?;
    scene.apply(&[reader_role(GROUP)]).await
}

fn definition_in(group: &str) -> Value {
    definition::open(group, KIND, "v1", &json!({"status": {}}))
}

fn resource_in(group: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", KIND))
}

/// The objects of the kind that a scenario has.
pub(crate) fn configs(scene: &Scene) -> Api<DynamicObject> {
    configs_in(scene, GROUP)
}

fn configs_in(scene: &Scene, group: &str) -> Api<DynamicObject> {
    Api::namespaced_with(scene.client(), scene.namespace(), &resource_in(group))
}

/// The controller of the kind, all of it; it ends when the set is dropped.
pub(crate) fn start(scene: &Scene) -> JoinSet<()> {
    start_in(scene, GROUP)
}

fn start_in(scene: &Scene, group: &'static str) -> JoinSet<()> {
    let mut running = JoinSet::new();
    let configs = configs_in(scene, group);
    running.spawn(
        Controller::new_with(configs, watcher::Config::default(), resource_in(group))
            .run(
                reconcile,
                |_, _, _| Action::requeue(Duration::from_millis(200)),
                Arc::new((scene.client(), group)),
            )
            .for_each(|_| std::future::ready(())),
    );
    running
}

async fn reconcile(config: Arc<DynamicObject>, at: Arc<(Client, &'static str)>) -> kube::Result<Action> {
    let (client, group) = at.as_ref();
    let (namespace, name) = (config.namespace().unwrap_or_default(), config.name_any());
    if config.annotations().contains_key(TEMPLATE) {
        return Ok(Action::await_change());
    }
    let values = json!({"fleet": config.data["spec"]});
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": format!("{name}-values"), "ownerReferences": config.owner_references()},
        "stringData": {"values.yaml": values.to_string()},
    });
    let params = PatchParams::apply("fleet").force();
    let secrets = Api::<Secret>::namespaced(client.clone(), &namespace);
    let written = secrets
        .patch(&format!("{name}-values"), &params, &Patch::Apply(&secret))
        .await?;
    let status = json!({"status": {"secretRef": written.name_any(), "observedGeneration": config.metadata.generation}});
    let configs = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource_in(group));
    configs
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(Action::await_change())
}

/// What `docs/writing-a-provider.md` asks for.
fn reader_role(group: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": format!("sluice-reads-fleetconfigs.{group}"), "labels": {"sluice.dev/aggregate-to-extension": "true"}},
        "rules": [{"apiGroups": [group], "resources": ["fleetconfigs"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]}],
    })
}
