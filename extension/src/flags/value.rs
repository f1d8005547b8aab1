//! Parsers of flag values. Errors repeat the value.

use std::{
    net::SocketAddr,
    path::{Component, Path},
    time::Duration,
};

use sluice_core::names::{LONGEST_LABEL, LONGEST_NAME};

/// Maximum of a duration flag. A longer value is a mistake and would overflow in sums of times.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// Parses a Go duration as far as operators use it: `10m`, `90s`, `1h30m`, `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration = text
        .parse()
        .map_err(|_| format!("{text} is not a duration such as 10m or 90s"))?;
    let parsed = Duration::try_from(parsed).map_err(|_| format!("{text} is negative"))?;
    if parsed > LONGEST {
        return Err(format!("{text} is longer than {} h", LONGEST.as_secs() / 3600));
    }
    Ok(parsed)
}

/// Returns a parser of durations with a minimum.
pub(super) fn at_least(
    shortest: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| match duration(text)? {
        short if short < shortest => Err(format!("{text} is shorter than {shortest:?}")),
        long => Ok(long),
    }
}

/// Parses the name of a namespace.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    if is_label(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not a namespace such as tkg-system: at most {LONGEST_LABEL} of a-z, 0-9 and -, neither first nor last"
        ))
    }
}

/// Parses an API group of CustomResourceDefinitions, such as `controlplane.example.com`.
pub(super) fn group(text: &str) -> Result<String, String> {
    if text.len() <= LONGEST_NAME && text.contains('.') && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not an API group such as controlplane.example.com"
        ))
    }
}

/// Parses the name of an object whose kind accepts DNS subdomains.
pub(crate) fn object(text: &str) -> Result<String, String> {
    if text.len() <= LONGEST_NAME && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!("{text} is not the name of an object such as sluice"))
    }
}

/// Returns whether `text` is a DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= LONGEST_LABEL
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Parses the holder identity of a lease: a pod name or a host name.
pub(super) fn identity(text: &str) -> Result<String, String> {
    let is_name =
        !text.is_empty() && text.len() <= LONGEST_NAME && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text} is not a name of at most {LONGEST_NAME} characters without spaces"
        ))
    }
}

/// Parses the name of a file in the directory of another flag.
pub(super) fn file(text: &str) -> Result<String, String> {
    let mut parts = Path::new(text).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(name)), None) if name == text => Ok(text.to_owned()),
        _ => Err(format!("{text} is not the name of a file without its directory")),
    }
}

/// Parses a Go listen address: `:9440` means every interface.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') {
        format!("[::]{text}")
    } else {
        text.to_owned()
    };
    full.parse()
        .map_err(|_| format!("{text} is not ADDRESS:PORT or :PORT"))
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
        assert_eq!(address(":9440").map(|a| a.port()), Ok(9440));
        assert!(address("9440").is_err());
    }

    #[test]
    fn a_duration_has_bounds() {
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!(duration("8760h"), Ok(LONGEST));
        assert!(duration("8760h1s").is_err());
        let seconds = at_least(Duration::from_secs(1));
        assert_eq!(seconds("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(seconds("999ms"), Err("999ms is shorter than 1s".to_owned()));
    }

    #[test]
    fn a_group_is_a_domain() {
        assert_eq!(
            group("controlplane.example.com").as_deref(),
            Ok("controlplane.example.com")
        );
        for wrong in [
            "",
            "apps",
            "Apps.example.com",
            "a..b",
            "-a.b",
            "a.b/v1",
            "*.b",
            &"a.b".repeat(100),
        ] {
            assert!(group(wrong).is_err(), "{wrong}");
        }
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
        for right in ["sluice-0", "HOST_1.example.com", &"a".repeat(253)] {
            assert_eq!(identity(right).as_deref(), Ok(right));
        }
        for wrong in ["", "a b", "a\n", &"a".repeat(254)] {
            assert!(identity(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", ".", "..", "a/b", "/a", "a/", "./a"] {
            assert!(file(wrong).is_err(), "{wrong}");
        }
        assert_eq!(file("tls.crt").as_deref(), Ok("tls.crt"));
    }
}
