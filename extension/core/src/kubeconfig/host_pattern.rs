//! Hosts in the flags of workload connections.

use std::{net::IpAddr, str::FromStr};

use ipnet::{IpNet, Ipv4Net};

use crate::names::LONGEST_NAME;

/// Hosts that an entry of a flag stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Addresses of a range. Names never match: their addresses may change after the comparison.
    Range(IpNet),
    /// One name.
    Name(String),
    /// All names that end with this one, which begins with a dot.
    Domain(String),
}

impl HostPattern {
    /// Returns whether one of `patterns` stands for a host, which is a name or an address, also in brackets.
    #[must_use]
    pub fn any(patterns: &[Self], host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        // `::ffff:10.0.0.1` leads to 10.0.0.1.
        let address = host.parse::<IpAddr>().map(|address| address.to_canonical());
        patterns.iter().any(|pattern| match (pattern, &address) {
            (Self::Range(range), Ok(address)) => range.contains(address),
            (Self::Name(known), Err(_)) => *known == name,
            (Self::Domain(domain), Err(_)) => name.len() > domain.len() && name.ends_with(domain.as_str()),
            _ => false,
        })
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        if let Ok(range) = text.parse::<IpNet>().or_else(|_| address()) {
            return Ok(Self::Range(canonical(range)));
        }
        let name = text.to_ascii_lowercase();
        let labels = name.strip_prefix('.').unwrap_or(&name);
        let of_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(of_label);
        // A name whose last label is a number is a misspelled address.
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let is_name = labels.len() <= LONGEST_NAME
            && labels.split('.').all(is_label)
            && !labels.rsplit('.').next().is_some_and(is_number);
        match (is_name, name.starts_with('.')) {
            (true, false) => Ok(Self::Name(name)),
            (true, true) => Ok(Self::Domain(name)),
            (false, _) => Err(format!(
                "{text} is not an address, a CIDR, a host name or a domain such as .example.com"
            )),
        }
    }
}

/// Returns the range of IPv4 that a range of IPv4-mapped addresses stands for; hosts are compared in that form.
fn canonical(range: IpNet) -> IpNet {
    let mapped = match range {
        IpNet::V6(range) => range
            .addr()
            .to_ipv4_mapped()
            .zip(range.prefix_len().checked_sub(96)),
        IpNet::V4(_) => None,
    };
    mapped
        .and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok())
        .map_or(range, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::address("10.0.0.1", "10.0.0.1", true)]
    #[case::another_address("10.0.0.1", "10.0.0.2", false)]
    #[case::range("10.0.0.0/8", "10.1.2.3", true)]
    #[case::outside_a_range("10.0.0.0/8", "11.0.0.1", false)]
    #[case::mapped_address("10.0.0.0/8", "::ffff:10.0.0.1", true)]
    #[case::pattern_of_a_mapped_address("::ffff:10.0.0.1", "10.0.0.1", true)]
    #[case::pattern_of_another_mapped_address("::ffff:10.0.0.1", "::ffff:10.0.0.2", false)]
    #[case::mapped_range("::ffff:10.0.0.0/104", "10.1.2.3", true)]
    #[case::outside_a_mapped_range("::ffff:10.0.0.0/104", "11.0.0.1", false)]
    #[case::all_mapped_addresses("::ffff:0:0/96", "10.0.0.1", true)]
    #[case::range_of_ipv6("fd00::/8", "[fd00::1]", true)]
    #[case::another_family("::/0", "10.0.0.1", false)]
    #[case::name("Proxy.example.com", "proxy.Example.com", true)]
    #[case::name_with_the_root("proxy.example.com", "proxy.example.com.", true)]
    #[case::subdomain_of_a_name("example.com", "proxy.example.com", false)]
    #[case::domain(".example.com", "a.proxy.example.com", true)]
    #[case::top_of_a_domain(".example.com", "example.com", false)]
    #[case::end_of_a_label(".example.com", "proxyexample.com", false)]
    #[case::name_of_a_range("0.0.0.0/0", "proxy.example.com", false)]
    // The resolver takes it for 127.0.0.1.
    #[case::short_address("127.0.0.0/8", "127.1", false)]
    fn a_pattern_stands_for_hosts(#[case] pattern: &str, #[case] host: &str, #[case] matches: bool) {
        let patterns = [pattern.parse().expect("a pattern")];
        assert_eq!(HostPattern::any(&patterns, host), matches);
        assert!(!HostPattern::any(&[], host));
    }

    #[test]
    fn other_texts_are_no_patterns() {
        for wrong in [
            "",
            ".",
            "a b",
            "a..b",
            "*.example.com",
            "http://a",
            "a:3128",
            "10.0.0.0/33",
            "10.0.0.256",
            "10.0.0",
            "[fd00::1]",
            &"a".repeat(254),
        ] {
            let refused = wrong.parse::<HostPattern>();
            assert!(
                refused.as_ref().is_err_and(|error| error.starts_with(wrong)),
                "{wrong:?}: {refused:?}"
            );
        }
    }
}
