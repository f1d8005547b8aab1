//! Faults of the requests of a reconcile.

use sluice_core::reconcile::cluster::{Failure, Object, Write};

use crate::servers::{Servers, refused};

/// Outcome of the next request of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// It is answered, and so are those that are made at once with it.
    None,
    /// So are all others of the reconcile, and nothing else happens until its end.
    ToTheEnd,
    /// It is answered, and those that are made at once with it are later.
    Alone,
    /// The same of writes only.
    OneWrite,
    /// It is refused with this code.
    Refused(u16),
    /// It is not answered. A write is made nevertheless.
    Unanswered,
    /// The process is frozen while it writes, and another one begins. What it has written arrives later.
    Frozen,
}

impl Fault {
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Self::Alone | Self::Refused(_) | Self::Unanswered)
    }
}

/// Makes a write. Returns the result that the reconcile gets, and whether the write was made.
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
