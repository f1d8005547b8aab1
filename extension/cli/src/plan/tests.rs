//! Tests of `sluice plan` against an API server with fixed objects.

use std::{collections::BTreeMap, convert::Infallible};

use clap::Parser;
use http::{Request, Response};
use kube::{
    Client, Resource,
    client::Body,
    core::{ApiResource, GroupVersionKind},
};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::upgrade_plan::IGNORES_SELECTION;
use sluice_crds::{
    foreign::{Cluster, ClusterClass, ControlPlane, MachineDeployment, MachinePool, Package, PackageInstall},
    labels::{annotation, label},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use super::*;

const OLD: &str = "v1.34.4---vmware.1";
const NEW: &str = "v1.35.4---vmware.1";

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    asked: PlanArgs,
}

fn asked(more: &[&str]) -> PlanArgs {
    let words = ["plan", "edge-1", "-n", "prod"];
    CommandLine::try_parse_from(words.iter().chain(more))
        .unwrap()
        .asked
}

/// Responses by path.
#[derive(Clone, Default)]
struct Server(BTreeMap<String, (u16, Value)>);

impl Server {
    fn put(&mut self, path: String, object: Value) {
        self.0.insert(path, (200, object));
    }

    fn object<K: Resource<DynamicType = ()>>(&mut self, namespace: Option<&str>, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/{name}", K::url_path(&(), namespace));
        self.put(path, of_kind::<K>(namespace, object));
    }

    fn list<K: Resource<DynamicType = ()>>(&mut self, namespace: Option<&str>, objects: Vec<Value>) {
        let items: Vec<Value> = objects
            .into_iter()
            .map(|object| of_kind::<K>(namespace, object))
            .collect();
        let list = json!({
            "kind": format!("{}List", K::kind(&())), "apiVersion": K::api_version(&()), "metadata": {}, "items": items,
        });
        self.put(K::url_path(&(), namespace), list);
    }

    /// Refuses reads of a path with a status code.
    fn refuse(&mut self, path: String, code: u16) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("refused\n with {code}"),
        });
        self.0.insert(path, (code, status));
    }

    fn client(self) -> Client {
        let answer = move |request: Request<Body>| {
            let (code, body) = self.0.get(request.uri().path()).cloned().unwrap_or_else(|| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "message": "not found"});
                (404, status)
            });
            let response = Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            async move { Ok::<_, Infallible>(response) }
        };
        Client::new(tower::service_fn(answer), "default")
    }
}

