//! Choice of the proxy of a workload connection.

use super::{HostPattern, Proxy};

/// The kubeconfig names a proxy that the operator does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyNotAllowed;

/// Proxies between Sluice and workload API servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Hosts of proxies that kubeconfigs may name.
    pub allowed: Vec<HostPattern>,
    /// Proxy for kubeconfigs that name none.
    pub operator: Option<Proxy>,
    /// Hosts of API servers that Sluice connects to without the proxy of the operator.
    pub direct: Vec<HostPattern>,
}

impl Proxies {
    /// Returns the proxy in front of the API server on `host`, whose kubeconfig names `own`. As in client-go, that one takes precedence.
    ///
    /// # Errors
    /// The operator does not allow `own`. A direct connection instead would reach another server.
    pub fn choose<'a>(
        &'a self,
        own: Option<&'a Proxy>,
        host: &str,
    ) -> Result<Option<&'a Proxy>, ProxyNotAllowed> {
        match own {
            Some(own) if HostPattern::any(&self.allowed, &own.host) => Ok(Some(own)),
            Some(_) => Err(ProxyNotAllowed),
            None => Ok(self
                .operator
                .as_ref()
                .filter(|_| !HostPattern::any(&self.direct, host))),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("", "", "", "", Ok(None))]
    #[case::not_allowed("http://own", "", "http://operator", "", Err(ProxyNotAllowed))]
    #[case::another_is_allowed("http://own", "other", "", "", Err(ProxyNotAllowed))]
    #[case::allowed("http://own", "own", "http://operator", "server", Ok(Some("own")))]
    #[case::of_the_operator("", "own", "http://operator", "", Ok(Some("operator")))]
    #[case::not_for_this_server("", "", "http://operator", "server", Ok(None))]
    fn a_connection_has_one_proxy_at_most(
        #[case] own: &str,
        #[case] allowed: &str,
        #[case] operator: &str,
        #[case] direct: &str,
        #[case] chosen: Result<Option<&str>, ProxyNotAllowed>,
    ) {
        let pattern = |text: &str| -> Vec<HostPattern> { text.parse::<HostPattern>().into_iter().collect() };
        let proxies = Proxies {
            allowed: pattern(allowed),
            operator: Proxy::parse(operator),
            direct: pattern(direct),
        };
        let own = Proxy::parse(own);
        let proxy = proxies.choose(own.as_ref(), "server");
        assert_eq!(proxy.map(|proxy| proxy.map(|proxy| &*proxy.host)), chosen);
    }
}
