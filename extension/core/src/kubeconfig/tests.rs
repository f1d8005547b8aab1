use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// Stands for all content of a kubeconfig that no message may repeat.
const CANARY: &str = "canary-c4n4ry";

/// A kubeconfig with these lines in the first cluster, user and context; the layout is the one of kubeadm.
fn file(cluster: &str, user: &str, context: &str) -> String {
    format!(
        "\
apiVersion: v1
clusters:
- cluster:
    {cluster}
  name: {CANARY}-cluster
contexts:
- context:
    {context}
  name: {CANARY}-context
current-context: {CANARY}-context
kind: Config
preferences: {{}}
users:
- name: {CANARY}-user
  user:
    {user}
"
    )
}

fn cluster() -> String {
    format!(
        "server: https://10.0.0.1:6443\n    certificate-authority-data: {}",
        STANDARD.encode("authority")
    )
}

fn context() -> String {
    format!("cluster: {CANARY}-cluster\n    user: {CANARY}-user")
}

fn token() -> String {
    format!("token: {CANARY}")
}

fn certificate() -> String {
    format!(
        "client-certificate-data: {}\n    client-key-data: {}",
        STANDARD.encode("certificate"),
        STANDARD.encode(CANARY)
    )
}

/// The parsed [`certificate`].
fn client_certificate() -> ClientCertificate {
    ClientCertificate {
        certificate: b"certificate".to_vec(),
        key: Redacted::new(CANARY.as_bytes().to_vec()),
    }
}

/// The parsed [`token`].
fn bearer() -> Authorization {
    Authorization::Token(Redacted::new(CANARY.to_owned()))
}

fn good() -> String {
    file(&cluster(), &token(), &context())
}

fn refusal(yaml: &str) -> String {
    let refused = parse(yaml.as_bytes()).expect_err("the kubeconfig is refused");
    let (shown, debug) = (refused.to_string(), format!("{refused:?}"));
    assert!(
        !shown.contains(CANARY) && !debug.contains(CANARY),
        "{shown} {debug}"
    );
    shown
}

#[test]
fn a_kubeconfig_of_kubeadm_passes() {
    let parsed = parse(file(&cluster(), &certificate(), &context()).as_bytes()).expect("it passes");
    assert_eq!(
        parsed,
        WorkloadKubeconfig {
            server: "https://10.0.0.1:6443".to_owned(),
            certificate_authority: Some(b"authority".to_vec()),
            tls_server_name: None,
            proxy: None,
            credentials: Credentials {
                authorization: None,
                certificate: Some(client_certificate()),
            },
        }
    );
}

#[test]
fn json_with_long_data_passes() {
    let authority = "a PEM is longer than a YAML key may be; ".repeat(100);
    let yaml = format!(
        "{:#}\n",
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": {
                "server": "https://[fd00::1]:6443/k8s/c-1", "certificate-authority-data": STANDARD.encode(&authority),
                "tls-server-name": "kubernetes", "disable-compression": true,
            }}],
            "users": [{"name": "user", "user": {"token": CANARY}}],
            "contexts": [{"name": "context", "context": {"cluster": "cluster", "user": "user", "namespace": "default"}}],
            "current-context": "context",
            "extensions": [{"name": "tool", "extension": {"since": 1}}],
        })
    );
    let parsed = parse(yaml.as_bytes()).expect("it passes");
    assert_eq!(
        parsed.certificate_authority.as_deref(),
        Some(authority.as_bytes())
    );
    assert_eq!(parsed.tls_server_name.as_deref(), Some("kubernetes"));
    assert_eq!(parsed.credentials.authorization, Some(bearer()));
    assert_eq!(parsed.credentials.certificate, None);
}

#[test]
fn data_may_be_a_block_of_lines() {
    let folded = "server: https://a\n    certificate-authority-data: |\n      YXV0\n      aG9yaXR5";
    let parsed = parse(file(folded, &token(), &context()).as_bytes()).expect("it passes");
    assert_eq!(parsed.certificate_authority.as_deref(), Some(&b"authority"[..]));
}

#[test]
fn the_only_context_needs_no_name() {
    let absent = good().replace(&format!("current-context: {CANARY}-context\n"), "");
    let empty = good().replace(
        &format!("current-context: {CANARY}-context\n"),
        "current-context: \"\"\n",
    );
    assert_eq!(parse(absent.as_bytes()), parse(good().as_bytes()));
    assert_eq!(parse(empty.as_bytes()), parse(good().as_bytes()));
}

