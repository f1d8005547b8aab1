//! ClusterBootstraps.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::scenario::{Scenario, Scene};
use sluice_tests::stack::SYSTEM_NAMESPACE;

use super::{Bench, Case, KEEP, RUN, UNMANAGED, admitted, merge, refused};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "admission-bootstrap",
        "each wrong ClusterBootstrap, new or edited, is refused by the API server in the addons-manager's words, and each right one is stored",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let bench = Bench::of(scene.clone()).await?;
    let webhooks = bench.admit().await?;

    for case in created(&bench) {
        let written = bench.create(bench.good("new"), &case.change).await;
        case.check(written)?;
    }
    scene.apply(&[bench.good("one")]).await?;
    let path = format!("{RUN}/{}/clusterbootstraps/one", scene.namespace());
    for case in updated(&bench) {
        let written = bench.patch(&path, &case.change).await;
        case.check(written)?;
    }

    // A missing object blocks no unrelated edit, and no correction of another field.
    let metrics = bench.package("metrics", "2.0.0");
    let packages = "/apis/data.packaging.carvel.dev/v1alpha1/namespaces";
    scene
        .objects()
        .delete(&format!("{packages}/{SYSTEM_NAMESPACE}/packages/{metrics}"))
        .await?;
    scene
        .objects()
        .delete(&format!(
            "/api/v1/namespaces/{}/secrets/values",
            scene.namespace()
        ))
        .await?;
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    bench
        .patch(&path, &label)
        .await
        .context("a label beside a Package that is gone")?;
    let csi = json!({"spec": {"csi": null}});
    bench
        .patch(&path, &csi)
        .await
        .context("another field beside a Package that is gone")?;

    let metrics = scene.world().extension()?.metrics().await?;
    for outcome in ["Admitted", "Refused"] {
        let counted =
            format!("sluice_admission_reviews_total{{webhook=\"clusterbootstrap\",outcome=\"{outcome}\"}}");
        ensure!(metrics.contains(&counted), "no metric {counted}");
    }
    unregister(&scene.client(), &webhooks).await
}

/// New ones.
fn created(bench: &Bench) -> Vec<Case> {
    let additional = |packages: Value| json!({"spec": {"additionalPackages": packages}});
    let cni = |values: Value| json!({"spec": {"cni": {"valuesFrom": values}}});
    let antrea = bench.package("antrea", "2.0.0");
    let gone = bench.package("antrea", "9.9.9");
    let provider = |kind: &str, name: &str| json!({"providerRef": {"apiGroup": "cni.tanzu.vmware.com", "kind": kind, "name": name}});
    vec![
        admitted("a good one", json!({})),
        admitted("one without CSI", json!({"spec": {"csi": null}})),
        admitted(
            "inline values",
            cni(json!({"providerRef": null, "inline": {"a": 1}})),
        ),
        admitted("default values", json!({"spec": {"cni": {"valuesFrom": null}}})),
        admitted(
            "an unmanaged CNI",
            json!({"metadata": {"annotations": {UNMANAGED: ""}}, "spec": {"cni": null}}),
        ),
        refused(
            "no CNI",
            json!({"spec": {"cni": null}}),
            "spec.cni: Invalid value: \"null\": package can't be nil",
        ),
        refused(
            "no kapp-controller",
            json!({"spec": {"kapp": null}}),
            "spec.kapp: Invalid value: \"null\": package can't be nil",
        ),
        refused(
            "a CNI beside the annotation",
            json!({"metadata": {"annotations": {UNMANAGED: ""}}}),
            "Spec.CNI should be empty if the clusterbootstrap is annotated to use unmanaged CNI.",
        ),
        refused(
            "a Package that does not exist",
            json!({"spec": {"cni": {"refName": gone}}}),
            format!(
                "spec.cni.refName: Invalid value: {gone:?}: packages.data.packaging.carvel.dev {gone:?} not found"
            ),
        ),
        refused(
            "a provider that does not exist",
            cni(provider("CalicoConfig", "none")),
            "calicoconfigs.cni.tanzu.vmware.com \"none\" not found",
        ),
        refused(
            "a kind that is not served",
            cni(json!({"providerRef": {"apiGroup": "nowhere.test", "kind": "Foo", "name": "any"}})),
            "unable to find server preferred resource nowhere.test/Foo",
        ),
        refused(
            "a Secret that does not exist",
            additional(
                json!([{"refName": bench.package("metrics", "2.0.0"), "valuesFrom": {"secretRef": "none"}}]),
            ),
            "spec.additionalPackages[0].valuesFrom.secretRef: Invalid value: \"none\": secrets \"none\" not found",
        ),
        refused(
            "a credential of Cluster API",
            additional(
                json!([{"refName": bench.package("metrics", "2.0.0"), "valuesFrom": {"secretRef": "login"}}]),
            ),
            "is a credential of Kubernetes or Cluster API",
        ),
        refused(
            "two sources",
            cni(json!({"secretRef": "values"})),
            "valuesFrom can't have more than one non-null subfield",
        ),
        refused(
            "no API group",
            cni(json!({"providerRef": {"apiGroup": null}})),
            "apiGroup can't be nil",
        ),
        refused(
            "one package twice",
            additional(json!([
                {"refName": bench.package("metrics", "1.0.0")}, {"refName": bench.package("metrics", "2.0.0")},
            ])),
            "more than one additional packages share the same refName",
        ),
        refused(
            "one short name in two fields",
            additional(json!([{"refName": antrea}])),
            "would be one PackageInstall, antrea",
        ),
        refused(
            "a name that makes others too long",
            json!({"metadata": {"name": "n".repeat(240)}}),
            format!("name {}-kapp-controller", "n".repeat(240)),
        ),
        refused(
            "an annotation that cannot be read",
            json!({"metadata": {"annotations": {KEEP: "antrea"}}}),
            "metadata.annotations[lifecycle.sluice.dev/keep-package-versions]: Invalid value: \"antrea\"",
        ),
    ]
}

