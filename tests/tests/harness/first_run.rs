//! `tests/first-run.sh` names a missing requirement in one line, before anything is compiled.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use anyhow::{Context as _, Result};

use crate::missing::path_with;

/// Programs that the script uses.
const TOOLS: [&str; 20] = [
    "sh", "dirname", "find", "sed", "head", "tail", "awk", "df", "uname", "date", "nproc", "sleep",
    "unshare", "cargo", "rustc", "cc", "go", "git", "true", "env",
];

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("first-run.sh")
}

/// Runs the script with nothing built and these programs in its PATH.
fn run(programs: &[&str], more: &[(&str, &str)]) -> Result<Output> {
    let (path, empty) = (path_with(programs)?, tempfile::tempdir()?);
    // This machine may be busy.
    let memory = empty.path().join("meminfo");
    fs::write(&memory, "MemAvailable: 9000000 kB\n")?;
    let output = Command::new(script())
        .env("MEMINFO", memory)
        // Cargo sets it for its tests.
        .env_remove("CARGO")
        .env("PATH", path.path())
        .env("CARGO_TARGET_DIR", empty.path().join("target"))
        .env("XDG_CACHE_HOME", empty.path().join("cache"))
        .envs(more.iter().copied())
        .output()?;
    Ok(output)
}

fn refusal(programs: &[&str], more: &[(&str, &str)]) -> Result<String> {
    let output = run(programs, more)?;
    let stderr = String::from_utf8(output.stderr)?;
    anyhow::ensure!(output.status.code() == Some(1), "{:?}: {stderr}", output.status);
    let mut lines = stderr.lines();
    let line = lines.next().context("nothing is said")?;
    anyhow::ensure!(lines.next().is_none(), "more than one line: {stderr}");
    Ok(line.to_owned())
}

#[test]
fn a_missing_requirement_is_one_line() -> Result<()> {
    let empty = tempfile::tempdir()?;
    let without =
        |program: &str| -> Vec<&str> { TOOLS.into_iter().filter(|tool| *tool != program).collect() };
    let meminfo = empty.path().join("meminfo");
    fs::write(&meminfo, "MemAvailable: 1000000 kB\n")?;
    let meminfo = meminfo.to_str().context("UTF-8")?;
    let home = empty.path().to_str().context("UTF-8")?;
    for program in ["cargo", "rustc", "cc", "unshare"] {
        assert_eq!(refusal(&without(program), &[])?, format!("missing: {program}"));
    }
    assert_eq!(
        refusal(&without("go"), &[])?,
        "missing: go (version 1.26 or newer), which builds the stack's programs"
    );
    assert_eq!(
        refusal(&TOOLS, &[("MEMINFO", meminfo)])?,
        "missing: memory: 976 MB are available, the build needs 4000 MB"
    );
    let offline = refusal(&TOOLS, &[("CARGO_HOME", home), ("CARGO_NET_OFFLINE", "true")])?;
    assert!(offline.starts_with("cannot download crates: "), "{offline}");
    let off = [
        ("GOMODCACHE", home),
        ("GOPROXY", "off"),
        ("GOFLAGS", "-modcacherw"),
    ];
    let refused = refusal(&TOOLS, &off)?;
    assert!(
        refused.starts_with("cannot download Go modules: ") && refused.contains("GOPROXY=off"),
        "{refused}"
    );
    Ok(())
}

/// Directories of PATH with a shell script in front of them.
fn behind(name: &str, script: &str, directory: &Path) -> Result<String> {
    let program = directory.join(name);
    fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let path = env::var_os("PATH").context("no PATH")?;
    let directories = [directory.to_owned()].into_iter().chain(env::split_paths(&path));
    env::join_paths(directories)?
        .into_string()
        .map_err(|path| anyhow::anyhow!("{} is not UTF-8", path.display()))
}

#[test]
fn an_unsuitable_program_is_one_line() -> Result<()> {
    for (name, script, expected) in [
        (
            "go",
            "echo go version go1.24.1 linux/amd64",
            "missing: go 1.26 or newer; this one is 1.24.1",
        ),
        (
            "rustc",
            "echo 'rustc 1.80.0 (051478957 2024-07-21)'",
            "missing: rustc 1.95 or newer; this one is 1.80.0",
        ),
        (
            "unshare",
            "exit 1",
            "missing: mount namespaces for kapp-controller, neither as root nor with user namespaces",
        ),
    ] {
        let bin = tempfile::tempdir()?;
        let path = behind(name, script, bin.path())?;
        assert_eq!(refusal(&TOOLS, &[("PATH", &path)])?, expected);
    }
    Ok(())
}

#[test]
fn a_full_disk_is_one_line() -> Result<()> {
    let bin = tempfile::tempdir()?;
    let script = "echo Filesystem\necho /dev/disk 90000 89000 120 99% /";
    let path = behind("df", script, bin.path())?;
    let line = refusal(&TOOLS, &[("PATH", &path)])?;
    assert!(
        line == "missing: disk space: / has 120 MB, the build needs 10000 MB",
        "{line}"
    );
    Ok(())
}
