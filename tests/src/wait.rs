//! Waits for a condition. Every wait has a name and a deadline. The error of a failed wait contains its last
//! observation.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// Time between two probes. Short compared with each awaited change, long compared with the cost of a probe.
const PERIOD: Duration = Duration::from_millis(50);

/// Reason why a probe did not end the wait.
///
/// Every displayable error converts into [`Unmet::NotYet`], so a probe may use `?` on calls that fail while
/// a server is still coming up.
#[derive(Debug)]
pub enum Unmet {
    /// The condition does not hold yet; the text is the observed state.
    NotYet(String),
    /// The condition cannot come true any more (a process has died): the wait ends at once.
    Never(String),
}

impl<E: Display> From<E> for Unmet {
    fn from(seen: E) -> Self {
        // The alternate form prints an anyhow chain in one line and is the plain form for everything else.
        Self::NotYet(format!("{seen:#}"))
    }
}

/// Ends a wait early, with the reason.
pub fn never<T>(reason: impl Display) -> Result<T, Unmet> {
    Err(Unmet::Never(reason.to_string()))
}

/// Continues the wait, and reports the observed state.
pub fn not_yet<T>(seen: impl Display) -> Result<T, Unmet> {
    Err(Unmet::NotYet(seen.to_string()))
}

/// A wait that did not end well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The deadline passed.
    #[error("waited {:.1} s for {what}; last seen: {seen}", .after.as_secs_f64())]
    TimedOut {
        /// Awaited condition.
        what: String,
        /// How long.
        after: Duration,
        /// Observation of the last finished probe.
        seen: String,
    },
    /// The probe gave up.
    #[error("gave up waiting for {what} after {:.1} s: {reason}", .after.as_secs_f64())]
    Hopeless {
        /// Awaited condition.
        what: String,
        /// How long.
        after: Duration,
        /// Why it cannot come true any more.
        reason: String,
    },
}

/// Repeats `probe` until it succeeds, at most for `deadline`.
///
/// `what` reads after "waited for": "the API server to be ready". A probe that hangs is cut off at the
/// deadline.
pub async fn until<T, F, Fut>(what: impl Into<String>, deadline: Duration, mut probe: F) -> Result<T, Error>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Unmet>>,
{
    let what = what.into();
    let started = Instant::now();
    let mut seen = "nothing: the first probe has not finished".to_owned();
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, probe()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(Unmet::Never(reason))) => {
                return Err(Error::Hopeless {
                    what,
                    after: started.elapsed(),
                    reason,
                });
            }
            Ok(Err(Unmet::NotYet(now))) => seen = now,
            Err(_elapsed) => {
                return Err(Error::TimedOut {
                    what,
                    after: deadline,
                    seen,
                });
            }
        }
        if started.elapsed() + PERIOD >= deadline {
            return Err(Error::TimedOut {
                what,
                after: started.elapsed(),
                seen,
            });
        }
        tokio::time::sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn returns_the_result_of_the_probe() {
        let mut probes = 0;
        let found = until("three probes", Duration::from_secs(10), || {
            probes += 1;
            let now = probes;
            async move {
                if now == 3 {
                    Ok(now)
                } else {
                    not_yet(format!("{now} probes"))
                }
            }
        })
        .await;
        assert_eq!(found, Ok(3));
    }

    #[tokio::test]
    async fn names_the_wait_and_the_last_observation() {
        let error = until::<(), _, _>("a server", SHORT, || async { Err("connection refused")? })
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("for a server; last seen: connection refused"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_hanging_probe_is_cut_off() {
        let error = until::<(), _, _>("an answer", SHORT, std::future::pending)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_hopeless_wait_ends_before_its_deadline() {
        let started = Instant::now();
        let error = until::<(), _, _>("a process", Duration::from_mins(1), || async {
            never("exit status: 1")
        })
        .await;
        assert!(matches!(error, Err(Error::Hopeless { reason, .. }) if reason == "exit status: 1"));
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
