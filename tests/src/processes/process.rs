//! A process of a stack: started with a clean environment in a group of its own, logged to a file, watched
//! until it ends.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::processes::out_of_memory;
use crate::processes::run_directory::{MARK, RunDirectory};
use crate::wait::{self, Unmet};

/// Lines of a log that an error message quotes.
const QUOTED_LINES: usize = 12;

/// What to start.
#[derive(Debug, Clone)]
pub struct Launch {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    known_ends: Option<KnownEnds>,
}

/// Decides from the log of a process whether its end has a known cause.
type KnownEnds = fn(&str) -> bool;

impl Launch {
    /// A launch of `program`, logged as `name`. Its environment has a PATH and nothing else.
    #[must_use]
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            arguments: Vec::new(),
            environment: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                // Go programs use memory that is there rather than time, of which their start takes much.
                ("GOGC".into(), "400".into()),
            ],
            known_ends: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item = A>, A: Into<OsString>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable; a later value wins.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Counts each end by itself. While the process [may end](Process::may_end), an end for a cause that `are_known` does not
    /// know is a failure of the stack nevertheless.
    #[must_use]
    pub(crate) fn with_known_ends(mut self, are_known: KnownEnds) -> Self {
        self.known_ends = Some(are_known);
        self
    }
}

/// A running process. Dropping it kills its group.
#[derive(Debug)]
pub struct Process {
    name: String,
    group: Pid,
    log: PathBuf,
    end: Arc<End>,
    exit: watch::Receiver<Option<ExitStatus>>,
}

/// Expected ends of a process.
#[derive(Debug, Default)]
struct End {
    /// It was asked to end.
    asked: AtomicBool,
    /// It may end by itself.
    allowed: AtomicBool,
}

impl Process {
    /// Starts `launch` in `directory`. Its output is appended to the log of its name.
    pub fn start(directory: &Arc<RunDirectory>, launch: Launch) -> Result<Self> {
        let Launch {
            name,
            program,
            arguments,
            environment,
            known_ends,
        } = launch;
        let log = directory.log_path(&name);
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open log {}", log.display()))?;
        let written_before = output
            .metadata()
            .with_context(|| format!("look at log {}", log.display()))?
            .len();
        let child = Command::new(&program)
            .args(arguments)
            .env_clear()
            .envs(environment)
            .env(MARK, directory.path())
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let id = child
            .id()
            .context("a process that has just been started has no id")?;
        // One that has ended by now is reaped below.
        if let Err(error) = out_of_memory::take_first(id) {
            tracing::debug!(%error, "leave {name} to be ended like others when memory runs out");
        }
        let end = Arc::new(End::default());
        let (ended, exit) = watch::channel(None);
        let reaper = Reaper {
            name: name.clone(),
            log: log.clone(),
            written_before,
            known_ends,
            end: end.clone(),
            directory: Arc::downgrade(directory),
        };
        tokio::spawn(reaper.run(child, ended));
        Ok(Self {
            name,
            group: Pid::from_raw(id.cast_signed()),
            log,
            end,
            exit,
        })
    }

    /// The name it was launched with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Process id, also the id of its process group.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.group.as_raw().cast_unsigned()
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Says whether the process may end by itself without that being a failure of the stack, as long as its start is tried again.
    pub(crate) fn may_end(&self, may: bool) {
        self.end.allowed.store(may, Ordering::SeqCst);
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Kills the process with its group and waits until it is reaped, so that its ports are free.
    pub async fn kill(&mut self) -> Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.reaped().await
    }

    /// Asks the process to end; kills it when it has not within `grace`. Returns its exit status.
    pub async fn terminate(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        if tokio::time::timeout(grace, self.reaped()).await.is_err() {
            self.kill().await?;
        }
        self.exited()
            .with_context(|| format!("{} has no exit status", self.name))
    }

