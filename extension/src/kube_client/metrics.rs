//! Metrics of requests to the management API server, with the names and labels of client-go.

use std::sync::Arc;

use http::{Method, StatusCode, Uri};
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::kube_client::middleware::{Transport, middleware};

/// The methods of API servers.
const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    code: Code,
    method: &'static str,
    host: Arc<str>,
}

/// Status of the response; `None` without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Code(Option<StatusCode>);

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> std::fmt::Result {
        match self.0 {
            Some(status) => EncodeLabelValue::encode(&status.as_str(), encoder),
            // As client-go spells it.
            None => EncodeLabelValue::encode(&"<error>", encoder),
        }
    }
}

/// Counts requests to the management API server. Clones share the counters.
///
/// Clients of workload clusters are never counted: tenants choose their hosts, and as many as they like.
#[derive(Clone, Debug, Default)]
pub struct RestClientMetrics {
    requests: Family<Labels, Counter>,
}

impl RestClientMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Requests to the management API server by HTTP status code, method and host",
            self.requests.clone(),
        );
    }

    /// Returns a transport to `server` with counted requests. A watch counts once, without its events.
    #[must_use]
    pub fn counting(&self, inner: impl Into<Transport>, server: &Uri) -> Transport {
        // Not the authority, which may have credentials.
        let host = server.host().unwrap_or_default();
        let host: Arc<str> = match server.port() {
            Some(port) => format!("{host}:{port}").into(),
            None => host.into(),
        };
        // Series exist from the start, so that alerts see their first increase.
        for method in METHODS {
            drop(self.of(Code(None), method, &host));
        }
        drop(self.of(Code(Some(StatusCode::OK)), "GET", &host));
        let metrics = self.clone();
        middleware(inner, move |inner, request| {
            let (metrics, host) = (metrics.clone(), Arc::clone(&host));
            async move {
                let mut pending = Pending {
                    metrics,
                    host,
                    method: request.method().clone(),
                    code: Code(None),
                };
                let answer = inner.send(request).await;
                pending.code = Code(answer.as_ref().ok().map(http::Response::status));
                answer
            }
        })
    }

    fn of(&self, code: Code, method: &str, host: &Arc<str>) -> Counter {
        let method = METHODS.into_iter().find(|known| *known == method);
        self.requests.get_or_create_owned(&Labels {
            code,
            method: method.unwrap_or("other"),
            host: Arc::clone(host),
        })
    }
}

/// A request, counted when it is dropped: a timeout or a canceled reconcile drops it without a response.
struct Pending {
    metrics: RestClientMetrics,
    host: Arc<str>,
    method: Method,
    code: Code,
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.metrics.of(self.code, self.method.as_str(), &self.host).inc();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client,
        api::{DeleteParams, PostParams},
        client::Body,
    };
    use prometheus_client::encoding::text::encode;
    use tokio::time::timeout;

    use super::*;

    /// A client that answers with an empty object, but breaks the connection of a delete, and never answers a PUT.
    fn answering() -> Client {
        let answer = |request: Request<Body>| async move {
            if request.method() == Method::DELETE {
                return Err("connection reset");
            }
            if request.method() == Method::PUT {
                std::future::pending::<()>().await;
            }
            let status = match *request.method() {
                Method::POST => StatusCode::CREATED,
                _ => StatusCode::OK,
            };
            let mut response = Response::new(Body::from(b"{}".to_vec()));
            *response.status_mut() = status;
            Ok(response)
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_the_management_client_are_counted_and_no_others() {
        let (metrics, mut registry) = (RestClientMetrics::default(), Registry::default());
        metrics.register(&mut registry);
        let server: Uri = "https://user:secret@10.0.0.1:6443/path".parse().unwrap();
        let management = metrics.counting(answering(), &server).into_client();
        let workload = answering();
        for client in [management, workload] {
            let api = Api::<ConfigMap>::default_namespaced(client);
            for name in ["one", "two"] {
                api.get(name).await.unwrap();
            }
            api.create(&PostParams::default(), &ConfigMap::default())
                .await
                .unwrap();
            api.delete("one", &DeleteParams::default()).await.unwrap_err();
            let (parameters, config) = (PostParams::default(), ConfigMap::default());
            let late = timeout(Duration::from_secs(30), api.replace("one", &parameters, &config));
            assert!(late.await.is_err(), "it is answered");
        }

        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let mut moved: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"))
            .collect();
        moved.sort_unstable();
        assert_eq!(
            moved,
            [
                r#"rest_client_requests_total{code="200",method="GET",host="10.0.0.1:6443"} 2"#,
                r#"rest_client_requests_total{code="201",method="POST",host="10.0.0.1:6443"} 1"#,
                r#"rest_client_requests_total{code="<error>",method="DELETE",host="10.0.0.1:6443"} 1"#,
                r#"rest_client_requests_total{code="<error>",method="PUT",host="10.0.0.1:6443"} 1"#,
            ]
        );
    }
}
