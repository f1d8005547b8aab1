//! Client of the management cluster.

use std::{env, net::IpAddr, time::Duration};

use http::Uri;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use sluice_core::kubeconfig::HostPattern;

use super::{
    arguments::ManagementArgs,
    client_error::{of_client, of_kubeconfig},
    connection::Trouble,
    reader::{ANSWER, one},
};

/// Timeout of a connection to an API server.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// Returns a client of the management cluster, and the namespace of its context.
///
/// # Errors
/// The kubeconfig cannot be read or used, or a proxy is required. The error has no content of the kubeconfig but names, and no URL of a
/// proxy, which may contain a password.
pub(super) async fn client(asked: &ManagementArgs) -> Result<(Client, String), Trouble> {
    let source = match &asked.kubeconfig {
        Some(file) => format!("--kubeconfig {}", file.display()),
        None => "the kubeconfig".to_owned(),
    };
    let unusable = |why: &str| Trouble::NotAnswered(one(&format!("use {source}: {why}")));
    let read = match &asked.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let config = match read {
        Ok(kubeconfig) if names_proxy(&kubeconfig, asked.context.as_deref()) => {
            return Err(unusable(
                "field proxy-url names a proxy, and this command uses none; remove the field, and run the command \
                 where the API server is reachable without a proxy",
            ));
        }
        Ok(kubeconfig) => {
            let options = KubeConfigOptions {
                context: asked.context.clone(),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(kubeconfig, &options).await
        }
        Err(error) => Err(error),
    };
    let may_be_in_pod = asked.kubeconfig.is_none() && asked.context.is_none();
    let mut config = match config {
        Ok(config) => config,
        Err(error) => {
            let of_pod = may_be_in_pod.then(|| Config::incluster().ok()).flatten();
            of_pod.ok_or_else(|| unusable(&of_kubeconfig(&error)))?
        }
    };
    // kube compares NO_PROXY with the proxy.
    if config.proxy_url.take().is_some() && !is_direct(&no_proxy(), &config.cluster_url) {
        let why = "variable HTTPS_PROXY names a proxy, and this command uses none; add the host of the API server to \
                   NO_PROXY, and run the command where it is reachable without a proxy";
        return Err(Trouble::NotAnswered(why.to_owned()));
    }
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| unusable(&of_client(&error)))?;
    Ok((client, namespace))
}

/// Whether the cluster of a context, or of the current one, has a proxy of its own.
fn names_proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> bool {
    let context = context.or(kubeconfig.current_context.as_deref());
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| Some(named.name.as_str()) == context);
    let cluster = context.and_then(|named| Some(&named.context.as_ref()?.cluster));
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|named| Some(&named.name) == cluster);
    let url = cluster.and_then(|named| named.cluster.as_ref()?.proxy_url.as_deref());
    url.is_some_and(|url| !url.is_empty())
}

fn no_proxy() -> String {
    let mut variables = ["NO_PROXY", "no_proxy"].into_iter();
    let found = variables.find_map(|variable| env::var(variable).ok().filter(|value| !value.is_empty()));
    found.unwrap_or_default()
}

/// Whether an API server is reached without a proxy of the environment: by the rules of Go, except that an entry with a port has no effect.
fn is_direct(no_proxy: &str, server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    let is_loopback = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    is_loopback
        || no_proxy.split(',').map(str::trim).any(|entry| {
            let name = entry.trim_start_matches('*');
            // A name includes its subdomains.
            let texts = [name.to_owned(), format!(".{name}")];
            let patterns = texts.iter().filter_map(|text| text.parse::<HostPattern>().ok());
            entry == "*" || HostPattern::any(&patterns.collect::<Vec<_>>(), host)
        })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing("", "https://api.example.com:6443", false)]
    #[case::all("*", "https://api.example.com:6443", true)]
    #[case::name("10.0.0.1, api.example.com", "https://API.example.com:6443", true)]
    #[case::subdomain_of_a_name("example.com", "https://api.example.com", true)]
    #[case::subdomain(".example.com", "https://api.example.com", true)]
    #[case::subdomain_with_wildcard("*.example.com", "https://api.example.com", true)]
    #[case::end_of_a_name("ample.com", "https://api.example.com", false)]
    #[case::range("10.0.0.0/8", "https://10.1.2.3:6443", true)]
    #[case::other_range("10.0.0.0/8", "https://192.0.2.1:6443", false)]
    #[case::range_of_ipv6("fd00::/8", "https://[fd00::1]:6443", true)]
    #[case::localhost("", "https://localhost:6443", true)]
    #[case::loopback("", "https://127.0.0.1:6443", true)]
    fn a_proxy_of_the_environment_is_for_other_hosts(
        #[case] no_proxy: &str,
        #[case] server: &str,
        #[case] direct: bool,
    ) {
        assert_eq!(is_direct(no_proxy, &server.parse().unwrap()), direct);
    }
}