    /// Sends a signal to the group. A group that is gone already is no error.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if matches!(signal, Signal::SIGKILL | Signal::SIGTERM) {
            self.end.asked.store(true, Ordering::SeqCst);
        }
        if self.exited().is_some() {
            return Ok(());
        }
        match killpg(self.group, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("send {signal} to {}", self.name)),
        }
    }

    /// [`wait::until`], ended early when the process dies; the error then quotes the end of its log.
    pub async fn until<T, F, Fut>(&self, what: &str, deadline: Duration, mut probe: F) -> Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, Unmet>>,
    {
        wait::until(format!("{} {what}", self.name), deadline, || {
            let probed = probe();
            async {
                if let Some(status) = self.exited() {
                    return wait::never(format!("the process has ended ({status})"));
                }
                probed.await
            }
        })
        .await
        .with_context(|| format!("{} says:\n{}", self.log.display(), tail(&self.log)))
    }

    async fn reaped(&mut self) -> Result<()> {
        self.exit
            .wait_for(Option::is_some)
            .await
            .map(drop)
            .with_context(|| format!("the runtime that watched {} is gone", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.signal(Signal::SIGKILL) {
            tracing::warn!("{error:#}");
        }
    }
}

/// Waits for a child for as long as it lives, so that it is reaped whatever happens to its [`Process`].
struct Reaper {
    name: String,
    log: PathBuf,
    /// Length of the log when the process was started.
    written_before: u64,
    known_ends: Option<KnownEnds>,
    end: Arc<End>,
    directory: Weak<RunDirectory>,
}

impl Reaper {
    async fn run(self, mut child: Child, ended: watch::Sender<Option<ExitStatus>>) {
        let status = match child.wait().await {
            Ok(status) => status,
            Err(error) => {
                tracing::error!(%error, "wait for {}", self.name);
                return;
            }
        };
        if !self.end.asked.load(Ordering::SeqCst)
            && let Some(directory) = self.directory.upgrade()
        {
            self.report(&directory, status);
        }
        ended.send_replace(Some(status));
    }

    fn report(&self, directory: &RunDirectory, status: ExitStatus) {
        let may_end = self.end.allowed.load(Ordering::SeqCst);
        let is_in_order = match self.known_ends {
            Some(are_known) => {
                directory.count_end();
                may_end && are_known(&self.own_log())
            }
            None => may_end,
        };
        if !is_in_order {
            let said = tail(&self.log);
            directory.report_unexpected_exit(format!(
                "{} ended by itself ({status}); its log ends:\n{said}",
                self.name
            ));
        }
    }

    /// What this process wrote: earlier ones of its name have the same log.
    fn own_log(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let from = usize::try_from(self.written_before).unwrap_or(usize::MAX);
        String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned()
    }
}

/// When a running process was started, in clock ticks since the machine was.
pub(crate) fn started(id: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, in parentheses, may hold anything; the start is the 20th field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether every thread of a process has been stopped: after SIGSTOP each one first leaves the kernel.
pub(crate) fn stands_still(id: u32) -> Result<bool> {
    let threads = format!("/proc/{id}/task");
    for thread in fs::read_dir(&threads).with_context(|| format!("list {threads}"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        // The name of the program, in parentheses, may hold anything; the state follows it.
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, after)| after.split_whitespace().next());
        if state != Some("T") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Arguments of a running process, without its name.
pub(crate) fn arguments(id: u32) -> Option<Vec<String>> {
    let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let arguments = line.split(|byte| *byte == 0).skip(1);
    Some(
        arguments
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .filter(|argument| !argument.is_empty())
            .collect(),
    )
}

/// The last lines of a log, indented.
fn tail(log: &Path) -> String {
    let text = fs::read(log)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(QUOTED_LINES);
    lines[from..]
        .iter()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Launch {
        Launch::new(name, "/bin/sh").args(["-c", script])
    }

    async fn runs(directory: &RunDirectory, wanted: impl Fn(&[&str]) -> bool) -> Result<(), wait::Error> {
        wait::until("the right programs to run", Duration::from_secs(10), || async {
            let running = directory.memory();
            let programs: Vec<&str> = running.iter().map(|resident| resident.program.as_str()).collect();
            if wanted(&programs) {
                Ok(())
            } else {
                wait::not_yet(format!("{programs:?}"))
            }
        })
        .await
    }

    #[tokio::test]
    async fn a_killed_process_takes_its_children_along() -> Result<()> {
        let directory = Arc::new(RunDirectory::create("group")?);
        let mut parent = Process::start(&directory, shell("parent", "sleep 600 & wait"))?;
        runs(&directory, |programs| programs.contains(&"sleep")).await?;

        parent.kill().await?;

        assert!(parent.exited().is_some_and(|status| !status.success()));
        runs(&directory, |programs| programs.is_empty()).await?;
        assert_eq!(directory.unexpected_exits(), Vec::<String>::new());
        directory.close().await
    }

    #[tokio::test]
    async fn a_process_and_its_children_are_ended_first_when_memory_runs_out() -> Result<()> {
        let directory = Arc::new(RunDirectory::create("memory")?);
        let script = "sleep 0.2; sleep 600 & cat /proc/$!/oom_score_adj > child; wait";
        let process = Process::start(&directory, shell("memory", script))?;
        let own = fs::read_to_string(format!("/proc/{}/oom_score_adj", process.id()))?;
        assert_eq!(own.trim(), out_of_memory::TAKEN_FIRST.to_string());
        let child = wait::until("its child to be started", Duration::from_secs(10), || async {
            let child = fs::read_to_string(directory.path().join("child"))?;
            if child.is_empty() {
                wait::not_yet("nothing")
            } else {
                Ok(child)
            }
        });
        assert_eq!(child.await?, own);
        directory.close().await
    }

    #[tokio::test]
    async fn a_process_stands_still_while_it_is_stopped() -> Result<()> {
        let directory = Arc::new(RunDirectory::create("still")?);
        let process = Process::start(&directory, shell("still", "sleep 600 & wait"))?;
        for (signal, still) in [(Signal::SIGSTOP, true), (Signal::SIGCONT, false)] {
            process.signal(signal)?;
            wait::until(
                format!("an effect of {signal}"),
                Duration::from_secs(10),
                || async {
                    if stands_still(process.id())? == still {
                        Ok(())
                    } else {
                        wait::not_yet("none")
                    }
                },
            )
            .await?;
        }
        drop(process);
        directory.close().await
    }

    #[tokio::test]
    async fn a_process_that_dies_ends_the_wait_for_it_and_is_reported() -> Result<()> {
        let directory = Arc::new(RunDirectory::create("dies")?);
        let process = Process::start(&directory, shell("dies", "echo out of paper >&2; exit 3"))?;

        let error = process
            .until::<(), _, _>("to be ready", Duration::from_mins(1), || async {
                wait::not_yet("nothing")
            })
            .await
            .unwrap_err();

        let text = format!("{error:#}");
        assert!(
            text.contains("exit status: 3") && text.contains("out of paper"),
            "{text}"
        );
        let reported = directory.unexpected_exits();
        assert!(
            matches!(&reported[..], [one] if one.contains("out of paper")),
            "{reported:?}"
        );
        directory.close().await
    }

    /// How many ends were counted, and how many of them are unexpected, after one for a known cause and one of `script`.
    async fn ends(script: &str) -> Result<(usize, usize)> {
        let directory = Arc::new(RunDirectory::create("ends")?);
        for script in ["echo known", script] {
            let script = format!("until rm go 2>/dev/null; do sleep 0.02; done; {script}");
            let launch = shell("ends", &script).with_known_ends(|log| log.contains("known"));
            let mut process = Process::start(&directory, launch)?;
            process.may_end(true);
            fs::write(directory.path().join("go"), "")?;
            process.reaped().await?;
        }
        let counted = (directory.counted_ends(), directory.unexpected_exits().len());
        directory.close().await?;
        Ok(counted)
    }

    #[tokio::test]
    async fn an_expected_end_is_counted_and_needs_a_known_cause() -> Result<()> {
        assert_eq!(ends("echo known; exit 2").await?, (2, 0));
        assert_eq!(ends("echo boom; exit 2").await?, (2, 1));
        assert_eq!(ends("exit 0").await?, (2, 1));
        assert_eq!(ends("kill -KILL $$").await?, (2, 1));
        Ok(())
    }

    #[tokio::test]
    async fn an_end_that_was_asked_for_is_not_counted() -> Result<()> {
        let directory = Arc::new(RunDirectory::create("asked")?);
        let launch = shell("asked", "sleep 600").with_known_ends(|_| false);
        let mut process = Process::start(&directory, launch)?;
        process.may_end(true);

        process.kill().await?;

        assert_eq!(directory.counted_ends(), 0);
        assert_eq!(directory.unexpected_exits(), Vec::<String>::new());
        directory.close().await
    }

    #[tokio::test]
    async fn a_closed_directory_leaves_no_process_and_no_file() -> Result<()> {
        let directory = Arc::new(RunDirectory::create("closed")?);
        let path = directory.path().to_owned();
        // A session of its own: no kill of a group reaches it.
        let process = Process::start(&directory, shell("escapes", "setsid sleep 600"))?;
        runs(&directory, |programs| programs.contains(&"sleep")).await?;
        drop(process);
        runs(&directory, |programs| programs == ["sleep"]).await?;

        directory.close().await?;

        assert!(!path.exists());
        assert_eq!(
            crate::processes::run_directory::marked_processes(&path),
            Vec::<u32>::new()
        );
        Ok(())
    }
}
