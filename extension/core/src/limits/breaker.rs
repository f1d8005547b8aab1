//! Whether a server is asked: one that does not answer at growing delays, and not in between.

use std::time::{Duration, Instant};

use super::Backoff;

/// How long a server that did not answer once is left alone.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest time that it is left alone.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// Whether a server is asked.
#[derive(Debug)]
pub struct Breaker {
    backoff: Backoff,
    /// The server is left alone until then.
    until: Option<Instant>,
    /// It did not answer the last request.
    silent: bool,
    answered: Option<Instant>,
}

impl Default for Breaker {
    /// Of a server that was never asked.
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
    /// Whether the server is left alone now.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// A request was not answered. One of what has delays of its own does not `open` the breaker.
    pub fn failed(&mut self, opens: bool, now: Instant) {
        self.silent = true;
        // Requests that were sent side by side fail together, and are one failure.
        if opens && !self.is_open(now) {
            self.until = Some(now + self.backoff.failed(now));
        }
    }

    /// A request was answered. Whether the last one was not.
    pub fn answered(&mut self, now: Instant) -> bool {
        self.backoff.reset();
        self.answered = Some(now);
        self.until = None;
        std::mem::take(&mut self.silent)
    }

    /// When the server answered last.
    #[must_use]
    pub fn last_answer(&self) -> Option<Instant> {
        self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_asked_seldom() {
        let (mut breaker, began) = (Breaker::default(), Instant::now());
        let at = |second| began + Duration::from_secs(second);
        assert!(!breaker.answered(at(0)));
        let mut asked = 0;
        for second in 0..600 {
            if !breaker.is_open(at(second)) {
                breaker.failed(true, at(second));
                asked += 1;
            }
        }
        assert!((15..60).contains(&asked), "asked {asked} times in ten minutes");

        breaker.failed(true, at(600));
        assert!(breaker.is_open(at(600)));
        assert!(breaker.answered(at(600)), "it answers again");
        assert!(!breaker.is_open(at(600)), "and everything is asked again");
        assert!(!breaker.answered(at(601)));
        assert_eq!(breaker.last_answer(), Some(at(601)));
    }

    #[test]
    fn requests_that_fail_side_by_side_are_one_failure() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        (0..20).for_each(|_| breaker.failed(true, now));
        assert!(!breaker.is_open(now + MIN_DELAY * 2), "the first delay");
    }

    #[test]
    fn what_has_delays_of_its_own_opens_nothing() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(false, now);
        assert!(!breaker.is_open(now));
        assert!(breaker.answered(now), "but it was silent");
    }
}