fn of_kind<K: Resource<DynamicType = ()>>(namespace: Option<&str>, mut object: Value) -> Value {
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"]["uid"] = json!("uid");
    object["metadata"]["generation"] = json!(1);
    if namespace.is_some() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn package(name: &str, version: &str) -> Value {
    let spec = json!({"refName": format!("{name}.example.com"), "version": version});
    json!({"metadata": {"name": format!("{name}.example.com.{version}")}, "spec": spec})
}

fn release(name: &str, version: &str, packages: &[&str]) -> Value {
    let packages: Vec<Value> = packages.iter().map(|name| json!({"name": name})).collect();
    let spec = json!({"version": version, "kubernetes": {"version": version}, "bootstrapPackages": packages});
    json!({"metadata": {"name": name}, "spec": spec})
}

fn bootstrap_spec(antrea: &str) -> Value {
    json!({
        "kapp": {"refName": "kapp-controller.example.com.0.53.1"},
        "cni": {"refName": format!("antrea.example.com.{antrea}")},
    })
}

/// Returns a management cluster with Cluster `prod/edge-1`, which is settled at 1.34, and with a release of 1.35.
fn server() -> Server {
    const GROUP: &str = "controlplane.example.com";
    let mut server = Server::default();
    let cluster = json!({
        "metadata": {"name": "edge-1", "labels": {label::TKR: OLD}},
        "spec": {
            "topology": {"classRef": {"name": "class"}, "version": "v1.34.4+vmware.1"},
            "controlPlaneRef": {"apiGroup": GROUP, "kind": "Good", "name": "edge-1"},
        },
        "status": {"initialization": {"controlPlaneInitialized": true}},
    });
    server.object::<Cluster>(Some("prod"), cluster);
    server.object::<ClusterClass>(Some("prod"), json!({"metadata": {"name": "class"}, "spec": {}}));
    let owner =
        json!({"apiVersion": Cluster::api_version(&()), "kind": "Cluster", "name": "edge-1", "uid": "uid"});
    let bootstrap = json!({
        "metadata": {"name": "edge-1", "annotations": {annotation::RESOLVED_TKR: OLD}, "ownerReferences": [owner]},
        "spec": bootstrap_spec("1.8.0"),
    });
    server.object::<ClusterBootstrap>(Some("prod"), bootstrap);
    let kapp = "kapp-controller.example.com.0.53.1";
    let releases = vec![
        release(OLD, "v1.34.4+vmware.1", &[kapp, "antrea.example.com.1.8.0"]),
        release(NEW, "v1.35.4+vmware.1", &[kapp, "antrea.example.com.1.9.0"]),
    ];
    server.list::<TanzuKubernetesRelease>(None, releases);
    let packages = vec![
        package("kapp-controller", "0.53.1"),
        package("antrea", "1.8.0"),
        package("antrea", "1.9.0"),
    ];
    server.list::<Package>(Some("tkg-system"), packages);
    server.list::<MachineDeployment>(Some("prod"), Vec::new());
    server.list::<MachinePool>(Some("prod"), Vec::new());
    for (name, antrea) in [(OLD, "1.8.0"), (NEW, "1.9.0")] {
        let template = json!({"metadata": {"name": name}, "spec": bootstrap_spec(antrea)});
        server.object::<ClusterBootstrapTemplate>(Some("tkg-system"), template);
    }
    let version = json!({"groupVersion": format!("{GROUP}/v1"), "version": "v1"});
    let group = json!({"name": GROUP, "versions": [version], "preferredVersion": version});
    server.put(
        "/apis".to_owned(),
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}),
    );
    let resource = json!({"name": "goods", "singularName": "good", "namespaced": true, "kind": "Good", "verbs": ["get"]});
    server.put(
        format!("/apis/{GROUP}/v1"),
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/v1"), "resources": [resource]}),
    );
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", "Good"), "goods");
    let control_plane = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Good",
        "metadata": {"name": "edge-1", "namespace": "prod", "uid": "uid", "generation": 1},
        "spec": {"version": "v1.34.4+vmware.1", "replicas": 1},
        "status": {"version": "v1.34.4+vmware.1", "observedGeneration": 1, "replicas": 1, "upToDateReplicas": 1},
    });
    let path = ControlPlane::url_path(&kind, Some("prod"));
    server.put(format!("{path}/edge-1"), control_plane);
    server
}

async fn planned_by(server: Server, more: &[&str]) -> Result<(UpgradePlan, Vec<NotMade>), Trouble> {
    planned(&mut Reader::new(server.client()), "prod", &asked(more)).await
}

fn reasons(plan: &UpgradePlan) -> Vec<&'static str> {
    let findings = plan.findings.iter();
    findings.map(|finding| finding.reason.as_str()).collect()
}

