//! A persistent stack: `demo up` leaves it running in a background process, and `demo down` ends that process and its children.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use super::command::{Act as _, Once, prepare};
use super::terminal::{Terminal, Tone};
use super::upgrade;
use crate::components::NOT_USED;
use crate::extension::Scope;
use crate::objects;
use crate::processes::run_directory::marked_processes;
use crate::scenario::{Hooks, Scene, VERSIONS, World};
use crate::wait;

/// How long the stack and its Cluster may take to be up.
const UP: Duration = Duration::from_mins(25);

/// How long its end may take.
const DOWN: Duration = Duration::from_mins(1);

/// `target/demo/up.json`: description of a running persistent stack.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    process: i32,
    directory: PathBuf,
    management_kubeconfig: PathBuf,
    workload_kubeconfig: PathBuf,
    upgrade_patch: String,
    /// Kubernetes versions before and after the upgrade. Those of installed programs differ from those in `examples`.
    versions: [String; 2],
}

impl State {
    fn path() -> Result<PathBuf> {
        Ok(upgrade::directory()?.join("up.json"))
    }

    fn read() -> Result<Option<Self>> {
        let path = Self::path()?;
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(
                serde_json::from_slice(&bytes).with_context(|| format!("read {}", path.display()))?,
            )),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
        }
    }

    fn runs(&self) -> bool {
        !marked_processes(&self.directory).is_empty()
    }
}

