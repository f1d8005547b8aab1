//! The status service: an upgrade as clients see it, and refused requests.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::extension::Replica;
use sluice_tests::processes::process::Process;
use sluice_tests::scenario::{Records, Scenario, Scene, TIMEOUT};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::status::{Caller, GoClient, Rights, messages};
use sluice_tests::wait;

use crate::common::{HOOKS, is_held, releases};

/// The gates of an upgrade of one minor, in the order in which they open: the hooks but for the two of a creation.
const ORDER: &[&str] = HOOKS.split_at(2).1;

/// A record that stood for so long is sent, and not left out for the next one.
const STOOD: Duration = Duration::from_secs(2);

/// Timeout for a client to receive the state of the API server.
const SEEN: Duration = Duration::from_secs(30);

/// Time until a stream ends whose user has lost the right: cached reviews, and the interval of re-authorization.
const WITHDRAWN: Duration = Duration::from_mins(1);

pub(crate) fn stream() -> Scenario {
    Scenario::new(
        "status-stream",
        "sluice watch and a client in Go see each gate of an upgrade open in order, the first one also over a restart of its replica",
        |scene| Box::pin(run_stream(scene)),
    )
    .own_stack()
}

async fn run_stream(scene: Scene) -> Result<()> {
    let stack = scene.world().stack();
    let go = GoClient::built().await?;
    let caller = Caller::create(stack, scene.namespace(), "pipeline", Rights::OwnNamespace).await?;
    let (old, new) = releases(&scene).await?;
    let cluster = scene.cluster("one").workers(1).create_settled(&old).await?;
    let extension = scene.world().extension()?;
    let (restarted, other) = (extension.leader().await?, extension.standby().await?);

    let place = ["-n", scene.namespace()];
    let to = ["--to", new.kubernetes(), "--timeout", "20m"];
    let words = [&["watch", "one", "-o", "json"][..], &place, &to].concat();
    let watching = caller.start_sluice("sluice-watch", restarted, &words)?;
    let directory = stack.core().directory();
    let watch = ["watch", scene.namespace(), "one"];
    let in_go = go.start(directory, "go-watch", other, &caller, &watch)?;
    has_printed(&watching, "OUTCOME_COMPLETED", SEEN).await?;
    has_printed(&in_go, "CHANGE_SYNCED", SEEN).await?;

    let history = cluster.history().await?;
    let before = cluster.upgrade(&new).await?;
    is_held(&cluster, &new, before).await?;
    has_printed(&watching, "PackagesNotReady", SEEN).await?;
    restarted.restart().await?;
    has_printed(&watching, "watching again", SEEN).await?;
    is_held(&cluster, &new, before).await?;
    cluster.delay("antrea", Delay::NONE);
    cluster.is_settled(TIMEOUT).await?;

    let status = wait::until("sluice watch to end with the upgrade", SEEN, || async {
        watching.exited().map_or_else(|| wait::not_yet("it runs"), Ok)
    })
    .await?;
    ensure!(status.success(), "sluice watch ended with {status}");
    let record = cluster.bootstrap().await?["status"]["upgrade"].take();
    let seen = messages(&printed(&watching)?);
    gates_open_in_order(&seen, &record).context("output of sluice watch")?;
    let completed =
        |message: &Value| outcome(message) == "OUTCOME_COMPLETED" && to_of(message) == new.kubernetes();
    wait::until("the client in Go to see the end", SEEN, || async {
        match messages(&printed(&in_go).unwrap_or_default()).last() {
            Some(last) if completed(last) => Ok(()),
            last => wait::not_yet(format!("{last:?}")),
        }
    })
    .await?;
    let in_go = messages(&printed(&in_go)?);
    ensure!(
        in_go[0]["change"] == "CHANGE_UPDATED" && in_go[1]["change"] == "CHANGE_SYNCED",
        "it begins with what is there: {in_go:?}"
    );
    gates_open_in_order(&in_go, &record).context("messages to the Go client")?;
    nothing_is_left_out(&in_go, &history.records().await?)
}

