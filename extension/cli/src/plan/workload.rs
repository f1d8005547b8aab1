//! Reads of a workload cluster for the warnings of a plan.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::{Client, client::Body, core::Status};
use sluice_core::{
    error_chain::error_chain,
    text::one_line,
    upgrade_plan::workload::{List, WorkloadObjects},
};
use tokio::time::{Instant, timeout_at};

use super::not_made::NotMade;

/// Time for all requests together.
const DEADLINE: Duration = Duration::from_secs(10);

/// Maximum number of objects of a page.
const PAGE: u32 = 500;

/// Maximum size of a response, in bytes. The metrics of an API server have some MiB.
const RESPONSE: usize = 32 * 1024 * 1024;

/// Maximum size of the pages of a list, in bytes.
const PAGES: usize = 64 * 1024 * 1024;

/// Minimum number of those bytes that a page counts: it may contain only the token of the next page.
const LEAST: usize = 64 * 1024;

/// Maximum length of an error, in characters.
const LONGEST: usize = 300;

/// Reads what the warnings need, as far as the API server answers in time. Returns it with the checks that were not made, or not of all
/// objects.
pub(super) async fn read(client: &Client) -> (WorkloadObjects, Vec<NotMade>) {
    let until = Instant::now() + DEADLINE;
    let (mut objects, mut not_made) = (WorkloadObjects::default(), Vec::new());
    for list in List::ALL {
        let read = timeout_at(until, add(client, list, &mut objects)).await;
        if let Err(why) = read.unwrap_or_else(|_elapsed| Err(late())) {
            let check = check(list);
            not_made.push(NotMade { check, why });
        }
    }
    let metrics = timeout_at(until, metrics(client)).await;
    match metrics.unwrap_or_else(|_elapsed| Err(late())) {
        Ok(text) => objects.add_metrics(&text),
        Err(why) => not_made.push(NotMade {
            check: "requestedAPIs",
            why,
        }),
    }
    (objects, not_made)
}

/// Returns the name of the check that needs a list.
const fn check(list: List) -> &'static str {
    match list {
        List::Budgets => "podDisruptionBudgets",
        List::Pods => "podsWithoutController",
        List::Nodes => "nodeVersions",
    }
}

fn late() -> String {
    format!("no answer within {} s", DEADLINE.as_secs())
}

/// Adds the pages of a list.
async fn add(client: &Client, list: List, objects: &mut WorkloadObjects) -> Result<(), String> {
    let (mut token, mut left) = (None, PAGES);
    loop {
        let request = list
            .request(PAGE, token.as_deref())
            .map_err(|failure| failure.text)?;
        let text = text(client, request).await?;
        left = left
            .checked_sub(text.len().max(LEAST))
            .ok_or_else(|| format!("the list is longer than {}", mebibytes(PAGES)))?;
        token = objects
            .add(list, &text)
            .map_err(|failure| one_line(&failure.text, LONGEST))?;
        if token.is_none() {
            return Ok(());
        }
    }
}

async fn metrics(client: &Client) -> Result<String, String> {
    let request = Request::get("/metrics").body(Vec::new());
    text(client, request.map_err(|error| error.to_string())?).await
}

/// Returns the text of a response of at most [`RESPONSE`] bytes.
async fn text(client: &Client, request: Request<Vec<u8>>) -> Result<String, String> {
    let response = client.send(request.map(Body::from)).await;
    let response = response.map_err(|error| one_line(&error_chain(&error), LONGEST))?;
    let code = response.status();
    let body = Limited::new(response.into_body(), RESPONSE).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            format!("the response is longer than {}", mebibytes(RESPONSE))
        } else {
            one_line(&error_chain(&*error), LONGEST)
        }
    })?;
    let text = String::from_utf8(body.to_bytes().to_vec());
    let text = text.map_err(|_| "the response is not a text".to_owned())?;
    if code.is_success() {
        return Ok(text);
    }
    let status: Option<Status> = serde_json::from_str(&text).ok();
    let message = status.map(|status| status.message).unwrap_or_default();
    Err(one_line(
        &format!("the API server answered {}: {message}", code.as_u16()),
        LONGEST,
    ))
}