#[tokio::test]
async fn a_target_is_planned_from_the_objects_of_the_cluster() {
    let (plan, not_made) = planned_by(server(), &["--to", "v1.35"]).await.unwrap();
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
    assert_eq!(
        (plan.from.as_str(), plan.to.as_str()),
        ("v1.34.4+vmware.1", "v1.35.4+vmware.1")
    );
    let [hop] = &plan.hops[..] else {
        panic!("{:?}", plan.hops);
    };
    assert_eq!(
        (hop.version.as_str(), hop.release.as_deref()),
        ("v1.35.4+vmware.1", Some(NEW))
    );
    let changes = hop.packages.iter();
    let changes: Vec<_> = changes
        .map(|package| {
            (
                package.name.as_str(),
                package.from.as_deref(),
                package.to.as_str(),
            )
        })
        .collect();
    let expected = [
        ("kapp-controller", Some("0.53.1"), "0.53.1"),
        ("antrea", Some("1.8.0"), "1.9.0"),
    ];
    assert_eq!(changes, expected);
    let checks: Vec<_> = not_made.iter().map(|not_made| not_made.check).collect();
    assert_eq!(checks, [VALUES, WORKLOAD]);
}

#[tokio::test]
async fn without_a_target_the_plan_is_that_of_the_topology() {
    let (plan, _) = planned_by(server(), &[]).await.unwrap();
    assert_eq!(
        (plan.from.as_str(), plan.to.as_str()),
        ("v1.34.4+vmware.1", "v1.34.4+vmware.1")
    );
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
}

#[tokio::test]
async fn a_missing_template_blocks() {
    let mut server = server();
    let path = ClusterBootstrapTemplate::url_path(&(), Some("tkg-system"));
    server.0.remove(&format!("{path}/{NEW}"));
    let (plan, _) = planned_by(server, &["--to", NEW]).await.unwrap();
    assert!(plan.is_blocked());
    let reasons = reasons(&plan);
    assert!(reasons.contains(&"TemplateNotFound"), "{reasons:?}");
}

#[tokio::test]
async fn an_unserved_control_plane_blocks() {
    let mut server = server();
    server.put(
        "/apis".to_owned(),
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
    );
    let (plan, _) = planned_by(server, &[]).await.unwrap();
    let reasons = reasons(&plan);
    assert!(
        plan.is_blocked() && reasons.contains(&"ControlPlaneKindUnreadable"),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn a_workload_without_rights_is_not_checked() {
    let mut server = server();
    let path = k8s_openapi::api::core::v1::Secret::url_path(&(), Some("prod"));
    server.refuse(format!("{path}/edge-1-kubeconfig"), 403);
    let (plan, not_made) = planned_by(server, &["--workload"]).await.unwrap();
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
    let of_workload = not_made.iter().find(|not_made| not_made.check == WORKLOAD);
    let why = of_workload.map(|not_made| not_made.why.as_str());
    assert_eq!(why, Some("read Secret prod/edge-1-kubeconfig: refused with 403"));
}

const CONFIGURATION: &str = "/apis/cni.tanzu.vmware.com/v1alpha1/namespaces/prod/antreaconfigs/values";
const SECRET: &str = "/api/v1/namespaces/prod/secrets/values";
const KIND: &str = "/apis/values.example.com/v1";

/// Returns the management cluster with a values source of a package, a read of which ends with a code.
fn with_values(path: &str, code: u16) -> Server {
    let mut server = server();
    let provider = |group: &str, kind: &str| {
        let provider = json!({"apiGroup": group, "kind": kind, "name": "values"});
        json!({"providerRef": provider})
    };
    let values = match path {
        CONFIGURATION => provider("cni.tanzu.vmware.com", "AntreaConfig"),
        KIND => provider("values.example.com", "Values"),
        _ => json!({"secretRef": "values"}),
    };
    let bootstrap = format!("{}/edge-1", ClusterBootstrap::url_path(&(), Some("prod")));
    server.0.get_mut(&bootstrap).unwrap().1["spec"]["cni"]["valuesFrom"] = values;
    let version = json!({"groupVersion": "values.example.com/v1", "version": "v1"});
    let group = json!({"name": "values.example.com", "versions": [version], "preferredVersion": version});
    let groups = &mut server.0.get_mut("/apis").unwrap().1["groups"];
    groups.as_array_mut().unwrap().push(group);
    server.refuse(path.to_owned(), code);
    server
}

#[rstest]
#[case::configuration(CONFIGURATION, "read AntreaConfig prod/values: ")]
#[case::secret(SECRET, "read Secret prod/values: ")]
#[case::kind(KIND, "discover Values.values.example.com: ")]
#[tokio::test]
async fn values_without_rights_are_not_compared(#[case] path: &str, #[case] says: &str) {
    let (plan, not_made) = planned_by(with_values(path, 403), &["--to", NEW, "--values"])
        .await
        .unwrap();
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
    let of_values = not_made.iter().find(|not_made| not_made.check == VALUES);
    let why = of_values.map(|not_made| not_made.why.as_str());
    assert_eq!(why, Some(format!("{says}refused with 403").as_str()));
    assert_eq!(plan.hops.len(), 1);
}

#[rstest]
#[case::configuration(CONFIGURATION)]
#[case::secret(SECRET)]
#[tokio::test]
async fn missing_values_block(#[case] path: &str) {
    let (plan, not_made) = planned_by(with_values(path, 404), &["--to", NEW, "--values"])
        .await
        .unwrap();
    assert_eq!(reasons(&plan), ["ValuesNotFound"]);
    assert!(
        not_made.iter().all(|not_made| not_made.check != VALUES),
        "{not_made:?}"
    );
}

/// Returns the management cluster with a Package that excludes the Kubernetes version of the new release.
fn with_narrow(package: &str) -> Server {
    let mut server = server();
    let path = Package::url_path(&(), Some("tkg-system"));
    let list = &mut server.0.get_mut(&path).unwrap().1["items"];
    for item in list.as_array_mut().unwrap() {
        if item["metadata"]["name"] == package {
            item["spec"]["kubernetesVersionSelection"] = json!({"constraints": "<1.35.0"});
        }
    }
    server
}

fn install(name: &str, annotation: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {annotation: ""}}, "spec": {}})
}