/// What of a record, or of an upgrade that was sent, has to be the same in both.
fn shape(upgrade: &Value) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let state = |value: &Value| {
        let state = text(value).to_uppercase();
        state.trim_start_matches("PACKAGE_STATE_").to_owned()
    };
    let gates = list(&upgrade["gates"]).map(|gate| {
        let open = gate["open"] == true;
        json!([
            gate["hook"],
            gate["version"],
            open,
            text(&gate["reason"]),
            text(&gate["message"])
        ])
    });
    let packages = list(&upgrade["packages"]).map(|package| {
        let why = [text(&package["reason"]), text(&package["message"])];
        json!([package["name"], package["version"], state(&package["state"]), why])
    });
    json!({"to": upgrade["to"], "gates": gates.collect::<Vec<_>>(), "packages": packages.collect::<Vec<_>>()})
}

/// A client that reads at once, of a replica that was not restarted, was sent every record that stood for a while, in order; states in
/// between may be left out.
fn nothing_is_left_out(messages: &[Value], records: &Records) -> Result<()> {
    let mut sent = messages
        .iter()
        .map(|message| shape(&message["cluster"]["upgrade"]));
    let lasting = records.lasting(STOOD).filter(|record| !record.is_null());
    let mut wanted: Vec<Value> = lasting.map(shape).collect();
    wanted.dedup();
    ensure!(
        wanted.len() > ORDER.len() / 2,
        "only {} records stood for {STOOD:?}, so little was compared",
        wanted.len()
    );
    let count = wanted.len();
    for (number, record) in wanted.into_iter().enumerate() {
        ensure!(
            sent.any(|sent| sent == record),
            "record {number} of {count} that stood for {STOOD:?} was not sent, or not in its turn: {record}"
        );
    }
    Ok(())
}

fn outcome(message: &Value) -> &str {
    message["cluster"]["upgrade"]["outcome"]
        .as_str()
        .unwrap_or_default()
}

fn to_of(message: &Value) -> &str {
    message["cluster"]["upgrade"]["to"].as_str().unwrap_or_default()
}

