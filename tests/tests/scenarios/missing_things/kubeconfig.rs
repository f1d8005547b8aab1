//! The kubeconfig Secret of a workload cluster is missing, or has fields that Sluice refuses.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use sluice_tests::processes::canary::{self, KUBECONFIG as CANARY};
use sluice_tests::scenario::{Cluster, Scenario, Scene};

use super::row::Row;
use crate::common::{MidHold, is_held, released};

/// Part of every invalid kubeconfig; no output of Sluice may contain it.
pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "missing-things-kubeconfig",
        "the kubeconfig Secret is missing, or holds exec, auth-provider, files or no check of the server: held with the reason, never used, and over by itself",
        |scene| Box::pin(run(scene)),
    )
    .each_time()
}

async fn run(scene: Scene) -> Result<()> {
    let MidHold {
        cluster, new, before, ..
    } = MidHold::of(&scene).await?;
    let path = format!("/api/v1/namespaces/{}/secrets/one-kubeconfig", scene.namespace());
    let sound = kubeconfig(&scene, &path).await?;
    let ran = scene
        .world()
        .stack()
        .core()
        .directory()
        .path()
        .join("kubeconfig-ran");

    for row in rows(&path, &sound, &ran.display().to_string()) {
        row.run(&cluster, before).await?;
    }
    leads_to_sluice(&scene, &path, &sound)?
        .run(&cluster, before)
        .await?;
    is_held(&cluster, &new, before).await?;
    released(&cluster, &new, before).await?;

    // Cluster API and kapp-controller may have run the command of the file: they read kubeconfigs as client-go does.
    let by = fs::read_to_string(&ran).unwrap_or_default();
    ensure!(!by.contains("sluice"), "started by {by}");
    is_not_repeated(&scene, &cluster).await
}

async fn kubeconfig(scene: &Scene, path: &str) -> Result<Value> {
    let secret = scene.objects().get(path).await?.context("no kubeconfig")?;
    let value = secret["data"]["value"].as_str().context("no key value")?;
    Ok(serde_json::from_slice(&BASE64_STANDARD.decode(value)?)?)
}

fn rows(path: &str, sound: &Value, ran: &str) -> Vec<Row> {
    let holding = |text: String| Some(json!({"data": {"value": BASE64_STANDARD.encode(text)}}));
    let with = |part: &str, entry: &str, fields: Value| {
        let mut kubeconfig = sound.clone();
        for (field, value) in fields.as_object().into_iter().flatten() {
            kubeconfig[part][0][entry][field] = value.clone();
        }
        holding(kubeconfig.to_string())
    };
    let user = |fields: Value| with("users", "user", fields);
    let server = |fields: Value| with("clusters", "cluster", fields);
    let row = |what, spoil, reason, names: &str| Row {
        what,
        path: path.to_owned(),
        spoil,
        reason,
        names: names.to_owned(),
    };
    let refused = |what, spoil, names: &str| row(what, spoil, "KubeconfigInvalid", names);
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", format!("cat /proc/$PPID/comm >> {ran}; echo {CANARY}")],
        "interactiveMode": "Never",
    });
    vec![
        row(
            "the Secret is deleted",
            None,
            "KubeconfigNotFound",
            "one-kubeconfig",
        ),
        row(
            "the Secret has no key value",
            Some(json!({"data": {"value": null}})),
            "KubeconfigNotFound",
            "key value",
        ),
        refused("garbage", holding(format!("{{ {CANARY}")), "line 1"),
        refused("exec", user(json!({"exec": exec})), "users[0].user.exec"),
        refused(
            "auth-provider",
            user(json!({"auth-provider": {"name": CANARY}})),
            "users[0].user.auth-provider",
        ),
        refused(
            "a file with the token",
            user(json!({"tokenFile": format!("/{CANARY}")})),
            "users[0].user.tokenFile",
        ),
        refused(
            "a file with the key",
            user(json!({"client-key": format!("/{CANARY}")})),
            "users[0].user.client-key is",
        ),
        refused(
            "a file with the authority",
            server(json!({"certificate-authority": format!("/{CANARY}")})),
            "clusters[0].cluster.certificate-authority is",
        ),
        refused(
            "the server is not checked",
            server(json!({"certificate-authority-data": null, "insecure-skip-tls-verify": true})),
            "clusters[0].cluster.insecure-skip-tls-verify",
        ),
    ]
}

/// The server that the kubeconfig names is the extension that reads it.
fn leads_to_sluice(scene: &Scene, path: &str, sound: &Value) -> Result<Row> {
    let replica = &scene.world().extension()?.replicas()[0];
    let mut kubeconfig = sound.clone();
    let server = &mut kubeconfig["clusters"][0]["cluster"];
    server["server"] = json!(replica.hook_url());
    server["certificate-authority-data"] = json!(scene.world().stack().management().pki().ca_bundle());
    Ok(Row {
        what: "the server is Sluice itself",
        path: path.to_owned(),
        spoil: Some(json!({"data": {"value": BASE64_STANDARD.encode(kubeconfig.to_string())}})),
        reason: "WorkloadUnreachable",
        names: "is not a Kubernetes API server".to_owned(),
    })
}

/// Searches for the canary, plain and in base64, in all output of Sluice.
async fn is_not_repeated(scene: &Scene, cluster: &Cluster) -> Result<()> {
    let extension = scene.world().extension()?;
    let events = format!("/apis/events.k8s.io/v1/namespaces/{}/events", scene.namespace());
    let events = scene.objects().get(&events).await?.context("no events")?;
    let logs: std::io::Result<String> = extension.logs().map(fs::read_to_string).collect();
    let places = [
        ("log", logs?),
        ("metrics", extension.metrics().await?),
        ("status", cluster.bootstrap().await?.to_string()),
        ("events", events.to_string()),
    ];
    for (place, text) in places {
        ensure!(
            !text.is_empty(),
            "nothing was said in the {place}, so nothing is proven"
        );
        for spelling in canary::spellings(CANARY) {
            ensure!(
                !text.contains(&spelling),
                "what a kubeconfig holds is in the {place}"
            );
        }
    }
    Ok(())
}
