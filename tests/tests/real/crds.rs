//! Every definition that we ship, on a real kube-apiserver: it is accepted, and a full object of each kind
//! comes back as it was written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::Value;
use sluice_tests::components::KUBERNETES_VERSIONS;
use sluice_tests::requests::apply;
use sluice_tests::stack::StackCore;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::wait;

fn yaml_files(directory: &str) -> Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../crds")
        .join(directory);
    let entries = fs::read_dir(&directory).with_context(|| format!("list {}", directory.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(path);
        }
    }
    ensure!(!paths.is_empty(), "no YAML in {}", directory.display());
    Ok(paths)
}

fn documents(directory: &str) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for path in yaml_files(directory)? {
        documents.extend(
            apply::documents(&fs::read_to_string(&path)?).with_context(|| path.display().to_string())?,
        );
    }
    Ok(documents)
}

async fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("no kind")?;
    let (resource, capabilities) = pinned_kind(client, &GroupVersionKind::try_from(types)?).await?;
    Ok(match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), "default", &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    })
}

/// Creates the object and then its status, as two writers would.
async fn write(client: &Client, written: &Value) -> Result<()> {
    let mut object: DynamicObject = serde_json::from_value(written.clone())?;
    let api = api(client, &object).await?;
    let name = object.metadata.name.clone().context("no name")?;
    let created = api.create(&PostParams::default(), &object).await?;
    object.metadata = created.metadata;
    if written.get("status").is_some() {
        api.replace_status(&name, &PostParams::default(), &object).await?;
    }
    Ok(())
}

async fn read(client: &Client, written: &Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(written.clone())?;
    let name = object.metadata.name.as_deref().context("no name")?;
    Ok(api(client, &object).await?.get(name).await?)
}

/// All written fields are stored, and the server adds only metadata.
fn assert_same(read: &DynamicObject, written: &Value, version: &str) -> Result<()> {
    let mut expected = written.clone();
    let fields = expected.as_object_mut().context("an object")?;
    for outside in ["apiVersion", "kind", "metadata"] {
        fields.remove(outside);
    }
    assert_eq!(read.data, expected, "{} on {version}", written["kind"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_object_of_every_kind_survives_the_api_server_and_its_upgrade() -> Result<()> {
    let [newest, .., oldest] = KUBERNETES_VERSIONS;
    let definitions = documents("yaml")?;
    let objects = documents("tests/fixtures")?;
    let kinds = |values: &[Value], pointer: &str| -> BTreeSet<String> {
        values
            .iter()
            .filter_map(|value| value.pointer(pointer)?.as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(
        kinds(&objects, "/kind"),
        kinds(&definitions, "/spec/names/kind"),
        "kinds with a full object"
    );

    let core = StackCore::start("crds").await?;
    let server = ApiServer::start(&core, "crds", oldest).await?;
    let client = server.admin_client();
    apply::apply_crds(&client, &definitions).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    wait::until("namespace default", Duration::from_secs(30), || async {
        namespaces.get("default").await.map(drop).map_err(Into::into)
    })
    .await?;

    for object in &objects {
        write(&client, object)
            .await
            .with_context(|| format!("write {}", object["kind"]))?;
        assert_same(&read(&client, object).await?, object, oldest)?;
    }
    server.swap(newest).await?;
    apply::apply_crds(&client, &definitions).await?;
    for object in &objects {
        assert_same(&read(&client, object).await?, object, newest)?;
    }
    core.directory().close().await
}
