//! Changes, defects and repairs of the watched objects that a configuration depends on.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use sluice_tests::wait;

use crate::TIMEOUT;
use crate::around::{class, patch, read, remove, secret, write};
use crate::golden::Case;

/// A case, moved to a namespace of its own.
pub(crate) fn case(name: &str, namespace: &str) -> Result<Case> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../extension/core/tests/providers/cases");
    Case::read(&root.join(name), namespace)
}

/// The object of `kind` around it.
pub(crate) fn source<'a>(case: &'a Case, kind: &str) -> Result<&'a Value> {
    let mut sources = case.sources.iter();
    sources
        .find(|object| object["kind"] == kind)
        .with_context(|| format!("no {kind}"))
}

/// One change after the other, each of another source; kinds that share none of them side by side.
pub(crate) async fn every_source_is_observed(client: &Client) -> Result<()> {
    tokio::try_join!(
        towards_vcenter(client),
        towards_a_supervisor(client),
        towards_nsx(client),
        network_and_tolerations(client),
        the_identity_of_a_tenant(client),
        problems_can_be_repaired(client),
    )
    .map(drop)
}

async fn towards_vcenter(client: &Client) -> Result<()> {
    class(client, "mutated-csi").await?;
    let mut case = case("vsphere-csi/minimal.yaml", "mutated-csi")?;
    let mut values = case.settle(client).await?;

    let changes = [
        (
            source(&case, "KubeadmControlPlane")?,
            json!({"spec": {"replicas": 1}}),
            "deployment_replicas",
            json!(1),
        ),
        (
            source(&case, "VSphereCluster")?,
            json!({"spec": {"server": "moved.example"}}),
            "server",
            json!("moved.example"),
        ),
        (
            source(&case, "VSphereMachineTemplate")?,
            json!({"spec": {"template": {"spec": {"datacenter": "/moved"}}}}),
            "datacenter",
            json!("/moved"),
        ),
        (
            &case.cluster,
            json!({"metadata": {"annotations": {"tkg.tanzu.vmware.com/tkg-http-proxy": "http://new.example"}}}),
            "http_proxy",
            json!("http://new.example"),
        ),
        (
            &case.config,
            json!({"spec": {"vsphereCSI": {"config": {"windowsSupport": true}}}}),
            "windows_support",
            json!(true),
        ),
    ];
    for (object, change, field, value) in changes {
        patch(client, object, &change).await?;
        values["vsphereCSI"][field] = value;
        case.values_are(client, &values)
            .await
            .with_context(|| format!("change of {field}"))?;
    }

    // Irrelevant changes cause no write. The last change proves that all earlier ones were reconciled.
    let written = secret("mutated-csi", "c1-vsphere-csi-data-values");
    let before = read(client, &written)
        .await?
        .context("no Secret")?
        .resource_version();
    let config_before = read(client, &case.config)
        .await?
        .context("no configuration")?
        .resource_version();
    let unrelated = json!({"metadata": {"labels": {"somebody": "else"}}});
    for object in [
        source(&case, "KubeadmControlPlane")?,
        source(&case, "VSphereCluster")?,
        &case.cluster,
    ] {
        patch(client, object, &unrelated).await?;
    }
    let mut other = case_beside(client).await?;
    other.sources.clear();
    let after = read(client, &written)
        .await?
        .context("no Secret")?
        .resource_version();
    let config_after = read(client, &case.config)
        .await?
        .context("no configuration")?
        .resource_version();
    ensure!(before == after, "the Secret was written: {before:?} to {after:?}");
    ensure!(
        config_before == config_after,
        "the status was written: {config_before:?} to {config_after:?}"
    );
    Ok(())
}

/// Another configuration, made after the others were changed: its values come after theirs.
async fn case_beside(client: &Client) -> Result<Case> {
    let mut case = case("vsphere-csi/few-replicas.yaml", "beside-csi")?;
    case.settle(client).await?;
    Ok(case)
}

