//! Where built programs are kept: one directory per set of build inputs, guarded by a lock.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::catalogue::{self, MODULES};
use super::once;

/// The directory for the current inputs.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    pub(super) fn open() -> Result<Self> {
        let directory = user_cache()?.join("sluice").join("stack").join(inputs());
        Ok(Self { directory })
    }

    pub(super) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    /// Locks the directory against other builds for as long as the file lives.
    pub(super) fn lock(&self) -> Result<File> {
        once::lock(&self.join("programs"))
    }
}

/// Cache directory of the programs.
pub(crate) fn user_cache() -> Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from)
        && chosen.is_absolute()
    {
        return Ok(chosen);
    }
    std::env::home_dir()
        .map(|home| home.join(".cache"))
        .context("neither XDG_CACHE_HOME nor HOME says where the stack's programs can be kept")
}

/// Changes with everything that changes a program but the toolchain: an installed toolchain of another
/// version builds the same sources to the same behaviour, and must not cost minutes.
fn inputs() -> String {
    let modules = MODULES
        .iter()
        .flat_map(|module| [module.name, module.go_mod, module.go_sum].map(str::to_owned));
    let components = catalogue::all();
    let components = components.iter().flat_map(|component| {
        [component.binary(), component.package, &component.linker_flags].map(str::to_owned)
    });
    let machine = [std::env::consts::OS, std::env::consts::ARCH].map(str::to_owned);
    digest(modules.chain(components).chain(machine))
}

/// Name of the directory for builds from these inputs.
pub(crate) fn digest(inputs: impl Iterator<Item = String>) -> String {
    let mut hasher = Sha256::new();
    for field in inputs {
        hasher.update(field.len().to_le_bytes());
        hasher.update(field);
    }
    hasher
        .finalize()
        .iter()
        .take(8)
        .fold(String::new(), |mut digits, byte| {
            // Writing to a String does not fail.
            let _written = write!(digits, "{byte:02x}");
            digits
        })
}
