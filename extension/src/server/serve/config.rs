//! What a listener is given: where, with which certificate, with which limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// One listener.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it serves, for the log.
    pub serves: &'static str,
    /// Where to listen.
    pub address: SocketAddr,
    /// Absent for plain HTTP.
    pub tls: Option<TlsConfig>,
    /// What a peer may take.
    pub limits: Limits,
}

/// The TLS side of a listener.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// The serving certificate and its key.
    pub files: CertificateFiles,
    /// PEM file with the authorities of client certificates. With it, a peer without such a certificate is refused.
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Only HTTP/2 is spoken. Other listeners speak HTTP/1.1 too.
    pub http2_only: bool,
    /// How often the files are compared with what is served.
    pub reload_every: Duration,
}

impl TlsConfig {
    /// Serves the pair in `files` with the usual settings.
    #[must_use]
    pub fn new(files: CertificateFiles) -> Self {
        Self {
            files,
            client_ca: None,
            min_version: TlsVersion::V1_2,
            http2_only: false,
            reload_every: Duration::from_secs(10),
        }
    }
}

/// Where the serving certificate lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The directory, usually a mounted Secret.
    pub dir: PathBuf,
    /// File name of the PEM chain, leaf first.
    pub cert_name: String,
    /// File name of the PEM key.
    pub key_name: String,
}

impl CertificateFiles {
    /// The file names of a Secret of type `kubernetes.io/tls`.
    #[must_use]
    pub fn in_dir(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            cert_name: "tls.crt".to_owned(),
            key_name: "tls.key".to_owned(),
        }
    }

    /// Path of the chain.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.dir.join(&self.cert_name)
    }

    /// Path of the key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.dir.join(&self.key_name)
    }
}

/// The oldest TLS version that a listener speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    V1_2,
    /// TLS 1.3 only.
    V1_3,
}

/// Reads the names that Go's `crypto/tls` gives to versions; other managers of Cluster API take the same ones.
impl FromStr for TlsVersion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "VersionTLS12" => Ok(Self::V1_2),
            "VersionTLS13" => Ok(Self::V1_3),
            other => Err(format!("{other:?} is none of VersionTLS12, VersionTLS13")),
        }
    }
}

/// What a peer may take before it is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For the TLS handshake.
    pub handshake: Duration,
    /// From the first byte of a request head to its last, and from the handshake to the first request.
    pub head: Duration,
    /// Without a request. Longer than the 90 s after which Go's client closes idle connections itself, so that it is
    /// never the server that closes one just as a request is sent on it.
    pub idle: Duration,
    /// After which a connection is asked to go, so that callers find new replicas. Up to a fifth is added, differently
    /// for each connection.
    pub age: Duration,
    /// For requests in flight to finish once a connection, or the whole listener, is asked to go.
    pub drain: Duration,
    /// Open connections; more wait in the backlog of the socket. One address has at most as many as it leaves to others; more of it
    /// are closed at once. Callers behind one gateway share an address; Cluster API itself needs one connection, and a few with
    /// HTTP/1.1.
    pub connections: usize,
    /// Requests of one HTTP/2 connection at once. By default as many as Go sends before it knows how many it may; Cluster API has 50
    /// workers by default.
    pub streams: u32,
    /// Bytes of an answer that wait to be sent, for each stream of HTTP/2, beside the last piece of it.
    pub send_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_mins(2),
            age: Duration::from_mins(5),
            drain: Duration::from_secs(10),
            connections: 1024,
            streams: 100,
            send_buffer: 400 * 1024,
        }
    }
}