async fn towards_a_supervisor(client: &Client) -> Result<()> {
    let mut csi = case("vsphere-csi/paravirtual-minimal.yaml", "mutated-pvcsi")?;
    let mut values = csi.settle(client).await?;
    let zone = json!({"apiVersion": "topology.tanzu.vmware.com/v1alpha1", "kind": "AvailabilityZone", "metadata": {"name": "second"}});
    write(client, &zone).await?;
    values["vspherePVCSI"]["zone"] = json!(true);
    csi.values_are(client, &values).await.context("a second zone")?;
    remove(client, &zone).await?;
    values["vspherePVCSI"]["zone"] = json!(false);
    csi.values_are(client, &values).await.context("one zone again")?;
    let features = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "csi-feature-states", "namespace": "vmware-system-csi"}, "data": {"new": "true"},
    });
    write(client, &features).await?;
    values["vspherePVCSI"]["feature_states"] = json!({"new": "true"});
    csi.values_are(client, &values).await.context("features")?;
    remove(client, &features).await?;

    let mut cpi = case("vsphere-cpi/paravirtual.yaml", "mutated-pvcpi")?;
    let mut values = cpi.settle(client).await?;
    let service = source(&cpi, "Service")?;
    remove(client, service).await?;
    values["vsphereCPI"]["supervisorMasterEndpointIP"] = json!("10.2.2.2");
    values["vsphereCPI"]["supervisorMasterPort"] = json!("7443");
    cpi.values_are(client, &values)
        .await
        .context("cluster-info instead of a load balancer")?;
    // An account that a user removed is made again.
    let account = json!({
        "apiVersion": "vmware.infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProviderServiceAccount",
        "metadata": {"name": "c1-infra-ccm", "namespace": "mutated-pvcpi"},
    });
    remove(client, &account).await?;
    exists(client, &account, true).await
}

async fn exists(client: &Client, object: &Value, wanted: bool) -> Result<()> {
    let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
    let what = format!("{kind} {name} to {}", if wanted { "exist" } else { "be gone" });
    wait::until(what, TIMEOUT, || async {
        match read(client, object).await? {
            found if found.is_some() == wanted => Ok(()),
            found => wait::not_yet(found.map_or("none", |_| "there is one")),
        }
    })
    .await?;
    Ok(())
}

/// From an account of the Supervisor to an identity made by hand, and back.
async fn towards_nsx(client: &Client) -> Result<()> {
    let mut by_account = case("antrea/nsx-provider.yaml", "mutated-nsx")?;
    let by_hand = case("antrea/nsx-inline.yaml", "mutated-nsx")?;
    by_account.settle(client).await?;
    let account = json!({
        "apiVersion": "nsx.vmware.com/v1alpha1", "kind": "NSXServiceAccount",
        "metadata": {"name": "c1-antrea", "namespace": "mutated-nsx"},
    });
    exists(client, &account, true).await?;

    let certificate = source(&by_hand, "Secret")?;
    write(client, certificate).await?;
    let from = |case: &Case| case.config["spec"]["antreaNsx"]["bootstrapFrom"].clone();
    let switch = |from: Value| json!({"spec": {"antreaNsx": {"bootstrapFrom": from}}});
    let mut inline = from(&by_hand);
    inline["providerRef"] = Value::Null;
    patch(client, &by_account.config, &switch(inline)).await?;
    let mut values = by_hand.expected();
    values["antreaNsx"]["config"] = by_account.config["spec"]["antreaNsx"]["config"].clone();
    by_hand
        .values_are(client, &values)
        .await
        .context("an identity made by hand")?;
    exists(client, &account, false).await?;

    let mut provider = from(&by_account);
    provider["inline"] = Value::Null;
    patch(client, &by_account.config, &switch(provider)).await?;
    by_account
        .values_are(client, &by_account.expected())
        .await
        .context("an account again")?;
    exists(client, &account, true).await?;
    accounts_go_with_their_configuration(client, &by_account, &account).await
}

