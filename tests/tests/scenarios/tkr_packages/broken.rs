//! Broken packages, each with its own message, beside good ones.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_tests::objects::Release;
use sluice_tests::repository::{Bundle, Files, Source, TkrPackage};
use sluice_tests::scenario::{Scenario, Scene, VERSIONS};
use sluice_tests::stack::SYSTEM_NAMESPACE;
use sluice_tests::wait;

use super::{INSTALLED, image, is_installed, is_ready, there, until};

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "tkr-broken",
        "broken bundles, foreign objects, images and releases of another App, a repository that is not there and a PackageInstall of others: each is reported on the object at fault, and blocks no other package",
        |scene| Box::pin(run(scene)),
    )
}

async fn run(scene: Scene) -> Result<()> {
    let files = Files::serve().await?;
    let missing = files.missing();
    let source = Source::Files(files);
    let name = |of: &str| format!("{of}-{}", scene.namespace());
    let noble = image(&name("noble"), VERSIONS[1]);
    let first = publish(
        &scene,
        &source,
        1,
        &[noble.clone(), release(&scene, 1, &name("noble"))],
    )
    .await?;
    scene.offer(&source, &[first.package()]).await?;
    is_ready(&scene, &release_name(&scene, 1)).await?;

    // A PackageInstall of a user has the name that Sluice would take.
    let taken = publish(&scene, &source, 2, &[release(&scene, 2, &name("noble"))]).await?;
    let others = json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageInstall",
        "metadata": {"name": taken.install(), "namespace": SYSTEM_NAMESPACE},
        "spec": {"paused": true, "serviceAccountName": "of-a-user", "packageRef": {"refName": "other.test"}},
    });
    scene.apply(&[others]).await?;

    let unread = source
        .publish("unread", &Bundle::default().file("config/a.yml", "a: ["))
        .await?;
    let unfetched = TkrPackage::new(scene.namespace(), &version(&scene, 3), missing.clone());
    let unread = TkrPackage::new(scene.namespace(), &version(&scene, 4), unread);
    let owned = publish(&scene, &source, 5, &[noble, release(&scene, 5, &name("noble"))]).await?;
    let twice = publish(&scene, &source, 6, &[release(&scene, 1, &name("noble"))]).await?;
    let foreign = publish(&scene, &source, 7, &[role(&name("foreign"))]).await?;
    let secret = publish(&scene, &source, 9, &[token_secret(&name("token"))]).await?;
    let settings = ["Secret", "ConfigMap"].map(kapp_controller_config);
    let settings = publish(&scene, &source, 10, &settings).await?;
    let good = publish(&scene, &source, 8, &[release(&scene, 8, &name("noble"))]).await?;
    let first_app = format!("App {SYSTEM_NAMESPACE}/{}", first.install());
    let faults = [
        (&taken, "PackageInstallNotOurs", taken.install()),
        (&unfetched, "TKRPackageFailed", "404".to_owned()),
        (&unread, "TKRPackageFailed", "ytt".to_owned()),
        (&owned, "OwnedByAnotherApp", first_app.clone()),
        (&twice, "OwnedByAnotherApp", first_app),
        (&foreign, "RightMissing", "sluice-tkr-installer".to_owned()),
        (&secret, "TKRPackageFailed", "contains credentials".to_owned()),
        (
            &settings,
            "TKRPackageFailed",
            "settings of kapp-controller".to_owned(),
        ),
    ];
    let broken = faults.iter().map(|(package, _, _)| *package);
    let all = [&first].into_iter().chain(broken).chain([&good]);
    let all: Vec<Value> = all.map(TkrPackage::package).collect();
    scene.offer(&source, &all).await?;
    let nowhere = format!("{}-nowhere", scene.namespace());
    scene.apply(&[nowhere_to_be_fetched(&nowhere, &missing)]).await?;

    is_ready(&scene, &release_name(&scene, 8)).await?;
    for (package, reason, names) in &faults {
        has_event(&scene, package, reason, names).await?;
    }
    // That of a user is not tried.
    for (package, _, _) in &faults[1..] {
        let what = format!("{} to have failed", package.name());
        until(&scene, &package.install_path(), what, |install| {
            super::condition(install, "ReconcileFailed").is_some()
        })
        .await?;
    }
    let nowhere = scene.repository_path().replace(scene.namespace(), &nowhere);
    until(
        &scene,
        &nowhere,
        "the repository to have failed".to_owned(),
        |repository| super::condition(repository, "ReconcileFailed").is_some(),
    )
    .await?;
    let left = there(&scene, &taken.install_path()).await?;
    ensure!(
        left["spec"]["serviceAccountName"] == "of-a-user",
        "{}",
        left["spec"]
    );
    for package in [&first, &good] {
        is_installed(&scene, package).await?;
    }

    // Each ends with its cause.
    scene.objects().delete(&nowhere).await?;
    scene.objects().delete(&taken.install_path()).await?;
    let mended = publish(&scene, &source, 3, &[release(&scene, 3, &name("noble"))]).await?;
    let all: Vec<Value> = [&first, &taken, &mended, &good].map(TkrPackage::package).into();
    scene.offer(&source, &all).await?;
    for package in [&taken, &mended] {
        is_installed(&scene, package).await?;
    }
    is_ready(&scene, &release_name(&scene, 3)).await?;
    for number in [1, 2, 3, 8] {
        let path = format!("{}/{}", Release::PATH, release_name(&scene, number));
        scene.objects().delete(&path).await?;
    }
    Ok(())
}