/// Returns why PackageInstalls were not read.
fn not_read(not_made: &[NotMade]) -> Vec<&str> {
    let of_check = not_made
        .iter()
        .filter(|not_made| not_made.check == "ignoredSelections");
    of_check.map(|not_made| not_made.why.as_str()).collect()
}

#[rstest]
#[case::ignores(|server: &mut Server| {
    server.object::<PackageInstall>(Some("tkg-system"), install("edge-1-antrea", IGNORES_SELECTION));
}, &[], &[])]
#[case::other_annotation(|server: &mut Server| {
    server.object::<PackageInstall>(Some("tkg-system"), install("edge-1-antrea", "other"));
}, &["PackageExcludesKubernetes"], &[])]
#[case::missing(|_: &mut Server| (), &["PackageExcludesKubernetes"], &[])]
#[case::no_rights(
    |server: &mut Server| {
        let path = PackageInstall::url_path(&(), Some("tkg-system"));
        server.refuse(format!("{path}/edge-1-antrea"), 403);
    },
    &["PackageExcludesKubernetes"],
    &["annotation of PackageInstall tkg-system/edge-1-antrea: read PackageInstall tkg-system/edge-1-antrea: refused with 403"]
)]
#[tokio::test]
async fn a_package_install_of_the_workload_may_ignore_the_selection(
    #[case] change: fn(&mut Server),
    #[case] remain: &[&str],
    #[case] unread: &[&str],
) {
    let planned = planned_by(with_narrow("antrea.example.com.1.9.0"), &["--to", NEW]).await;
    let (mut plan, not_made) = planned.unwrap();
    assert_eq!(reasons(&plan), ["PackageExcludesKubernetes"]);
    let not_asked = "annotation of PackageInstall tkg-system/edge-1-antrea: not asked for; add --workload";
    assert_eq!(not_read(&not_made), [not_asked]);
    let mut workload = Server::default();
    change(&mut workload);
    let (management, workload) = (
        Reader::new(Server::default().client()),
        Reader::new(workload.client()),
    );
    let not_made = ignored::remove(&mut plan, &management, Ok(&workload)).await;
    assert_eq!(reasons(&plan), remain);
    assert_eq!(not_read(&not_made), unread);
}

