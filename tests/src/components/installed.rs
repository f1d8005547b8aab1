//! Programs that are installed on this machine. The demo uses them instead of building its own; tests never do.

use std::collections::BTreeSet;
use std::env::{self, consts};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{self, Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::catalogue::ETCD;
use crate::processes::notice;

/// Directories to search first, separated like `PATH`.
const DIRECTORIES: &str = "SLUICE_COMPONENTS";

/// Directory of one Kubernetes version, named `<version>-<os>-<arch>`, as setup-envtest creates it.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Time within which a program prints its version.
const ANSWER: Duration = Duration::from_secs(10);

/// Bytes that are read of what a program prints.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// Architecture of this machine in the header of an ELF file.
const MACHINE: u16 = match consts::ARCH.as_bytes() {
    b"x86_64" => 62,
    b"aarch64" => 183,
    // Nothing installed is used.
    _ => 0,
};

/// Commit in the version of a program that the harness has built.
const BUILT_HERE: &str = "0000000000000000000000000000000000000000";

/// A program of one minor version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// File name: `kube-apiserver`.
    pub(super) program: &'static str,
    /// `v1.36` or `3.6`, without a patch release.
    pub(super) minor: String,
}

/// An installed program of a wanted version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installed {
    pub(super) program: &'static str,
    pub(super) path: PathBuf,
    pub(super) version: String,
    pub(super) commit: Commit,
}

/// Commit in the version of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    /// One of the project: the program is a released binary.
    Released,
    /// The one of the harness, whose API servers emulate minor versions.
    Harness,
    /// None.
    Unknown,
}

/// Searches the directories for the wanted programs. Prints one line for each program that is found and not used.
pub(super) fn find(wanted: &[Wanted], directories: &[PathBuf]) -> Vec<Installed> {
    let programs: BTreeSet<&'static str> = wanted.iter().map(|wanted| wanted.program).collect();
    let of_program = |program| {
        let wanted: Vec<&Wanted> = wanted.iter().filter(|wanted| wanted.program == program).collect();
        find_minors(program, &wanted, directories)
    };
    programs.into_iter().flat_map(of_program).collect()
}

/// The same for one program in some minor versions.
fn find_minors(program: &'static str, wanted: &[&Wanted], directories: &[PathBuf]) -> Vec<Installed> {
    let mut found: Vec<Installed> = Vec::new();
    let mut paths = BTreeSet::new();
    for path in directories.iter().map(|directory| directory.join(program)) {
        let is_new = path.canonicalize().is_ok_and(|real| paths.insert(real));
        if !is_new || found.len() == wanted.len() {
            continue;
        }
        match inspect(program, &path) {
            Ok(installed) => match wanted.iter().find(|wanted| wanted.is(&installed)) {
                // The first one of a minor version is used.
                Some(wanted) if found.iter().any(|found| wanted.is(found)) => {}
                Some(_) => found.push(installed),
                None => {
                    let minors: Vec<&str> = wanted.iter().map(|wanted| wanted.minor.as_str()).collect();
                    let reason = format!("{}, not {}", installed.version, minors.join(" or "));
                    not_used(&path, &reason);
                }
            },
            Err(reason) => not_used(&path, &format!("{reason:#}")),
        }
    }
    found
}

impl Wanted {
    /// Any patch release of the minor version of `version`.
    pub(super) fn like(program: &'static str, version: &str) -> Self {
        Self {
            program,
            minor: minor(version).to_owned(),
        }
    }

    /// Whether the program is of this minor version, in any patch release.
    pub(super) fn is(&self, found: &Installed) -> bool {
        let patch = || found.version.strip_prefix(self.minor.as_str())?.strip_prefix('.');
        // Builds of distributions (`+rke2r1`) and release candidates have more than a patch release.
        self.program == found.program && patch().is_some_and(|patch| patch.parse::<u32>().is_ok())
    }
}

