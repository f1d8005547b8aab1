//! Proxy in front of API servers.

use std::net::Ipv6Addr;

use super::Redacted;

/// Protocol between Sluice and a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// HTTP `CONNECT` over TCP.
    Http,
    /// HTTP `CONNECT` over TLS.
    Https,
    /// SOCKS 5; the proxy resolves names.
    Socks5,
}

/// Proxy in front of API servers, from `proxy-url` or from a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Protocol.
    pub protocol: ProxyProtocol,
    /// Host name or IP address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User name and password.
    pub credentials: Option<Redacted<(String, String)>>,
}

impl Proxy {
    /// Parses a URL such as `http://user:password@proxy.example.com:3128`; `None` for any other text. Like Go, it ignores what follows
    /// the port, and decodes user name and password.
    #[must_use]
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (protocol, default_port) = match &*scheme.to_ascii_lowercase() {
            "http" => (ProxyProtocol::Http, 80),
            "https" => (ProxyProtocol::Https, 443),
            "socks5" => (ProxyProtocol::Socks5, 1080),
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let (user, address) = match authority.rsplit_once('@') {
            Some((user, address)) => (Some(user), address),
            None => (None, authority),
        };
        let (host, port) = host_and_port(address)?;
        let port = match port {
            "" => default_port,
            port => port.parse::<u16>().ok().filter(|port| *port != 0)?,
        };
        let credentials = match user {
            None => None,
            Some(user) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                Some(Redacted::new((decoded(name)?, decoded(password)?)))
            }
        };
        Some(Self {
            protocol,
            host: host.to_owned(),
            port,
            credentials,
        })
    }

    /// Returns host and port as in a URL, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// Splits `host`, `host:port`, `[address]` or `[address]:port`. The port is empty if it is absent.
fn host_and_port(address: &str) -> Option<(&str, &str)> {
    if let Some(rest) = address.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        let port = if port.is_empty() {
            port
        } else {
            port.strip_prefix(':')?
        };
        return Some((host, port));
    }
    let (host, port) = address.split_once(':').unwrap_or((address, ""));
    let of_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (!host.is_empty() && host.bytes().all(of_host)).then_some((host, port))
}

/// Decodes `%` and two hexadecimal digits.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            u8::try_from(high * 16 + low).ok()?
        } else {
            byte
        };
        plain.push(byte);
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::http(
        "http://proxy.example.com:3128",
        ProxyProtocol::Http,
        "proxy.example.com:3128"
    )]
    #[case::default_port("http://10.0.0.1", ProxyProtocol::Http, "10.0.0.1:80")]
    #[case::empty_port("http://10.0.0.1:/", ProxyProtocol::Http, "10.0.0.1:80")]
    #[case::https("HTTPS://proxy", ProxyProtocol::Https, "proxy:443")]
    #[case::socks("socks5://proxy", ProxyProtocol::Socks5, "proxy:1080")]
    #[case::address_of_ipv6("http://[fd00::1]:8080", ProxyProtocol::Http, "[fd00::1]:8080")]
    #[case::address_of_ipv6_alone("http://[fd00::1]", ProxyProtocol::Http, "[fd00::1]:80")]
    #[case::what_follows_is_ignored("http://proxy:1/path?query#fragment", ProxyProtocol::Http, "proxy:1")]
    fn a_url_names_protocol_host_and_port(
        #[case] url: &str,
        #[case] protocol: ProxyProtocol,
        #[case] authority: &str,
    ) {
        let proxy = Proxy::parse(url).expect("a proxy");
        assert_eq!((proxy.protocol, &*proxy.authority()), (protocol, authority));
        assert_eq!(proxy.credentials, None);
    }

    #[rstest]
    #[case::plain("http://user:secret@proxy", "user", "secret")]
    #[case::encoded("http://us%40er:s%3A%25@proxy", "us@er", "s:%")]
    #[case::at_sign("http://user:p@ss@proxy", "user", "p@ss")]
    #[case::without_password("socks5://user@proxy", "user", "")]
    fn credentials_are_decoded_and_hidden(#[case] url: &str, #[case] user: &str, #[case] password: &str) {
        let proxy = Proxy::parse(url).expect("a proxy");
        let credentials = proxy.credentials.clone().expect("credentials");
        assert_eq!(credentials.expose(), &(user.to_owned(), password.to_owned()));
        assert_eq!(proxy.authority(), format!("proxy:{}", proxy.port));
        let shown = format!("{proxy:?}");
        assert!(shown.contains("[redacted]") && !shown.contains("user"), "{shown}");
    }

    #[test]
    fn other_texts_are_no_proxy() {
        for wrong in [
            "",
            "proxy:3128",
            "ftp://proxy",
            "socks4://proxy",
            "socks5h://proxy",
            "http://",
            "http://:3128",
            "http://proxy:port",
            "http://proxy:0",
            "http://proxy:65536",
            "http://pro xy",
            "http://proxy\r\nHost: a",
            "http://fd00::1",
            "http://[10.0.0.1]",
            "http://[fd00::1",
            "http://[fd00::1]3128",
            "http://user%4@proxy",
            "http://user%zz@proxy",
            "http://%ff@proxy",
        ] {
            assert_eq!(Proxy::parse(wrong), None, "{wrong:?}");
        }
    }
}
