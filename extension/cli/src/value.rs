//! Parsers of flag values that the flags of the extension share. Errors repeat the value.

use std::time::Duration;

use jiff::Timestamp;

/// Maximum length of an object name in Kubernetes (RFC 1123, subdomain).
const LONGEST_NAME: usize = 253;

/// Maximum length of a namespace in Kubernetes (RFC 1123, label).
const LONGEST_LABEL: usize = 63;

/// Maximum of a duration flag. A longer value is a mistake and would overflow in sums of times.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Maximum length of the reason of an UpgradeOverride, in characters.
const LONGEST_REASON: usize = 1024;

/// Parses a Go duration as far as operators use it: `10m`, `90s`, `1h30m`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text} is not a duration such as 10m or 90s"))?;
    let parsed = Duration::try_from(parsed).map_err(|_| format!("{text} is negative"))?;
    if parsed > LONGEST {
        return Err(format!("{text} is longer than {} h", LONGEST.as_secs() / 3600));
    }
    Ok(parsed)
}

/// Parses the name of a namespace.
pub fn namespace(text: &str) -> Result<String, String> {
    if is_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not a namespace such as tkg-system: at most {LONGEST_LABEL} of a-z, 0-9 and -, neither first nor last"
        ))
    }
}

/// Parses the name of an object whose kind accepts DNS subdomains.
pub fn object(text: &str) -> Result<String, String> {
    if text.len() <= LONGEST_NAME && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text} is not the name of an object such as sluice"))
    }
}

/// Parses the short name of a package.
pub fn package(text: &str) -> Result<String, String> {
    if text == "*" {
        return Err("* is spelled --all-packages".to_owned());
    }
    object(text).map_err(|_| format!("{text} is not the short name of a package such as metrics-server"))
}

/// Parses the reason of an UpgradeOverride.
pub fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} has a line break or another control character"));
    }
    if text.chars().count() > LONGEST_REASON {
        return Err(format!("it is longer than {LONGEST_REASON} characters"));
    }
    Ok(text.to_owned())
}

/// Parses a time with its offset (RFC 3339).
pub fn timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| format!("{text} is not a time such as 2026-12-01T18:00:00Z"))
}

/// Returns whether `text` is a DNS label (RFC 1123).
#[must_use]
pub fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= LONGEST_LABEL
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_spellings_are_understood() {
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("-1s").is_err());
        assert!(duration("soon").is_err());
    }

    #[test]
    fn a_duration_has_a_maximum() {
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("8760h"), Ok(LONGEST));
        assert!(duration("8760h1s").is_err());
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        for right in ["a", "tkg-system", "0", &"a".repeat(63)] {
            assert_eq!(namespace(right).as_deref(), Ok(right));
        }
        for wrong in ["", "a.b", "A", "a-", "-a", "a_b", "ä", &"a".repeat(64)] {
            assert!(namespace(wrong).is_err(), "{wrong}");
        }
        for right in ["sluice", "sluice.capi-1", &"a".repeat(63)] {
            assert_eq!(object(right).as_deref(), Ok(right));
        }
        for wrong in ["", "Sluice", "a/b", "a..b", &"a.b".repeat(100)] {
            assert!(object(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_of_an_override_are_those_that_its_schema_takes() {
        assert_eq!(package("metrics-server").as_deref(), Ok("metrics-server"));
        for wrong in ["", "*", "a b", "A"] {
            assert!(package(wrong).is_err(), "{wrong}");
        }
        for right in ["CHG-4711: metrics is unused here", "größer", &"ä".repeat(1024)] {
            assert_eq!(reason(right).as_deref(), Ok(right));
        }
        for wrong in ["", " ", "one\ntwo", "\u{1b}[2J", "\u{9b}", &"a".repeat(1025)] {
            assert!(reason(wrong).is_err(), "{wrong:?}");
        }
        let time = timestamp("2026-12-01T19:00:00+01:00");
        assert_eq!(
            time.map(|time| time.to_string()).as_deref(),
            Ok("2026-12-01T18:00:00Z")
        );
        for wrong in ["", "2026-12-01", "2026-12-01T18:00:00", "tomorrow"] {
            assert!(timestamp(wrong).is_err(), "{wrong}");
        }
    }
}
