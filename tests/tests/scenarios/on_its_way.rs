//! A request that an API server has received, and that it neither stores nor answers.

use std::future::Future;

use anyhow::{Context as _, Result, ensure};
use axum::serve::Listener as _;
use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use sluice_tests::processes::tls::Tls;
use sluice_tests::scenario::TIMEOUT;
use sluice_tests::stack::apiserver::ApiServer;
use sluice_tests::wait;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Requests that an API server asks about.
pub(crate) struct Question<'a> {
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    /// An expression of CEL.
    pub(crate) condition: &'a str,
}

/// An admission webhook that an API server asks, and that never answers.
pub(crate) struct Admission(Tls);

impl Admission {
    /// Returns once the API server asks, tried with requests that it does not store. `try_one` makes one of them, and says what came of it.
    pub(crate) async fn of<F, Fut>(api: &ApiServer, question: &Question<'_>, try_one: F) -> Result<Self>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = String>,
    {
        let pki = api.pki();
        // API servers give up a connection without TLS earlier than a webhook.
        let mut listener = Tls::bind(&pki.server_certificate()?, &[]).await?;
        let webhook = json!({
            "metadata": {"name": "late"},
            "webhooks": [{
                "name": "late.sluice.example",
                "clientConfig": {
                    "url": format!("https://{}/", listener.local_addr()?),
                    "caBundle": pki.ca_bundle(),
                },
                "rules": [{
                    "apiGroups": [question.group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [question.resource],
                }],
                "matchConditions": [{"name": "condition", "expression": question.condition}],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                // Without an answer the request goes on, after the longest time that an API server allows.
                "failurePolicy": "Ignore",
                "timeoutSeconds": 30,
            }],
        });
        Api::<ValidatingWebhookConfiguration>::all(api.admin_client())
            .create(&PostParams::default(), &serde_json::from_value(webhook)?)
            .await?;
        let trying = wait::until("a call of the admission webhook", TIMEOUT, || async {
            wait::not_yet::<()>(try_one().await)
        });
        tokio::select! {
            _ = listener.accept() => {}
            never = trying => never?,
        };
        Ok(Self(listener))
    }

    /// Returns once the API server asks, so that a request is neither stored nor refused yet.
    pub(crate) async fn holds_one(mut self) -> Result<OnItsWay> {
        let (asked, _) = timeout(TIMEOUT, self.0.accept())
            .await
            .context("the API server asked about no such request")?;
        Ok(OnItsWay {
            asked,
            _listener: self.0,
        })
    }
}

/// A request that the API server has received and not stored.
pub(crate) struct OnItsWay {
    asked: TlsStream<TcpStream>,
    _listener: Tls,
}

impl OnItsWay {
    /// The API server stops waiting for an answer. Fails if it already had.
    pub(crate) fn goes_on(mut self) -> Result<()> {
        let mut question = [0; 4096];
        while let Some(read) = self.asked.read(&mut question).now_or_never() {
            ensure!(read? > 0, "the API server did not wait for an answer");
        }
        Ok(())
    }
}
