//! A GET of a health endpoint.

use kube::{Client, Config};

use crate::wait::{self, Unmet};

/// Asks one server for its health, without credentials and without checking its certificate.
#[derive(Clone)]
pub(crate) struct Probe {
    client: Client,
    path: &'static str,
}

impl Probe {
    /// A probe of `path` at `server` (`http://127.0.0.1:2379`).
    pub(crate) fn new(server: &str, path: &'static str) -> anyhow::Result<Self> {
        let mut config = Config::new(server.parse()?);
        config.accept_invalid_certs = true;
        // The wait around the probe retries, and reports the last error.
        config.default_retry = false;
        Ok(Self {
            client: Client::try_from(config)?,
            path,
        })
    }

    /// Ok once the server answers with a status of 2xx.
    pub(crate) async fn get(&self) -> Result<(), Unmet> {
        let request = http::Request::get(self.path).body(Vec::new())?;
        match self.client.request_text(request).await {
            Ok(_) => Ok(()),
            Err(error) => {
                // Only the sources of the error contain "connection refused".
                let error = anyhow::Error::from(error);
                wait::not_yet(format!("{error:#}"))
            }
        }
    }

    /// Answer of the server.
    pub(crate) async fn text(&self) -> anyhow::Result<String> {
        let request = http::Request::get(self.path).body(Vec::new())?;
        Ok(self.client.request_text(request).await?)
    }
}
