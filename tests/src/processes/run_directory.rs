//! The directory of one stack, and the watchdog that cleans up behind it.
//!
//! Everything that a stack starts carries the mark of its directory in its environment. A watchdog process
//! holds the reading end of a pipe whose writing end only this process has; when that end is closed, by an
//! orderly stop, a panic, Ctrl-C or SIGKILL, the watchdog kills every marked process and removes the
//! directory. So nothing outlives the process that owns the stack.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

use crate::processes::log_search::Secret;
use crate::processes::notice;

const WATCHDOG: &str = include_str!("watchdog.sh");

/// Name of the environment variable that marks the processes of a stack; its value is the stack's directory.
pub const MARK: &str = "SLUICE_STACK";

/// Set to anything to keep the logs of every stack.
pub const KEEP: &str = "KEEP";

/// Where kept logs go; by default `sluice-logs` in Cargo's target directory.
pub const LOGS: &str = "SLUICE_LOGS";

/// A directory under `/tmp`, removed with every process that carries its mark when this value, or this
/// process, is gone.
#[derive(Debug)]
pub struct RunDirectory {
    name: String,
    path: PathBuf,
    watchdog: Mutex<Option<Watchdog>>,
    unexpected: Mutex<Vec<String>>,
    counted_ends: AtomicUsize,
    secrets: Mutex<Vec<Secret>>,
    closing: AtomicBool,
}

#[derive(Debug)]
struct Watchdog {
    child: Child,
    orders: ChildStdin,
}

/// Resident memory of one process of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// Name of the program, cut to 15 bytes by Linux.
    pub program: String,
    /// Process id.
    pub id: u32,
    /// Resident set in bytes.
    pub bytes: u64,
}

impl RunDirectory {
    /// Creates the directory and its watchdog. `name` only serves to name kept logs.
    pub fn create(name: &str) -> Result<Self> {
        // Not the directory of TMPDIR: a socket path inside must stay within 107 bytes.
        let path = tempfile::Builder::new()
            .prefix("sluice-")
            .tempdir_in("/tmp")
            .context("create a directory in /tmp")?
            .keep();
        let watchdog = Watchdog::start(&path)?;
        fs::create_dir(path.join("logs")).context("create the log directory")?;
        let directory = Self {
            name: name.to_owned(),
            path,
            watchdog: Mutex::new(Some(watchdog)),
            unexpected: Mutex::default(),
            counted_ends: AtomicUsize::new(0),
            secrets: Mutex::default(),
            closing: AtomicBool::new(false),
        };
        if std::env::var_os(KEEP).is_some() {
            let kept = directory.keep_logs(name);
            notice(format_args!(
                "the logs of {name} will be kept in {}",
                kept.display()
            ));
        }
        Ok(directory)
    }