#[tokio::test]
async fn a_package_install_of_the_management_cluster_may_ignore_the_selection() {
    let mut server = with_narrow("kapp-controller.example.com.0.53.1");
    let (plan, not_made) = planned_by(server.clone(), &["--to", NEW]).await.unwrap();
    assert_eq!(reasons(&plan), ["PackageExcludesKubernetes"]);
    assert!(not_read(&not_made).is_empty(), "{not_made:?}");
    server.object::<PackageInstall>(Some("prod"), install("edge-1-kapp-controller", IGNORES_SELECTION));
    let (plan, _) = planned_by(server, &["--to", NEW]).await.unwrap();
    assert!(reasons(&plan).is_empty(), "{:?}", plan.findings);
}

#[rstest]
#[case::target_that_is_not_stored(&["--to", NEW], &["StepsNotPlanned"])]
#[case::target_that_is_stored(&["--to", OLD], &[])]
#[case::no_target(&[], &[])]
#[tokio::test]
async fn steps_that_an_extension_has_not_planned_are_one_step(#[case] more: &[&str], #[case] found: &[&str]) {
    let mut server = server();
    let upgrade = json!({"external": {"generateUpgradePlanExtension": "plan"}});
    let class = json!({"metadata": {"name": "class"}, "spec": {"upgrade": upgrade}});
    server.object::<ClusterClass>(Some("prod"), class);
    let (plan, _) = planned_by(server, more).await.unwrap();
    assert_eq!(reasons(&plan), found);
    assert!(!plan.is_blocked(), "{:?}", plan.findings);
    let mut releases = plan.hops.iter().map(|hop| hop.release.as_deref());
    assert_eq!(releases.any(|release| release == Some(NEW)), !found.is_empty());
}

/// Returns the management cluster with releases of 1.36 and of a later patch of 1.35, and with a class whose steps Sluice plans.
fn with_own_steps() -> Server {
    const RELEASES: [(&str, &str, &str); 4] = [
        (OLD, "v1.34.4+vmware.1", "1.8.0"),
        (NEW, "v1.35.4+vmware.1", "1.9.0"),
        ("v1.35.5---vmware.1", "v1.35.5+vmware.1", "1.9.0"),
        ("v1.36.3---vmware.1", "v1.36.3+vmware.1", "1.9.0"),
    ];
    let mut server = server();
    let releases = RELEASES.map(|(name, version, antrea)| {
        let antrea = format!("antrea.example.com.{antrea}");
        release(name, version, &["kapp-controller.example.com.0.53.1", &antrea])
    });
    server.list::<TanzuKubernetesRelease>(None, releases.into());
    let system = Some("tkg-system");
    let templates =
        RELEASES.map(|(name, _, antrea)| json!({"metadata": {"name": name}, "spec": bootstrap_spec(antrea)}));
    for template in templates.clone() {
        server.object::<ClusterBootstrapTemplate>(system, template);
    }
    server.list::<ClusterBootstrapTemplate>(system, templates.into());
    let upgrade = json!({"external": {"generateUpgradePlanExtension": "generate-upgrade-plan.sluice"}});
    let class = json!({"metadata": {"name": "class"}, "spec": {"upgrade": upgrade}});
    server.object::<ClusterClass>(Some("prod"), class);
    server
}

/// Returns the objects of a kind that a server lists.
fn items<'a, K>(server: &'a mut Server, namespace: Option<&str>) -> &'a mut Vec<Value>
where
    K: Resource<DynamicType = ()>,
{
    let (_, list) = server.0.get_mut(&K::url_path(&(), namespace)).unwrap();
    list["items"].as_array_mut().unwrap()
}

