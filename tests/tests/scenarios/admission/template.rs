//! ClusterBootstrapTemplates.

use anyhow::Result;
use serde_json::json;
use sluice_tests::extension::admission::{TEMPLATES, unregister};
use sluice_tests::scenario::{Scenario, Scene};
use sluice_tests::stack::SYSTEM_NAMESPACE;

use super::{Bench, RUN, admitted, refused};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "admission-template",
        "a wrong ClusterBootstrapTemplate is refused, and none can be changed",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let bench = Bench::of(scene.clone()).await?;
    let webhooks = bench.admit().await?;
    let name = format!("{TEMPLATES}{}", scene.namespace());
    let mut template = bench.good(&name);
    template["kind"] = json!("ClusterBootstrapTemplate");
    template["metadata"]["namespace"] = json!(SYSTEM_NAMESPACE);
    // Its references may be created later.
    template["spec"]["csi"]["refName"] = json!(bench.package("csi", "9.9.9"));
    let elsewhere = json!({"metadata": {"namespace": scene.namespace()}});
    for case in [
        admitted("a good one", json!({})),
        refused(
            "one in another namespace",
            elsewhere,
            format!("{:?}", scene.namespace()),
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
            "two sources",
            json!({"spec": {"cni": {"valuesFrom": {"secretRef": "values"}}}}),
            "valuesFrom can't have more than one non-null subfield",
        ),
        refused(
            "no API group",
            json!({"spec": {"cni": {"valuesFrom": {"providerRef": {"apiGroup": null}}}}}),
            "apiGroup can't be nil",
        ),
    ] {
        let written = bench.create(template.clone(), &case.change).await;
        case.check(written)?;
    }

    scene.apply(&[template]).await?;
    let path = format!("{RUN}/{SYSTEM_NAMESPACE}/clusterbootstraptemplates/{name}");
    let immutable = "ClusterBootstrapTemplate has immutable spec, update is not allowed";
    for case in [
        admitted("another label", json!({"metadata": {"labels": {"team": "a"}}})),
        refused(
            "another version",
            json!({"spec": {"cni": {"refName": bench.package("antrea", "1.0.0")}}}),
            immutable,
        ),
        // No rule of the definition covers this field.
        refused(
            "other inline values",
            json!({"spec": {"additionalPackages": [{"refName": bench.package("foo", "1.0.0+vmware.1-tkg.2"), "valuesFrom": {"inline": {"a": 2}}}]}}),
            immutable,
        ),
    ] {
        let written = bench.patch(&path, &case.change).await;
        case.check(written)?;
    }
    scene.objects().delete(&path).await?;
    unregister(&scene.client(), &webhooks).await
}
