//! What a machine must offer, checked before anything is started: a missing thing is one line, not a
//! failure minutes later.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

/// Oldest Go that the module files accept.
const GO: (u32, u32) = (1, 26);

/// How kapp-controller gets its own view of `/run` and `/home`, where its ServiceAccount token and home are
/// fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// `unshare -m`: as root.
    Mounts,
    /// `unshare -Urm`: as an ordinary user, in a user namespace.
    User,
}

impl Isolation {
    /// Arguments of `unshare`.
    #[must_use]
    pub fn flags(self) -> &'static str {
        match self {
            Self::Mounts => "-m",
            Self::User => "-Urm",
        }
    }

    /// Finds out which one this machine allows, by trying.
    pub fn detect() -> Result<Self> {
        let mut refusal = String::new();
        for isolation in [Self::Mounts, Self::User] {
            let script = "mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /home";
            let attempt = Command::new("unshare")
                .args([isolation.flags(), "--propagation", "private", "sh", "-c", script])
                .stdin(Stdio::null())
                .output();
            match attempt {
                Ok(output) if output.status.success() => return Ok(isolation),
                Ok(output) => refusal = last_line(&output.stderr),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    bail!("missing: unshare (package util-linux), which kapp-controller is started with")
                }
                Err(error) => bail!("cannot run unshare: {error}"),
            }
        }
        bail!(
            "missing: mount namespaces for kapp-controller; neither as root nor with user namespaces ({refusal})"
        )
    }
}

/// Checks that the Go toolchain is new enough.
pub(super) fn go() -> Result<()> {
    let version = match super::go::go(Path::new("."), &["env", "GOVERSION"], |_| ()) {
        Ok(version) => version.trim().to_owned(),
        Err(error) if is_not_found(&error) => {
            bail!(
                "missing: go (version {}.{} or newer), which builds the stack's programs",
                GO.0,
                GO.1
            )
        }
        Err(error) => return Err(error.context("ask go for its version")),
    };
    match parse(&version) {
        Some(found) if found >= GO => Ok(()),
        Some(_) => bail!(
            "missing: go {}.{} or newer; this machine has {version}",
            GO.0,
            GO.1
        ),
        None => bail!("cannot tell the version of go: it says {version:?}"),
    }
}

/// Checks that git is there with the program that serves repositories by HTTP, which some distributions package separately. Only stacks with
/// Flux need it.
pub(crate) fn git_backend() -> Result<()> {
    const MISSING: &str =
        "missing: git with git-http-backend (package git), which serves the repositories that Flux reads";
    let found = Command::new("git")
        .arg("--exec-path")
        .stdin(Stdio::null())
        .output();
    let output = match found {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(MISSING),
        Err(error) => bail!("cannot run git: {error}"),
    };
    let programs = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(
        Path::new(&programs).join("git-http-backend").is_file(),
        "{MISSING}"
    );
    Ok(())
}

fn is_not_found(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == ErrorKind::NotFound)
}

/// `go1.26.8` as (1, 26).
fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The last line with text in it.
fn last_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_are_compared_as_numbers() {
        assert_eq!(parse("go1.26.8"), Some((1, 26)));
        assert_eq!(parse("go1.27rc1"), Some((1, 27)));
        assert_eq!(parse("devel +abc"), None);
        assert!(parse("go1.9.7") < Some(GO));
    }
}
