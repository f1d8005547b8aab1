//! Client of a workload cluster.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, Config, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Map, Value};
use sluice_core::{
    kubeconfig::{self, Authorization, WorkloadKubeconfig},
    protocol::{Key, Server},
};
use sluice_crds::labels::name;

use crate::{
    management::CONNECT,
    reader::{ANSWER, Reader},
};

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
}
