//! Where built programs are kept: one directory per set of build inputs, guarded by a lock.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::catalogue::{self, MODULES};

/// The directory for the current inputs.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    pub(super) fn open() -> Result<Self> {
        let directory = user_cache()?
            .join("sluice")
            .join("stack")
            .join(format!("{:016x}", inputs()));
        for name in ["bin", "go", "manifests"] {
            let path = directory.join(name);
            fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        }
        Ok(Self { directory })
    }

    pub(super) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    /// Locks the directory against other processes for as long as the file lives; calls `waiting` first if another has it.
    pub(super) fn lock(&self, waiting: impl FnOnce()) -> Result<File> {
        let path = self.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("open {}", path.display()))?;
        if file.try_lock().is_err() {
            waiting();
            file.lock().with_context(|| format!("lock {}", path.display()))?;
        }
        Ok(file)
    }
}

fn user_cache() -> Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from)
        && chosen.is_absolute()
    {
        return Ok(chosen);
    }
    std::env::home_dir()
        .map(|home| home.join(".cache"))
        .context("neither XDG_CACHE_HOME nor HOME says where the stack's programs can be kept")
}

/// Changes with everything that changes a program but the toolchain: an installed toolchain of another version builds the same
/// sources to the same behaviour, and must not cost minutes.
fn inputs() -> u64 {
    let mut hasher = DefaultHasher::new();
    for module in MODULES {
        (module.name, module.go_mod, module.go_sum).hash(&mut hasher);
    }
    for component in catalogue::all() {
        (component.binary(), component.package, &component.linker_flags).hash(&mut hasher);
    }
    (std::env::consts::OS, std::env::consts::ARCH).hash(&mut hasher);
    hasher.finish()
}