/// Edits of a good one.
fn updated(bench: &Bench) -> Vec<Case> {
    let antrea = |version: &str| json!({"spec": {"cni": {"refName": bench.package("antrea", version)}}});
    let keeping = |text: &str, mut change: Value| {
        merge(&mut change, &json!({"metadata": {"annotations": {KEEP: text}}}));
        change
    };
    let additional = |packages: Value| json!({"spec": {"additionalPackages": packages}});
    let metrics =
        json!({"refName": bench.package("metrics", "2.0.0"), "valuesFrom": {"secretRef": "values"}});
    let foobar =
        |build: &str| json!({"refName": bench.package("foo", &format!("1.0.0+vmware.1-tkg.{build}"))});
    let calico = json!({"spec": {"cni": {"refName": bench.package("calico", "2.0.0"), "valuesFrom": null}}});
    vec![
        admitted("another label", json!({"metadata": {"labels": {"team": "a"}}})),
        admitted("no CSI", json!({"spec": {"csi": null}})),
        admitted(
            "a CPI",
            json!({"spec": {"cpi": {"refName": bench.package("calico", "1.0.0")}}}),
        ),
        admitted("default values", json!({"spec": {"cni": {"valuesFrom": null}}})),
        admitted(
            "one more",
            additional(json!([foobar("2"), metrics, {"refName": bench.package("calico", "1.0.0")}])),
        ),
        admitted(
            "a package kept at a lower version",
            keeping("antrea=1.0.0", antrea("1.0.0")),
        ),
        admitted(
            "a package left out on purpose",
            keeping("metrics=none", additional(json!([foobar("2")]))),
        ),
        refused(
            "another CNI",
            calico,
            format!(
                "spec.cni.refName: Invalid value: {:?}: new package refName and old package refName should be the same",
                bench.package("calico", "2.0.0")
            ),
        ),
        refused(
            "a lower CNI",
            antrea("1.0.0"),
            "package downgrade is not allowed, original version: 2.0.0",
        ),
        refused(
            "a lower build",
            additional(json!([metrics, foobar("1")])),
            format!(
                "spec.additionalPackages[1].refName: Invalid value: {:?}: package downgrade is not allowed",
                bench.package("foo", "1.0.0+vmware.1-tkg.1")
            ),
        ),
        refused(
            "a package less",
            additional(json!([foobar("2")])),
            "missing updated additional package",
        ),
        refused(
            "a Secret instead of a provider",
            json!({"spec": {"cni": {"valuesFrom": {"providerRef": null, "secretRef": "values"}}}}),
            "change from providerRef to other types of data value representation is not allowed",
        ),
        refused(
            "another kind of provider",
            json!({"spec": {"cni": {"valuesFrom": {"providerRef": {"kind": "CalicoConfig"}}}}}),
            "change to Group and Kind in ProviderRef is not allowed",
        ),
        refused(
            "no CNI any more",
            json!({"spec": {"cni": null}}),
            "package can't be nil",
        ),
        refused(
            "a CNI that is not ours any more",
            json!({"metadata": {"annotations": {UNMANAGED: ""}}}),
            "Spec.CNI should be empty",
        ),
    ]
}
