//! What the service and its listener tell each other about a call, as extensions of requests and responses.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use sluice_core::limits::Share;
use tokio_util::sync::CancellationToken;

/// Connection of a request. The listener adds it to the extensions of each request.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Address of the caller; unspecified if unknown.
    pub peer: IpAddr,
    /// Canceled when the connection is asked to end, after a rotation of the certificate. Streams then end in good order.
    pub leaving: CancellationToken,
}

impl Connection {
    /// Returns a connection of a caller at this address that is never asked to end.
    #[must_use]
    pub fn of(peer: IpAddr) -> Self {
        Self {
            peer,
            leaving: CancellationToken::new(),
        }
    }
}

impl Default for Connection {
    fn default() -> Self {
        Self::of(Ipv4Addr::UNSPECIFIED.into())
    }
}

/// Response with a page or one Cluster, as an extension of the response. The listener keeps it until the peer has read the response, at
/// most for [`Self::WITHIN`], and drops the response then.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Share of the user. It is cloneable, because extensions have to be.
    _share: Arc<Share<String>>,
}

impl Unread {
    /// Timeout of reading a response.
    pub const WITHIN: Duration = Duration::from_secs(30);

    pub(crate) fn with(share: Share<String>) -> Self {
        Self {
            _share: Arc::new(share),
        }
    }
}