/// client-go sends both, so a provider may write both.
#[test]
fn a_token_and_a_client_certificate_are_both_used() {
    let both = format!("{}\n    {}", token(), certificate());
    let parsed = parse(file(&cluster(), &both, &context()).as_bytes()).expect("it passes");
    assert_eq!(
        parsed.credentials,
        Credentials {
            authorization: Some(bearer()),
            certificate: Some(client_certificate()),
        }
    );
}

#[rstest]
#[case::with_a_password("username: admin\n    password: canary-c4n4ry", "canary-c4n4ry")]
#[case::without_a_password("username: admin", "")]
fn a_user_name_is_used(#[case] user: &str, #[case] password: &str) {
    let parsed = parse(file(&cluster(), user, &context()).as_bytes()).expect("it passes");
    let basic = Authorization::Basic {
        username: "admin".to_owned(),
        password: Redacted::new(password.to_owned()),
    };
    assert_eq!(parsed.credentials.authorization, Some(basic));
}

/// client-go ignores a key without its certificate.
#[test]
fn a_key_alone_is_ignored_beside_a_token() {
    let user = format!("{}\n    client-key-data: YQ==", token());
    let parsed = parse(file(&cluster(), &user, &context()).as_bytes()).expect("it passes");
    assert_eq!(parsed, parse(good().as_bytes()).expect("it passes"));
}

#[test]
fn a_proxy_is_read() {
    let cluster = format!(
        "{}\n    proxy-url: http://user:{CANARY}@proxy.example.com:3128",
        cluster()
    );
    let parsed = parse(file(&cluster, &token(), &context()).as_bytes()).expect("it passes");
    let proxy = parsed.proxy.expect("a proxy");
    assert_eq!(proxy.authority(), "proxy.example.com:3128");
    assert!(!format!("{proxy:?}").contains(CANARY), "{proxy:?}");
}

#[rstest]
#[case::host_and_port("10.0.0.1:6443", "https://10.0.0.1:6443")]
#[case::address_of_ipv6("https://[fd00::1]", "https://[fd00::1]")]
#[case::host_alone("api.example.com", "https://api.example.com")]
#[case::host_and_slash("10.0.0.1:6443/", "https://10.0.0.1:6443/")]
#[case::capital_letters("HTTPS://API.example.com", "https://API.example.com")]
#[case::path("https://rancher/k8s/clusters/c-m-a1", "https://rancher/k8s/clusters/c-m-a1")]
#[case::characters_of_a_path("https://a/tenant@b/c,d=e", "https://a/tenant@b/c,d=e")]
fn a_server_is_read_as_by_client_go(#[case] server: &str, #[case] url: &str) {
    let cluster = cluster().replace("https://10.0.0.1:6443", server);
    let parsed = parse(file(&cluster, &token(), &context()).as_bytes()).expect("it passes");
    assert_eq!(parsed.server, url);
}

#[test]
fn a_cluster_without_authority_uses_that_of_the_system() {
    let parsed = parse(file("server: https://a", &token(), &context()).as_bytes()).expect("it passes");
    assert_eq!(parsed.certificate_authority, None);
}

#[rstest]
#[case::exec(
    "exec: {command: sh}",
    "users[0].user.exec is not used here; put a token or client-certificate-data there"
)]
#[case::exec_without_command(
    "exec: {}",
    "users[0].user.exec is not used here; put a token or client-certificate-data there"
)]
#[case::auth_provider(
    "auth-provider: {name: gcp}",
    "users[0].user.auth-provider is not used here; put a token or client-certificate-data there"
)]
#[case::token_file(
    "tokenFile: /etc/token",
    "users[0].user.tokenFile is not used here; put token there"
)]
#[case::client_certificate(
    "client-certificate: /a.crt",
    "users[0].user.client-certificate is not used here; put client-certificate-data there"
)]
#[case::client_key(
    "client-key: /a.key",
    "users[0].user.client-key is not used here; put client-key-data there"
)]
#[case::impersonated_user("as: root", "users[0].user.as is not used here; remove it")]
#[case::impersonated_uid("as-uid: '0'", "users[0].user.as-uid is not used here; remove it")]
#[case::impersonated_groups("as-groups: [a]", "users[0].user.as-groups is not used here; remove it")]
#[case::impersonated_extra(
    "as-user-extra: {a: [b]}",
    "users[0].user.as-user-extra is not used here; remove it"
)]
fn fields_of_a_user_are_refused(#[case] field: &str, #[case] message: &str) {
    let used = file(&cluster(), &format!("{}\n    {field}", token()), &context());
    assert_eq!(refusal(&used), message);

    let unused = format!("{}- name: unused\n  user: {{{field}}}\n", good());
    assert_eq!(parse(unused.as_bytes()), parse(good().as_bytes()));
}

