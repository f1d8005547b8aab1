//! Whether a stream goes on, which is looked at now and then: a right may be withdrawn, a token may expire.

use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(30);

/// After one that has failed.
const AGAIN: Duration = Duration::from_secs(10);

/// So many that fail one after the other end the stream: that nothing was said is no proof of a right.
const FAILURES: u32 = 2;

/// What came of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reauthorization {
    /// The API server says that the user may see what the stream shows.
    Allowed,
    /// It says that the user may not, or that there is no such user.
    Refused,
    /// It has said nothing.
    Failed,
}

/// What becomes of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoesOn {
    /// It goes on, and the next look is after this time.
    For(Duration),
    /// It ends, because of what the API server said, or did not say twice.
    Ends,
}

/// The looks at one stream. It begins with one that allowed it.
#[derive(Debug, Default)]
pub struct Reauthorizations {
    failures: u32,
}

impl Reauthorizations {
    /// When the first one is, after the call was allowed.
    pub const FIRST: Duration = EVERY;

    /// Takes in a look.
    pub const fn after(&mut self, look: Reauthorization) -> GoesOn {
        self.failures = match look {
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
        for (looks, wanted) in [
            (vec![Allowed, Allowed], vec![long, long]),
            (vec![Failed, Allowed, Failed], vec![short, long, short]),
            (vec![Failed, Failed], vec![short, GoesOn::Ends]),
            (vec![Refused], vec![GoesOn::Ends]),
        ] {
            let mut stream = Reauthorizations::default();
            let seen: Vec<_> = looks.iter().map(|look| stream.after(*look)).collect();
            assert_eq!(seen, wanted, "{looks:?}");
        }
    }
}