/// Accounts, also those whose owner an earlier release of Sluice has written, are removed with the AntreaConfig. Its Cluster stays.
async fn accounts_go_with_their_configuration(client: &Client, case: &Case, account: &Value) -> Result<()> {
    let reader = json!({
        "apiVersion": "vmware.infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ProviderServiceAccount",
        "metadata": {"name": "c1-infra-antrea", "namespace": "mutated-nsx"},
    });
    let config = read(client, &case.config).await?.context("no configuration")?;
    let infrastructure = source(case, "VSphereCluster")?;
    let uid = read(client, infrastructure).await?.and_then(|found| found.uid());
    let of_infrastructure = json!([{
        "apiVersion": infrastructure["apiVersion"], "kind": "VSphereCluster", "name": "c1-infra", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    for (object, earlier) in [
        (account, case.config["metadata"]["ownerReferences"].clone()),
        (&reader, of_infrastructure),
    ] {
        patch(client, object, &json!({"metadata": {"ownerReferences": earlier}})).await?;
        let what = format!("{} to be owned by the AntreaConfig alone", object["kind"]);
        wait::until(what, TIMEOUT, || async {
            let found = read(client, object).await?.context("it is gone")?;
            match found.owner_references() {
                [owner] if Some(&owner.uid) == config.uid().as_ref() => Ok(()),
                others => wait::not_yet(format!("{others:?}")),
            }
        })
        .await?;
    }
    remove(client, &case.config).await?;
    exists(client, account, false).await?;
    exists(client, &reader, false).await?;
    let cluster = read(client, &case.cluster).await?;
    ensure!(
        cluster.is_some_and(|cluster| cluster.metadata.deletion_timestamp.is_none()),
        "the Cluster went too"
    );
    Ok(())
}

async fn network_and_tolerations(client: &Client) -> Result<()> {
    class(client, "mutated-kapp").await?;
    let mut kapp = case("kapp-controller/minimal.yaml", "mutated-kapp")?;
    let mut values = kapp.settle(client).await?;
    let variables = json!([{"name": "proxy", "value": {"httpProxy": "http://v.example"}}]);
    patch(
        client,
        &kapp.cluster,
        &json!({"spec": {"topology": {"variables": variables}}}),
    )
    .await?;
    values["kappController"]["config"] = json!({"httpProxy": "http://v.example"});
    kapp.values_are(client, &values)
        .await
        .context("a proxy in the topology")?;
    // A Secret that a user removed is written again when anything changes.
    remove(client, &secret("mutated-kapp", "c1-kapp-controller-data-values")).await?;
    patch(
        client,
        &kapp.config,
        &json!({"spec": {"kappController": {"config": {"noProxy": ".own"}}}}),
    )
    .await?;
    values["kappController"]["config"]["noProxy"] = json!(".own");
    kapp.values_are(client, &values)
        .await
        .context("the Secret again")?;

    families(client).await
}

/// Address ranges, and the annotation with the order of their families.
async fn families(client: &Client) -> Result<()> {
    class(client, "mutated-calico").await?;
    let mut calico = case("calico/minimal.yaml", "mutated-calico")?;
    let mut values = calico.settle(client).await?;
    let ranges =
        json!({"spec": {"clusterNetwork": {"pods": {"cidrBlocks": ["100.96.0.0/11", "fd00::/48"]}}}});
    patch(client, &calico.cluster, &ranges).await?;
    values["ipFamily"] = json!("ipv4,ipv6");
    values["calico"]["config"]["clusterCIDR"] = json!("100.96.0.0/11,fd00::/48");
    calico
        .values_are(client, &values)
        .await
        .context("a second range of Pods")?;

    class(client, "mutated-cpi").await?;
    let mut cpi = case("vsphere-cpi/minimal.yaml", "mutated-cpi")?;
    let mut values = cpi.settle(client).await?;
    let family = json!({"metadata": {"annotations": {"tkg.tanzu.vmware.com/tkg-ip-family": "ipv6,ipv4"}}});
    patch(client, &cpi.cluster, &family).await?;
    values["vsphereCPI"]["ipFamily"] = json!("ipv6,ipv4");
    cpi.values_are(client, &values)
        .await
        .context("another order of families")
}

/// Allowed namespaces and readiness of an identity.
async fn the_identity_of_a_tenant(client: &Client) -> Result<()> {
    let mut case = case("vsphere-csi/identity.yaml", "mutated-tenant")?;
    let values = case.settle(client).await?;

    let identity = source(&case, "VSphereClusterIdentity")?;
    let selected =
        |labels: Value| json!({"spec": {"allowedNamespaces": {"selector": {"matchLabels": labels}}}});
    patch(client, identity, &selected(json!({"tenant": "red"}))).await?;
    case.is_refused(client, "IdentityNotAllowed").await?;
    // The labels of the namespace are a source too.
    let red = json!({"metadata": {"labels": {"tenant": "red"}}});
    patch(client, source(&case, "Namespace")?, &red).await?;
    case.values_are(client, &values).await.context("allowed again")?;

    let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    patch(client, identity, &ready("False")).await?;
    case.is_refused(client, "IdentityNotReady").await?;
    patch(client, identity, &ready("True")).await?;
    case.values_are(client, &values).await.context("ready again")?;
    remove(client, identity).await?;
    remove(client, source(&case, "Secret")?).await
}

/// A configuration reports the missing object, keeps its values, and continues when the object exists.
async fn problems_can_be_repaired(client: &Client) -> Result<()> {
    let mut case = case("vsphere-cpi/minimal.yaml", "repaired")?;
    let values = case.settle(client).await?;
    let breaks = [
        ("VSphereCluster", "InfrastructureNotFound"),
        ("KubeadmControlPlane", "ControlPlaneNotFound"),
    ];
    for (kind, reason) in breaks {
        case.goes_and_comes(client, source(&case, kind)?, reason).await?;
    }
    let owners = &case.config["metadata"]["ownerReferences"];
    let owned = |owners: &Value| json!({"metadata": {"ownerReferences": owners}});
    patch(client, &case.config, &owned(&Value::Null)).await?;
    case.is_refused(client, "OwnerMissing").await?;
    patch(client, &case.config, &owned(owners)).await?;
    case.values_are(client, &values)
        .await
        .context("the owner is back")?;
    a_pause_is_said(client).await?;
    a_cluster_that_comes_later(client).await
}

/// An edit during a pause of the Cluster is reported, and written when the pause ends.
async fn a_pause_is_said(client: &Client) -> Result<()> {
    class(client, "paused").await?;
    let mut case = case("calico/minimal.yaml", "paused")?;
    let mut values = case.settle(client).await?;
    let pause = |paused: bool| json!({"spec": {"paused": paused}});
    patch(client, &case.cluster, &pause(true)).await?;
    let edit = json!({"spec": {"calico": {"config": {"vethMTU": 1400}}}});
    patch(client, &case.config, &edit).await?;
    case.is_refused(client, "ClusterPaused").await?;
    patch(client, &case.cluster, &pause(false)).await?;
    values["calico"]["config"]["vethMTU"] = json!("1400");
    case.values_are(client, &values)
        .await
        .context("the pause has ended")
}

/// Found by its name: one that is owned by a Cluster which does not exist is collected as garbage.
async fn a_cluster_that_comes_later(client: &Client) -> Result<()> {
    let case = case("aws-ebs-csi/minimal.yaml", "repaired-later")?;
    class(client, "repaired-later").await?;
    write(client, &case.config).await?;
    case.is_refused(client, "ClusterNotFound").await?;
    write(client, &case.cluster).await?;
    case.values_are(client, &case.expected())
        .await
        .context("the Cluster is there")
}