/// Each gate of the version of `record` is seen closed before it is seen open, they open in their order, and the last state is that of
/// the record.
fn gates_open_in_order(messages: &[Value], record: &Value) -> Result<()> {
    let version = &record["to"];
    let (mut opened, mut held) = (Vec::new(), false);
    for message in messages.iter().filter(|message| to_of(message) == *version) {
        for gate in list(&message["cluster"]["upgrade"]["gates"]) {
            let hook = gate["hook"].as_str().unwrap_or_default();
            if gate["version"] != *version || !ORDER.contains(&hook) {
                continue;
            }
            let is_first = hook == ORDER[0] && opened.is_empty();
            if gate["open"] == true && !opened.contains(&hook) {
                ensure!(held || !is_first, "{hook} was open before it was seen to wait");
                opened.push(hook);
            }
            held |= is_first && gate["open"] == false && gate["reason"] == "PackagesNotReady";
        }
    }
    ensure!(opened == ORDER, "gates opened in the order {opened:?}");
    let last = messages.last().context("nothing was sent")?;
    let shape = |gate: &Value| json!([gate["hook"], gate["version"], gate["open"] == true]);
    let shown: Vec<Value> = list(&last["cluster"]["upgrade"]["gates"]).map(shape).collect();
    let recorded: Vec<Value> = list(&record["gates"]).map(shape).collect();
    ensure!(
        shown == recorded,
        "the last gates are {shown:?}, recorded are {recorded:?}"
    );
    let proven = list(&last["cluster"]["upgrade"]["packages"])
        .all(|package| package["state"] == "PACKAGE_STATE_READY");
    ensure!(
        proven,
        "the last packages are {}",
        last["cluster"]["upgrade"]["packages"]
    );
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn printed(process: &Process) -> Result<String> {
    Ok(std::fs::read_to_string(process.log())?)
}

async fn has_printed(process: &Process, text: &str, deadline: Duration) -> Result<()> {
    let what = format!("{} to print {text:?}", process.name());
    wait::until(what, deadline, || async {
        match printed(process) {
            Ok(printed) if printed.contains(text) => Ok(()),
            Ok(printed) => wait::not_yet(printed.lines().last().unwrap_or("nothing")),
            Err(error) => wait::not_yet(error),
        }
    })
    .await?;
    Ok(())
}

pub(crate) fn denied() -> Scenario {
    Scenario::new(
        "status-denied",
        "without a token, with a wrong one, without permission, for an unknown object and for a wrong page the status service returns the reason",
        |scene| Box::pin(run_denied(scene)),
    )
}

async fn run_denied(scene: Scene) -> Result<()> {
    let (stack, namespace) = (scene.world().stack(), scene.namespace());
    let go = GoClient::built().await?;
    let may = Caller::create(stack, namespace, "may", Rights::OwnNamespace).await?;
    let may_not = Caller::create(stack, namespace, "may-not", Rights::None).await?;
    let clusters: Vec<Value> = ["a", "b", "c"]
        .iter()
        .map(|name| paused(namespace, name))
        .collect();
    scene.apply(&clusters).await?;
    let replica = scene.world().extension()?.standby().await?;
    let wrong = may.token_file().with_file_name("wrong");
    std::fs::write(&wrong, "not-a-token")?;
    let (mine, of_none) = (may.token_file(), may_not.token_file());
    let ca = may.ca_file();
    let asking = Asking {
        go: &go,
        replica,
        ca: &ca,
    };

    wait::until("all Clusters to be listed", SEEN, || async {
        match asking.ask(Some(&mine), &["list", namespace, "0", ""]).await {
            Ok(page) if list(&page["clusters"]).count() == 3 => Ok(()),
            seen => wait::not_yet(format!("{seen:?}")),
        }
    })
    .await?;
    let list_all = ["list", "", "0", ""];
    let list_own = ["list", namespace, "0", ""];
    let without_rights = format!("system:serviceaccount:{namespace}:may-not");
    let refused: [(Option<&Path>, &[&str], &str, &str); 9] = [
        (None, &list_own, "Unauthenticated", "no bearer token"),
        (
            None,
            &["watch", namespace, ""],
            "Unauthenticated",
            "no bearer token",
        ),
        (
            Some(&wrong),
            &list_own,
            "Unauthenticated",
            "does not accept the token",
        ),
        (Some(&of_none), &list_own, "PermissionDenied", &without_rights),
        (
            Some(&of_none),
            &["watch", namespace, "a"],
            "PermissionDenied",
            namespace,
        ),
        (Some(&mine), &list_all, "PermissionDenied", "all namespaces"),
        (
            Some(&mine),
            &["get", namespace, "missing"],
            "NotFound",
            "\"missing\"",
        ),
        (Some(&mine), &["get", namespace, ""], "InvalidArgument", "name"),
        (
            Some(&mine),
            &["list", namespace, "1", "bm9uZQ"],
            "InvalidArgument",
            "page_token",
        ),
    ];
    for (token, words, code, text) in refused {
        let answer = asking.ask(token, words).await?;
        let said = answer["message"].as_str().unwrap_or_default();
        ensure!(
            answer["code"] == code && said.contains(text) && said.lines().count() == 1,
            "{words:?} was answered with {answer}, not with {code} and {text:?}"
        );
    }
    pages(asking, &mine, namespace).await?;
    let health = asking.ask(None, &["health"]).await?;
    ensure!(health["status"] == "SERVING", "health says {health}");
    let services = asking.ask(None, &["reflect"]).await?.to_string();
    ensure!(
        services.contains("sluice.status.v1.StatusService"),
        "reflection says {services}"
    );
    verbs(&may, &may_not, replica, namespace).await?;
    withdrawn(&go, &may, replica, &scene).await?;
    removed(&scene, "a").await?;
    removed(&scene, "b").await
}

/// The client in Go, and its replica.
#[derive(Clone, Copy)]
struct Asking<'a> {
    go: &'a GoClient,
    replica: &'a Replica,
    ca: &'a Path,
}

impl Asking<'_> {
    /// The first thing that a call is answered with.
    async fn ask(self, token: Option<&Path>, words: &[&str]) -> Result<Value> {
        let answers = self.go.call(self.replica, self.ca, token, words).await?;
        answers
            .into_iter()
            .next()
            .with_context(|| format!("{words:?} printed nothing"))
    }
}

