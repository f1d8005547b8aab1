//! The go command, and programs that are built each for itself.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::cache::{digest, user_cache};
use super::catalogue::Module;
use crate::processes::{lock_file, notice, out_of_memory};

/// `go` in a directory, with nothing of the machine in it that would change what is built: no other toolchain, no C, no go.work above the
/// directory, no flags that are meant for other builds.
pub(crate) fn go(directory: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(directory)
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "-buildvcs=false")
        .stdin(Stdio::null());
    go
}

/// Runs `go` with these words, and shows what it says.
pub(crate) fn run_go<W: AsRef<OsStr>>(directory: &Path, words: &[W]) -> Result<()> {
    let mut running = go(directory).args(words).spawn().context("start go")?;
    if let Err(error) = out_of_memory::take_first(running.id()) {
        notice(format_args!(
            "go is ended like other programs when memory runs out: {error}"
        ));
    }
    let status = running.wait().context("wait for go")?;
    let words: Vec<_> = words.iter().map(|word| word.as_ref().to_string_lossy()).collect();
    ensure!(
        status.success(),
        "go {} in {} ended with {status}",
        words.join(" "),
        directory.display()
    );
    Ok(())
}

/// Builds the program in this directory as `program`.
pub(crate) fn build_here(directory: &Path, program: &Path) -> Result<()> {
    let words: [&OsStr; 7] = [
        "build".as_ref(),
        "-trimpath".as_ref(),
        "-ldflags".as_ref(),
        "-s -w".as_ref(),
        "-o".as_ref(),
        program.as_ref(),
        ".".as_ref(),
    ];
    run_go(directory, &words)
}

/// A program that no stack needs unless a test asks for it. It is kept by its own inputs: a change of it must not have the programs of every
/// stack built again.
#[derive(Debug)]
pub(crate) struct Program {
    /// File name.
    pub(crate) name: &'static str,
    /// Directory of `tests/go` that it is built in.
    pub(crate) module: Module,
    /// Its main package.
    pub(crate) package: &'static str,
    /// Flags of the linker.
    pub(crate) linker_flags: String,
}

impl Program {
    /// Its path, built first where that was not done before with these inputs. The first build takes minutes. Beside it lie `go.mod` and
    /// `go.sum`.
    pub(crate) fn build(&self) -> Result<PathBuf> {
        let Module { go_mod, go_sum, .. } = self.module;
        let inputs = [go_mod, go_sum, self.package, &self.linker_flags];
        let digest = digest(inputs.into_iter().map(str::to_owned));
        let directory = user_cache()?
            .join("sluice/tools")
            .join(format!("{}-{digest}", self.name));
        fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
        let program = directory.join(self.name);
        if program.exists() {
            return Ok(program);
        }
        let lock = lock_file(&directory.join("lock"))?;
        lock.lock().context("wait for another build")?;
        if program.exists() {
            return Ok(program);
        }
        notice(format_args!("building {} with go, once", self.name));
        fs::write(directory.join("go.mod"), go_mod)?;
        fs::write(directory.join("go.sum"), go_sum)?;
        let unfinished = directory.join(format!(".{}", self.name));
        let output = go(&directory)
            .args(["build", "-trimpath", "-ldflags", &self.linker_flags, "-o"])
            .arg(&unfinished)
            .arg(self.package)
            .output()
            .context("start go")?;
        ensure!(
            output.status.success(),
            "build {}: go says: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        // Under its name only when it is complete.
        fs::rename(&unfinished, &program)?;
        Ok(program)
    }
}

/// Where Go keeps the sources of a module that the `go.mod` of this directory requires.
pub(super) fn sources_of(directory: &Path, module: &str) -> Result<PathBuf> {
    let output = go(directory)
        .args(["list", "-m", "-f", "{{.Dir}}", module])
        .output()
        .context("start go")?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        output.status.success() && !found.is_empty(),
        "find the sources of {module}: go says: {}",
        super::preflight::last_line(&output.stderr)
    );
    Ok(PathBuf::from(found))
}
