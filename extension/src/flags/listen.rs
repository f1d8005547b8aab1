//! Listen addresses in flags.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

/// Listen address in a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A port of all addresses of the host, such as `:9440`.
    All(u16),
    /// An address that the operator has chosen.
    Chosen(SocketAddr),
}

impl ListenAddress {
    pub(super) fn new(host: Option<IpAddr>, port: u16) -> Self {
        host.map_or(Self::All(port), |host| Self::Chosen(SocketAddr::new(host, port)))
    }

    /// Returns the address to bind. `all` returns the address that stands for all addresses of the host.
    #[must_use]
    pub fn resolve(self, all: impl FnOnce() -> IpAddr) -> SocketAddr {
        match self {
            Self::All(port) => SocketAddr::new(all(), port),
            Self::Chosen(address) => address,
        }
    }

    /// Returns whether two listeners conflict. Port 0 stands for any free port.
    pub(super) fn conflicts_with(self, other: Self) -> bool {
        let all = self.is_unspecified() || other.is_unspecified();
        self.port() != 0 && self.port() == other.port() && (all || self == other)
    }

    fn is_unspecified(self) -> bool {
        match self {
            Self::All(_) => true,
            Self::Chosen(address) => address.ip().is_unspecified(),
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::All(port) => port,
            Self::Chosen(address) => address.port(),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(port) => write!(f, ":{port}"),
            Self::Chosen(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rstest::rstest;

    use super::*;
    use crate::flags::value::address;

    #[rstest]
    #[case(":9440", "0.0.0.0:9440")]
    #[case("[::]:9440", "[::]:9440")]
    #[case("192.0.2.1:9440", "192.0.2.1:9440")]
    fn only_an_address_without_a_host_is_resolved(#[case] flag: &str, #[case] bound: &str) {
        let address = address(flag).unwrap();
        assert_eq!(address.to_string(), flag);
        let bound: SocketAddr = bound.parse().unwrap();
        assert_eq!(address.resolve(|| Ipv4Addr::UNSPECIFIED.into()), bound);
    }

    #[rstest]
    #[case(":1", ":1", true)]
    #[case(":1", "192.0.2.1:1", true)]
    #[case("0.0.0.0:1", "192.0.2.1:1", true)]
    #[case("192.0.2.1:1", "192.0.2.1:1", true)]
    #[case("192.0.2.1:1", "192.0.2.2:1", false)]
    #[case(":1", ":2", false)]
    #[case(":0", ":0", false)]
    fn listeners_with_a_common_port_and_address_conflict(
        #[case] one: &str,
        #[case] other: &str,
        #[case] conflict: bool,
    ) {
        let (one, other) = (address(one).unwrap(), address(other).unwrap());
        assert_eq!(one.conflicts_with(other), conflict);
        assert_eq!(other.conflicts_with(one), conflict);
    }
}
