//! Output of the binary after a wrong start.

use std::{
    path::Path,
    process::{Command, Output},
};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn sluice(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_clear()
        .output()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last line, which is the one that `kubectl logs --previous` ends with.
fn last_line(output: &Output) -> String {
    text(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn help_names_every_flag() -> TestResult {
    let output = sluice(&["serve", "--help"])?;
    assert!(output.status.success());
    insta::assert_snapshot!(text(&output.stdout));
    Ok(())
}

#[test]
fn without_a_command_the_commands_are_listed() -> TestResult {
    let bare = sluice(&[])?;
    assert!(bare.status.success());
    insta::assert_snapshot!("help_of_the_binary", text(&bare.stdout));
    let asked = sluice(&["--help"])?;
    assert_eq!(bare.stdout, asked.stdout);
    Ok(())
}

#[test]
fn a_wrong_command_is_a_usage_error_that_names_the_right_one() -> TestResult {
    for (words, expected) in [
        (
            &["sevre"][..],
            "sluice: unrecognized subcommand 'sevre'; did you mean `sluice serve`?\n",
        ),
        (
            &["--leader-elect"],
            "sluice: unexpected argument '--leader-elect' found; did you mean `sluice serve --leader-elect`?\n",
        ),
        (
            &["--sync-period=10m", "--leader-elect"],
            "sluice: unexpected argument '--sync-period' found; did you mean `sluice serve --sync-period`?\n",
        ),
        (
            &["-v", "4"],
            "sluice: unexpected argument '-v' found; did you mean `sluice serve -v`?\n",
        ),
        (
            &["status", "--kubeconfig", "config"],
            "sluice: unexpected argument '--kubeconfig' found\n",
        ),
        (&["deploy"], "sluice: unrecognized subcommand 'deploy'\n"),
        (
            &["override", "creat"],
            "sluice: unrecognized subcommand 'creat'; did you mean `sluice override create`?\n",
        ),
    ] {
        let output = sluice(words)?;
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(text(&output.stderr), expected);
    }
    Ok(())
}

#[test]
fn an_unknown_flag_is_a_usage_error_of_one_line() -> TestResult {
    let output = sluice(&["serve", "--no-such-flag"])?;
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "sluice: unexpected argument '--no-such-flag' found\n"
    );
    Ok(())
}

#[test]
fn a_value_that_makes_no_sense_is_a_usage_error_that_names_it() -> TestResult {
    let too_long = "a".repeat(64);
    let mut wrong = Vec::new();
    for (flag, value) in [
        ("--sync-period", "soon"),
        ("--sync-period", "0s"),
        ("--sync-period", "999ms"),
        ("--sync-period", "-10m"),
        ("--sync-period", "9000h"),
        ("--cluster-delete-timeout", "9000h"),
        ("--system-namespace", ""),
        ("--system-namespace", "Tkg-System"),
        ("--system-namespace", "tkg.system"),
        ("--system-namespace", "-tkg"),
        ("--secret-namespaces", ""),
        ("--secret-namespaces", "Team-B"),
        ("--system-namespace", &too_long),
        ("--webhook-port", "70000"),
        ("--webhook-host", "localhost:9443"),
        ("--webhook-cert-dir", ""),
        ("--webhook-cert-name", ""),
        ("--webhook-cert-name", "../tls.crt"),
        ("--webhook-key-name", "/etc/tls.key"),
        ("--webhook-key-name", ".."),
        ("--health-addr", "9440"),
        ("--logging-format", "xml"),
        ("--v", "9"),
        ("--control-plane-group", "apps"),
        ("--control-plane-group", "controlplane.example.com/v1"),
        ("--control-plane-group", &format!("{too_long}.example.com")),
        ("--remote-allow-proxy", "10.0.0.0/33"),
        ("--remote-allow-proxy", "http://proxy.example.com"),
        ("--remote-allow-proxy", "10.0.0.1, 10.0.0"),
        ("--remote-no-proxy", "*.example.com"),
        ("--cluster-concurrency", "0"),
        ("--leader-elect-lease-duration", "500ms"),
        ("--leader-elect-lease-duration", "10000000000h"),
        ("--leader-elect-lease-duration", "10s"),
        ("--leader-elect-renew-deadline", "20s"),
        ("--leader-elect-retry-period", "10s"),
        ("--leader-elect-retry-period", "0s"),
        ("--leader-elect-retry-period", "1ms"),
        ("--leader-elect-namespace", "kube_system"),
        ("--leader-elect-identity", ""),
        ("--leader-elect-identity", "one two"),
        ("--leader-elect-identity", &"a".repeat(254)),
        // The port of hooks, on every address.
        ("--health-addr", ":9443"),
        ("--health-addr", "127.0.0.1:9443"),
        ("--webhook-port", "9440"),
        ("--admission-port", "9443"),
        ("--admission-port", "9440"),
        ("--status-addr", ":9443"),
        ("--status-addr", "127.0.0.1:9444"),
        ("--status-addr", "[::1]:9440"),
        ("--status-addr", "9445"),
    ] {
        let output = sluice(&["serve", &format!("{flag}={value}")])?;
        let stderr = text(&output.stderr);
        let is_said = stderr.contains(flag) && stderr.contains(value) && stderr.lines().count() == 1;
        if output.status.code() != Some(2) || !is_said {
            wrong.push(format!("{flag} {value:?}: {:?}, {stderr}", output.status.code()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The URL may contain a password.
#[test]
fn a_wrong_proxy_is_a_usage_error_without_its_value() -> TestResult {
    for url in [
        "proxy:3128",
        "http://user:canary@",
        "https://user:canary@proxy:3128",
        "http://user:canary@proxy:port",
    ] {
        let by_flag = sluice(&["serve", &format!("--remote-proxy={url}")])?;
        let by_variable = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("serve")
            .env_clear()
            .env("SLUICE_REMOTE_PROXY", url)
            .output()?;
        for output in [by_flag, by_variable] {
            assert_eq!(output.status.code(), Some(2), "{url}");
            assert_eq!(
                text(&output.stderr),
                "sluice: the value of --remote-proxy is not http://HOST:PORT or socks5://HOST:PORT\n"
            );
        }
    }
    Ok(())
}

#[test]
fn a_value_from_the_environment_is_checked_as_well() -> TestResult {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .arg("serve")
        .env_clear()
        .env("SLUICE_SYNC_PERIOD", "never")
        .output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("never"));
    Ok(())
}

#[test]
fn a_missing_certificate_is_one_line_that_names_the_file() -> TestResult {
    let empty = tempfile::tempdir()?;
    let output = started_with_certificates_in(empty.path())?;
    assert_eq!(output.status.code(), Some(1));
    let line = last_line(&output);
    assert!(line.starts_with("sluice: ") && line.contains("tls.crt"), "{line}");
    Ok(())
}

#[test]
fn a_key_of_another_certificate_is_one_line_that_names_both_files() -> TestResult {
    let directory = tempfile::tempdir()?;
    let (one, other) = (
        rcgen::generate_simple_self_signed(["localhost".to_owned()])?,
        rcgen::generate_simple_self_signed(["localhost".to_owned()])?,
    );
    std::fs::write(directory.path().join("tls.crt"), one.cert.pem())?;
    std::fs::write(
        directory.path().join("tls.key"),
        other.signing_key.serialize_pem(),
    )?;
    let output = started_with_certificates_in(directory.path())?;
    assert_eq!(output.status.code(), Some(1));
    let line = last_line(&output);
    assert!(line.contains("tls.crt") && line.contains("tls.key"), "{line}");
    Ok(())
}

#[test]
fn missing_files_of_kubeconfig_are_a_warning_that_names_them() -> TestResult {
    let directory = tempfile::tempdir()?;
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(directory.path().join("tls.crt"), certificate.cert.pem())?;
    std::fs::write(
        directory.path().join("tls.key"),
        certificate.signing_key.serialize_pem(),
    )?;
    let files = ["one", "other"].map(|name| directory.path().join(name));
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["serve", "--webhook-host", "127.0.0.1", "--webhook-port", "0"])
        .args(["--admission-port", "0", "--health-addr", "127.0.0.1:0"])
        .arg("--webhook-cert-dir")
        .arg(directory.path())
        .env_clear()
        .env("KUBECONFIG", std::env::join_paths(&files)?)
        .output()?;
    assert_eq!(output.status.code(), Some(1));
    // No pod, either.
    let line = last_line(&output);
    assert!(
        line.starts_with("sluice: use the service account of the pod; "),
        "{line}"
    );
    let log = text(&output.stderr);
    let warning = log
        .lines()
        .find(|line| line.contains("the files of KUBECONFIG are missing or empty"))
        .ok_or("no warning")?;
    for file in files {
        assert!(warning.contains(&file.display().to_string()), "{warning}");
    }
    Ok(())
}

fn started_with_certificates_in(directory: &Path) -> std::io::Result<Output> {
    let directory = directory.to_string_lossy();
    sluice(&[
        "serve",
        "--webhook-host",
        "127.0.0.1",
        "--webhook-port",
        "0",
        "--webhook-cert-dir",
        &directory,
    ])
}

#[test]
fn help_of_verbs_names_flags_and_exit_codes() -> TestResult {
    for verb in ["plan", "status", "watch"] {
        let output = sluice(&[verb, "--help"])?;
        assert!(output.status.success());
        insta::assert_snapshot!(format!("help_of_{verb}"), text(&output.stdout));
    }
    for verb in ["create", "list", "revoke"] {
        let output = sluice(&["override", verb, "--help"])?;
        assert!(output.status.success());
        insta::assert_snapshot!(format!("help_of_override_{verb}"), text(&output.stdout));
    }
    Ok(())
}

#[test]
fn a_verb_that_is_used_wrongly_says_so_on_one_line() -> TestResult {
    let server = ["--server", "localhost:9445", "--ca", "ca.crt"];
    // Flags of an override that are in order.
    let create = [
        "override",
        "create",
        "demo",
        "--gate=workers",
        "--reason=CHG-4711",
    ];
    let no_package = [&create[..], &["--expires-in=4h"]].concat();
    let no_expiry = [&create[..], &["--package=metrics"]].concat();
    let too_long = [&no_expiry[..], &["--expires-in=169h"]].concat();
    let past = [&no_expiry[..], &["--expires-at=2020-01-01T00:00:00Z"]].concat();
    let wrong: [(&[&str], &str); 18] = [
        (&["watch", "demo"], "--server"),
        (&["watch"], "<CLUSTER>"),
        (
            &["status", "--server", "localhost", "--ca", "ca.crt"],
            "localhost is not HOST:PORT",
        ),
        (
            &["status", "--server", "user@host:1", "--ca", "ca.crt"],
            "not HOST:PORT",
        ),
        (&["status", "-A", "demo"], "cannot be used with"),
        (&["watch", "demo", "--timeout", "soon"], "soon is not a duration"),
        (&["watch", "De/mo"], "De/mo is not the name of an object"),
        (&["completions", "cmd"], "cmd"),
        (&["plan"], "<CLUSTER>"),
        (&["plan", "De/mo"], "De/mo is not the name of an object"),
        (&["plan", "demo", "-o", "xml"], "xml"),
        (&["override"], "requires a subcommand"),
        (&no_package, "--package"),
        (&no_expiry, "--expires-in"),
        (&too_long, "--expires-in is more than 7 days ahead"),
        (&past, "--expires-at is not in the future"),
        (
            &[
                "override",
                "create",
                "demo",
                "--gate=workers",
                "--all-packages",
                "--expires-in=4h",
                "--reason= ",
            ],
            "it is empty",
        ),
        (&["override", "revoke"], "<NAME>"),
    ];
    for (words, said) in wrong {
        let has_no_server = matches!(words[0], "completions" | "override" | "plan");
        let names_server = words.contains(&"--server") || said == "--server" || has_no_server;
        let server = if names_server { &[][..] } else { &server[..] };
        let output = sluice(&[words, server].concat())?;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(
            stderr.contains(said) && stderr.lines().count() == 1,
            "{words:?}: {stderr}"
        );
    }
    let mixed = sluice(&["--leader-elect", "status"])?;
    assert_eq!(
        mixed.status.code(),
        Some(2),
        "flags of the extension are none of a verb"
    );
    Ok(())
}

#[test]
fn what_keeps_a_verb_from_its_service_is_one_line() -> TestResult {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(file("ca"), certificate.cert.pem())?;
    std::fs::write(file("token"), "abc\n")?;
    std::fs::write(file("empty"), "\n")?;
    let wrong = [
        ("missing", "token", "read --ca"),
        ("token", "token", "is no PEM file"),
        ("ca", "missing", "read --token-file"),
        ("ca", "empty", "has no token"),
        // Port 1 is not listened to.
        ("ca", "token", "127.0.0.1:1 cannot be reached"),
    ];
    for (ca, token, said) in wrong {
        let (ca, token) = (file(ca), file(token));
        let output = sluice(&[
            "status",
            "--server",
            "127.0.0.1:1",
            "--ca",
            &ca,
            "--token-file",
            &token,
        ])?;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{stderr}");
    }
    Ok(())
}

#[test]
fn what_keeps_a_verb_from_the_management_cluster_is_one_line() -> TestResult {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    // Port 1 is not listened to.
    let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
                      clusters: [{name: one, cluster: {server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true}}]\n\
                      users: [{name: one, user: {token: canary}}]\n\
                      contexts: [{name: one, context: {cluster: one, user: one}}]\n";
    std::fs::write(file("kubeconfig"), kubeconfig)?;
    let plan = ["plan", "demo"];
    let create = [
        "override",
        "create",
        "demo",
        "--gate=workers",
        "--all-packages",
        "--reason=CHG-4711",
        "--expires-in=4h",
    ];
    let wrong: [(&[&str], &str, &[&str], &str); 6] = [
        (&plan, "missing", &[], "use --kubeconfig "),
        (&plan, "kubeconfig", &["--context", "other"], "use --kubeconfig "),
        (&plan, "kubeconfig", &[], "read Cluster default/demo: "),
        (&create, "kubeconfig", &[], "read ClusterBootstrap default/demo: "),
        (&["override", "list"], "kubeconfig", &[], "list upgradeoverrides."),
        (
            &["override", "revoke", "demo"],
            "kubeconfig",
            &[],
            "read UpgradeOverride default/demo: ",
        ),
    ];
    for (verb, name, more, said) in wrong {
        let kubeconfig = file(name);
        let words = ["--kubeconfig", &kubeconfig];
        let output = sluice(&[verb, &words[..], more].concat())?;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let is_said = stderr.starts_with(&format!("sluice: {said}")) && stderr.lines().count() == 1;
        assert!(is_said && !stderr.contains("canary"), "{stderr}");
    }
    Ok(())
}

/// A kubeconfig, the URL of a proxy and the output of a credential plugin may contain a password or a token.
#[test]
fn what_keeps_a_plan_from_its_cluster_is_said_without_credentials() -> TestResult {
    const PROXY: &str = "http://user:canary@proxy.example.com:3128";
    const REMOTE: &str = "server: 'https://api.example.com:6443'";
    const TOKEN: &str = "{token: canary}";
    let kubeconfig = |cluster: &str, user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: one\nclusters: [{{name: one, cluster: {{{cluster}}}}}]\n\
             users: [{{name: one, user: {user}}}]\ncontexts: [{{name: one, context: {{cluster: one, user: one}}}}]\n"
        )
    };
    let of_plugin = |script: &str| {
        let exec = "apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/sh";
        kubeconfig(REMOTE, &format!("{{exec: {{{exec}, args: ['-c', '{script}']}}}}"))
    };
    let with_proxy = format!("{REMOTE}, proxy-url: '{PROXY}'");
    // Port 1 is not listened to, and no proxy is used for this host.
    let local = "server: 'https://127.0.0.1:1', insecure-skip-tls-verify: true";
    let wrong = [
        (
            kubeconfig(&with_proxy, TOKEN),
            "",
            "field proxy-url names a proxy",
        ),
        (
            kubeconfig(REMOTE, TOKEN),
            PROXY,
            "variable HTTPS_PROXY names a proxy",
        ),
        (
            kubeconfig(REMOTE, TOKEN),
            "http://user:canary@pro xy",
            "variable HTTPS_PROXY is not a URL",
        ),
        (kubeconfig(local, TOKEN), PROXY, "read Cluster default/demo: "),
        (kubeconfig(REMOTE, "{token: [canary}"), "", " a kubeconfig"),
        (
            of_plugin("echo canary; exit 1"),
            "",
            "plugin of the kubeconfig failed: exit status: 1",
        ),
        (
            of_plugin("echo canary"),
            "",
            "plugin of the kubeconfig printed no ExecCredential",
        ),
    ];
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("config");
    for (text_of_file, proxy, said) in wrong {
        std::fs::write(&file, text_of_file)?;
        let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["plan", "demo", "--kubeconfig"])
            .arg(&file)
            .env_clear()
            .env("HTTPS_PROXY", proxy)
            .output()?;
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}: {stderr}");
        let is_said = stderr.contains(said) && stderr.lines().count() == 1;
        assert!(is_said && !stderr.contains("canary"), "{said}: {stderr}");
    }
    Ok(())
}

#[test]
fn completions_know_the_verbs() -> TestResult {
    for shell in ["bash", "zsh", "fish"] {
        let output = sluice(&["completions", shell])?;
        let script = text(&output.stdout);
        assert!(output.status.success());
        assert!(
            script.contains("watch") && script.contains("token-file"),
            "{shell}"
        );
    }
    Ok(())
}