#[rstest]
#[case::authority_file(
    "certificate-authority: /ca.crt",
    "clusters[0].cluster.certificate-authority is not used here; put certificate-authority-data there"
)]
#[case::insecure(
    "insecure-skip-tls-verify: true",
    "clusters[0].cluster.insecure-skip-tls-verify is not used here; put certificate-authority-data there"
)]
#[case::proxy_of_another_protocol(
    "proxy-url: ftp://canary-c4n4ry",
    "clusters[0].cluster.proxy-url is not an http, https or socks5 URL of a proxy"
)]
#[case::proxy_without_protocol(
    "proxy-url: canary-c4n4ry:3128",
    "clusters[0].cluster.proxy-url is not an http, https or socks5 URL of a proxy"
)]
fn fields_of_a_cluster_are_refused(#[case] field: &str, #[case] message: &str) {
    let used = file(&format!("{}\n    {field}", cluster()), &token(), &context());
    assert_eq!(refusal(&used), message);

    let unused = good().replace(
        "contexts:\n",
        &format!("- cluster: {{{field}}}\n  name: unused\ncontexts:\n"),
    );
    assert_eq!(parse(unused.as_bytes()), parse(good().as_bytes()));
}

/// Tools write fields that they do not set.
#[rstest]
#[case::exec("exec: null")]
#[case::auth_provider("auth-provider: null")]
#[case::token_file("tokenFile: ''")]
#[case::certificate("client-certificate: ''")]
#[case::certificate_data("client-certificate-data: ''")]
#[case::impersonated_user("as: ''")]
#[case::impersonated_groups("as-groups: []")]
#[case::impersonated_extra("as-user-extra: {}")]
#[case::password("password: ''")]
fn unset_fields_of_a_user_are_ignored(#[case] field: &str) {
    let unset = file(&cluster(), &format!("{}\n    {field}", token()), &context());
    assert_eq!(parse(unset.as_bytes()), parse(good().as_bytes()));
}

#[rstest]
#[case::verified("insecure-skip-tls-verify: false")]
#[case::authority("certificate-authority: ''")]
#[case::proxy("proxy-url: ''")]
#[case::name("tls-server-name: ''")]
#[case::compression("disable-compression: true")]
fn unset_fields_of_a_cluster_are_ignored(#[case] field: &str) {
    let unset = file(&format!("{}\n    {field}", cluster()), &token(), &context());
    assert_eq!(parse(unset.as_bytes()), parse(good().as_bytes()));
}

/// client-go ignores what it does not know.
#[rstest]
#[case::at_the_top("kind: Config\n", "kind: Config\ncanary-c4n4ry: 1\n")]
#[case::field_of_a_user_at_the_top("kind: Config\n", "kind: Config\nexec: {}\n")]
#[case::in_a_cluster("    server: ", "    api-version: v1\n    server: ")]
#[case::in_a_user("    token: ", "    canary-c4n4ry: 1\n    token: ")]
#[case::in_a_context("    user: ", "    exec: {}\n    user: ")]
#[case::beside_a_user("- name: canary-c4n4ry-user\n", "- name: canary-c4n4ry-user\n  exec: {}\n")]
#[case::beside_a_cluster("- cluster:\n", "- proxy-url: a\n  cluster:\n")]
#[case::beside_a_context("- context:\n", "- as: a\n  context:\n")]
#[case::an_entry_without_name("contexts:\n", "- cluster: {}\ncontexts:\n")]
#[case::an_entry_without_content("contexts:\n", "- name: unused\n  cluster: null\ncontexts:\n")]
fn unknown_fields_and_entries_are_ignored(#[case] from: &str, #[case] to: &str) {
    let good = good();
    assert!(good.contains(from), "the change applies");
    let changed = good.replacen(from, to, 1);
    assert_eq!(parse(changed.as_bytes()), parse(good.as_bytes()));
}

