//! The limit that client-go sets a controller by default: so many requests a second for one kind of object.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Between two requests, once the first ones are used up: 20 a second.
const EACH: Duration = Duration::from_millis(50);

/// Requests that may be made at once after a rest.
const AT_ONCE: u32 = 30;

/// When the next request may be made.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<Instant>);

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl Pace {
    /// Waits until a request may be made.
    pub(crate) async fn wait(&self) {
        let now = Instant::now();
        let due = {
            let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A rest saves up no more than so many.
            let earliest = now.checked_sub(EACH * AT_ONCE).unwrap_or(now);
            let due = (*next).max(earliest) + EACH;
            *next = due;
            due
        };
        if due > now {
            sleep_until(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rest_allows_a_burst_and_no_more() {
        let pace = Pace(Mutex::new(Instant::now() - Duration::from_mins(1)));
        let began = Instant::now();
        for _ in 0..AT_ONCE {
            pace.wait().await;
        }
        assert!(began.elapsed() < EACH * 10);
        for _ in 0..10 {
            pace.wait().await;
        }
        assert!(began.elapsed() >= EACH * 9);
    }
}
