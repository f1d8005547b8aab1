//! The go command, and programs that are built each for itself.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::cache::{digest, user_cache};
use super::catalogue::Module;
use super::once::{once, replace};
use crate::processes::{notice, out_of_memory};

/// Runs `go` with these arguments in a directory, passes each line of its standard error to `said`, and returns its standard output. The
/// environment excludes settings of the machine that would change the build: other toolchains, C, `go.work` above the directory, and flags
/// of other builds.
///
/// # Errors
/// `go says: ` and the last line of standard error if it fails.
pub(crate) fn go<W: AsRef<OsStr>>(
    directory: &Path,
    words: &[W],
    mut said: impl FnMut(&str),
) -> Result<String> {
    let mut running = Command::new("go")
        .args(words)
        .current_dir(directory)
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "-buildvcs=false")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start go")?;
    if let Err(error) = out_of_memory::take_first(running.id()) {
        notice(format_args!(
            "go is ended like other programs when memory runs out: {error}"
        ));
    }
    let outputs = running.stdout.take().zip(running.stderr.take());
    let (mut printed, errors) = outputs.context("go has no output")?;
    let printed = thread::spawn(move || {
        let mut text = String::new();
        printed.read_to_string(&mut text).map(|_| text)
    });
    let mut complaint = String::new();
    for line in BufReader::new(errors).lines() {
        let line = line.context("read stderr of go")?;
        said(&line);
        // With -v it names packages, which have no space in them.
        if !line.starts_with("go: downloading") && line.contains(' ') {
            complaint = line;
        }
    }
    let printed = printed
        .join()
        .map_err(|_| anyhow!("the thread that reads what go prints panicked"))?;
    let succeeded = running.wait().context("wait for go")?.success();
    ensure!(succeeded, "go says: {}", complaint.trim());
    printed.context("read stdout of go")
}

/// Builds the program in this directory as `program`, which it replaces.
pub(crate) fn build_here(directory: &Path, program: &Path) -> Result<()> {
    // Not the packages that it names.
    let said = |line: &str| {
        if line.contains(' ') {
            notice(line);
        }
    };
    replace(program, |unfinished| {
        build(directory, ".", "-s -w", unfinished, said)
    })
}

/// Builds a main package, as the `go.mod` of this directory requires it, as `program`.
pub(super) fn build(
    directory: &Path,
    package: &str,
    linker_flags: &str,
    program: &Path,
    said: impl FnMut(&str),
) -> Result<()> {
    let words: [&OsStr; 9] = [
        "build".as_ref(),
        "-v".as_ref(),
        "-trimpath".as_ref(),
        // Symbols of debuggers, which the linker drops anyway, take a seventh of the time.
        "-gcflags=all=-dwarf=false".as_ref(),
        "-ldflags".as_ref(),
        linker_flags.as_ref(),
        "-o".as_ref(),
        program.as_ref(),
        package.as_ref(),
    ];
    go(directory, &words, said).map(drop)
}

/// The program `name` of `tests/go` with these sources, `go.mod` and `go.sum` among them. It is built first where that was not done before
/// with the same sources.
pub(super) fn build_sources(name: &str, sources: &[(&str, &str)]) -> Result<PathBuf> {
    let digest = digest(sources.iter().map(|(_, text)| (*text).to_owned()));
    let directory = user_cache()?
        .join("sluice/tools")
        .join(format!("{name}-{digest}"));
    let program = directory.join(name);
    once(&program, |unfinished| {
        notice(format_args!("building tests/go/{name}, once"));
        for (file, text) in sources {
            fs::write(directory.join(file), text).with_context(|| format!("write {file}"))?;
        }
        build(&directory, ".", "-s -w", unfinished, |_| ()).with_context(|| format!("build tests/go/{name}"))
    })?;
    Ok(program)
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
        let program = directory.join(self.name);
        once(&program, |unfinished| {
            notice(format_args!("building {} with go, once", self.name));
            fs::write(directory.join("go.mod"), go_mod)?;
            fs::write(directory.join("go.sum"), go_sum)?;
            build(&directory, self.package, &self.linker_flags, unfinished, |_| ())
                .with_context(|| format!("build {}", self.name))
        })?;
        Ok(program)
    }
}

/// Where Go keeps the sources of a module that the `go.mod` of this directory requires, or of a `module@version` that was downloaded.
pub(crate) fn sources_of(directory: &Path, module: &str) -> Result<PathBuf> {
    let found = go(directory, &["list", "-m", "-f", "{{.Dir}}", module], |_| ())
        .with_context(|| format!("find the sources of {module}"))?;
    let found = found.trim();
    ensure!(
        !found.is_empty(),
        "the sources of {module} are not in the module cache"
    );
    Ok(PathBuf::from(found))
}
