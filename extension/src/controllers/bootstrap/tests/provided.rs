//! Objects that provide values: copied from the references of a template, and owned by their Cluster.

use rstest::rstest;
use sluice_crds::run::Hook;

use super::*;
use crate::controllers::bootstrap::world::{
    BOOTSTRAP, CLUSTER, KUBE_SYSTEM, PACKAGE, RELEASE, TEMPLATES, VALUES, World, cluster, values,
};

mod own;

const GROUP: &str = "cni.tanzu.vmware.com";
const KIND: &str = "AntreaConfig";
const SOURCE: &str =
    "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/tkg-system/antreaconfigs/v1.36.3---test.1";
const CLONE: &str = "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/team-a/antreaconfigs/one-antrea-package";
const OTHERS: &str = "/apis/fleet.test/v1/namespaces/team-a/fleetconfigs/one-antrea-package";
const CREDENTIALS: &str = "/api/v1/namespaces/tkg-system/secrets/credentials";
const COPIED_CREDENTIALS: &str = "/api/v1/namespaces/team-a/secrets/credentials";

/// Returns a Cluster without ClusterBootstrap, whose template references an object of this kind for the values of its CNI.
fn new_cluster_of(group: &str, kind: &str) -> World {
    let world = World::new();
    world.management.remove(BOOTSTRAP);
    let provider = json!({"apiGroup": group, "kind": kind, "name": RELEASE});
    world
        .management
        .edit(&format!("{TEMPLATES}/{RELEASE}"), |template| {
            template["spec"]["cni"]["valuesFrom"] = json!({"providerRef": provider});
        });
    world
}

/// Returns such a Cluster with an existing AntreaConfig.
fn new_cluster() -> World {
    let world = new_cluster_of(GROUP, KIND);
    let source = json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": KIND,
        "metadata": {
            "annotations": {"tkg.tanzu.vmware.com/template-config": "true"}, "labels": {"of": "template"},
            "finalizers": ["of/template"],
        },
        "spec": {"antrea": {"config": {"defaultMTU": "1400"}}},
        "status": {"secretRef": "of-template"},
    });
    world.management.put(SOURCE, source);
    world
}

/// Returns such a Cluster whose AntreaConfig references a Secret with credentials.
fn with_credentials() -> World {
    let world = new_cluster();
    world.management.edit(SOURCE, |source| {
        source["spec"]["nested"] =
            json!({"credentialLocalObjRef": {"kind": "Secret", "name": "credentials"}});
    });
    world.management.put(CREDENTIALS, values(3));
    world
}

/// Another Cluster of the namespace.
fn another_cluster(world: &World) -> Value {
    let path = CLUSTER.replace("/one", "/two");
    world.management.put(&path, json!({"metadata": {"uid": "two"}}));
    owner("two", "two")
}

fn owner(name: &str, uid: &str) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": name, "uid": uid})
}

/// Returns a configuration that differs from the template.
fn config(owners: &[Value]) -> Value {
    json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1", "kind": KIND, "metadata": {"ownerReferences": owners},
        "spec": {"antrea": {"config": {"defaultMTU": "9000"}}},
    })
}