/// The minor version of a version, `v1.36` of `v1.36.3`.
pub(crate) fn minor(version: &str) -> &str {
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

/// In the notice about an installed program that the demo does not use.
pub(crate) const NOT_USED: &str = "is not used";

fn not_used(path: &Path, reason: &str) {
    notice(format_args!("{} {NOT_USED}: {reason}", path.display()));
}

/// The directories to search, in order.
pub(super) fn directories() -> Vec<PathBuf> {
    listed(&|name| env::var_os(name))
}

fn listed(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let of = |name| variable(name).map_or_else(Vec::new, |list| env::split_paths(&list).collect::<Vec<_>>());
    let mut directories = of(DIRECTORIES);
    if let Some(assets) = variable(ASSETS).map(PathBuf::from) {
        let siblings = assets.parent().map_or_else(Vec::new, releases_in);
        directories.push(assets);
        directories.extend(siblings);
    }
    directories.extend(of("PATH"));
    // A program is started in another directory. Empty entries are ignored.
    let absolute = directories
        .iter()
        .filter_map(|directory| path::absolute(directory).ok());
    absolute.collect()
}

/// The directories of versions for this machine, newest first.
fn releases_in(directory: &Path) -> Vec<PathBuf> {
    let architecture = match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let suffix = format!("-{}-{architecture}", consts::OS);
    let version = |path: &PathBuf| -> Option<Vec<u32>> {
        let name = path.file_name()?.to_str()?.strip_suffix(&suffix)?;
        name.split('.').map(|part| part.parse().ok()).collect()
    };
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let mut releases: Vec<(Vec<u32>, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter_map(|path| Some((version(&path)?, path)))
        .collect();
    releases.sort();
    releases.into_iter().rev().map(|(_, path)| path).collect()
}

/// Asks a program for its version.
///
/// # Errors
/// One reason why the program cannot be used.
fn inspect(program: &'static str, path: &Path) -> Result<Installed> {
    // A script may be shorter than the header of a program.
    let mut header = [0; 20];
    File::open(path)
        .and_then(|mut file| file.read(&mut header))
        .context("it cannot be read")?;
    ensure!(
        header.starts_with(b"\x7fELF"),
        "it is a script or a program of another system"
    );
    // An emulator may run a program of another architecture.
    let machine = u16::from_le_bytes([header[18], header[19]]);
    ensure!(machine == MACHINE, "it is a program of another architecture");
    let flag = if program == ETCD {
        "--version"
    } else {
        "--version=raw"
    };
    let printed = output_of(path, flag, ANSWER)?;
    let (version, commit) = match program {
        ETCD => (
            after(&printed, "etcd Version: ", '\n'),
            after(&printed, "Git SHA: ", '\n'),
        ),
        _ => (
            after(&printed, "GitVersion:\"", '"'),
            after(&printed, "GitCommit:\"", '"'),
        ),
    };
    let version = version.with_context(|| format!("{flag} prints no version"))?;
    let commit = match commit {
        Some(BUILT_HERE) => Commit::Harness,
        Some(commit) if commit.len() >= 7 && commit.chars().all(|digit| digit.is_ascii_hexdigit()) => {
            Commit::Released
        }
        _ => Commit::Unknown,
    };
    Ok(Installed {
        program,
        path: path.to_owned(),
        version: version.to_owned(),
        commit,
    })
}

/// The text between `start` and `end`.
fn after<'a>(text: &'a str, start: &str, end: char) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    let found = rest.split(end).next()?.trim();
    (!found.is_empty()).then_some(found)
}

