//! The API server refuses Clusters that cannot be resolved, with the reason.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::admission::unregister;
use sluice_tests::objects::{RESOLVE, RESOLVE_IMAGE, Release, TKR, cluster};
use sluice_tests::scenario::{Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::wait;

use super::{admit, class, is_of, release};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "resolve-refused",
        "each Cluster that cannot be resolved is refused with the query, the part and the nearest releases; each other one is stored",
        |scene| Box::pin(run(scene)),
    )
    .class(class(Some("team=a")))
    // Releases of others would be candidates.
    .own_stack()
}

/// A change of a Cluster that would be resolved, and parts of its refusal.
struct Case {
    what: &'static str,
    change: Value,
    says: Vec<String>,
}

async fn run(scene: Scene) -> Result<()> {
    let good = release(&scene, VERSIONS[1], 1, &["ubuntu"])?;
    let twice = release(&scene, VERSIONS[1], 2, &["ubuntu", "photon"])?;
    let incompatible = release(&scene, VERSIONS[2], 3, &["ubuntu"])?;
    let deactivated = release(&scene, VERSIONS[2], 4, &["ubuntu"])?;
    let other_team = release(&scene, VERSIONS[2], 5, &["ubuntu"])?;
    for (release, labels) in [
        (&good, json!({"team": "a"})),
        (&twice, json!({"team": "a", "two": ""})),
        (&incompatible, json!({"team": "a"})),
        (&deactivated, json!({"team": "a", "deactivated": ""})),
        (&other_team, json!({"team": "b"})),
    ] {
        scene.publish(release).await?;
        let path = format!("{}/{}", Release::PATH, release.name());
        scene
            .objects()
            .merge(&path, &json!({"metadata": {"labels": labels}}))
            .await?;
    }
    let compatible: Vec<String> = [&good, &twice, &deactivated, &other_team]
        .iter()
        .map(|release| release.name().replace("---", "+"))
        .collect();
    let list = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "resolve-refused", "namespace": "tkg-system",
            "labels": {"run.tanzu.vmware.com/additional-compatible-tkrs": ""},
        },
        "data": {"tkrVersions": json!(compatible).to_string()},
    });
    scene.apply(&[list]).await?;
    let webhooks = admit(&scene).await?;

    let manifest = cluster(scene.namespace(), "new", "v1.35", None, 0);
    let only_one = json!({"metadata": {"annotations": {RESOLVE: "team=a,!two"}}});
    wait::until("a Cluster to be resolved", TIMEOUT, || async {
        let written = create(&scene, &manifest, &only_one).await?;
        match is_of(&written, &good, &super::image(&good, "ubuntu")) {
            Ok(()) => Ok(()),
            Err(why) => wait::not_yet(why),
        }
    })
    .await?;
    // The leader has judged which releases are compatible.
    let judged = Case {
        what: "releases that are incompatible, deactivated or of others",
        change: json!({"spec": {"topology": {"version": "v1.36"}}}),
        says: vec![
            format!("{} is not selected by \"team=a\"", other_team.name()),
            format!("{} is deactivated", deactivated.name()),
            format!("{} is incompatible", incompatible.name()),
        ],
    };
    wait::until("incompatible releases to be refused", TIMEOUT, || async {
        match judged.check(&scene, &manifest).await {
            Ok(()) => Ok(()),
            Err(why) => wait::not_yet(why),
        }
    })
    .await?;
    for case in cases(&good, &twice, &deactivated) {
        case.check(&scene, &manifest).await?;
    }
    let mut stored = manifest.clone();
    crate::admission::merge(&mut stored, &only_one);
    scene.apply(&[stored]).await?;
    refused_updates(&scene, &deactivated).await?;
    scene
        .objects()
        .delete("/api/v1/namespaces/tkg-system/configmaps/resolve-refused")
        .await?;
    unregister(&scene.client(), &webhooks).await
}

