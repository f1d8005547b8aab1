//! Parsers of flag values that only the extension has. Errors repeat the value.

use std::{
    net::SocketAddr,
    path::{Component, Path},
    time::Duration,
};

use sluice_cli::value::{duration, is_label};
use sluice_core::names::LONGEST_NAME;

use super::listen::ListenAddress;

/// Returns a parser of durations with a minimum.
pub(super) fn at_least(
    shortest: Duration,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| match duration(text)? {
        short if short < shortest => Err(format!("{text} is shorter than {shortest:?}")),
        long => Ok(long),
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

/// Parses a Go listen address: `:9440` means all addresses of the host.
pub(super) fn address(text: &str) -> Result<ListenAddress, String> {
    let parsed = if text.starts_with(':') {
        let all = format!("[::]{text}").parse::<SocketAddr>();
        all.map(|all| ListenAddress::All(all.port()))
    } else {
        text.parse().map(ListenAddress::Chosen)
    };
    parsed.map_err(|_| format!("{text} is not ADDRESS:PORT or :PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_no_host() {
        assert_eq!(address(":9440"), Ok(ListenAddress::All(9440)));
        let chosen = ListenAddress::Chosen(([0, 0, 0, 0], 9440).into());
        assert_eq!(address("0.0.0.0:9440"), Ok(chosen));
        for wrong in ["9440", ":", ":+9440", ":70000", "localhost:9440", "::1:9440"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_duration_has_a_minimum() {
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
    fn an_identity_is_a_name_and_a_file_has_no_directory() {
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