/// The UIDs of the owners of an object.
fn owners(object: &Value) -> Vec<&str> {
    let owners = object["metadata"]["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten();
    owners.filter_map(|owner| owner["uid"].as_str()).collect()
}

fn is_labelled(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    labels[label::CLUSTER_NAME] == "one" && labels[label::PACKAGE_NAME] == PACKAGE
}

/// Returns reason and note of the only event, without those about the progress of packages.
fn event(world: &World) -> (String, String) {
    let mut events = world.management.all("events");
    events.retain(|(_, event)| event["reason"] != "PackagesNotReady");
    assert_eq!(events.len(), 1, "{events:?}");
    let event = &events[0].1;
    let text = |field: &str| event[field].as_str().unwrap().to_owned();
    (text("reason"), text("note"))
}

#[tokio::test(start_paused = true)]
async fn what_a_template_names_is_copied_before_it_is_referred_to() {
    let world = new_cluster();
    world.reconcile().await;
    let copied = world.management.get(CLONE).unwrap();
    let expected = json!({"antrea": {"config": {"defaultMTU": "1400"}}});
    assert_eq!(copied["spec"], expected);
    assert_eq!(copied["status"], Value::Null);
    let metadata = &copied["metadata"];
    assert_eq!(
        (&metadata["annotations"], &metadata["finalizers"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(metadata["labels"]["of"], Value::Null);
    assert!(is_labelled(&copied), "{copied}");
    assert_eq!(owners(&copied), ["uid"]);
    let bootstrap = world.management.get(BOOTSTRAP).unwrap();
    let referred = &bootstrap["spec"]["cni"]["valuesFrom"]["providerRef"];
    assert_eq!(referred["name"], "one-antrea-package");
    let asked = world.management.asked_to_write();
    let position = |end: &str| {
        asked
            .iter()
            .position(|asked| asked.starts_with("POST") && asked.ends_with(end))
    };
    assert!(
        position("/antreaconfigs") < position("/clusterbootstraps"),
        "{asked:?}"
    );
    assert!(position("/antreaconfigs").is_some(), "{asked:?}");
}

#[rstest]
#[case::of_a_user(&[])]
#[case::of_an_earlier_try(&[owner("one", "uid")])]
#[tokio::test(start_paused = true)]
async fn what_a_user_made_before_wins_and_goes_with_its_cluster(#[case] by: &[Value]) {
    let world = new_cluster();
    world.management.put(CLONE, config(by));
    let before = world.management.get(CLONE).unwrap();
    world.reconcile().await;
    let kept = world.management.get(CLONE).unwrap();
    assert_eq!(kept["spec"], before["spec"]);
    assert_eq!(kept["metadata"]["uid"], before["metadata"]["uid"]);
    assert!(is_labelled(&kept), "{kept}");
    assert_eq!(owners(&kept), ["uid"]);
    assert!(world.management.get(BOOTSTRAP).is_some());
}

/// The user's object suffices.
#[tokio::test(start_paused = true)]
async fn what_a_user_made_before_needs_no_source() {
    let world = new_cluster();
    world.management.remove(SOURCE);
    world.management.put(CLONE, config(&[]));
    world.reconcile().await;
    assert!(world.management.get(BOOTSTRAP).is_some());
}

#[tokio::test(start_paused = true)]
async fn that_of_an_earlier_cluster_is_made_again() {
    let world = new_cluster();
    world.management.put(CLONE, config(&[owner("one", "earlier")]));
    let before = world.management.get(CLONE).unwrap();
    world.reconcile().await;
    let copied = world.management.get(CLONE).unwrap();
    assert_ne!(copied["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(copied["spec"]["antrea"]["config"]["defaultMTU"], "1400");
    assert_eq!(owners(&copied), ["uid"]);
}

#[tokio::test(start_paused = true)]
async fn that_of_another_cluster_is_left_alone_and_holds() {
    let world = new_cluster();
    let by = another_cluster(&world);
    world.management.put(CLONE, config(&[by]));
    let there = world.management.get(CLONE);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesOwnerMismatch", "{note}");
    assert!(
        note.contains("AntreaConfig team-a/one-antrea-package") && note.contains("Cluster team-a/two"),
        "{note}"
    );
    assert_eq!(world.management.get(CLONE), there);
    assert_eq!(world.management.get(BOOTSTRAP), None);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_missing_is_named_and_recovered_from() {
    let world = new_cluster();
    let source = world.management.get(SOURCE).unwrap();
    world.management.remove(SOURCE);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesNotFound", "{note}");
    assert!(
        note.contains("AntreaConfig tkg-system/v1.36.3---test.1"),
        "{note}"
    );
    assert_eq!(world.management.get(BOOTSTRAP), None);
    world.management.put(SOURCE, source);
    world.reconcile().await;
    assert!(world.management.get(CLONE).is_some() && world.management.get(BOOTSTRAP).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_is_refused_holds_with_what_the_server_says() {
    let world = new_cluster();
    world.management.refuse_writes("/antreaconfigs", 403);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "WriteRefused", "{note}");
    assert!(note.contains("AntreaConfig team-a/one-antrea-package"), "{note}");
    assert_eq!(world.management.get(BOOTSTRAP), None);
}

/// Serves a kind in version v1 of its group.
fn serve(world: &World, group: &str, (plural, kind): (&str, &str), namespaced: bool) {
    let group_version = format!("{group}/v1");
    let version = json!({"groupVersion": group_version, "version": "v1"});
    let served = json!({"name": group, "versions": [version], "preferredVersion": version});
    world.management.edit("/apis", |groups| {
        groups["groups"].as_array_mut().unwrap().push(served);
    });
    let kind =
        json!({"name": plural, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"]});
    let served = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": [kind]});
    world.management.put(&format!("/apis/{group_version}"), served);
}

/// Serves a kind of another project.
fn serve_fleets(world: &World) {
    serve(world, "fleet.test", ("fleetconfigs", "FleetConfig"), true);
}

fn fleet_config(owners: &[Value], labels: &Value) -> Value {
    json!({
        "apiVersion": "fleet.test/v1", "kind": "FleetConfig",
        "metadata": {"ownerReferences": owners, "labels": labels}, "spec": {"ships": 2},
        "status": {"secretRef": "antrea-values"},
    })
}

#[tokio::test(start_paused = true)]
async fn any_kind_that_is_served_is_copied() {
    let world = new_cluster_of("fleet.test", "FleetConfig");
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesNotFound", "{note}");
    assert!(
        note.contains("FleetConfig tkg-system/v1.36.3---test.1")
            && note.contains("a kind that is not served"),
        "{note}"
    );
    serve_fleets(&world);
    let source = OTHERS
        .replace("team-a", "tkg-system")
        .replace("one-antrea-package", RELEASE);
    world.management.put(&source, fleet_config(&[], &json!({})));
    world.reconcile().await;
    let copied = world.management.get(OTHERS).unwrap();
    assert_eq!(
        (&copied["spec"]["ships"], &copied["status"]),
        (&json!(2), &Value::Null)
    );
    assert!(is_labelled(&copied), "{copied}");
}

#[rstest]
#[case::of_another_project("fleet.test")]
#[case::below_the_domain_of_tanzu("fleet.tanzu.vmware.com")]
#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_read_is_named_with_its_rule(#[case] group: &str) {
    let world = new_cluster_of(group, "FleetConfig");
    serve(&world, group, ("fleetconfigs", "FleetConfig"), true);
    world.management.refuse("/fleetconfigs", 403);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesNotFound", "{note}");
    let rule = format!(
        "add a ClusterRole that allows to get, list, watch, create, patch and delete fleetconfigs in group {group} and has the label"
    );
    assert!(note.contains(&rule), "{note}");
}

/// Sluice may create objects of some of these kinds.
#[rstest]
#[case::a_cluster_bootstrap("run.tanzu.vmware.com", "ClusterBootstrap", true, "which provides no values")]
#[case::a_release(
    "run.tanzu.vmware.com",
    "TanzuKubernetesRelease",
    false,
    "which provides no values"
)]
#[case::a_cluster_scoped_kind("fleet.tanzu.vmware.com", "FleetConfig", false, "is of a cluster-scoped kind")]
#[tokio::test(start_paused = true)]
async fn a_template_copies_only_what_may_provide_values(
    #[case] group: &str,
    #[case] kind: &str,
    #[case] namespaced: bool,
    #[case] says: &str,
) {
    let world = new_cluster_of(group, kind);
    let plural = format!("{}s", kind.to_lowercase());
    serve(&world, group, (&plural, kind), namespaced);
    let path =
        |namespace: &str, name: &str| format!("/apis/{group}/v1/namespaces/{namespace}/{plural}/{name}");
    let source =
        json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {}, "spec": {"ships": 2}});
    world.management.put(&path("tkg-system", RELEASE), source);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesNotFound", "{note}");
    assert!(note.contains(says), "{note}");
    let copied = world.management.get(&path("team-a", "one-antrea-package"));
    assert_eq!((copied, world.management.get(BOOTSTRAP)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn what_a_clone_refers_to_is_copied_under_its_name() {
    let world = with_credentials();
    world.reconcile().await;
    let copied = world.management.get(COPIED_CREDENTIALS).unwrap();
    assert_eq!(copied["data"], values(3)["data"]);
    assert_eq!(owners(&copied), ["uid"]);
    assert!(world.management.get(CLONE).is_some());
}

/// The author of a configuration in the system namespace may lack the right to read its Secrets.
#[rstest]
#[case::by_its_type("credentials", "kubernetes.io/service-account-token")]
#[case::by_its_name("management-kubeconfig", "Opaque")]
#[tokio::test(start_paused = true)]
async fn a_credential_that_a_configuration_refers_to_is_not_copied(#[case] name: &str, #[case] type_: &str) {
    let world = with_credentials();
    let management = CLUSTER
        .replace("/team-a/", "/tkg-system/")
        .replace("/one", "/management");
    world
        .management
        .put(&management, json!({"metadata": {"uid": "management"}}));
    world.management.edit(SOURCE, |source| {
        source["spec"]["nested"]["credentialLocalObjRef"]["name"] = json!(name);
    });
    let mut secret = values(3);
    secret["type"] = json!(type_);
    world
        .management
        .put(&CREDENTIALS.replace("credentials", name), secret);
    world.reconcile().await;
    let copied = COPIED_CREDENTIALS.replace("credentials", name);
    assert_eq!(world.management.get(&copied), None);
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesSecretRefused", "{note}");
    assert!(note.contains(&format!("Secret tkg-system/{name}")), "{note}");
}

/// Clusters of one namespace share it.
#[tokio::test(start_paused = true)]
async fn what_is_there_already_is_not_overwritten() {
    let world = with_credentials();
    let by = another_cluster(&world);
    let mut there = values(9);
    there["metadata"]["ownerReferences"] = json!([by]);
    world.management.put(COPIED_CREDENTIALS, there);
    world.reconcile().await;
    let kept = world.management.get(COPIED_CREDENTIALS).unwrap();
    assert_eq!(kept["data"], values(9)["data"]);
    assert_eq!(owners(&kept), ["two", "uid"]);
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_cluster_has_left_behind_is_copied_again() {
    let world = with_credentials();
    let mut there = values(9);
    there["metadata"]["ownerReferences"] = json!([owner("one", "earlier")]);
    world.management.put(COPIED_CREDENTIALS, there);
    world.reconcile().await;
    let copied = world.management.get(COPIED_CREDENTIALS).unwrap();
    assert_eq!(copied["data"], values(3)["data"]);
    assert_eq!(owners(&copied), ["uid"]);
}

/// A user gets the objects of the template, and nothing else of the system namespace.
#[rstest]
#[case::what_the_template_names_too("credentials", true)]
#[case::what_only_the_user_names("other", false)]
#[tokio::test(start_paused = true)]
async fn a_configuration_of_a_user_gets_nothing_that_the_template_does_not_give(
    #[case] name: &str,
    #[case] is_copied: bool,
) {
    let world = with_credentials();
    world
        .management
        .put(&CREDENTIALS.replace("credentials", "other"), values(4));
    let mut own = config(&[]);
    own["spec"]["credentialLocalObjRef"] = json!({"kind": "Secret", "name": name});
    world.management.put(CLONE, own);
    world.reconcile().await;
    assert!(world.management.get(BOOTSTRAP).is_some());
    assert_eq!(world.management.get(COPIED_CREDENTIALS).is_some(), is_copied);
    assert_eq!(
        world
            .management
            .get(&COPIED_CREDENTIALS.replace("credentials", "other")),
        None
    );
}

#[rstest]
#[case::it_is_missing(json!({"kind": "Secret", "name": "gone"}), "Secret tkg-system/gone, which spec.nested.credentialLocalObjRef of AntreaConfig tkg-system/v1.36.3---test.1 names, does not exist")]
#[case::it_is_elsewhere(json!({"kind": "Secret", "name": "credentials", "namespace": "kube-system"}), "spec.nested.credentialLocalObjRef of AntreaConfig tkg-system/v1.36.3---test.1 names Secret kube-system/credentials")]
#[case::its_kind_is_not_served(json!({"apiGroup": "no.test", "kind": "No", "name": "one"}), "No tkg-system/one, which spec.nested.credentialLocalObjRef of")]
#[tokio::test(start_paused = true)]
async fn a_reference_that_leads_nowhere_is_named(#[case] reference: Value, #[case] says: &str) {
    let world = with_credentials();
    world.management.edit(SOURCE, |source| {
        source["spec"]["nested"]["credentialLocalObjRef"] = reference;
    });
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "ValuesNotFound", "{note}");
    assert!(note.contains(says), "{note}");
    assert_eq!(world.management.get(BOOTSTRAP), None);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_is_gone_is_made_again() {
    let world = with_credentials();
    world.reconcile().await;
    world.management.remove(CLONE);
    world.reconcile().await;
    let copied = world.management.get(CLONE).unwrap();
    assert_eq!(copied["spec"]["antrea"]["config"]["defaultMTU"], "1400");
}

#[tokio::test(start_paused = true)]
async fn another_reconcile_writes_nothing_again() {
    let world = with_credentials();
    world.management.put(VALUES, values(1));
    world.reconcile().await;
    world.management.edit(CLONE, |config| {
        config["status"] = json!({"secretRef": "antrea-values"});
    });
    world.reconcile().await;
    let written = |world: &World| {
        let asked = world.management.asked_to_write().into_iter();
        asked
            .filter(|asked| !asked.contains("/clusterbootstraps") && !asked.contains("/events"))
            .count()
    };
    let before = written(&world);
    world.reconcile().await;
    assert_eq!(written(&world), before);
}

/// The other packages of the Cluster go on.
#[rstest]
#[case::forbidden(403, false)]
#[case::invalid(422, false)]
#[case::on_another_workload_cluster(403, true)]
#[tokio::test(start_paused = true)]
async fn a_clone_that_cannot_be_made_again_holds_its_package_only(
    #[case] code: u16,
    #[case] is_replaced: bool,
) {
    let world = new_cluster();
    world.reconcile().await;
    if is_replaced {
        let another = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"uid": "another"}});
        world.workload.put(KUBE_SYSTEM, another);
    }
    world.management.remove(CLONE);
    world.add_metrics(None);
    world.management.refuse_writes("/antreaconfigs", code);
    world.reconcile().await;
    assert_eq!(
        world.held(Hook::BeforeClusterUpgrade),
        Some(GateReason::WriteRefused)
    );
    assert_eq!(world.workload.names("packageinstalls"), ["one-metrics"]);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_deleted_of_an_earlier_cluster_is_named() {
    let world = new_cluster();
    world.management.put(CLONE, config(&[owner("one", "earlier")]));
    world.management.refuse_writes("/antreaconfigs", 403);
    world.reconcile().await;
    let (reason, note) = event(&world);
    assert_eq!(reason, "WriteRefused", "{note}");
    assert!(note.contains("AntreaConfig team-a/one-antrea-package"), "{note}");
}

/// By hand, or with an earlier Cluster.
#[tokio::test(start_paused = true)]
async fn what_is_gone_of_what_a_clone_refers_to_is_copied_again() {
    let world = with_credentials();
    world.reconcile().await;
    world.management.remove(COPIED_CREDENTIALS);
    world.reconcile().await;
    let copied = world.management.get(COPIED_CREDENTIALS).unwrap();
    assert_eq!(copied["data"], values(3)["data"]);
}

/// Every owner may exist, and each costs a lookup.
#[tokio::test(start_paused = true)]
async fn few_owners_of_an_object_are_looked_up() {
    let world = new_cluster();
    let many: Vec<Value> = (0..200)
        .map(|number| owner(&format!("c{number}"), "gone"))
        .collect();
    world.management.put(CLONE, config(&many));
    world.reconcile().await;
    let asked = world.management.times_asked_below("/clusters/c");
    assert!(asked <= 32, "{asked} requests");
}
