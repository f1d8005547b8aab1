//! Files that several threads and processes want at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::processes::{lock_file, notice};

/// Time between notices of one that waits.
const NOTICES: Duration = Duration::from_secs(25);

/// Has `make` write the file at the path that it is given, unless `path` exists. It appears at `path` by rename, once it is complete; others that
/// want it meanwhile wait.
///
/// # Errors
/// Those of `make`, which leave nothing at `path`; and those of the file system.
pub(crate) fn once(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let _lock = lock(path)?;
    // Again under the lock: another process has probably made it.
    if path.exists() {
        return Ok(());
    }
    made(path, make)
}

/// The same, and what exists is replaced.
pub(crate) fn replace(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let _lock = lock(path)?;
    made(path, make)
}

/// Excludes all others, of this process too, that ask for the same path, for as long as the file lives. Makes the directory that it is in.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let lock = beside(path, "lock")?;
    if let Some(directory) = lock.parent() {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    let file = lock_file(&lock)?;
    if file.try_lock().is_err() {
        let (waits, locked) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || tell(path, &locked));
            // Also on an error: the other thread ends with its channel.
            let _waits = waits;
            file.lock().with_context(|| format!("lock {}", lock.display()))
        })?;
    }
    Ok(file)
}

/// Prints a notice now and then until the channel is closed.
fn tell(path: &Path, locked: &mpsc::Receiver<()>) {
    let began = Instant::now();
    loop {
        notice(format_args!(
            "waiting for {} s until another process has made {}",
            began.elapsed().as_secs(),
            path.display()
        ));
        if !matches!(locked.recv_timeout(NOTICES), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

fn made(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    // Only the owner of the lock writes there, over what one has left that was killed.
    let unfinished = beside(path, "unfinished")?;
    make(&unfinished)?;
    fs::rename(&unfinished, path).with_context(|| format!("move {} into place", path.display()))
}

fn beside(path: &Path, what: &str) -> Result<PathBuf> {
    let name = path
        .file_name()
        .with_context(|| format!("{} has no name", path.display()))?;
    Ok(path.with_file_name(format!(".{}.{what}", name.display())))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU32, Ordering};

    use anyhow::bail;

    use super::*;

    /// Opened and written in parts, as a program does that others must not read meanwhile.
    fn write(path: &Path) -> Result<()> {
        let mut file = File::create(path)?;
        for _ in 0..100 {
            file.write_all(b"part")?;
            thread::yield_now();
        }
        Ok(())
    }

    #[test]
    fn a_file_is_made_once_and_read_only_when_it_is_complete() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("in/a/directory/file");
            let times = AtomicU32::new(0);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let make = |unfinished: &Path| {
                            times.fetch_add(1, Ordering::Relaxed);
                            write(unfinished)
                        };
                        once(&path, make).unwrap();
                        assert_eq!(fs::read(&path).unwrap().len(), 400);
                    });
                }
            });
            assert_eq!(times.into_inner(), 1);
        }
    }

    #[test]
    fn a_file_is_replaced_by_a_complete_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace(&path, write).unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    replace(&path, write).unwrap();
                    assert_eq!(fs::read(&path).unwrap().len(), 400);
                });
            }
        });
    }

    #[test]
    fn a_failed_or_killed_build_leaves_no_complete_result() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let failed = once(&path, |unfinished| {
            fs::write(unfinished, "half")?;
            bail!("killed")
        });
        assert!(failed.is_err() && !path.exists());
        once(&path, write).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 400);
    }
}
