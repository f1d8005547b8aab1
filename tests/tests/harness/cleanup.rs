//! Nothing outlives the process that owns a stack, whichever way that process ends.
//!
//! Each test runs this very test program again as the owner, and ends it; the owner is `stack_owner` below.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::{Value, json};
use sluice_tests::components::Binaries;
use sluice_tests::processes::run_directory::{LOGS, marked_processes};
use sluice_tests::stack::{Options, Stack};
use sluice_tests::wait;

/// How the owner is to end; set only for the owner.
const ENDING: &str = "SLUICE_TEST_ENDING";

/// Output of the owner before the directory of its stack.
const ANNOUNCEMENT: &str = "stack in ";

/// Started by the other tests: starts a stack in which kapp is waiting for a Deployment that never gets
/// ready, and ends.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the owner of a stack, run by the other tests"]
async fn stack_owner() -> Result<()> {
    let ending = std::env::var(ENDING).context("only the other tests run this one")?;
    let stack = Stack::start(Options::new("owner")).await?;
    crate::support::install(&stack.client(), &never_ready()).await?;
    let directory = stack.core().directory();
    let kapp = wait::until(
        "kapp to run below the sidecar",
        Duration::from_mins(1),
        || async {
            let running = directory.memory();
            if running.iter().any(|resident| resident.program == "kapp") {
                Ok(())
            } else {
                wait::not_yet(format!("{running:?}"))
            }
        },
    );
    kapp.await?;
    println!("{ANNOUNCEMENT}{}", directory.path().display());
    match ending.as_str() {
        "panic" => panic!("as asked"),
        "stop" => stack.stop().await,
        "error" => bail!("as asked"),
        _ => std::future::pending().await,
    }
}

fn never_ready() -> Value {
    let labels = json!({"app": "never-ready"});
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "never-ready"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "harness.test/none"}]},
            },
        },
    })
}

/// A process that ends with the test at the latest.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A running owner and its stack.
struct Owner {
    child: Killed,
    stack: PathBuf,
    logs: tempfile::TempDir,
    /// Open until the end: the owner must not fail because it cannot print.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Owner {
    /// Runs `program`, this test program or a copy of it, behind `prefix`.
    fn start(prefix: &[&str], program: &Path, ending: &str, more: &[(&str, OsString)]) -> Result<Self> {
        let logs = tempfile::tempdir()?;
        // A shell that runs the tests in the background may have interrupts ignored, and that is inherited.
        let mut words: Vec<OsString> = ["env", "--default-signal"].map(OsString::from).into();
        words.extend(prefix.iter().map(OsString::from));
        words.push(program.into());
        words.extend(["cleanup::stack_owner", "--exact", "--ignored", "--nocapture"].map(OsString::from));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .env(ENDING, ending)
            .env(LOGS, logs.path())
            .envs(more.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut child = Killed(child);
        let mut output = BufReader::new(child.0.stdout.take().context("no standard output")?).lines();
        while let Some(line) = output.next().transpose()? {
            if let Some((_, directory)) = line.split_once(ANNOUNCEMENT) {
                let stack = PathBuf::from(directory);
                return Ok(Self {
                    child,
                    stack,
                    logs,
                    _output: output,
                });
            }
        }
        bail!(
            "the owner of the stack ended ({}) before its stack was up",
            child.0.wait()?
        )
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.0.id().cast_signed()), signal).context("signal the owner")
    }

    /// Waits for the end of the owner, then until nothing is left of its stack. Returns the names of logs
    /// that were kept.
    async fn leaves_nothing(self, expected: fn(ExitStatus) -> bool) -> Result<Vec<OsString>> {
        let Self {
            mut child,
            stack,
            logs,
            _output,
        } = self;
        let status = wait::until("the owner of the stack to end", Duration::from_secs(30), || {
            std::future::ready(match child.0.try_wait() {
                Ok(Some(status)) => Ok(status),
                Ok(None) => wait::not_yet("it runs"),
                Err(error) => wait::never(error),
            })
        })
        .await?;
        ensure!(expected(status), "the owner ended with {status}");
        let what = format!("nothing to be left of {}", stack.display());
        wait::until(what, Duration::from_secs(20), || async {
            match (marked_processes(&stack), stack.exists()) {
                (processes, false) if processes.is_empty() => Ok(()),
                (processes, exists) => wait::not_yet(format!("processes {processes:?}, directory: {exists}")),
            }
        })
        .await?;
        let kept = fs::read_dir(logs.path())?.map(|entry| entry.map(|entry| entry.file_name()));
        kept.collect::<Result<_, _>>().context("list kept logs")
    }
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("find this test program")
}

#[tokio::test]
async fn an_orderly_stop_leaves_nothing() -> Result<()> {
    let owner = Owner::start(&[], &this_program()?, "stop", &[])?;
    let kept = owner.leaves_nothing(|status| status.success()).await?;
    assert_eq!(kept, Vec::<OsString>::new());
    Ok(())
}

#[tokio::test]
async fn a_panic_leaves_only_the_logs() -> Result<()> {
    let owner = Owner::start(&[], &this_program()?, "panic", &[])?;
    let kept = owner.leaves_nothing(|status| status.code() == Some(101)).await?;
    assert!(
        matches!(&kept[..], [logs] if logs.to_string_lossy().starts_with("owner-")),
        "{kept:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_error_leaves_only_the_logs() -> Result<()> {
    let owner = Owner::start(&[], &this_program()?, "error", &[])?;
    let kept = owner.leaves_nothing(|status| status.code() == Some(101)).await?;
    assert!(
        matches!(&kept[..], [logs] if logs.to_string_lossy().starts_with("owner-")),
        "{kept:?}"
    );
    Ok(())
}

#[tokio::test]
async fn an_interrupt_leaves_nothing() -> Result<()> {
    let owner = Owner::start(&[], &this_program()?, "wait", &[])?;
    owner.signal(Signal::SIGINT)?;
    owner
        .leaves_nothing(|status| status.signal() == Some(2))
        .await
        .map(drop)
}

#[tokio::test]
async fn even_sigkill_leaves_nothing() -> Result<()> {
    let owner = Owner::start(&[], &this_program()?, "wait", &[])?;
    ensure!(
        !marked_processes(&owner.stack).is_empty(),
        "the stack should still run"
    );
    owner.signal(Signal::SIGKILL)?;
    owner
        .leaves_nothing(|status| status.signal() == Some(9))
        .await
        .map(drop)
}

/// As root: the same again as an ordinary user. Otherwise every other test here has shown it already.
#[tokio::test]
async fn an_ordinary_user_can_do_the_same() -> Result<()> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let programs = Binaries::ready().await?.directory();
    let built = programs.parent().context("the programs lie in no directory")?;
    let home = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/tmp")?;
    let program = home.path().join("program");
    fs::copy(this_program()?, &program)?;
    let cache = home.path().join("cache");
    let stacks = cache.join("sluice").join("stack");
    fs::create_dir_all(&stacks)?;
    let copied = Command::new("cp").arg("-r").arg(built).arg(stacks).status()?;
    ensure!(
        copied.success(),
        "copy the programs to where an ordinary user can read them"
    );
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
    ];
    let more = [
        ("XDG_CACHE_HOME", cache.into()),
        ("HOME", home.path().into()),
        ("TMPDIR", "/tmp".into()),
    ];

    let owner = Owner::start(&nobody, &program, "stop", &more)?;

    owner.leaves_nothing(|status| status.success()).await.map(drop)
}
