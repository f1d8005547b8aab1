//! Objects that provide values: every Cluster gets copies of those that the template of its release names, a user's own ones win, and
//! what they refer to comes along.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::{Class, Infrastructure, Provider, Release, TKR, Values};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{given, is_completed};

const CLUSTER_NAME: &str = "tkg.tanzu.vmware.com/cluster-name";
const PACKAGE_NAME: &str = "tkg.tanzu.vmware.com/package-name";

/// Group and plural of every kind of configuration that a Cluster on vSphere may have: Oracle's has values on Oracle's infrastructure only.
const CONFIGURATIONS: [(&str, &str); 9] = [
    ("run.tanzu.vmware.com/v1alpha3", "kappcontrollerconfigs"),
    ("cni.tanzu.vmware.com/v1alpha1", "antreaconfigs"),
    ("cni.tanzu.vmware.com/v1alpha1", "calicoconfigs"),
    ("cpi.tanzu.vmware.com/v1alpha1", "vspherecpiconfigs"),
    ("cpi.tanzu.vmware.com/v1alpha1", "kubevipcpiconfigs"),
    ("csi.tanzu.vmware.com/v1alpha1", "vspherecsiconfigs"),
    ("csi.tanzu.vmware.com/v1alpha1", "awsebscsiconfigs"),
    ("csi.tanzu.vmware.com/v1alpha1", "azurediskcsiconfigs"),
    ("csi.tanzu.vmware.com/v1alpha1", "azurefilecsiconfigs"),
];

fn on_vsphere(scenario: Scenario) -> Scenario {
    scenario.class(Class {
        infrastructure: Infrastructure::VSphere,
        ..Class::default()
    })
}

pub(crate) fn from_template() -> Scenario {
    on_vsphere(Scenario::new(
        "create-provided",
        "the template of a release names a configuration of each kind but Oracle's: each of two Clusters of a namespace gets copies of its own, its packages run with their values, and nothing is left of it once it is deleted",
        |scene| Box::pin(all_kinds(scene)),
    ))
}

pub(crate) fn preconfigured() -> Scenario {
    on_vsphere(Scenario::new(
        "create-preconfigured",
        "an AntreaConfig that a user made before the Cluster is used in place of the template's, and goes with the Cluster",
        |scene| Box::pin(made_before(scene)),
    ))
}

pub(crate) fn embedded() -> Scenario {
    on_vsphere(Scenario::new(
        "create-embedded",
        "a configuration names a Secret: it is copied beside it under its name, two Clusters share it, and it stays for as long as one of them is there",
        |scene| Box::pin(credentials(scene)),
    ))
}

/// A provider of values in `version` of a group.
fn provider(group: &'static str, kind: &'static str, spec: Value) -> Values {
    let version = if group == "run.tanzu.vmware.com" {
        "v1alpha3"
    } else {
        "v1alpha1"
    };
    Values::Provider(Provider {
        group,
        version,
        kind,
        spec,
    })
}

fn antrea() -> Values {
    let config = json!({"antrea": {"config": {"defaultMTU": "1400", "trafficEncapMode": "noEncap"}}});
    provider("cni.tanzu.vmware.com", "AntreaConfig", config)
}

fn kapp_controller() -> Values {
    let config =
        json!({"kappController": {"createNamespace": false, "config": {"noProxy": ".harness.test"}}});
    provider("run.tanzu.vmware.com", "KappControllerConfig", config)
}

/// Values per package of each kind: package, field, and expected text.
type Expected = (&'static str, &'static str, Value);

/// A release whose packages take their values from each of these kinds of configuration.
fn every_kind(scene: &Scene) -> Result<(Release, Vec<Expected>)> {
    let (cpi, csi, cni) = (
        "cpi.tanzu.vmware.com",
        "csi.tanzu.vmware.com",
        "cni.tanzu.vmware.com",
    );
    let mut release = scene
        .release(VERSIONS[1], "1.9.0", Delay::NONE)?
        .cpi(scene.package("vsphere-cpi", "1.9.0"))
        .csi(scene.package("vsphere-csi", "1.9.0"))
        .values("kapp-controller", kapp_controller())
        .values("antrea", antrea())
        .values(
            "vsphere-cpi",
            provider(
                cpi,
                "VSphereCPIConfig",
                json!({"vsphereCPI": {"mode": "vsphereCPI", "region": "r1"}}),
            ),
        )
        .values(
            "vsphere-csi",
            provider(
                csi,
                "VSphereCSIConfig",
                json!({"vsphereCSI": {"mode": "vsphereCSI", "config": {"zone": "z1"}}}),
            ),
        );
    let mut expected = vec![
        ("antrea", "/antrea/config/defaultMTU", json!("1400")),
        ("vsphere-cpi", "/vsphereCPI/server", json!("vcenter.harness.test")),
        ("vsphere-cpi", "/vsphereCPI/region", json!("r1")),
        ("vsphere-csi", "/vsphereCSI/publicNetwork", json!("VM Network")),
    ];
    for (short, group, kind, spec, field, says) in [
        (
            "calico",
            cni,
            "CalicoConfig",
            json!({"calico": {"config": {"vethMTU": 1300}}}),
            "/calico/config/vethMTU",
            json!("1300"),
        ),
        (
            "kube-vip",
            cpi,
            "KubevipCPIConfig",
            json!({"loadbalancerCIDRs": "10.0.0.1/24"}),
            "/kubevipCloudProvider/loadbalancerCIDRs",
            json!("10.0.0.1/24"),
        ),
        (
            "aws-ebs-csi",
            csi,
            "AwsEbsCSIConfig",
            json!({"awsEBSCSIDriver": {"namespace": "ebs", "deploymentReplicas": 2}}),
            "/awsEBSCSIDriver/deployment_replicas",
            json!(2),
        ),
        (
            "azuredisk-csi",
            csi,
            "AzureDiskCSIConfig",
            json!({"azureDiskCSIDriver": {"namespace": "disk"}}),
            "/azureDiskCSIDriver/namespace",
            json!("disk"),
        ),
        (
            "azurefile-csi",
            csi,
            "AzureFileCSIConfig",
            json!({"azureFileCSIDriver": {"namespace": "file"}}),
            "/azureFileCSIDriver/namespace",
            json!("file"),
        ),
    ] {
        release = release
            .additional(scene.package(short, "1.9.0"))
            .values(short, provider(group, kind, spec));
        expected.push((short, field, says));
    }
    Ok((release, expected))
}