    /// The directory itself: short, absolute.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Log file of the process `name`.
    #[must_use]
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.path.join("logs").join(format!("{name}.log"))
    }

    /// Where the logs of all processes are.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Creates a subdirectory, with its parents, and returns its path.
    pub fn subdirectory(&self, name: impl AsRef<Path>) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    }

    /// Has the logs moved away instead of removed at the end, and returns where they will be.
    pub fn keep_logs(&self, name: &str) -> PathBuf {
        let target = self.kept_logs(name);
        self.order(&keep(&target));
        target
    }

    /// Removes the logs at the end after all.
    pub fn drop_logs(&self) {
        self.order("drop");
    }

    /// Processes that ended unasked, each with the end of its log.
    #[must_use]
    pub fn unexpected_exits(&self) -> Vec<String> {
        self.unexpected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How often a process ended unasked whose ends are counted: a kapp-controller. Those without a known cause are also among the
    /// [unexpected](Self::unexpected_exits) ones.
    #[must_use]
    pub fn counted_ends(&self) -> usize {
        self.counted_ends.load(Ordering::SeqCst)
    }

    /// Notes what no log of the stack may hold.
    pub fn guard(&self, secrets: impl IntoIterator<Item = Secret>) {
        self.secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(secrets);
    }

    /// All that no log of the stack may hold.
    #[must_use]
    pub fn secrets(&self) -> Vec<Secret> {
        self.secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Resident memory of every process of the stack.
    #[must_use]
    pub fn memory(&self) -> Vec<Resident> {
        marked_processes(&self.path)
            .into_iter()
            .filter_map(resident)
            .collect()
    }

    /// Kills every process of the stack, removes the directory and waits until both are done. A second
    /// call does nothing.
    pub async fn close(&self) -> Result<()> {
        self.closing.store(true, Ordering::SeqCst);
        let watchdog = self
            .watchdog
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match watchdog {
            Some(watchdog) => tokio::task::spawn_blocking(|| watchdog.finish())
                .await
                .context("wait for the watchdog")?,
            None => Ok(()),
        }
    }

    /// Notes what ended without being stopped. Once the directory is being closed everything may end.
    pub(crate) fn report_unexpected_exit(&self, what: String) {
        if self.closing.load(Ordering::SeqCst) {
            return;
        }
        notice(&what);
        self.unexpected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }

    /// Counts the end of a process that was not asked to end. While the directory is being closed, ends are not counted.
    pub(crate) fn count_end(&self) {
        if !self.closing.load(Ordering::SeqCst) {
            self.counted_ends.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn kept_logs(&self, name: &str) -> PathBuf {
        let unique = self.path.file_name().unwrap_or_default().to_string_lossy();
        kept_logs_directory().join(format!("{name}-{unique}"))
    }

    fn order(&self, line: &str) {
        let mut watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = watchdog.as_mut().map(|watchdog| watchdog.order(line)) {
            notice(format_args!("{error:#}"));
        }
    }
}

impl Drop for RunDirectory {
    /// A directory that was not closed belongs to something that failed: by a panic, or by an error that was
    /// handed on. Its logs are kept.
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        let Some(mut watchdog) = self
            .watchdog
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        else {
            return;
        };
        let kept = self.kept_logs(&self.name);
        notice(format_args!(
            "the logs of {} are kept in {}",
            self.name,
            kept.display()
        ));
        let outcome = watchdog.order(&keep(&kept)).and_then(|()| watchdog.finish());
        if let Err(error) = outcome {
            notice(format_args!("{error:#}"));
        }
    }
}

impl Watchdog {
    fn start(directory: &Path) -> Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(format!("{MARK}={}", directory.display()))
            .arg(directory)
            // Its own group: a Ctrl-C or a kill of the owner's group must not take it along.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start sh, needed to clean up behind the stack")?;
        let orders = child.stdin.take().context("the watchdog has no standard input")?;
        Ok(Self { child, orders })
    }

    fn order(&mut self, line: &str) -> Result<()> {
        writeln!(self.orders, "{line}").context("tell the watchdog of a stack what to do")
    }

    /// Starts the cleanup, and waits for its end.
    fn finish(self) -> Result<()> {
        let Self { mut child, orders } = self;
        drop(orders);
        let status = child.wait().context("wait for the watchdog of a stack")?;
        ensure!(
            status.success(),
            "the watchdog of a stack could not clean up ({status})"
        );
        Ok(())
    }
}

/// Process ids that carry the mark of the stack in `directory`. Empty once the stack is gone.
#[must_use]
pub fn marked_processes(directory: &Path) -> Vec<u32> {
    let mark = format!("{MARK}={}", directory.display());
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id: &u32| {
            fs::read(format!("/proc/{id}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|pair| pair == mark.as_bytes())
            })
        })
        .collect()
}

/// Memory of a process; none if it does not exist.
#[must_use]
pub fn resident(id: u32) -> Option<Resident> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(str::trim)
    };
    let kibibytes: u64 = field("VmRSS:")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(Resident {
        program: field("Name:")?.to_owned(),
        id,
        bytes: kibibytes * 1024,
    })
}

/// The order to move the logs to `target`.
fn keep(target: &Path) -> String {
    format!("keep {}", target.display())
}

fn kept_logs_directory() -> PathBuf {
    if let Some(chosen) = std::env::var_os(LOGS) {
        return PathBuf::from(chosen);
    }
    target_directory()
        .unwrap_or_else(std::env::temp_dir)
        .join("sluice-logs")
}

/// Cargo's target directory, when the running program lies in one.
#[must_use]
pub fn target_directory() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program
        .ancestors()
        .find(|path| path.join("CACHEDIR.TAG").is_file())
        .map(Path::to_owned)
}
