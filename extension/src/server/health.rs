//! Probes and metrics over plain HTTP: `/healthz`, `/livez`, `/readyz` and `/metrics`.
//!
//! Readiness and liveness are sets of named checks. `/readyz?verbose` lists them, `/readyz/<check>` evaluates one.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tokio::time::Instant;

use super::exposition::Format;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Checks of this process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    ready: Checks,
    live: Checks,
}

impl Health {
    /// Adds a readiness check that runs on each probe. It must return at once.
    pub fn check(&self, name: &'static str, ask: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.ready.add(name, Box::new(ask));
    }

    /// Adds a readiness check that fails until [`Readiness::ready`].
    #[must_use]
    pub fn readiness(&self, name: &'static str) -> Readiness {
        let state = Readiness(Arc::new(Mutex::new(Err("not started".to_owned()))));
        let asked = state.clone();
        self.check(name, move || asked.get().clone());
        state
    }

    /// Adds a liveness check that fails when [`Heartbeat::beat`] was last called longer than `limit` ago. The first
    /// beat is now.
    #[must_use]
    pub fn heartbeat(&self, name: &'static str, limit: Duration) -> Heartbeat {
        let heartbeat = Heartbeat(Arc::new(Mutex::new(Instant::now())));
        let asked = heartbeat.clone();
        let ask = move || {
            let silent = asked.last().elapsed();
            if silent <= limit {
                Ok(())
            } else {
                Err(format!("no progress for {} s", silent.as_secs()))
            }
        };
        self.live.add(name, Box::new(ask));
        heartbeat
    }

    /// Whether every readiness check passes.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.ask(None).is_some_and(|report| report.passed())
    }
}

/// Readiness check that its task sets.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Mutex<Result<(), String>>>);

impl Readiness {
    /// Marks the check as ready.
    pub fn ready(&self) {
        *self.get() = Ok(());
    }

    /// Marks the check as not ready, with a reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        *self.get() = Err(reason.into());
    }

    fn get(&self) -> MutexGuard<'_, Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Heartbeat of one task.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Mutex<Instant>>);

