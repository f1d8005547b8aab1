//! The version of Sluice that operators update from, built from its commit in the history of this repository.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::cache::user_cache;
use super::once::once;
use crate::processes::{notice, out_of_memory};
use crate::sources::root;

/// The commit; docs/testing.md says when it is changed.
const COMMIT: &str = include_str!("../../previous").trim_ascii();

/// Timeout of the build, which takes a quarter of an hour on two cores.
const BUILD: Duration = Duration::from_hours(1);

/// Time between notices of a build.
const NOTICES: Duration = Duration::from_secs(25);

/// Lines of cargo that the error of a failed build contains.
const QUOTED: usize = 20;

/// The path of its binary, which is built first if that was not done before on this machine.
pub async fn previous_sluice() -> Result<PathBuf> {
    tokio::task::spawn_blocking(|| {
        let directory = user_cache()?.join("sluice/previous").join(COMMIT);
        let program = directory.join("sluice");
        once(&program, |unfinished| make(&directory, unfinished))
            .with_context(|| format!("build Sluice of commit {COMMIT} in tests/previous"))?;
        Ok(program)
    })
    .await
    .context("build the previous version of Sluice")?
}

/// Builds the binary as `program`. Sources and dependencies are removed afterwards. After a failure they stay, and the next build
/// continues.
fn make(directory: &Path, program: &Path) -> Result<()> {
    let (sources, target) = (directory.join("sources"), directory.join("target"));
    extract(directory, &sources)?;
    build(&sources, &target)?;
    let built = target.join("release/sluice");
    fs::rename(&built, program).with_context(|| format!("move {}", built.display()))?;
    for left in [sources, target] {
        fs::remove_dir_all(&left).with_context(|| format!("remove {}", left.display()))?;
    }
    Ok(())
}

/// Writes the files of the commit to `sources`. They have the time of the commit, so cargo does not build an unchanged file again.
fn extract(directory: &Path, sources: &Path) -> Result<()> {
    let commit = format!("{COMMIT}^{{commit}}");
    if let Err(reason) = git(&["cat-file", "-e", &commit]) {
        bail!(
            "missing: commit {COMMIT} in the git history of {}; \
             `git fetch --unshallow` or `git fetch origin {COMMIT}` gets it ({reason:#})",
            root().display()
        );
    }
    let archive = directory.join("sources.tar");
    let output = format!("--output={}", archive.display());
    git(&["archive", "--format=tar", &output, COMMIT])?;
    let mut files = tar::Archive::new(File::open(&archive).context("open the archive of the commit")?);
    files
        .unpack(sources)
        .with_context(|| format!("write {}", sources.display()))?;
    fs::remove_file(&archive).with_context(|| format!("remove {}", archive.display()))
}

fn git(words: &[&str]) -> Result<()> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root())
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("start git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git says: {}", said.trim());
    Ok(())
}

/// Builds the binary with the lowest priority: the leaders of a stack beside it must renew their leases in time.
fn build(sources: &Path, target: &Path) -> Result<()> {
    let mut cargo = Command::new("nice")
        .args(["-n", "19", "cargo", "build", "--release", "--locked"])
        .args(["--bin", "sluice", "--target-dir"])
        .arg(target)
        .current_dir(sources)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("start cargo")?;
    if let Err(error) = out_of_memory::take_first(cargo.id()) {
        notice(format_args!(
            "cargo is ended like other programs when memory runs out: {error}"
        ));
    }
    let errors = cargo.stderr.take().context("cargo has no output")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(errors).lines().map_while(Result::ok);
        // The receiver is gone after the timeout.
        lines.map(|line| sender.send(line)).all(|sent| sent.is_ok())
    });
    let said = follow(&lines);
    if said.is_err() {
        // It may have ended.
        drop(cargo.kill());
    }
    let succeeded = cargo.wait().context("wait for cargo")?.success();
    let said = Vec::from(said?).join("\n");
    ensure!(succeeded, "cargo says:\n{said}");
    Ok(())
}

/// Prints the progress until cargo ends. Returns its last lines.
fn follow(lines: &Receiver<String>) -> Result<VecDeque<String>> {
    let began = Instant::now();
    let (mut said, mut compiled) = (VecDeque::new(), 0);
    let mut noticed: Option<Instant> = None;
    loop {
        if noticed.is_none_or(|noticed| noticed.elapsed() >= NOTICES) {
            notice(format_args!(
                "building the previous version of Sluice, once: {compiled} crates after {} s",
                began.elapsed().as_secs()
            ));
            noticed = Some(Instant::now());
        }
        match lines.recv_timeout(NOTICES) {
            Ok(line) => {
                compiled += usize::from(line.trim_start().starts_with("Compiling "));
                said.push_back(line);
                said.drain(..said.len().saturating_sub(QUOTED));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(said),
        }
        ensure!(
            began.elapsed() < BUILD,
            "cargo did not end within {} min; it said last: {}",
            BUILD.as_secs() / 60,
            said.back().map_or("nothing", String::as_str)
        );
    }
}