async fn all_kinds(scene: Scene) -> Result<()> {
    let (release, expected) = every_kind(&scene)?;
    scene.publish(&release).await?;
    let names = ["one", "two"];
    for name in names {
        let login = json!({"username": "user", "password": "password"});
        scene.apply(&[secret(scene.namespace(), name, &login)]).await?;
        scene.cluster(name).at(&release).create().await?;
    }
    let mut clusters = Vec::new();
    for name in names {
        let cluster = scene.cluster(name).at(&release).create_settled(&release).await?;
        is_completed(&cluster).await?;
        for (package, field, says) in &expected {
            let values = given(&cluster, &release, package).await?;
            ensure!(
                values.pointer(field) == Some(says),
                "{package} of {name} runs with {values}; {field} should be {says}"
            );
        }
        let found = configurations_of(&scene, name).await?;
        ensure!(found.len() == CONFIGURATIONS.len(), "{name} has {found:?}");
        clusters.push(cluster);
    }
    let [one, two] = [names[0], names[1]].map(|name| configurations_of(&scene, name));
    let (one, two) = (one.await?, two.await?);
    ensure!(one.is_disjoint(&two), "both have {:?}", one.intersection(&two));

    let cluster = clusters.remove(0);
    cluster.delete().await?;
    is_collected(&scene, cluster.name()).await?;
    let left = configurations_of(&scene, "two").await?;
    ensure!(left == two, "of {two:?} {left:?} is left");
    clusters[0].is_available(TIMEOUT).await?;
    clusters.remove(0).delete().await?;
    is_collected(&scene, "two").await
}

fn secret(namespace: &str, name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": data})
}

/// Plural and name of each configuration that is labelled with the Cluster, as `kubectl get … -l` lists them.
async fn configurations_of(scene: &Scene, cluster: &str) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (group, plural) in CONFIGURATIONS {
        for item in labelled(scene, &format!("/apis/{group}"), plural, cluster).await? {
            let labels = &item["metadata"]["labels"];
            ensure!(
                labels[PACKAGE_NAME].is_string(),
                "{plural} {} is labelled {labels}",
                item["metadata"]["name"]
            );
            found.insert(format!("{plural} {}", item["metadata"]["name"]));
        }
    }
    Ok(found)
}

async fn labelled(scene: &Scene, group: &str, plural: &str, cluster: &str) -> Result<Vec<Value>> {
    let selector = format!("{CLUSTER_NAME}%3D{cluster}").replace('/', "%2F");
    let path = format!(
        "{group}/namespaces/{}/{plural}?labelSelector={selector}",
        scene.namespace()
    );
    let listed = scene.objects().get(&path).await?.context("no list")?;
    Ok(listed["items"].as_array().cloned().unwrap_or_default())
}

/// Waits until nothing is left that is labelled with the Cluster.
async fn is_collected(scene: &Scene, cluster: &str) -> Result<()> {
    let what = format!("what belonged to {cluster} to be collected");
    wait::until(what, TIMEOUT, || async {
        let configurations = configurations_of(scene, cluster).await?;
        let secrets = labelled(scene, "/api/v1", "secrets", cluster).await?;
        let secrets: Vec<_> = secrets
            .iter()
            .map(|secret| secret["metadata"]["name"].clone())
            .collect();
        if configurations.is_empty() && secrets.is_empty() {
            return Ok(());
        }
        wait::not_yet(format!("{configurations:?}, Secrets {secrets:?}"))
    })
    .await?;
    Ok(())
}

