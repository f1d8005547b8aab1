//! Causes of failed connections that TLS or a proxy reports.
//!
//! A cause is part of the message of a hold. So its text is constant as long as the cause is, without times and addresses, and without
//! text that a server or a kubeconfig chooses. A server of a tenant may also choose among the texts, so there are few: only what has a
//! remedy of its own has a text of its own.

use std::{error::Error, io, iter};

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::connector::ProxyError;

/// Maximum length of a cause, in characters.
const LONGEST: usize = 128;

/// Cause of an earlier failure, as the source of an error for a request that was not sent.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Cause(pub(crate) String);

/// Returns the cause of a failed request if TLS or a proxy reports it. Other failures, such as a refused connection, may differ from one
/// attempt to the next.
#[must_use]
pub(crate) fn cause(error: &(dyn Error + 'static)) -> Option<String> {
    let mut proxy = None;
    for error in chain(error) {
        if let Some(Cause(earlier)) = error.downcast_ref::<Cause>() {
            return Some(earlier.clone());
        }
        match error.downcast_ref::<ProxyError>() {
            // Its source says more.
            Some(unreachable @ ProxyError::Unreachable(_)) => proxy = Some(unreachable.to_string()),
            Some(refused) => return Some(refused.to_string()),
            None => {}
        }
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            let tls = of_tls(tls);
            return Some(proxy.map_or_else(|| tls.clone(), |proxy| format!("{proxy}: {tls}")));
        }
    }
    proxy
}

/// Returns an error with its sources. An I/O error hides the error that it wraps.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |error| {
        let wrapped = (**error).downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped {
            Some(wrapped) => Some(wrapped as &(dyn Error + 'static)),
            None => (**error).source(),
        }
    })
}

fn of_tls(error: &rustls::Error) -> String {
    let text = match error {
        rustls::Error::InvalidCertificate(why) => {
            format!("invalid peer certificate: {}", of_certificate(why))
        }
        rustls::Error::AlertReceived(alert) if has_remedy(*alert) => error.to_string(),
        rustls::Error::AlertReceived(_) => "received fatal alert".to_owned(),
        // What a server without TLS sends.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => error.to_string(),
        rustls::Error::PeerIncompatible(_) => "peer is incompatible".to_owned(),
        _ => "TLS handshake failed".to_owned(),
    };
    text.chars().take(LONGEST).collect()
}

/// Returns whether an alert says what to change in the kubeconfig or at the server. There are 256 alerts.
fn has_remedy(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::UnrecognisedName
            | AlertDescription::InternalError
            | AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

/// Returns the name of an error. Its context may contain the time of the check, or content of the certificate.
fn of_certificate(error: &CertificateError) -> String {
    let name = match error {
        CertificateError::ExpiredContext { .. } => "Expired",
        CertificateError::NotValidYetContext { .. } => "NotValidYet",
        CertificateError::NotValidForNameContext { .. } => "NotValidForName",
        CertificateError::InvalidPurposeContext { .. } => "InvalidPurpose",
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "UnsupportedSignatureAlgorithm"
        }
        // webpki names it as well, for example `CaUsedAsEndEntity`.
        CertificateError::Other(other) => return without_context(&other.0.to_string()),
        error => return without_context(&format!("{error:?}")),
    };
    name.to_owned()
}

fn without_context(error: &str) -> String {
    error.chars().take_while(|char| char.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rstest::rstest;
    use rustls::{
        OtherError, PeerIncompatible,
        pki_types::{ServerName, UnixTime},
    };

    use super::*;

    fn expired_at(second: u64) -> rustls::Error {
        let at = |second| UnixTime::since_unix_epoch(Duration::from_secs(second));
        CertificateError::ExpiredContext {
            time: at(second),
            not_after: at(1),
        }
        .into()
    }

    fn of_another_name() -> rustls::Error {
        CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("canary").unwrap(),
            presented: vec!["canary".to_owned()],
        }
        .into()
    }

    fn of_webpki(name: &str) -> rustls::Error {
        let other = io::Error::other(name.to_owned());
        CertificateError::Other(OtherError(Arc::new(other))).into()
    }

    #[rstest]
    #[case::issuer(CertificateError::UnknownIssuer.into(), "invalid peer certificate: UnknownIssuer")]
    #[case::expired(expired_at(2), "invalid peer certificate: Expired")]
    #[case::expired_for_longer(expired_at(3), "invalid peer certificate: Expired")]
    #[case::name(of_another_name(), "invalid peer certificate: NotValidForName")]
    #[case::of_webpki(of_webpki("CaUsedAsEndEntity"), "invalid peer certificate: CaUsedAsEndEntity")]
    #[case::refused_certificate(
        rustls::Error::AlertReceived(AlertDescription::UnknownCA),
        "received fatal alert: UnknownCA"
    )]
    #[case::of_webpki_with_context(of_webpki("TrailingData(Time)"), "invalid peer certificate: TrailingData")]
    #[case::refused_version(
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion),
        "received fatal alert: ProtocolVersion"
    )]
    #[case::unknown_alert(
        rustls::Error::AlertReceived(AlertDescription::Unknown(200)),
        "received fatal alert"
    )]
    #[case::alert_of_a_broken_peer(
        rustls::Error::AlertReceived(AlertDescription::DecodeError),
        "received fatal alert"
    )]
    #[case::corrupt_message(InvalidMessage::DuplicateExtension(7).into(), "TLS handshake failed")]
    #[case::incompatible(
        PeerIncompatible::NoCipherSuitesInCommon.into(),
        "peer is incompatible"
    )]
    #[case::plain_http(
        InvalidMessage::InvalidContentType.into(),
        "received corrupt message of type InvalidContentType"
    )]
    #[case::text_of_a_library(rustls::Error::General("canary".to_owned()), "TLS handshake failed")]
    fn tls_names_its_cause(#[case] error: rustls::Error, #[case] expected: &str) {
        // As hyper-rustls and kube wrap it.
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error.clone()));
        let error_of_kube = kube::Error::Service(Box::new(wrapped));
        assert_eq!(cause(&error_of_kube).as_deref(), Some(expected));

        let behind = ProxyError::Unreachable(Box::new(error));
        let expected = format!("the proxy cannot be reached: {expected}");
        assert_eq!(cause(&behind), Some(expected));
    }

    #[test]
    fn a_long_name_is_truncated() {
        let text = cause(&of_webpki(&"ä".repeat(1000))).unwrap();
        assert_eq!(text.chars().count(), LONGEST);
    }

    #[rstest]
    #[case::refused(ProxyError::Answered("407"), "the proxy answered 407")]
    #[case::closed(
        ProxyError::Closed(io::ErrorKind::ConnectionReset.into()),
        "the proxy closed the connection"
    )]
    #[case::unreachable(
        ProxyError::Unreachable(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        "the proxy cannot be reached"
    )]
    fn a_proxy_names_its_cause(#[case] error: ProxyError, #[case] expected: &str) {
        let error = kube::Error::Service(Box::new(error));
        assert_eq!(cause(&error).as_deref(), Some(expected));
    }

    #[test]
    fn a_failure_that_changes_from_try_to_try_has_no_cause() {
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut] {
            let error = kube::Error::Service(io::Error::from(kind).into());
            assert_eq!(cause(&error), None, "{kind}");
        }
    }
}