/// Standard output of the program, which is killed at the limit.
fn output_of(path: &Path, flag: &str, limit: Duration) -> Result<String> {
    let mut child = Command::new(path)
        .arg(flag)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("it cannot be started")?;
    let stdout = child.stdout.take().context("it has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(LONGEST_ANSWER).read_to_string(&mut text);
        // The receiver is gone after the limit.
        drop(sender.send(read.map(|_| text)));
    });
    let printed = receiver.recv_timeout(limit);
    // It may have ended.
    drop(child.kill());
    child.wait().context("wait for it")?;
    match printed {
        Ok(text) => text.context("read its version"),
        Err(_) => bail!("it does not print its version within {} s", limit.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn wanted(program: &'static str, minor: &str) -> Wanted {
        Wanted {
            program,
            minor: minor.to_owned(),
        }
    }

    #[test]
    fn versions_are_read_from_the_output_of_real_programs() {
        // Shortened: kube-apiserver v1.36.3 and etcd 3.6.5, as they print it.
        let raw = "Kubernetes version.Info{Major:\"1\", Minor:\"36\", EmulationMajor:\"\", GitVersion:\"v1.36.3\", GitCommit:\"abc\"}\n";
        assert_eq!(after(raw, "GitVersion:\"", '"'), Some("v1.36.3"));
        assert_eq!(after(raw, "GitCommit:\"", '"'), Some("abc"));
        let etcd = "etcd Version: 3.6.5\nGit SHA: a061450\nGo Version: go1.24.7\n";
        assert_eq!(after(etcd, "etcd Version: ", '\n'), Some("3.6.5"));
        assert_eq!(after("usage: etcd", "etcd Version: ", '\n'), None);
    }

    #[test]
    fn any_patch_release_of_the_minor_version_is_used() {
        let found = |version: &str| Installed {
            program: "etcd",
            path: PathBuf::new(),
            version: version.to_owned(),
            commit: Commit::Released,
        };
        assert!(wanted("etcd", "3.6").is(&found("3.6.12")));
        assert!(!wanted("etcd", "3.6").is(&found("3.60.1")));
        assert!(!wanted("etcd", "3.6").is(&found("3.6.0-rc.1")));
        assert!(!wanted("etcd", "3.6").is(&found("3.6.12+rke2r1")));
        assert!(!wanted("etcd", "3.6").is(&found("3.5.9")));
        assert!(!wanted("kube-apiserver", "3.6").is(&found("3.6.1")));
    }

    #[test]
    fn directories_are_searched_in_the_documented_order() {
        let root = tempfile::tempdir().unwrap();
        let architecture = if consts::ARCH == "x86_64" {
            "amd64"
        } else {
            "arm64"
        };
        let release = |version: &str| {
            root.path()
                .join(format!("{version}-{}-{architecture}", consts::OS))
        };
        for version in ["1.9.0", "1.36.0", "1.35.2"] {
            fs::create_dir(release(version)).unwrap();
        }
        fs::create_dir(root.path().join("notes")).unwrap();
        let variables = |name: &str| match name {
            DIRECTORIES => Some("/one:/two".into()),
            ASSETS => Some(release("1.35.2").into()),
            "PATH" => Some("/usr/bin".into()),
            _ => None,
        };
        let expected = [
            PathBuf::from("/one"),
            "/two".into(),
            release("1.35.2"),
            release("1.36.0"),
            release("1.35.2"),
            release("1.9.0"),
            "/usr/bin".into(),
        ];
        assert_eq!(listed(&variables), expected);
    }

    #[test]
    fn a_program_that_cannot_be_used_is_not_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd");
        fs::write(&path, "#!/bin/sh\necho etcd Version: 3.6.1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let of = |path: &Path| format!("{:#}", inspect("etcd", path).unwrap_err());
        assert!(of(&path).contains("script"), "{}", of(&path));
        assert!(find(&[wanted("etcd", "3.6")], &[directory.path().to_owned()]).is_empty());
        fs::remove_file(&path).unwrap();
        // A program that does something else.
        symlink("/bin/true", &path).unwrap();
        assert!(of(&path).contains("prints no version"), "{}", of(&path));
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"\x7fELF of another machine").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(of(&path).contains("another architecture"), "{}", of(&path));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let error = output_of(Path::new("/bin/sleep"), "600", Duration::from_millis(50)).unwrap_err();
        assert!(
            error.to_string().contains("does not print its version"),
            "{error}"
        );
    }
}
