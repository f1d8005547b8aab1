//! Where the ledger of turns is kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::turns::Ledger;
use crate::components::user_cache;
use crate::processes::{lock_file, notice};

/// The ledger of this user.
pub(super) fn path() -> Result<PathBuf> {
    Ok(user_cache()?.join("sluice").join("scenarios.json"))
}

/// The ledger at `path`; an empty one where there is none, or it cannot be read.
pub(super) fn read(path: &Path) -> Ledger {
    let Ok(text) = fs::read(path) else {
        return Ledger::default();
    };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        notice(format_args!("{} is begun again: {error}", path.display()));
        Ledger::default()
    })
}

/// Adds successes at `landing`, and returns the ledger.
pub(super) fn note(path: &Path, landing: &str, passed: &[(&str, Duration)]) -> Result<Ledger> {
    let directory = path.parent().context("a ledger in no directory")?;
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    // Another run may do the same.
    let lock = lock_file(&path.with_extension("lock"))?;
    lock.lock().context("lock the ledger")?;
    let mut ledger = read(path);
    ledger.lands(landing);
    for (name, took) in passed {
        ledger.passes(name, *took);
    }
    let written = path.with_extension("new");
    fs::write(&written, serde_json::to_vec_pretty(&ledger)?)
        .and_then(|()| fs::rename(&written, path))
        .with_context(|| format!("write {}", path.display()))?;
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_read_again_and_an_unreadable_one_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sluice").join("scenarios.json");
        assert_eq!(read(&path), Ledger::default());
        note(&path, "1", &[("a", Duration::from_secs(2))]).unwrap();
        let noted = note(&path, "2", &[("b", Duration::from_secs(3))]).unwrap();
        assert_eq!(read(&path), noted);
        let turns = noted.turns(["b", "a"], "2");
        let ages: Vec<_> = turns.iter().map(|turn| (turn.name.as_str(), turn.age)).collect();
        assert_eq!(ages, [("a", Some(1)), ("b", Some(0))]);
        fs::write(&path, "{").unwrap();
        assert_eq!(read(&path), Ledger::default());
    }
}
