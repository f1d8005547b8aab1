//! Clients of the management cluster and of a workload cluster.

use std::{env, net::IpAddr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Map, Value};
use sluice_core::{
    kubeconfig::{self, Authorization, HostPattern, WorkloadKubeconfig},
    protocol::{Key, Server},
};
use sluice_crds::labels::name;

use super::{
    client_error::{of_client, of_kubeconfig},
    reads::{ANSWER, Reader, one},
};
use crate::{arguments::PlanArgs, connection::Trouble};

/// Timeout of a connection to an API server.
const CONNECT: Duration = Duration::from_secs(10);

/// Returns a client of the management cluster, and the namespace of its context.
///
/// # Errors
/// The kubeconfig cannot be read or used, or a proxy is required. The error has no content of the kubeconfig but names, and no URL of a
/// proxy, which may contain a password.
pub(super) async fn of_management(asked: &PlanArgs) -> Result<(Client, String), Trouble> {
    let source = match &asked.kubeconfig {
        Some(file) => format!("--kubeconfig {}", file.display()),
        None => "the kubeconfig".to_owned(),
    };
    let unusable = |why: &str| Trouble::NotPlanned(one(&format!("use {source}: {why}")));
    let read = match &asked.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let config = match read {
        Ok(kubeconfig) if names_proxy(&kubeconfig, asked.context.as_deref()) => {
            return Err(unusable(
                "field proxy-url names a proxy, and sluice plan uses none; remove the field, and run sluice plan \
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
        let why = "variable HTTPS_PROXY names a proxy, and sluice plan uses none; add the host of the API server to \
                   NO_PROXY, and run sluice plan where it is reachable without a proxy";
        return Err(Trouble::NotPlanned(why.to_owned()));
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

/// Returns a client of the workload cluster of a Cluster, by the Secret with its kubeconfig.
///
/// # Errors
/// One line that says why there is none. It has no content of the Secret.
pub(super) async fn of_workload(reader: &Reader, namespace: &str, cluster: &str) -> Result<Client, String> {
    let secret = format!("{cluster}{}", name::KUBECONFIG_SUFFIX);
    let key = Key::of::<Secret>(Server::Management, Some(namespace), &secret);
    let text = reader.text(&key).await.map_err(|failure| failure.text)?;
    let text = text.ok_or_else(|| format!("{key} does not exist"))?;
    // The error of a parser may quote the Secret.
    let found: Secret = serde_json::from_str(&text).map_err(|_| format!("{key} cannot be decoded"))?;
    let bytes = found.data.and_then(|mut data| data.remove(name::KUBECONFIG_KEY));
    let bytes = bytes.ok_or_else(|| format!("{key} has no key {}", name::KUBECONFIG_KEY))?;
    let parsed = kubeconfig::parse(&bytes.0).map_err(|refused| format!("{key}: {refused}"))?;
    let config = config(&parsed).map_err(|why| format!("{key}: {why}"))?;
    // The error may quote a certificate or a token.
    Client::try_from(config).map_err(|_| format!("{key}: its credentials cannot be used"))
}

/// Returns the configuration of a client with the fields that Sluice uses of a kubeconfig.
fn config(parsed: &WorkloadKubeconfig) -> Result<Config, &'static str> {
    if parsed.proxy.is_some() {
        return Err("sluice plan uses no proxy of field proxy-url");
    }
    let server = parsed.server.parse().map_err(|_| "field server is not a URL")?;
    let mut config = Config::new(server);
    if let Some(authority) = &parsed.certificate_authority {
        let certificates = CertificateDer::pem_slice_iter(authority).flatten();
        let certificates: Vec<Vec<u8>> = certificates.map(|certificate| certificate.to_vec()).collect();
        if certificates.is_empty() {
            return Err("field certificate-authority-data holds no PEM certificate");
        }
        config.root_cert = Some(certificates);
    }
    config.tls_server_name.clone_from(&parsed.tls_server_name);
    config.auth_info = auth(parsed).ok_or("its credentials cannot be used")?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.write_timeout = Some(ANSWER);
    config.default_retry = false;
    Ok(config)
}

fn auth(parsed: &WorkloadKubeconfig) -> Option<AuthInfo> {
    let mut fields = Map::new();
    let mut set = |field: &str, value: String| fields.insert(field.to_owned(), Value::String(value));
    if let Some(certificate) = &parsed.credentials.certificate {
        set(
            "client-certificate-data",
            STANDARD.encode(&certificate.certificate),
        );
        set("client-key-data", STANDARD.encode(certificate.key.expose()));
    }
    match &parsed.credentials.authorization {
        Some(Authorization::Token(token)) => {
            set("token", token.expose().clone());
        }
        Some(Authorization::Basic { username, password }) => {
            set("username", username.clone());
            set("password", password.expose().clone());
        }
        None => {}
    }
    serde_json::from_value(Value::Object(fields)).ok()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TOKEN: &str = "{name: u, user: {token: canary}}";

    fn parsed(cluster: &str, user: &str) -> WorkloadKubeconfig {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: k, cluster: {cluster}}}]\n\
             users: [{user}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        kubeconfig::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_kubeconfig_of_a_workload_gives_its_fields_alone() {
        let parsed = parsed(
            "{server: 'https://10.0.0.1:6443', tls-server-name: kubernetes}",
            TOKEN,
        );
        let config = config(&parsed).unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://10.0.0.1:6443/");
        assert_eq!(config.tls_server_name.as_deref(), Some("kubernetes"));
        assert!(config.auth_info.token.is_some());
        assert!(config.auth_info.exec.is_none() && config.proxy_url.is_none());
        assert!(!config.accept_invalid_certs);
    }

    #[rstest]
    #[case::proxy("{server: 'https://k', proxy-url: 'http://proxy:3128'}", "proxy-url")]
    #[case::authority(
        "{server: 'https://k', certificate-authority-data: Y2FuYXJ5}",
        "certificate-authority-data"
    )]
    fn an_unusable_kubeconfig_names_the_field(#[case] cluster: &str, #[case] field: &str) {
        let why = config(&parsed(cluster, TOKEN)).unwrap_err();
        assert!(why.contains(field) && !why.contains("canary"), "{why}");
    }

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