impl Heartbeat {
    /// Records progress of the task.
    pub fn beat(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Beats for as long as it is polled: a blocked runtime polls nothing.
    pub async fn keep(self, every: Duration) {
        let mut tick = tokio::time::interval(every);
        loop {
            tick.tick().await;
            self.beat();
        }
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Read = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

#[derive(Clone, Default)]
struct Checks(Arc<Mutex<Vec<(&'static str, Read)>>>);

impl Checks {
    fn add(&self, name: &'static str, ask: Read) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((name, ask));
    }

    /// Evaluates the named check, or all; `None` when no check has that name.
    fn ask(&self, only: Option<&str>) -> Option<Report> {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = checks
            .iter()
            .filter(|(name, _)| only.is_none_or(|only| only == *name));
        let results: Vec<_> = asked.map(|(name, ask)| (*name, ask())).collect();
        if only.is_some() && results.is_empty() {
            None
        } else {
            Some(Report(results))
        }
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_list()
            .entries(checks.iter().map(|(name, _)| name))
            .finish()
    }
}

struct Report(Vec<(&'static str, Result<(), String>)>);

impl Report {
    fn passed(&self) -> bool {
        self.0.iter().all(|(_, result)| result.is_ok())
    }

    /// Responds like kube-apiserver: `ok`, or one line per check after a failure or with `verbose`.
    fn answer(&self, verbose: bool) -> Response {
        if self.passed() && !verbose {
            return plain(StatusCode::OK, "ok".to_owned());
        }
        let mut text = String::new();
        for (name, result) in &self.0 {
            let written = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
            };
            debug_assert!(written.is_ok(), "a String takes every line");
        }
        plain(
            if self.passed() {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            },
            text,
        )
    }
}

fn plain(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, PLAIN), (CACHE_CONTROL, "no-store")], text).into_response()
}

#[derive(Deserialize)]
struct Verbosity {
    verbose: Option<String>,
}

/// Routes of the probe port.
pub fn router(health: Health, registry: Arc<Registry>) -> Router {
    let Health { ready, live } = health;
    let probes = |path: &str, checks: Checks| {
        Router::new()
            .route(path, get(all))
            .route(&format!("{path}/{{check}}"), get(one))
            .with_state(checks)
    };
    Router::new()
        .merge(probes("/healthz", live.clone()))
        .merge(probes("/livez", live))
        .merge(probes("/readyz", ready))
        .merge(Router::new().route("/metrics", get(metrics)).with_state(registry))
}

async fn all(State(checks): State<Checks>, Query(Verbosity { verbose }): Query<Verbosity>) -> Response {
    checks
        .ask(None)
        .map_or_else(not_found, |report| report.answer(verbose.is_some()))
}

async fn one(State(checks): State<Checks>, Path(name): Path<String>) -> Response {
    checks
        .ask(Some(&name))
        .map_or_else(not_found, |report| report.answer(false))
}

fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "no such check".to_owned())
}

async fn metrics(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let format = Format::negotiate(&headers);
    match format.encode(&registry) {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use http::Request;
    use http::header::ACCEPT;
    use prometheus_client::metrics::counter::Counter;
    use tower::ServiceExt;

    use super::*;

    async fn get(health: &Health, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = answer(health, request).await;
        (answer.status().as_u16(), text(answer).await)
    }

    async fn answer(health: &Health, request: Request<Body>) -> Response {
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        counter.inc();
        registry.register("sluice_tests", "Tests", counter);
        let router = router(health.clone(), Arc::new(registry));
        router.oneshot(request).await.unwrap()
    }

    async fn text(answer: Response) -> String {
        let body = to_bytes(answer.into_body(), 1 << 16).await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn ready_once_every_part_is() {
        let health = Health::default();
        let index = health.readiness("index");
        health.check("certificate", || Ok(()));

        let (status, text) = get(&health, "/readyz").await;
        assert_eq!(
            (status, &*text),
            (503, "[-]index failed: not started\n[+]certificate ok\n")
        );
        assert_eq!(get(&health, "/readyz/index").await.0, 503);
        assert_eq!(get(&health, "/readyz/certificate").await, (200, "ok".to_owned()));
        assert!(!health.is_ready());

        index.ready();
        assert_eq!(get(&health, "/readyz").await, (200, "ok".to_owned()));
        assert_eq!(
            get(&health, "/readyz?verbose").await.1,
            "[+]index ok\n[+]certificate ok\n"
        );
        assert!(health.is_ready());

        index.not_ready("terminating");
        assert_eq!(
            get(&health, "/readyz/index").await,
            (503, "[-]index failed: terminating\n".to_owned())
        );
    }

    #[tokio::test]
    async fn alive_while_every_task_goes_round() {
        let health = Health::default();
        assert_eq!(get(&health, "/healthz").await.0, 200);

        let fast = health.heartbeat("fast", Duration::from_mins(10));
        let stuck = health.heartbeat("stuck", Duration::ZERO);
        fast.beat();
        assert_eq!(get(&health, "/healthz/fast").await.0, 200);
        let (status, text) = get(&health, "/livez").await;
        assert_eq!(
            (status, &*text),
            (503, "[+]fast ok\n[-]stuck failed: no progress for 0 s\n")
        );
        drop(stuck);
    }

    /// Requests `path` until its response has `status`.
    async fn until(health: &Health, path: &str, status: u16) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let answer = get(health, path).await;
            if answer.0 == status {
                return;
            }
            assert!(Instant::now() < deadline, "{path}: no {status}, but {answer:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_runtime_that_is_stuck_is_seen_by_another_one() {
        let health = Health::default();
        let heart = health.heartbeat("runtime", Duration::from_millis(300));
        let watched = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .unwrap();
        watched.spawn(heart.keep(Duration::from_millis(20)));
        let (go_on, blocked) = std::sync::mpsc::channel::<()>();
        watched.spawn(async move { blocked.recv() });
        until(&health, "/livez/runtime", 503).await;

        drop(go_on);
        until(&health, "/livez/runtime", 200).await;
        watched.shutdown_background();
    }

    #[tokio::test]
    async fn unknown_checks_are_not_found() {
        let health = Health::default();
        assert_eq!(get(&health, "/readyz/other").await.0, 404);
        assert_eq!(get(&health, "/other").await.0, 404);
    }

    #[tokio::test]
    async fn metrics_have_the_format_that_the_scraper_accepts() {
        let open_metrics =
            "# HELP sluice_tests Tests.\n# TYPE sluice_tests counter\nsluice_tests_total 1\n# EOF\n";
        let plain =
            "# HELP sluice_tests_total Tests.\n# TYPE sluice_tests_total counter\nsluice_tests_total 1\n";
        for (accept, content_type, expected) in [
            ("text/plain", "text/plain; version=0.0.4; charset=utf-8", plain),
            ("*/*", "text/plain; version=0.0.4; charset=utf-8", plain),
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
                open_metrics,
            ),
            (
                "application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5",
                "application/openmetrics-text; version=0.0.1; charset=utf-8",
                open_metrics,
            ),
        ] {
            let request = Request::get("/metrics").header(ACCEPT, accept);
            let answer = answer(&Health::default(), request.body(Body::empty()).unwrap()).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()[CONTENT_TYPE], content_type);
            assert_eq!(text(answer).await, expected);
        }
        let (status, without_header) = get(&Health::default(), "/metrics").await;
        assert_eq!((status, &*without_header), (200, plain));
    }
}