/// What cannot be resolved of the Cluster that is stored is refused as well, and it stays as it was.
async fn refused_updates(scene: &Scene, deactivated: &Release) -> Result<()> {
    let new = scene.cluster("new").existing();
    let before = new.object().await?["spec"].clone();
    let version = |version: &str| json!({"spec": {"topology": {"version": version}}});
    let label = json!({"metadata": {"labels": {TKR: deactivated.name()}}, "spec": {"topology": {"version": "v1.36"}}});
    for (change, says) in [
        (
            version("v1.37"),
            "no version has this prefix, the nearest are".to_owned(),
        ),
        (version("v1.36"), format!("{} is deactivated", deactivated.name())),
        (label, format!("{} is deactivated", deactivated.name())),
    ] {
        let Err(error) = new.try_patch(&change).await else {
            bail!("{change} is admitted");
        };
        let error = format!("{error:#}");
        ensure!(
            error.contains(&says),
            "{change} is refused with {error:?}, not with {says:?}"
        );
    }
    let after = new.object().await?["spec"]["topology"].clone();
    ensure!(
        before["topology"] == after,
        "the topology is {after}, not {before}"
    );
    Ok(())
}

fn cases(good: &Release, twice: &Release, deactivated: &Release) -> Vec<Case> {
    let workers = |pool: Value| json!({"spec": {"topology": {"workers": {"machineDeployments": [pool]}}}});
    let of_photon = json!({"metadata": {"annotations": {RESOLVE_IMAGE: "os-name=flatcar"}}});
    let data =
        |value: Value| json!({"spec": {"topology": {"variables": [{"name": "TKR_DATA", "value": value}]}}});
    let says = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    vec![
        Case {
            what: "two images",
            change: json!({}),
            says: says(&[
                "has 2 OSImages for controlPlane",
                &twice.name(),
                "query: {version v1.35, releases \"team=a\"}",
            ]),
        },
        Case {
            what: "no image",
            change: json!({"spec": {"topology": {"controlPlane": of_photon}}}),
            says: says(&["has no OSImage for controlPlane", &good.name(), "os-name=flatcar"]),
        },
        Case {
            what: "no image for a pool",
            change: workers(json!({"name": "md", "class": "default", "metadata": of_photon["metadata"]})),
            says: says(&[
                "has no OSImage for machineDeployments[md]",
                "machineDeployments: [md]",
            ]),
        },
        Case {
            what: "no release of the version",
            change: json!({"spec": {"topology": {"version": "v1.37"}}}),
            says: says(&["no version has this prefix, the nearest are"]),
        },
        Case {
            what: "a label of a release that is deactivated",
            change: json!({"metadata": {"labels": {TKR: deactivated.name()}}, "spec": {"topology": {"version": "v1.36"}}}),
            says: says(&[&deactivated.name(), "is deactivated", TKR]),
        },
        Case {
            what: "a label of no release",
            change: json!({"metadata": {"labels": {TKR: "v1.35.4---none"}}}),
            says: says(&["v1.35.4---none does not exist"]),
        },
        Case {
            what: "a selector that cannot be read",
            change: json!({"metadata": {"annotations": {RESOLVE: "a in (b"}}}),
            says: says(&["a in (b", "has no end of its list"]),
        },
        Case {
            what: "a class that does not exist",
            change: json!({"metadata": {"annotations": {RESOLVE: ""}}, "spec": {"topology": {"classRef": {"name": "none"}}}}),
            says: says(&["ClusterClass not found", "none"]),
        },
        Case {
            what: "an unknown class of a pool",
            change: workers(json!({"name": "md", "class": "none"})),
            says: says(&[
                "spec.topology.workers.machineDeployments[md].class",
                "has no such class of workers; it has default, photon",
            ]),
        },
        Case {
            what: "TKR_DATA that is no object",
            change: data(json!("a")),
            says: says(&["spec.topology.variables[TKR_DATA]", "it is not an object"]),
        },
        Case {
            what: "TKR_DATA of no version",
            change: data(json!({"latest": {}})),
            says: says(&["key \"latest\" is not a Kubernetes version"]),
        },
    ]
}

impl Case {
    async fn check(&self, scene: &Scene, manifest: &Value) -> Result<()> {
        let what = self.what;
        let Err(kube::Error::Api(status)) = create(scene, manifest, &self.change).await else {
            bail!("{what} is admitted");
        };
        for says in &self.says {
            ensure!(
                status.message.contains(says.as_str()),
                "{what} is refused with {:?}, not with {says:?}",
                status.message
            );
        }
        ensure!(
            !status.message.contains('\n'),
            "{what} is refused with several lines"
        );
        Ok(())
    }
}

/// A new Cluster that a merge patch makes of `manifest`; it is not stored.
async fn create(scene: &Scene, manifest: &Value, change: &Value) -> Result<Value, kube::Error> {
    let mut object = manifest.clone();
    crate::admission::merge(&mut object, change);
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters?dryRun=All",
        scene.namespace()
    );
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    scene.client().request(request).await
}
