//! Circuit breaker for requests to one server. An unresponsive server gets requests only at growing delays.

use std::time::{Duration, Instant};

use super::Backoff;

/// First delay after a request without a response.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// Longest delay.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Circuit breaker of one server.
#[derive(Debug)]
pub struct Breaker {
    backoff: Backoff,
    /// Time until which the breaker is open.
    until: Option<Instant>,
    /// Whether the last request got no response.
    silent: bool,
    answered: Option<Instant>,
}

impl Default for Breaker {
    /// Returns the breaker of a server without requests.
    fn default() -> Self {
        Self {
            backoff: Backoff::new(MIN_DELAY, MAX_DELAY),
            until: None,
            silent: false,
            answered: None,
        }
    }
}

impl Breaker {
    /// Returns whether the breaker is open, so that no request is sent.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Records a request without a response. A request with its own backoff has `opens` unset and does not open the breaker.
    pub fn failed(&mut self, opens: bool, now: Instant) {
        self.silent = true;
        // Concurrent requests fail together and count as one failure.
        if opens && !self.is_open(now) {
            self.until = Some(now + self.backoff.failed(now));
        }
    }

    /// Records a response. Returns whether the request before got none.
    pub fn answered(&mut self, now: Instant) -> bool {
        self.backoff.reset();
        self.answered = Some(now);
        self.until = None;
        std::mem::take(&mut self.silent)
    }

    /// Returns the time of the last response.
    #[must_use]
    pub fn last_answer(&self) -> Option<Instant> {
        self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unresponsive_server_gets_few_requests() {
        let (mut breaker, began) = (Breaker::default(), Instant::now());
        let at = |second| began + Duration::from_secs(second);
        assert!(!breaker.answered(at(0)));
        let mut requests = 0;
        for second in 0..600 {
            if !breaker.is_open(at(second)) {
                breaker.failed(true, at(second));
                requests += 1;
            }
        }
        assert!((15..60).contains(&requests), "{requests} requests in ten minutes");

        breaker.failed(true, at(600));
        assert!(breaker.is_open(at(600)));
        assert!(breaker.answered(at(600)), "the server responds again");
        assert!(!breaker.is_open(at(600)), "requests are sent again");
        assert!(!breaker.answered(at(601)));
        assert_eq!(breaker.last_answer(), Some(at(601)));
    }

    #[test]
    fn concurrent_failures_count_once() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        (0..20).for_each(|_| breaker.failed(true, now));
        assert!(!breaker.is_open(now + MIN_DELAY * 2), "the first delay");
    }

    #[test]
    fn requests_with_their_own_backoff_do_not_open_the_breaker() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(false, now);
        assert!(!breaker.is_open(now));
        assert!(breaker.answered(now), "the server was unresponsive");
    }
}