/// The two objects of the announcement of the addons-manager, in its words but for placeholders, topology and release.
async fn made_before(scene: Scene) -> Result<()> {
    let release = scene
        .release(VERSIONS[1], "1.9.0", Delay::NONE)?
        .cpi(scene.package("vsphere-cpi", "1.9.0"))
        .values("kapp-controller", kapp_controller())
        .values("antrea", antrea())
        .values(
            "vsphere-cpi",
            provider(
                "cpi.tanzu.vmware.com",
                "VSphereCPIConfig",
                json!({"vsphereCPI": {"mode": "vsphereCPI"}}),
            ),
        );
    scene.publish(&release).await?;
    let namespace = scene.namespace();
    let login = json!({"username": "user", "password": "password"});
    let config = json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1",
        "kind": "AntreaConfig",
        "metadata": {"name": "my-cluster-antrea-package", "namespace": namespace},
        "spec": {"antrea": {"config": {"defaultMTU": 9000}}},
    });
    let cluster = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Cluster",
        "metadata": {"name": "my-cluster", "namespace": namespace, "labels": {TKR: release.name()}},
        "spec": {
            "clusterNetwork": {
                "pods": {"cidrBlocks": ["192.168.0.0/16", "fd00:100:96::/48"]},
                "services": {"cidrBlocks": ["192.168.0.0/16", "fd00:100:96::/48"]},
            },
            "topology": {"class": Class::name(), "version": release.kubernetes(), "controlPlane": {"replicas": 1}},
        },
    });
    scene
        .apply(&[secret(namespace, "my-cluster", &login), config, cluster])
        .await?;
    let cluster = scene.cluster("my-cluster").existing();
    cluster.packages_proven(&release, 0, TIMEOUT).await?;
    cluster.is_available(TIMEOUT).await?;
    is_completed(&cluster).await?;

    let values = given(&cluster, &release, "antrea").await?;
    let config = &values["antrea"]["config"];
    // Nothing of the template's.
    ensure!(
        config["defaultMTU"] == "9000" && config["trafficEncapMode"] == "encap",
        "antrea runs with {values}"
    );
    let found = configurations_of(&scene, "my-cluster").await?;
    let expected = [
        "antreaconfigs \"my-cluster-antrea-package\"",
        "kappcontrollerconfigs \"my-cluster-kapp-controller-package\"",
        "vspherecpiconfigs \"my-cluster-vsphere-cpi-package\"",
    ];
    ensure!(found == expected.map(str::to_owned).into(), "it has {found:?}");
    cluster.delete().await?;
    is_collected(&scene, "my-cluster").await
}

async fn credentials(scene: Scene) -> Result<()> {
    let namespace = scene.namespace();
    let name = format!("{namespace}-credentials");
    let reference = json!({"kind": "Secret", "name": name});
    let config = json!({"vsphereCPI": {"mode": "vsphereCPI", "vSphereCredentialLocalObjRef": reference}});
    let release = scene
        .release(VERSIONS[1], "1.9.0", Delay::NONE)?
        .cpi(scene.package("vsphere-cpi", "1.9.0"))
        .values(
            "vsphere-cpi",
            provider("cpi.tanzu.vmware.com", "VSphereCPIConfig", config),
        );
    scene.publish(&release).await?;
    let login = json!({"username": "of-template", "password": "password"});
    scene.apply(&[secret(SYSTEM_NAMESPACE, &name, &login)]).await?;
    let one = scene.cluster("one").create_settled(&release).await?;
    says_user(&one, &release, "of-template").await?;

    // A user's edit stays when another Cluster takes it, too.
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    scene
        .objects()
        .merge(&path, &json!({"stringData": {"username": "of-user"}}))
        .await?;
    let two = scene.cluster("two").create_settled(&release).await?;
    says_user(&two, &release, "of-user").await?;
    let copied = scene.objects().get(&path).await?.context("no copy")?;
    let owners = |secret: &Value| {
        let owners = secret["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten();
        owners
            .filter_map(|owner| owner["name"].as_str().map(str::to_owned))
            .collect::<BTreeSet<_>>()
    };
    ensure!(
        owners(&copied) == ["one", "two"].map(str::to_owned).into(),
        "it belongs to {:?}",
        owners(&copied)
    );

    one.delete().await?;
    is_collected(&scene, "one").await?;
    let left = scene
        .objects()
        .get(&path)
        .await?
        .context("it went with the first Cluster")?;
    ensure!(
        left["metadata"]["uid"] == copied["metadata"]["uid"],
        "it was made again"
    );
    says_user(&two, &release, "of-user").await?;
    two.delete().await?;
    is_collected(&scene, "two").await?;
    wait::until(
        "the shared Secret to go with the last Cluster",
        TIMEOUT,
        || async {
            match scene.objects().get(&path).await? {
                None => Ok(()),
                Some(left) => wait::not_yet(&left["metadata"]["ownerReferences"]),
            }
        },
    )
    .await?;
    Ok(())
}

/// Fails unless vsphere-cpi runs with the login of this user.
async fn says_user(cluster: &Cluster, release: &Release, user: &str) -> Result<()> {
    let values = given(cluster, release, "vsphere-cpi").await?;
    let runs_with = &values["vsphereCPI"]["username"];
    ensure!(runs_with == user, "vsphere-cpi runs with {runs_with}");
    Ok(())
}
