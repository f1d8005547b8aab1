//! A minimal hook server: it reads each body whole, ignores it, and always responds with the same bytes.
//!
//! hyper and rustls are set up as little as they can be. What an extension takes beyond this is its own.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use bytes::Bytes;
use clap::Args;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::json;
use sluice_hooks::{DiscoveryResponse, Profile};

use crate::listen;

/// Responds to every hook with the same hold, as a floor for comparisons of extensions.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:9443")]
    pub address: SocketAddr,
    /// PEM file of the serving certificate.
    #[arg(long, value_name = "FILE")]
    pub cert: PathBuf,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The message of each answer.
    #[arg(long, default_value = "wait")]
    pub message: String,
}

/// Serves until the process ends.
pub fn serve(arguments: &Arguments) -> Result<()> {
    let Arguments {
        address,
        cert,
        key,
        message,
    } = arguments;
    let hold = json!({"status": "Success", "message": message, "retryAfterSeconds": 1});
    let hold = Bytes::from(hold.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(listen::serve(*address, cert, key, move |request| {
        answer(request, hold.clone())
    }))
}

async fn answer(request: Request<Incoming>, hold: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_discovery = request.uri().path().ends_with("/discovery");
    let _body = request.into_body().collect().await;
    let answer = if is_discovery {
        Bytes::from(serde_json::to_vec(&DiscoveryResponse::of(Profile::Current)).unwrap_or_default())
    } else {
        hold
    };
    Ok(Response::new(Full::new(answer)))
}