/// The Package of a number, with a bundle of these objects.
async fn publish(scene: &Scene, source: &Source, number: u8, objects: &[Value]) -> Result<TkrPackage> {
    TkrPackage::publish_objects(source, scene.namespace(), &version(scene, number), objects).await
}

fn version(scene: &Scene, number: u8) -> String {
    format!(
        "{}+{}.{number}",
        VERSIONS[1].trim_start_matches('v'),
        scene.namespace()
    )
}

fn release_name(scene: &Scene, number: u8) -> String {
    format!("v{}", version(scene, number).replace('+', "---"))
}

/// A release without Packages.
fn release(scene: &Scene, number: u8, image: &str) -> Value {
    json!({
        "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease",
        "metadata": {"name": release_name(scene, number)},
        "spec": {
            "version": format!("v{}", version(scene, number)), "kubernetes": {"version": VERSIONS[1]},
            "osImages": [{"name": image}], "bootstrapPackages": [],
        },
    })
}

/// A kind that releases do not consist of.
fn role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    })
}

/// A Secret that the API server would fill a token in.
fn token_secret(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": name, "namespace": SYSTEM_NAMESPACE,
            "annotations": {"kubernetes.io/service-account.name": "sluice-tkr-installer"},
        },
    })
}

/// What kapp-controller would read its settings from if it ran in this namespace.
fn kapp_controller_config(kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind,
        "metadata": {"name": "kapp-controller-config", "namespace": SYSTEM_NAMESPACE},
    })
}

fn nowhere_to_be_fetched(name: &str, fetch: &Value) -> Value {
    json!({
        "apiVersion": "packaging.carvel.dev/v1alpha1", "kind": "PackageRepository",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}, "spec": {"fetch": fetch},
    })
}

/// Waits until an Event on the PackageInstall of a Package has this reason, and a note that names the Package and contains `names`.
async fn has_event(scene: &Scene, package: &TkrPackage, reason: &str, names: &str) -> Result<()> {
    let (name, install) = (package.name(), package.install());
    let path = format!(
        "/apis/events.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/events?fieldSelector=regarding.kind=PackageInstall,reason={reason}"
    );
    wait::until(
        format!("an Event {reason} on PackageInstall {install} that names {names:?}"),
        INSTALLED,
        || async {
            let listed = there(scene, &path).await?;
            let events = listed["items"].as_array().into_iter().flatten();
            let of_package = events.filter(|event| event["regarding"]["name"] == install.as_str());
            let mut notes = of_package.filter_map(|event| event["note"].as_str());
            if notes.any(|note| note.contains(&name) && note.contains(names)) {
                Ok(())
            } else {
                wait::not_yet(&listed["items"])
            }
        },
    )
    .await?;
    Ok(())
}