/// Pages of one Cluster each have all of them, in order.
async fn pages(asking: Asking<'_>, token: &Path, namespace: &str) -> Result<()> {
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let page = asking.ask(Some(token), &["list", namespace, "1", &next]).await?;
        names.extend(list(&page["clusters"]).map(|cluster| cluster["name"].to_string()));
        page["nextPageToken"]
            .as_str()
            .context("a page")?
            .clone_into(&mut next);
        if next.is_empty() {
            break;
        }
        ensure!(names.len() < 4, "pages have no end: {names:?}");
    }
    ensure!(names == ["\"a\"", "\"b\"", "\"c\""], "pages have {names:?}");
    Ok(())
}

/// Output of the verbs of the binary, in one line, and their exit codes.
async fn verbs(may: &Caller<'_>, may_not: &Caller<'_>, replica: &Replica, namespace: &str) -> Result<()> {
    let table = may.sluice(replica, &["status", "-n", namespace]).await?;
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    ensure!(table.status.success() && text.lines().count() == 4, "{table:?}");
    let json = may
        .sluice(replica, &["status", "-n", namespace, "-o", "json"])
        .await?;
    let json: Value = serde_json::from_slice(&json.stdout)?;
    ensure!(json["clusters"][2]["name"] == "c", "{json}");

    let one_line = |output: &Output, code: i32, text: &str| {
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(code) && line.lines().count() == 1 && line.contains(text),
            "{output:?} has not code {code} and one line with {text:?}"
        );
        Ok(())
    };
    let all = may.sluice(replica, &["status", "-A"]).await?;
    one_line(&all, 1, "all namespaces")?;
    let watch = may_not.sluice(replica, &["watch", "-n", namespace, "a"]).await?;
    one_line(&watch, 1, "may-not")?;
    let missing = may
        .sluice(replica, &["watch", "-n", namespace, "missing"])
        .await?;
    one_line(&missing, 1, "there is no Cluster \"missing\"")?;
    let missing = may
        .sluice(replica, &["status", "-n", namespace, "missing"])
        .await?;
    one_line(&missing, 1, "there is no Cluster \"missing\"")?;
    let late = may
        .sluice(replica, &["watch", "-n", namespace, "a", "--timeout", "1s"])
        .await?;
    one_line(&late, 4, "--timeout 1s passed")
}

/// A withdrawn permission ends calls and open streams. The deletion of a Cluster ends its watch, even after a token replacement.
async fn withdrawn(go: &GoClient, may: &Caller<'_>, replica: &Replica, scene: &Scene) -> Result<()> {
    let namespace = scene.namespace();
    let deleted = may.start_sluice("watch-deleted", replica, &["watch", "-n", namespace, "c"])?;
    has_printed(&deleted, "/c", SEEN).await?;
    may.has_another_token().await?;
    has_printed(&deleted, "watching again with the token", WITHDRAWN).await?;
    let directory = scene.world().stack().core().directory();
    let open = go.start(directory, "withdrawn", replica, may, &["watch", namespace, ""])?;
    has_printed(&open, "CHANGE_SYNCED", SEEN).await?;
    removed(scene, "c").await?;
    has_printed(&open, "CHANGE_REMOVED", SEEN).await?;
    let status = wait::until("the watch of a deleted Cluster to end", SEEN, || async {
        deleted.exited().map_or_else(|| wait::not_yet("it runs"), Ok)
    })
    .await?;
    ensure!(status.code() == Some(3), "it ended with {status}");
    may.loses_its_rights().await?;
    has_printed(&open, "PermissionDenied", WITHDRAWN).await
}

/// Deletes a Cluster and waits for its end. Cluster API does not delete a paused Cluster, so this removes its finalizer.
async fn removed(scene: &Scene, name: &str) -> Result<()> {
    let objects = scene.objects();
    let path = format!(
        "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/clusters/{name}",
        scene.namespace()
    );
    objects.delete(&path).await?;
    wait::until(format!("Cluster {name} to be gone"), SEEN, || async {
        if objects.get(&path).await?.is_none() {
            return Ok(());
        }
        let freed = objects
            .merge(&path, &json!({"metadata": {"finalizers": null}}))
            .await;
        wait::not_yet(format!("{freed:?}"))
    })
    .await?;
    Ok(())
}

/// A Cluster that nothing reconciles.
fn paused(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "paused": true,
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "None", "name": "none"},
        },
    })
}