/// kapp-controller reads a number where a text is expected.
#[test]
fn names_need_no_quotes() {
    let names = [
        ("canary-c4n4ry-cluster", "1"),
        ("canary-c4n4ry-context", "1.36"),
        ("canary-c4n4ry-user", "true"),
    ];
    let unquoted = names
        .iter()
        .fold(good(), |file, (name, unquoted)| file.replace(name, unquoted));
    assert_eq!(parse(unquoted.as_bytes()), parse(good().as_bytes()));
}

#[rstest]
#[case::of_another_kind("kind: Config\n", "kind: canary-c4n4ry\n", "kind is not Config")]
#[case::of_another_version("apiVersion: v1\n", "apiVersion: canary-c4n4ry\n", "apiVersion is not v1")]
#[case::users_no_list(
    "users:\n- name: canary-c4n4ry-user\n  user:\n    token: canary-c4n4ry\n",
    "users: canary-c4n4ry\n",
    "users is not a list"
)]
#[case::entry_no_mapping("contexts:\n", "- canary-c4n4ry\ncontexts:\n", "clusters[1] is not a mapping")]
#[case::dangling_context(
    "current-context: canary-c4n4ry-context\n",
    "current-context: canary-c4n4ry\n",
    "current-context names no entry"
)]
#[case::dangling_cluster(
    "    cluster: canary-c4n4ry-cluster\n",
    "    cluster: canary-c4n4ry\n",
    "contexts[0].context.cluster names no entry"
)]
#[case::dangling_user(
    "    user: canary-c4n4ry-user\n",
    "    user: canary-c4n4ry\n",
    "contexts[0].context.user names no entry"
)]
#[case::token_as_list("token: canary-c4n4ry", "token: [a]", "users[0].user.token is not a string")]
#[case::token_of_two_lines(
    "token: canary-c4n4ry",
    "token: \"canary-c4n4ry\\na: b\"",
    "users[0].user.token has characters"
)]
#[case::without_credentials("token: canary-c4n4ry", "token: ''", "users[0].user has neither token nor")]
#[case::two_credentials(
    "token: canary-c4n4ry",
    "token: canary-c4n4ry\n    username: a",
    "users[0].user has both"
)]
#[case::token_and_password(
    "token: canary-c4n4ry",
    "token: canary-c4n4ry\n    password: a",
    "users[0].user has both"
)]
#[case::password_without_user("token: canary-c4n4ry", "password: a", "users[0].user.username is missing")]
#[case::certificate_without_key(
    "token: canary-c4n4ry",
    "client-certificate-data: YQ==",
    "users[0].user.client-key-data is missing"
)]
#[case::key_without_certificate(
    "token: canary-c4n4ry",
    "client-key-data: YQ==",
    "users[0].user.client-certificate-data is missing"
)]
#[case::plain_http(
    "https://10.0.0.1:6443",
    "http://10.0.0.1:6443",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::password_in_url(
    "https://10.0.0.1:6443",
    "https://a:canary-c4n4ry@10.0.0.1",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::query_in_url(
    "https://10.0.0.1:6443",
    "https://10.0.0.1/?a",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::no_host(
    "https://10.0.0.1:6443",
    "https:///canary-c4n4ry",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::no_server(
    "server: https://10.0.0.1:6443",
    "tls-server-name: a",
    "clusters[0].cluster.server is missing"
)]
#[case::host_and_path_without_scheme(
    "https://10.0.0.1:6443",
    "10.0.0.1:6443/canary-c4n4ry",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::port_out_of_range(
    "https://10.0.0.1:6443",
    "https://10.0.0.1:99999",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::placeholder_of_kapp(
    "https://10.0.0.1:6443",
    "https://${KAPP_KUBERNETES_SERVICE_HOST_PORT}",
    "clusters[0].cluster.server is not an https URL"
)]
#[case::no_content("- cluster:\n", "- other:\n", "clusters[0].cluster is missing")]
#[case::authority_no_base64(
    "YXV0aG9yaXR5",
    "canary-c4n4ry",
    "clusters[0].cluster.certificate-authority-data is not base64"
)]
#[case::anchor(
    "server: https",
    "server: &canary-c4n4ry https",
    "line 4 has a YAML anchor, alias or merge key"
)]
#[case::alias(
    "server: https://10.0.0.1:6443",
    "server: *canary-c4n4ry",
    "line 4 has a YAML anchor, alias or merge key"
)]
#[case::merge(
    "server: https",
    "<<: {proxy-url: a}\n    server: https",
    "line 4 has a YAML anchor, alias or merge key"
)]
#[case::tag(
    "server: https",
    "server: !canary-c4n4ry https",
    "line 4 is not the YAML of a kubeconfig"
)]
#[case::repeated_key("kind: Config\n", "kind: Config\nkind: Config\n", "line 14 repeats a key")]
#[case::repeated_secret(
    "token: canary-c4n4ry",
    "token: canary-c4n4ry\n    token: canary-c4n4ry",
    "repeats a key"
)]
#[case::two_documents(
    "apiVersion: v1\n",
    "apiVersion: v1\n---\n",
    "is not the YAML of a kubeconfig"
)]
#[case::broken(
    "token: canary-c4n4ry",
    "token: \"canary-c4n4ry",
    "is not the YAML of a kubeconfig"
)]
fn a_changed_file_is_refused(#[case] from: &str, #[case] to: &str, #[case] message: &str) {
    let good = good();
    assert!(good.contains(from), "the change applies");
    let changed = good.replacen(from, to, 1);
    let shown = refusal(&changed);
    assert!(shown.contains(message), "{shown}");
}

