//! Time of the management API server, which stamps deletions. The local clock may differ, so it cannot measure their age.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};

/// Time of an API server, from the `Date` header of its latest response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerTime {
    date: Timestamp,
    arrived: Instant,
}

impl ServerTime {
    /// Parses the `Date` header (`Thu, 26 Nov 2026 14:08:29 GMT`) of a response that arrived at `arrived`. Returns `None` if it is
    /// not an HTTP date.
    #[must_use]
    pub fn parse(date: &str, arrived: Instant) -> Option<Self> {
        let date = DateTimeParser::new().parse_timestamp(date).ok()?;
        Some(Self { date, arrived })
    }

    /// Returns the time of the API server at `now`, or slightly earlier: the header has whole seconds and predates its arrival.
    #[must_use]
    pub fn at(self, now: Instant) -> Timestamp {
        let since = SignedDuration::try_from(now.saturating_duration_since(self.arrived));
        let time = since.ok().and_then(|since| self.date.checked_add(since).ok());
        time.unwrap_or(self.date)
    }
}

/// Whether a deletion is older than `limit` at `now`, the time of the API server. An unknown time counts as "not overdue": a late
/// deletion can be remedied, a skipped uninstallation of packages cannot.
#[must_use]
pub fn is_overdue(deleted_at: Timestamp, now: Option<Timestamp>, limit: Duration) -> bool {
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    now.is_some_and(|now| now.duration_since(deleted_at) > limit)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const DATE: &str = "Thu, 26 Nov 2026 14:08:29 GMT";

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn server_time_advances_with_the_monotonic_clock() {
        let before = Instant::now();
        let arrived = before + seconds(50);
        let server = ServerTime::parse(DATE, arrived).unwrap();
        let at = |instant| server.at(instant).to_string();
        assert_eq!(at(arrived), "2026-11-26T14:08:29Z");
        assert_eq!(at(arrived + seconds(3_600)), "2026-11-26T15:08:29Z");
        assert_eq!(at(before), "2026-11-26T14:08:29Z");
    }

    #[rstest]
    #[case("")]
    #[case("soon")]
    #[case("2026-11-26T14:08:29Z")]
    #[case("Thu, 26 Nov 2026 14:08:29")]
    #[case("Thu, 31 Nov 2026 14:08:29 GMT")]
    fn invalid_http_dates_are_rejected(#[case] date: &str) {
        assert_eq!(ServerTime::parse(date, Instant::now()), None);
    }

    #[test]
    fn the_latest_timestamp_does_not_overflow() {
        let arrived = Instant::now();
        let server = ServerTime::parse("Thu, 30 Dec 9999 21:59:59 GMT", arrived).unwrap();
        let year = seconds(366 * 24 * 3_600);
        assert!(server.at(arrived + year) >= server.at(arrived));
    }

    #[rstest]
    #[case::in_time(Some(600), false)]
    #[case::too_late(Some(601), true)]
    #[case::before_it_began(Some(-700), false)]
    #[case::not_known(None, false)]
    fn deletion_age_is_measured_by_the_api_server(#[case] age: Option<i64>, #[case] overdue: bool) {
        let deleted_at = Timestamp::from_second(1_000).unwrap();
        let now = age.map(|age| deleted_at + SignedDuration::from_secs(age));
        assert_eq!(is_overdue(deleted_at, now, seconds(600)), overdue);
    }
}