fn deactivate_the_patch(server: &mut Server) {
    let releases = items::<TanzuKubernetesRelease>(server, None);
    releases[2]["metadata"]["labels"] = json!({label::DEACTIVATED: ""});
}

fn remove_the_template_of_the_patch(server: &mut Server) {
    items::<ClusterBootstrapTemplate>(server, Some("tkg-system")).remove(2);
}

#[rstest]
#[case::newest(|_: &mut Server| (), "v1.35.5+vmware.1")]
#[case::deactivated(deactivate_the_patch, "v1.35.4+vmware.1")]
#[case::template_missing(remove_the_template_of_the_patch, "v1.35.4+vmware.1")]
#[tokio::test]
async fn steps_that_sluice_plans_are_those_of_its_hook(
    #[case] change: fn(&mut Server),
    #[case] between: &str,
) {
    let mut server = with_own_steps();
    change(&mut server);
    let (plan, _) = planned_by(server, &["--to", "v1.36"]).await.unwrap();
    let versions: Vec<&str> = plan.hops.iter().map(|hop| hop.version.as_str()).collect();
    assert_eq!(versions, [between, "v1.36.3+vmware.1"]);
    assert!(reasons(&plan).is_empty(), "{:?}", plan.findings);
}

#[tokio::test]
async fn a_minor_version_without_a_release_blocks() {
    let mut server = with_own_steps();
    items::<TanzuKubernetesRelease>(&mut server, None)
        .retain(|release| !release["metadata"]["name"].as_str().unwrap().starts_with("v1.35"));
    let (plan, _) = planned_by(server, &["--to", "v1.36"]).await.unwrap();
    let reasons = reasons(&plan);
    assert!(
        plan.is_blocked() && reasons.contains(&"NoTKRForHop"),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn steps_that_sluice_plans_need_the_list_of_templates() {
    let mut server = with_own_steps();
    server.refuse(ClusterBootstrapTemplate::url_path(&(), Some("tkg-system")), 403);
    let trouble = planned_by(server, &[]).await.unwrap_err();
    let says = "list clusterbootstraptemplates.run.tanzu.vmware.com: refused with 403";
    assert!(trouble.to_string().starts_with(says), "{trouble}");
    assert_eq!(trouble.code(), ExitCode::from(1));
}

#[rstest]
#[case::unknown_cluster(|server: &mut Server| server.0.clear(), &[], 1, "Cluster prod/edge-1 does not exist")]
#[case::unknown_release(|_: &mut Server| (), &["--to", "v1.36"], 2, "--to \"v1.36\" is no TanzuKubernetesRelease")]
#[case::no_rights(
    |server: &mut Server| server.refuse(TanzuKubernetesRelease::url_path(&(), None), 403),
    &[],
    1,
    "list tanzukubernetesreleases.run.tanzu.vmware.com: refused with 403"
)]
#[case::not_managed(unmanage, &[], 1, "Cluster prod/edge-1 is not managed by Sluice")]
#[tokio::test]
async fn what_keeps_a_plan_from_being_made_is_one_line(
    #[case] change: fn(&mut Server),
    #[case] more: &[&str],
    #[case] code: u8,
    #[case] says: &str,
) {
    let mut server = server();
    change(&mut server);
    let trouble = planned_by(server, more).await.unwrap_err();
    let line = trouble.to_string();
    assert!(line.starts_with(says) && line.lines().count() == 1, "{line}");
    assert_eq!(trouble.code(), ExitCode::from(code));
}

/// Removes the release label and the ClusterBootstrap.
fn unmanage(server: &mut Server) {
    let path = format!("{}/edge-1", ClusterBootstrap::url_path(&(), Some("prod")));
    server.0.remove(&path);
    let path = format!("{}/edge-1", Cluster::url_path(&(), Some("prod")));
    if let Some((_, cluster)) = server.0.get_mut(&path) {
        cluster["metadata"]["labels"] = json!({});
    }
}
