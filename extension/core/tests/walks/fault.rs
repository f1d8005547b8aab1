//! Faults of the requests of a reconcile.

use sluice_core::reconcile::cluster::{Failure, Object, Write};

use crate::servers::{Servers, refused};

/// Outcome of the next request of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// The server answers it, and all concurrent requests.
    None,
    /// The server answers it and all later requests of the reconcile, without interleaving.
    ToTheEnd,
    /// The server answers it, and concurrent requests later.
    Alone,
    /// The same for writes only.
    OneWrite,
    /// The server refuses it with this code.
    Refused(u16),
    /// It gets no response; a write takes effect.
    Unanswered,
    /// The process freezes during the write, and another one starts. The write arrives later.
    Frozen,
}

impl Fault {
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::Refused(_) | Self::Unanswered)
    }
}

/// Executes a write. Returns its result for the reconcile, and whether it took effect.
pub(crate) fn make(servers: &mut Servers, write: &Write, fault: Fault) -> (Result<Object, Failure>, bool) {
    let server = write.key.server;
    if let Fault::Refused(code) = fault {
        return (Err(refused(server, Some(code))), false);
    }
    let outcome = servers.make(write);
    let made = outcome.is_ok();
    match fault {
        Fault::Unanswered => (Err(refused(server, None)), made),
        _ => (outcome, made),
    }
}
