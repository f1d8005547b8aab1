//! Configuration of a listener: address, certificate and limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Configuration of one listener.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the service, for the log.
    pub serves: &'static str,
    /// Listen address.
    pub address: SocketAddr,
    /// Flags that set the address, for errors.
    pub flags: &'static str,
    /// TLS settings; `None` for plain HTTP.
    pub tls: Option<TlsConfig>,
    /// Limits of a peer.
    pub limits: Limits,
}

/// TLS settings of a listener.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Files of the serving certificate and its key.
    pub files: CertificateFiles,
    /// PEM file with the CAs of client certificates. With it, a peer without such a certificate is refused.
    pub client_ca: Option<PathBuf>,
    /// Minimum TLS version.
    pub min_version: TlsVersion,
    /// Accepts only HTTP/2. Other listeners accept HTTP/1.1 too.
    pub http2_only: bool,
    /// Interval of the comparison between the files and the served certificate.
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

/// Location of the serving certificate.
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

    /// Returns the path of the chain.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.dir.join(&self.cert_name)
    }

    /// Returns the path of the key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.dir.join(&self.key_name)
    }
}

/// Minimum TLS version of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 and 1.3.
    #[default]
    V1_2,
    /// TLS 1.3 only.
    V1_3,
}

/// Parses the version names of Go's `crypto/tls`; other managers of Cluster API accept the same ones.
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

/// Limits of a peer, after which its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Timeout of the TLS handshake.
    pub handshake: Duration,
    /// Timeout from the handshake to the end of the first request head.
    pub head: Duration,
    /// Timeout from the end of a request to the end of the next request head. Longer than the 90 s after which Go's client closes idle
    /// connections itself: the server never closes one just as a request is sent on it.
    pub idle: Duration,
    /// Interval of HTTP/2 pings. A peer that does not answer one within half of it is disconnected.
    pub ping: Duration,
    /// Time for requests in flight after a shutdown request of a connection or of the listener.
    pub drain: Duration,
    /// Open connections; more wait in the backlog of the socket. One address has at most as many as remain for others; further ones are
    /// closed at once. Callers behind one gateway share an address. Cluster API needs one connection, or a few with HTTP/1.1.
    pub connections: usize,
    /// Concurrent requests of one HTTP/2 connection. The default is the number that Go sends before it knows the limit; Cluster API has 50
    /// workers by default.
    pub streams: u32,
    /// Bytes of a response that wait to be sent, per HTTP/2 stream, besides its last piece.
    pub send_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(5),
            idle: Duration::from_mins(2),
            ping: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            connections: 1024,
            streams: 100,
            send_buffer: 400 * 1024,
        }
    }
}