#[test]
fn a_name_is_given_once() {
    let users = format!("{}- name: {CANARY}-user\n  user: {{}}\n", good());
    assert_eq!(
        refusal(&users),
        "users[1].name is also the name of an earlier entry"
    );
}

#[test]
fn several_contexts_need_a_current_one() {
    let second =
        format!("- context: {{cluster: a, user: b}}\n  name: second\ncurrent-context: {CANARY}-context\n");
    let two = good().replace(&format!("current-context: {CANARY}-context\n"), &second);
    assert_eq!(parse(two.as_bytes()), parse(good().as_bytes()));

    let unclear = two.replace(&format!("current-context: {CANARY}-context\n"), "");
    assert_eq!(
        refusal(&unclear),
        "current-context is missing, and contexts has not exactly one entry"
    );
    assert_eq!(
        refusal("{}"),
        "current-context is missing, and contexts has not exactly one entry"
    );
}

#[test]
fn size_and_depth_are_bounded() {
    let padded = |bytes: usize| {
        let good = good();
        let padding = "#".repeat(bytes - good.len());
        good + &padding
    };
    assert!(parse(padded(MAX_BYTES).as_bytes()).is_ok());
    assert_eq!(parse(padded(MAX_BYTES + 1).as_bytes()), Err(Refused::TooLarge));

    for nested in ["[".repeat(60_000), "{a: ".repeat(16_000), "- ".repeat(30_000)] {
        assert!(
            matches!(parse(nested.as_bytes()), Err(Refused::Malformed { .. })),
            "{}",
            &nested[..8]
        );
    }
    assert_eq!(parse(b"\xff\xfe"), Err(Refused::NotText));
    assert!(parse(b"").is_err());
}

#[test]
fn secrets_do_not_show_in_debug() {
    for user in [token(), certificate()] {
        let parsed = parse(file(&cluster(), &user, &context()).as_bytes()).expect("it passes");
        let shown = format!("{parsed:?} {parsed:#?}");
        let as_numbers = format!("{:?}", CANARY.as_bytes());
        assert!(
            !shown.contains(CANARY) && !shown.contains(as_numbers.trim_matches(['[', ']'])),
            "{shown}"
        );
        assert!(shown.contains("[redacted]"), "{shown}");
    }
}

#[test]
fn a_digest_follows_the_bytes() {
    assert_eq!(
        digest(b""),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert_ne!(
        digest(good().as_bytes()),
        digest(format!("{} ", good()).as_bytes())
    );
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_yaml_like_text_panics(text in r#"([\[\]{}:,&*!|>'"%@`#?\n -]|[a-z]{1,4}|users|cluster|token){0,200}"#) {
        let _ = parse(text.as_bytes());
    }

    /// A valid file with one piece replaced: no message repeats its content.
    #[test]
    fn no_damage_brings_a_secret_to_light(at in 0_usize..600, cut in 0_usize..40, put in r#"[\[\]{}:&*!|>'"\n a-z-]{0,8}"#) {
        let good = file(&cluster(), &certificate(), &context()).replace(&STANDARD.encode(CANARY), CANARY);
        let at = at % good.len();
        let damaged = format!("{}{put}{}", &good[..at], &good[(at + cut).min(good.len())..]);
        let shown = match parse(damaged.as_bytes()) {
            Ok(parsed) => format!("{:?}", parsed.credentials),
            Err(refused) => format!("{refused} {refused:?}"),
        };
        prop_assert!(!shown.contains("c4n4ry"), "{}", shown);
    }
}
