//! Periodic re-authorization of a stream: a right may be withdrawn, a token may expire.

use std::time::Duration;

/// Interval of re-authorizations.
const EVERY: Duration = Duration::from_secs(30);

/// Delay after a failed re-authorization.
const AGAIN: Duration = Duration::from_secs(10);

/// Number of consecutive failures that ends the stream: without a response there is no proof of a right.
const FAILURES: u32 = 2;

/// Result of a re-authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reauthorization {
    /// The API server allows the user the Clusters of the stream.
    Allowed,
    /// The API server refuses the access or does not know the user.
    Refused,
    /// The API server did not respond.
    Failed,
}

/// Continuation of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoesOn {
    /// The stream continues, and the next re-authorization is due after this time.
    For(Duration),
    /// The stream ends, because the API server refused the access or did not respond twice.
    Ends,
}

/// Re-authorizations of one stream. The stream begins with an allowed call.
#[derive(Debug, Default)]
pub(crate) struct Reauthorizations {
    failures: u32,
}

impl Reauthorizations {
    /// Delay of the first re-authorization after the call was allowed.
    pub(crate) const FIRST: Duration = EVERY;

    /// Observes the result of a re-authorization.
    pub(crate) const fn after(&mut self, result: Reauthorization) -> GoesOn {
        self.failures = match result {
            Reauthorization::Allowed => 0,
            Reauthorization::Refused => return GoesOn::Ends,
            Reauthorization::Failed => self.failures + 1,
        };
        match self.failures {
            0 => GoesOn::For(EVERY),
            FAILURES.. => GoesOn::Ends,
            _ => GoesOn::For(AGAIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_in_a_row_end_a_stream_and_one_does_not() {
        use Reauthorization::{Allowed, Failed, Refused};
        let (long, short) = (GoesOn::For(EVERY), GoesOn::For(AGAIN));
        for (results, wanted) in [
            (vec![Allowed, Allowed], vec![long, long]),
            (vec![Failed, Allowed, Failed], vec![short, long, short]),
            (vec![Failed, Failed], vec![short, GoesOn::Ends]),
            (vec![Refused], vec![GoesOn::Ends]),
        ] {
            let mut stream = Reauthorizations::default();
            let seen: Vec<_> = results.iter().map(|result| stream.after(*result)).collect();
            assert_eq!(seen, wanted, "{results:?}");
        }
    }
}
