//! Text that no log of a run may contain: panics of Rust and crashes of Go, and secrets, plain or in base64.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use aho_corasick::AhoCorasick;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::processes::canary::spellings;
use crate::processes::go_crash::crashes;
use crate::stack::kapp_controller;

/// How a panic of Rust announces itself.
const PANIC: &str = "panicked at";

/// Length of the shortest text to search for. A shorter one is found by chance.
const SHORTEST: usize = 12;

/// A secret, in each form in which a log may hold it.
#[derive(Debug, Clone)]
pub struct Secret {
    what: String,
    forms: Vec<String>,
}

/// Matches in the logs, one line each, without the secret itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Logs with a panic or a crash in them, the crash that is known of kapp-controller left out.
    pub panics: Vec<String>,
    /// Logs with a secret in them.
    pub leaks: Vec<String>,
}

impl Secret {
    /// A secret that is called `what` when it is found.
    #[must_use]
    pub fn new(what: impl Into<String>, secret: &str) -> Self {
        let forms = spellings(secret).into_iter();
        Self {
            what: what.into(),
            forms: forms.filter(|form| form.len() >= SHORTEST).collect(),
        }
    }

    /// The private key in a kubeconfig, as a PEM file has it and as the kubeconfig has it.
    pub fn of_kubeconfig(what: &str, kubeconfig: &str) -> Result<Vec<Self>> {
        let document: serde_json::Value = serde_saphyr::from_str(kubeconfig).context("read a kubeconfig")?;
        let data = document["users"][0]["user"]["client-key-data"].as_str();
        let data = data.context("a kubeconfig without a key")?;
        let pem = String::from_utf8(BASE64_STANDARD.decode(data)?).context("read a key")?;
        // The second line: the first one is the same in every file.
        let line = pem.lines().nth(1).context("a key without content")?;
        Ok(vec![
            Self::new(format!("the key in the kubeconfig of {what}"), line),
            Self::new(
                format!("the key in the kubeconfig of {what}"),
                middle(data).context("a key that is too short")?,
            ),
        ])
    }
}

impl Found {
    /// Searches all logs in a directory.
    pub fn search(directory: &Path, secrets: &[Secret]) -> Result<Self> {
        let mut found = Self::default();
        let forms = Forms::of(secrets)?;
        let entries = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let content = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            found.search_text(&name, &String::from_utf8_lossy(&content), &forms);
        }
        Ok(found)
    }

    fn search_text(&mut self, name: &str, text: &str, forms: &Forms) {
        let panics = text.lines().filter(|line| line.contains(PANIC));
        self.panics.extend(panics.map(|line| format!("{name}: {line}")));
        let may_crash = kapp_controller::is_log(name);
        let crashes = crashes(text).into_iter();
        let crashes = crashes.filter(|crash| !(may_crash && kapp_controller::is_known_crash(crash)));
        self.panics
            .extend(crashes.map(|crash| format!("{name}: {} in {}", crash.cause, crash.function)));
        let leaks = forms.in_text(text).into_iter();
        self.leaks
            .extend(leaks.map(|what| format!("{name} tells {what}")));
    }
}

/// The forms of many secrets, so that a text is read only once.
struct Forms<'a> {
    search: AhoCorasick,
    /// What each form is one of.
    what: Vec<&'a str>,
}

impl<'a> Forms<'a> {
    fn of(secrets: &'a [Secret]) -> Result<Self> {
        let forms = || {
            secrets
                .iter()
                .flat_map(|secret| secret.forms.iter().map(|form| (form, &*secret.what)))
        };
        Ok(Self {
            search: AhoCorasick::new(forms().map(|(form, _)| form)).context("search for secrets")?,
            what: forms().map(|(_, what)| what).collect(),
        })
    }

    /// What of them is in a text, each once.
    fn in_text(&self, text: &str) -> BTreeSet<&'a str> {
        self.search
            .find_overlapping_iter(text)
            .map(|found| self.what[found.pattern()])
            .collect()
    }
}

fn middle(data: &str) -> Option<&str> {
    data.get(data.len() / 2..data.len() / 2 + 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::stack::kapp_controller::CRASHED;

    const CANARY: &str = "canary-in-a-coal-mine";

    fn leaks(text: &str) -> Vec<String> {
        let mut found = Found::default();
        found.search_text(
            "sluice.log",
            text,
            &Forms::of(&[Secret::new("a password", CANARY)]).unwrap(),
        );
        found.leaks
    }

    #[test]
    fn a_secret_is_found_plain_and_in_base64_wherever_it_begins() {
        assert_eq!(leaks("values: {password: canary-in-a-coal-mine}").len(), 1);
        for before in ["", "a", "ab", "abc", "password: "] {
            let document = BASE64_STANDARD.encode(format!("{before}{CANARY}\n"));
            assert_eq!(leaks(&format!("data: {document}")).len(), 1, "{before:?}");
        }
    }

    #[test]
    fn only_secrets_match_and_matches_do_not_contain_them() {
        assert_eq!(leaks("canary-in-a-gold-mine"), Vec::<String>::new());
        assert_eq!(leaks(CANARY), ["sluice.log tells a password"]);
    }

    #[test]
    fn the_key_of_a_kubeconfig_is_found_in_each_of_its_forms() {
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            "k3Y/".repeat(16)
        );
        let data = BASE64_STANDARD.encode(&pem);
        let kubeconfig = format!(r#"{{"users": [{{"user": {{"client-key-data": "{data}"}}}}]}}"#);
        let secrets = Secret::of_kubeconfig("one", &kubeconfig).unwrap();
        for told in [&pem, &data, &kubeconfig, &BASE64_STANDARD.encode(&kubeconfig)] {
            let mut found = Found::default();
            found.search_text("sluice.log", told, &Forms::of(&secrets).unwrap());
            assert!(!found.leaks.is_empty(), "{told}");
        }
    }

    fn panics(name: &str, text: &str) -> Vec<String> {
        let mut found = Found::default();
        found.search_text(name, text, &Forms::of(&[]).unwrap());
        found.panics
    }

    #[test]
    fn a_panic_is_found() {
        let panicked = "thread 'main' panicked at src/app.rs:1:1:\nboom";
        assert_eq!(panics("sluice.log", panicked).len(), 1);
    }

    #[test]
    fn a_crash_of_a_go_program_is_found_in_every_log() {
        let panic = "panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n";
        let error = "fatal error: concurrent map writes\n\ngoroutine 1 [running]:\nmain.main()\n";
        for name in [
            "apiserver-mgmt.log",
            "capi-core.log",
            "kapp-soak-r1.log",
            "etcd.log",
        ] {
            assert_eq!(
                panics(name, panic),
                [format!("{name}: panic: boom in main.main()")]
            );
            assert_eq!(panics(name, error).len(), 1);
        }
    }

    #[test]
    fn the_known_crash_is_left_out_in_the_logs_of_kapp_controller_only() {
        for name in ["kapp-controller.log", "kapp-soak-r1.log"] {
            assert_eq!(panics(name, CRASHED), Vec::<String>::new());
        }
        for name in [
            "kapp-controller-sidecar.log",
            "kapp-soak-r1-sidecar.log",
            "capi-core.log",
        ] {
            assert_eq!(panics(name, CRASHED).len(), 1, "{name}");
        }
    }
}
