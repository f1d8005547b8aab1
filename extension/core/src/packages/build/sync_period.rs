//! `spec.syncPeriod` of a PackageInstall, which also triggers the deployment of packages that take no values.
//!
//! kapp-controller v0.53.1 always copies it into the App (`NewApp` in `pkg/packageinstall/app.go`), whatever the template of the
//! Package specifies, and deploys an App with a changed spec again. It parses and formats durations as Go does, so any other spelling
//! would differ from its output forever.

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// Minimum addition in nanoseconds, so that the period always exceeds the configured one.
const LEAST: u64 = 1_000_000;
/// Maximum addition in nanoseconds; less than one second, so that users do not notice it.
const MOST: u64 = 999_000_000;

/// Returns the sync period of a package with this digest: `every`, in the format of Go.
///
/// The App of a package that takes no values has no field that follows the digest. Its period is therefore longer by 1 to 999
/// milliseconds that depend on the digest, to the nanosecond: whole milliseconds would miss one change in a thousand.
#[must_use]
pub fn sync_period(every: Duration, takes_values: bool, digest: &str) -> String {
    if takes_values {
        return go_duration(every);
    }
    let hash = Sha256::digest(digest.as_bytes());
    let number = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    let longer = LEAST + u64::from(number) % (MOST - LEAST + 1);
    go_duration(every.saturating_add(Duration::from_nanos(longer)))
}

/// Formats a duration as `time.Duration.String` of Go: `10m0.5s`, `1h0m0s`, `1.5ms`.
#[must_use]
pub fn go_duration(duration: Duration) -> String {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 {
        return match nanoseconds {
            0 => "0s".to_owned(),
            1..1_000 => format!("{nanoseconds}ns"),
            1_000..1_000_000 => decimal(u64::from(nanoseconds / 1_000), nanoseconds % 1_000, 3) + "µs",
            _ => decimal(u64::from(nanoseconds / 1_000_000), nanoseconds % 1_000_000, 6) + "ms",
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = String::new();
    // Writing to a String never fails.
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if seconds >= 60 {
        let _ = write!(text, "{minutes}m");
    }
    text + &decimal(seconds % 60, nanoseconds, 9) + "s"
}

/// Formats a number with up to `digits` decimal places, without trailing zeros.
fn decimal(whole: u64, fraction: u32, digits: usize) -> String {
    let text = format!("{whole}.{fraction:0digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;

    use super::*;

    const TEN_MINUTES: Duration = Duration::from_mins(10);

    /// Nanoseconds, and what Go 1.26 prints for them.
    const GO: &[(u64, &str)] = &[
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (2_000_000, "2ms"),
        (999_000_000, "999ms"),
        (999_999_999, "999.999999ms"),
        (1_000_000_000, "1s"),
        (1_500_000_000, "1.5s"),
        (59_999_000_000, "59.999s"),
        (60_000_000_000, "1m0s"),
        (600_000_000_000, "10m0s"),
        (600_123_000_000, "10m0.123s"),
        (600_123_456_789, "10m0.123456789s"),
        (600_000_000_001, "10m0.000000001s"),
        (600_500_000_000, "10m0.5s"),
        (630_000_000_000, "10m30s"),
        (3_600_000_000_000, "1h0m0s"),
        (3_600_500_000_000, "1h0m0.5s"),
        (3_661_001_000_000, "1h1m1.001s"),
        (86_400_000_000_000, "24h0m0s"),
        (90_061_000_000_000, "25h1m1s"),
        (604_800_999_000_000, "168h0m0.999s"),
    ];

    #[test]
    fn durations_are_spelled_as_go_spells_them() {
        for (nanoseconds, text) in GO {
            assert_eq!(go_duration(Duration::from_nanos(*nanoseconds)), *text);
        }
    }

    #[test]
    fn a_package_that_takes_values_has_the_period_that_is_set() {
        assert_eq!(sync_period(TEN_MINUTES, true, "d1"), "10m0s");
        assert_eq!(sync_period(Duration::from_hours(1), true, "d1"), "1h0m0s");
    }

    #[test]
    fn the_period_of_any_other_follows_its_digest() {
        assert_eq!(sync_period(TEN_MINUTES, false, "d1"), "10m0.342498013s");
        let digests = (0..1_000).map(|digest| format!("d{digest}"));
        let periods: BTreeSet<String> = digests
            .map(|digest| sync_period(TEN_MINUTES, false, &digest))
            .collect();
        assert_eq!(periods.len(), 1_000, "as many periods as digests");
    }

    #[rstest]
    #[case(TEN_MINUTES)]
    #[case(Duration::from_mins(90))]
    #[case(Duration::from_secs(30))]
    fn it_is_longer_by_less_than_a_second(#[case] every: Duration) {
        for digest in 0..1_000 {
            let text = sync_period(every, false, &digest.to_string());
            let period: jiff::SignedDuration = text.parse().unwrap();
            let longer = Duration::try_from(period).unwrap().checked_sub(every).unwrap();
            assert!(
                (Duration::from_millis(1)..=Duration::from_millis(999)).contains(&longer),
                "{text}"
            );
        }
    }
}