fn mebibytes(bytes: usize) -> String {
    format!("{} MiB", bytes / (1024 * 1024))
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use http::Response;
    use rstest::rstest;
    use serde_json::{Value, json};
    use sluice_core::upgrade_plan::{Hop, workload::findings};
    use tower::service_fn;

    use super::*;

    /// Returns code and body for path and query; `None` never answers.
    type Answer = fn(&str, &str) -> Option<(u16, String)>;

    fn client(answer: Answer) -> Client {
        let service = service_fn(move |request: Request<Body>| async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let Some((code, text)) = answer(path, query) else {
                return pending().await;
            };
            let response = Response::builder()
                .status(code)
                .body(Body::from(text.into_bytes()));
            Ok::<_, Infallible>(response.unwrap())
        });
        Client::new(service, "default")
    }

    fn list(items: &[Value], token: &str) -> (u16, String) {
        let page = json!({"kind": "List", "metadata": {"continue": token}, "items": items});
        (200, page.to_string())
    }

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop"}})
    }

    /// A workload cluster with two pages of Pods, an old Node and a requested API.
    fn workload(path: &str, query: &str) -> (u16, String) {
        match path {
            "/api/v1/pods" if query.contains("continue=next") => list(&[pod("two")], ""),
            "/api/v1/pods" => list(&[pod("one")], "next"),
            "/api/v1/nodes" => {
                let status = json!({"nodeInfo": {"kubeletVersion": "v1.31.0"}});
                list(&[json!({"metadata": {"name": "old"}, "status": status})], "")
            }
            "/metrics" => {
                let labels =
                    "group=\"\",removed_release=\"1.36\",resource=\"foos\",subresource=\"\",version=\"v1\"";
                let text = format!("# TYPE a gauge\napiserver_requested_deprecated_apis{{{labels}}} 1\n");
                (200, text)
            }
            _ => list(&[], ""),
        }
    }

    /// Returns the reasons of the findings, and the checks that were not made.
    async fn found(answer: Answer) -> (Vec<&'static str>, Vec<(&'static str, String)>) {
        let (objects, not_made) = read(&client(answer)).await;
        let hop = Hop {
            version: "v1.36.3".to_owned(),
            release: None,
            workers: true,
            packages: Vec::new(),
        };
        let reasons = findings(&objects, &[hop])
            .into_iter()
            .map(|finding| finding.reason.as_str());
        let not_made = not_made.into_iter().map(|it| (it.check, it.why));
        (reasons.collect(), not_made.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_read_page_by_page() {
        let (reasons, not_made) = found(|path, query| Some(workload(path, query))).await;
        let pod = "PodWithoutController";
        assert_eq!(reasons, [pod, pod, "NodeTooOld", "RemovedAPIRequested"]);
        assert_eq!(not_made, []);
    }

    #[rstest]
    #[case::refused(
        |path: &str, query: &str| match path {
            "/metrics" => Some((403, json!({"code": 403, "message": "forbidden:\u{1b} /metrics"}).to_string())),
            _ => Some(workload(path, query)),
        },
        &["PodWithoutController", "PodWithoutController", "NodeTooOld"],
        &[("requestedAPIs", "the API server answered 403: forbidden:\\u{1b} /metrics")]
    )]
    #[case::no_list(
        |path: &str, query: &str| match path {
            "/api/v1/nodes" => Some((200, "{}".to_owned())),
            _ => Some(workload(path, query)),
        },
        &["PodWithoutController", "PodWithoutController", "RemovedAPIRequested"],
        &[("nodeVersions", "the list cannot be read: the response is not a list")]
    )]
    #[case::silent_after_a_page(
        |path: &str, query: &str| (!query.contains("continue=next")).then(|| workload(path, query)),
        &["PodWithoutController", "NodeTooOld"],
        &[
            ("podsWithoutController", "no answer within 10 s"),
            ("requestedAPIs", "no answer within 10 s"),
        ]
    )]
    #[case::endless_pages(
        |path: &str, query: &str| match path {
            "/apis/policy/v1/poddisruptionbudgets" => Some(list(&[], "again")),
            _ => Some(workload(path, query)),
        },
        &["PodWithoutController", "PodWithoutController", "NodeTooOld", "RemovedAPIRequested"],
        &[("podDisruptionBudgets", "the list is longer than 64 MiB")]
    )]
    #[case::long_metrics(
        |path: &str, query: &str| match path {
            "/metrics" => Some((200, "x".repeat(RESPONSE + 1))),
            _ => Some(workload(path, query)),
        },
        &["PodWithoutController", "PodWithoutController", "NodeTooOld"],
        &[("requestedAPIs", "the response is longer than 32 MiB")]
    )]
    #[tokio::test(start_paused = true)]
    async fn what_is_not_read_is_listed(
        #[case] answer: Answer,
        #[case] reasons: &[&str],
        #[case] not_made: &[(&'static str, &str)],
    ) {
        let (found, missing) = found(answer).await;
        assert_eq!(found, reasons);
        let not_made = not_made.iter().map(|(check, why)| (*check, (*why).to_owned()));
        assert_eq!(missing, not_made.collect::<Vec<_>>());
    }
}
