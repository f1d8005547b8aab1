//! Processes and threads that want the same things of an empty cache at once.
//!
//! The test runs this very test program again; `reads_the_definitions` is what runs there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use sluice_tests::install::{OF_AN_INSTALLATION, definitions};

const PROCESSES: usize = 3;
const THREADS: usize = 4;
const ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "run by the other test"]
async fn reads_the_definitions() -> Result<()> {
    let read = try_join_all((0..THREADS).map(|_| tokio::spawn(definitions(&OF_AN_INSTALLATION)))).await?;
    for texts in read {
        let texts = texts?;
        ensure!(texts.len() == 4, "{} definitions", texts.len());
        for (text, file) in texts
            .iter()
            .zip(OF_AN_INSTALLATION.iter().flat_map(|module| module.2))
        {
            ensure!(text == file, "{file} is incomplete: {text:?}");
        }
    }
    Ok(())
}

#[test]
fn definitions_are_read_side_by_side() -> Result<()> {
    let modules = tempfile::tempdir()?;
    for (name, version, files) in OF_AN_INSTALLATION {
        downloaded(modules.path(), name, version, files)?;
    }
    for _ in 0..ROUNDS {
        let cache = tempfile::tempdir()?;
        let running = (0..PROCESSES).map(|_| {
            Command::new(env::current_exe()?)
                .args(["cold_cache::reads_the_definitions", "--exact", "--ignored"])
                .env("XDG_CACHE_HOME", cache.path())
                .env("GOMODCACHE", modules.path())
                .env("GOPROXY", "off")
                .env("GONOSUMDB", "*")
                .stdout(Stdio::piped())
                .spawn()
                .context("start this program again")
        });
        let running: Vec<_> = running.collect::<Result<_>>()?;
        for process in running {
            let output = process.wait_with_output()?;
            ensure!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    }
    Ok(())
}

/// Puts a module into the directory that Go checks before a download. Each file has its own path as its content.
fn downloaded(cache: &Path, name: &str, version: &str, files: &[&str]) -> Result<()> {
    let sources = cache.join(format!("{name}@{version}"));
    for file in files {
        let path = sources.join(file);
        fs::create_dir_all(path.parent().context("a file in no directory")?)?;
        fs::write(path, file)?;
    }
    let download = cache.join("cache/download").join(name).join("@v");
    fs::create_dir_all(&download)?;
    let write =
        |extension: &str, content: &str| fs::write(download.join(format!("{version}.{extension}")), content);
    write("info", &format!("{{\"Version\":\"{version}\"}}"))?;
    write("mod", &format!("module {name}\n"))?;
    write("zip", "")?;
    // Go compares it with nothing as long as no go.sum and no database has one.
    write("ziphash", "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")?;
    Ok(())
}
