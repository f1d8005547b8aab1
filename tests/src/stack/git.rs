//! A git repository, served by HTTP on loopback.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tempfile::TempDir;
use tokio::fs;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use crate::components::git_backend;

/// Name of the repository, in its directory and its URL.
const REPOSITORY: &str = "addons";

/// Longest request of a client that fetches: a list of the commits that it wants and has.
const LONGEST_REQUEST: usize = 1 << 20;

/// Served by `git http-backend` until it is dropped. Clients cannot push.
#[derive(Debug)]
pub struct GitServer {
    url: String,
    files: PathBuf,
    /// Held by the one that commits.
    commits: Mutex<()>,
    server: AbortHandle,
    // Removed at the end.
    _directory: TempDir,
}

impl GitServer {
    /// The only branch.
    pub const BRANCH: &str = "main";

    /// Serves a repository with one commit.
    pub async fn serve() -> Result<Self> {
        git_backend()?;
        let directory = tempfile::tempdir().context("create a directory for a git repository")?;
        let root: Arc<Path> = directory.path().into();
        let files = directory.path().join(REPOSITORY);
        fs::create_dir(&files).await?;
        git(&files, &["init", "--quiet", "--initial-branch", Self::BRANCH]).await?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(answer).with_state(root);
        let server = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!("the server of a git repository ended: {error}");
            }
        });
        let git_server = Self {
            url: format!("http://{address}/{REPOSITORY}"),
            files,
            commits: Mutex::default(),
            server: server.abort_handle(),
            _directory: directory,
        };
        // Without a commit there is no branch.
        git_server
            .commit(&[("README", "Add-ons of a scenario\n")])
            .await?;
        Ok(git_server)
    }

    /// Its URL, `http://127.0.0.1:<port>/addons`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Writes files by their paths, and commits them; other files stay as they are. Returns the revision as Flux spells it:
    /// `main@sha1:<commit>`.
    pub async fn commit(&self, files: &[(&str, &str)]) -> Result<String> {
        let _alone = self.commits.lock().await;
        for (path, content) in files {
            let path = self.files.join(path);
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)
                    .await
                    .with_context(|| format!("create {}", directory.display()))?;
            }
            fs::write(&path, content)
                .await
                .with_context(|| format!("write {}", path.display()))?;
        }
        git(&self.files, &["add", "--all"]).await?;
        // A revision of its own also for files that are the same as before.
        git(
            &self.files,
            &["commit", "--quiet", "--allow-empty", "--message", "Change files"],
        )
        .await?;
        let commit = git(&self.files, &["rev-parse", "HEAD"]).await?;
        Ok(format!("{}@sha1:{}", Self::BRANCH, commit.trim()))
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A git command that no configuration of the machine and no hook that runs the harness influences.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(words)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "harness")
        .env("GIT_AUTHOR_EMAIL", "harness@example.com")
        .env("GIT_COMMITTER_NAME", "harness")
        .env("GIT_COMMITTER_EMAIL", "harness@example.com")
        .kill_on_drop(true);
    command
}

/// Runs git in a directory, and returns what it prints.
async fn git(directory: &Path, words: &[&str]) -> Result<String> {
    let output = command(words)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .await
        .context("start git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {words:?} says: {}", said.trim());
    String::from_utf8(output.stdout).context("read the output of git")
}

async fn answer(State(root): State<Arc<Path>>, request: Request) -> Response {
    match backend(&root, request).await {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!("git http-backend: {error:#}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Has `git http-backend` answer a request, as a web server with CGI does.
async fn backend(root: &Path, request: Request) -> Result<Response> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, LONGEST_REQUEST).await.context("read a request")?;
    let header = |name: &str| {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let mut running = command(&["http-backend"])
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("HTTP_GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start git http-backend")?;
    let mut input = running.stdin.take().context("git has no input")?;
    // It reads the whole request first. Dropped, the input ends.
    input.write_all(&body).await.context("write a request")?;
    drop(input);
    let output = running
        .wait_with_output()
        .await
        .context("wait for git http-backend")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "it ended: {}", said.trim());
    response(&output.stdout)
}

/// The response that a CGI program has printed.
fn response(printed: &[u8]) -> Result<Response> {
    const BETWEEN: &[u8] = b"\r\n\r\n";
    let end = printed
        .windows(BETWEEN.len())
        .position(|window| window == BETWEEN)
        .context("a response without an end of its headers")?;
    let (head, body) = printed.split_at(end);
    let head = std::str::from_utf8(head).context("read headers")?;
    let mut response = Response::builder();
    for line in head.lines() {
        let Some((name, value)) = line.split_once(": ") else {
            bail!("a header {line:?}")
        };
        response = if name == "Status" {
            response.status(value.split(' ').next().unwrap_or_default())
        } else {
            response.header(name, value)
        };
    }
    let body = body.get(BETWEEN.len()..).unwrap_or_default().to_vec();
    response.body(Body::from(body)).context("make a response")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clones the repository as a client, and returns a file of it.
    async fn cloned(server: &GitServer, file: &str) -> Result<String> {
        let directory = tempfile::tempdir()?;
        git(directory.path(), &["clone", "--quiet", server.url(), "clone"]).await?;
        Ok(fs::read_to_string(directory.path().join("clone").join(file)).await?)
    }

    #[tokio::test]
    async fn a_client_gets_every_commit() {
        let server = GitServer::serve().await.unwrap();
        let first = server
            .commit(&[("agent/one.yaml", "a: 1\n"), ("two.yaml", "b: 1\n")])
            .await
            .unwrap();
        let (branch, commit) = first.split_once("@sha1:").unwrap();
        assert_eq!((branch, commit.len()), ("main", 40));
        assert_eq!(cloned(&server, "agent/one.yaml").await.unwrap(), "a: 1\n");

        let second = server.commit(&[("agent/one.yaml", "a: 2\n")]).await.unwrap();
        assert_ne!(first, second);
        assert_eq!(cloned(&server, "agent/one.yaml").await.unwrap(), "a: 2\n");
        assert_eq!(cloned(&server, "two.yaml").await.unwrap(), "b: 1\n");
        // The same files again.
        assert_ne!(
            server.commit(&[("agent/one.yaml", "a: 2\n")]).await.unwrap(),
            second
        );
    }

    #[tokio::test]
    async fn a_client_cannot_push() {
        let server = GitServer::serve().await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        git(path, &["clone", "--quiet", server.url(), "."]).await.unwrap();
        git(path, &["commit", "--quiet", "--allow-empty", "--message", "Mine"])
            .await
            .unwrap();
        let pushed = git(path, &["push", "--quiet", "origin", "HEAD:mine"]).await;
        assert!(pushed.is_err());
    }

    #[test]
    fn headers_of_a_program_are_those_of_the_response() {
        let printed = b"Status: 404 Not Found\r\nContent-Type: text/plain\r\n\r\nnone\r\n\r\nhere";
        let made = response(printed).unwrap();
        assert_eq!(made.status(), StatusCode::NOT_FOUND);
        assert_eq!(made.headers()["content-type"], "text/plain");
        assert!(response(b"Status: 200 OK").is_err());
    }
}