/// Starts the persistent stack and waits until it is ready.
pub(super) async fn up(terminal: &Terminal) -> Result<()> {
    if let Some(state) = State::read()? {
        if state.runs() {
            tell(terminal, &state);
            return Ok(());
        }
        fs::remove_file(State::path()?)?;
    }
    // In the foreground, where its progress is seen.
    prepare(terminal, Once::EARLIER).await?;
    let log = upgrade::directory()?.join("up.log");
    let output = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // A group of its own: Ctrl-C at the terminal is not meant for it.
        .process_group(0)
        .spawn()
        .context("start the process that holds the stack")?;
    let child = Mutex::new(child);
    terminal.waiting("the stack and its Cluster");
    let shown = Mutex::new(0);
    let state = wait::until("the stack to be up", UP, || async {
        show_progress(
            terminal,
            &log,
            &mut shown.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let ended = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
        if let Some(status) = ended {
            return wait::never(format!("its process has ended ({status}); see {}", log.display()));
        }
        match State::read()? {
            Some(state) => Ok(state),
            None => wait::not_yet(last_line(&log)),
        }
    })
    .await;
    if state.is_err() {
        let mut child = child.into_inner().unwrap_or_else(PoisonError::into_inner);
        if child.try_wait()?.is_none() {
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
            child.wait()?;
        }
    }
    tell(terminal, &state?);
    Ok(())
}

/// Ends the persistent stack.
pub(super) async fn down(terminal: &Terminal) -> Result<()> {
    let Some(state) = State::read()? else {
        terminal.say(Tone::Plain, "no stack is up");
        return Ok(());
    };
    if state.runs() {
        kill(Pid::from_raw(state.process), Signal::SIGTERM).context("ask the stack's process to end")?;
        wait::until("the stack to be gone", DOWN, || async {
            match marked_processes(&state.directory).len() {
                0 if !state.directory.exists() => Ok(()),
                left => wait::not_yet(format!("{left} processes")),
            }
        })
        .await?;
    }
    fs::remove_file(State::path()?)?;
    terminal.say(Tone::Good, "the stack is gone");
    Ok(())
}

/// Runs the stack until a stop request.
pub(super) async fn serve(terminal: &Terminal) -> Result<()> {
    let mut end = signal(SignalKind::terminate())?;
    prepare(terminal, Once::EARLIER).await?;
    let world = World::start("demo-up", &Hooks::AskedAbout(Scope::Everywhere)).await?;
    let scene = Scene::open(&world, upgrade::NAMESPACE, &upgrade::class()).await?;
    let releases = upgrade::releases(&scene)?;
    let _served = upgrade::offer(terminal, &scene, &releases).await?;
    let cluster = upgrade::create(terminal, &scene, "demo", &releases[1]).await?;
    let directory = world.stack().core().directory();
    let versions = [&releases[1], &releases[2]].map(|release| release.kubernetes().to_owned());
    let file = |name: &str, content: String| -> Result<PathBuf> {
        let path = directory.path().join(name);
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    };
    let state = State {
        process: i32::try_from(std::process::id())?,
        directory: directory.path().to_owned(),
        management_kubeconfig: file(
            "management.kubeconfig",
            world.stack().management().admin_kubeconfig(),
        )?,
        workload_kubeconfig: file("demo.kubeconfig", cluster.workload()?.api.admin_kubeconfig())?,
        versions,
        upgrade_patch: objects::upgrade(releases[2].kubernetes(), Some(&releases[2].name())).to_string(),
    };
    // Renamed into place: a reader reads all of it.
    let path = State::path()?;
    let unfinished = path.with_extension("json.new");
    fs::write(&unfinished, serde_json::to_string_pretty(&state)?)?;
    fs::rename(&unfinished, &path)?;
    end.recv().await;
    world.stop().await
}

fn tell(terminal: &Terminal, state: &State) {
    let State {
        management_kubeconfig,
        workload_kubeconfig,
        upgrade_patch,
        versions,
        ..
    } = state;
    let namespace = upgrade::NAMESPACE;
    terminal.say(Tone::Heading, "\nThe stack is up.");
    terminal.say(
        Tone::Plain,
        format!(
            "  management  export KUBECONFIG={}",
            management_kubeconfig.display()
        ),
    );
    terminal.say(
        Tone::Plain,
        format!(
            "  workload    export KUBECONFIG={}",
            workload_kubeconfig.display()
        ),
    );
    terminal.say(Tone::Heading, "\nTry, on the management cluster:");
    for command in [
        format!("kubectl -n {namespace} get clusters,clusterbootstraps,packageinstalls"),
        format!("kubectl -n {namespace} patch cluster demo --type merge -p '{upgrade_patch}'"),
        format!("kubectl -n {namespace} get clusterbootstrap demo -o jsonpath='{{.status.upgrade}}'"),
        format!(
            "kubectl -n {namespace} get cluster demo -o jsonpath='{{.status.conditions[?(@.type==\"TopologyReconciled\")].message}}'"
        ),
    ] {
        terminal.say(Tone::Plain, format!("  {command}"));
    }
    terminal.say(Tone::Heading, "\nOr with a Cluster of your own:");
    for command in of_examples(versions) {
        terminal.say(Tone::Plain, format!("  {command}"));
    }
    terminal.say(Tone::Plain, "\n`make demo-down` removes it.");
}

/// Commands that create and upgrade the Cluster of `examples/demo`, at these Kubernetes versions.
fn of_examples(versions: &[String; 2]) -> Vec<String> {
    let written = &VERSIONS[1..];
    let differing = written
        .iter()
        .zip(versions)
        .filter(|(written, found)| written != found);
    let edits: Vec<String> = differing
        .map(|(written, found)| format!("s/{written}/{found}/g"))
        .collect();
    let (apply, patch) = if edits.is_empty() {
        (
            vec!["kubectl apply -k examples/demo".to_owned()],
            "examples/upgrade.yaml",
        )
    } else {
        let edit = format!("sed '{}'", edits.join("; "));
        (
            vec![
                format!("kubectl kustomize examples/demo | {edit} | kubectl apply --filename -"),
                format!("{edit} examples/upgrade.yaml > target/demo/upgrade.yaml"),
            ],
            "target/demo/upgrade.yaml",
        )
    };
    let then = [
        "kubectl wait --for=condition=Available --timeout=5m cluster/edge-1".to_owned(),
        format!("kubectl patch cluster edge-1 --type merge --patch-file {patch}"),
        "kubectl get clusterbootstrap edge-1 --watch".to_owned(),
    ];
    apply.into_iter().chain(then).collect()
}

/// Prints the complete lines of the log that are new, and counts them in `shown`.
fn show_progress(terminal: &Terminal, log: &Path, shown: &mut usize) {
    let text = fs::read_to_string(log).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    for line in complete.lines().skip(*shown) {
        // The foreground has said it as well.
        if !line.contains(NOT_USED) {
            terminal.say(Tone::Plain, line);
        }
        *shown += 1;
    }
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("nothing said yet").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_applied_at_the_versions_of_installed_programs() {
        let [_, before, after] = VERSIONS.map(str::to_owned);
        let commands = of_examples(&[before.clone(), after.clone()]);
        assert_eq!(commands[0], "kubectl apply -k examples/demo");
        assert!(commands.iter().all(|command| !command.contains("sed")));

        let commands = of_examples(&["v1.35.99".to_owned(), after]);
        let edit = format!("sed 's/{before}/v1.35.99/g'");
        assert_eq!(
            commands[0],
            format!("kubectl kustomize examples/demo | {edit} | kubectl apply --filename -")
        );
        assert!(commands[1].starts_with(&edit) && commands[3].ends_with("target/demo/upgrade.yaml"));
    }
}
