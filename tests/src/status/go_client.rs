//! The client in Go, built from `tests/go/status` and from code that is generated from the shipped `.proto`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::{Caller, messages};
use crate::components::{build_here, go, lock};
use crate::extension::Replica;
use crate::processes::notice;
use crate::processes::process::{Launch, Process};
use crate::processes::run_directory::{RunDirectory, target_directory};

/// How long a call may take that is answered once.
const ANSWER: Duration = Duration::from_mins(1);

/// The built program.
#[derive(Debug)]
pub struct GoClient(PathBuf);

impl GoClient {
    /// The program, generated and built where that was not done by this process.
    pub async fn built() -> Result<Arc<Self>> {
        static BUILT: OnceCell<Arc<GoClient>> = OnceCell::const_new();
        let build = || async {
            let built = tokio::task::spawn_blocking(build)
                .await
                .context("build the client")??;
            Ok(Arc::new(built))
        };
        BUILT.get_or_try_init(build).await.cloned()
    }

    /// Makes one call, without a token if there is no caller, and returns the output: answers, or the error.
    pub async fn call(
        &self,
        replica: &Replica,
        ca: &Path,
        token: Option<&Path>,
        words: &[&str],
    ) -> Result<Vec<Value>> {
        let running = tokio::process::Command::new(&self.0)
            .arg(replica.status_address())
            .arg(ca)
            .arg(token.unwrap_or(Path::new("")))
            .args(words)
            .env_clear()
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(ANSWER, running).await;
        let output = output.with_context(|| format!("{words:?} did not end within {ANSWER:?}"))??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(
            output.status.success(),
            "{words:?} ended with {}: {}",
            output.status,
            text(&output.stderr)
        );
        Ok(messages(&text(&output.stdout)))
    }

    /// Starts a call that lasts, logged as `log`, which may end by itself.
    pub fn start(
        &self,
        directory: &Arc<RunDirectory>,
        log: &str,
        replica: &Replica,
        caller: &Caller<'_>,
        words: &[&str],
    ) -> Result<Process> {
        let launch = Launch::new(log, &self.0)
            .arg(replica.status_address())
            .arg(caller.ca_file())
            .arg(caller.token_file())
            .args(words.iter().copied());
        let process = Process::start(directory, launch)?;
        process.may_end(true);
        Ok(process)
    }
}

fn build() -> Result<GoClient> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let module = tests.join("go/status");
    let target = target_directory().unwrap_or_else(|| PathBuf::from("target"));
    let target = fs::canonicalize(&target).with_context(|| format!("find {}", target.display()))?;
    let directory = target.join("status-client");
    // Other processes that test write the same sources.
    let _lock = lock(&directory.join("sources"))?;
    fs::create_dir_all(directory.join("generate"))?;
    notice("generating and building the client of the status service with go");
    for file in ["go.mod", "go.sum", "main.go", "generate/main.go"] {
        fs::copy(module.join(file), directory.join(file)).with_context(|| format!("copy {file}"))?;
    }
    let proto = fs::canonicalize(tests.join("../proto"))?;
    go(
        &directory,
        &["run", "./generate", &proto.display().to_string()],
        |line| notice(line),
    )?;
    let program = directory.join("client");
    build_here(&directory, &program)?;
    Ok(GoClient(program))
}
