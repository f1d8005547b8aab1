//! One line names the missing requirement of a machine that cannot build the stack.
//!
//! Each test runs this very test program again in such a surrounding; `asks_for_the_programs` is what runs
//! there.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use sluice_tests::components::Binaries;
use sluice_tests::stack::git::GitServer;

const ANSWER: &str = "answer: ";

/// Programs that a machine without Go still has.
const BASIC: [&str; 4] = ["unshare", "sh", "mount", "readlink"];

#[tokio::test]
#[ignore = "run by the other tests"]
async fn asks_for_the_programs() {
    match Binaries::ready().await {
        Ok(_) => println!("{ANSWER}everything is there"),
        Err(error) => println!("{ANSWER}{error:#}\nend"),
    }
}

#[tokio::test]
#[ignore = "run by the other tests"]
async fn asks_for_a_git_server() {
    match GitServer::serve().await {
        Ok(_) => println!("{ANSWER}everything is there"),
        Err(error) => println!("{ANSWER}{error:#}\nend"),
    }
}

/// Output of a process that builds the programs with an empty cache, `programs` in its PATH and `more` in
/// its environment. It must be one line.
fn told(programs: &Path, more: &[(&str, &str)]) -> Result<String> {
    told_by("missing::asks_for_the_programs", programs, more)
}

/// The same of a process that runs another test.
fn told_by(test: &str, programs: &Path, more: &[(&str, &str)]) -> Result<String> {
    let cache = tempfile::tempdir()?;
    let output = Command::new(env::current_exe()?)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("PATH", programs)
        .env("XDG_CACHE_HOME", cache.path())
        .envs(more.iter().copied())
        .output()?;
    let output = String::from_utf8(output.stdout)?;
    let (_, answer) = output
        .split_once(ANSWER)
        .with_context(|| format!("no answer in {output}"))?;
    let (line, rest) = answer.split_once('\n').context("an answer without an end")?;
    ensure!(
        rest.starts_with("end"),
        "the answer has more than one line: {answer}"
    );
    Ok(line.to_owned())
}

fn find(program: &str) -> Result<std::path::PathBuf> {
    let path = env::var_os("PATH").context("no PATH")?;
    let mut candidates = env::split_paths(&path).map(|directory| directory.join(program));
    candidates
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("find {program}"))
}

pub(crate) fn path_with(programs: &[&str]) -> Result<tempfile::TempDir> {
    let directory = tempfile::tempdir()?;
    for program in programs {
        symlink(find(program)?, directory.path().join(program))?;
    }
    Ok(directory)
}

#[test]
fn go_is_missing() -> Result<()> {
    let path = path_with(&BASIC)?;
    let told = told(path.path(), &[])?;
    assert_eq!(
        told,
        "missing: go (version 1.26 or newer), which builds the stack's programs"
    );
    Ok(())
}

#[test]
fn go_is_too_old() -> Result<()> {
    let path = path_with(&BASIC)?;
    let go = path.path().join("go");
    fs::write(&go, "#!/bin/sh\necho go1.25.3\n")?;
    fs::set_permissions(&go, fs::Permissions::from_mode(0o755))?;
    let told = told(path.path(), &[])?;
    assert_eq!(told, "missing: go 1.26 or newer; this machine has go1.25.3");
    Ok(())
}

#[test]
fn unshare_is_missing() -> Result<()> {
    let path = path_with(&["sh", "mount", "readlink", "go"])?;
    let told = told(path.path(), &[])?;
    assert!(
        told.starts_with("missing: unshare (package util-linux)"),
        "{told}"
    );
    Ok(())
}

#[test]
fn git_is_missing() -> Result<()> {
    let path = path_with(&["sh"])?;
    for script in [None, Some("#!/bin/sh\necho /nonexistent\n")] {
        if let Some(script) = script {
            // git without the program that serves repositories.
            let git = path.path().join("git");
            fs::write(&git, script)?;
            fs::set_permissions(&git, fs::Permissions::from_mode(0o755))?;
        }
        let told = told_by("missing::asks_for_a_git_server", path.path(), &[])?;
        assert!(
            told.starts_with("missing: git with git-http-backend (package git)"),
            "{told}"
        );
    }
    Ok(())
}

#[test]
fn the_module_proxy_refuses() -> Result<()> {
    let modules = tempfile::tempdir()?;
    let modules = modules
        .path()
        .to_str()
        .context("a temporary directory that is not UTF-8")?;
    let path = env::var_os("PATH").context("no PATH")?;
    let told = told(Path::new(&path), &[("GOPROXY", "off"), ("GOMODCACHE", modules)])?;
    // Any of the two components that are built first.
    assert!(
        told.starts_with("build ") && told.contains(": go says: "),
        "{told}"
    );
    assert!(told.contains("GOPROXY=off"), "{told}");
    Ok(())
}
