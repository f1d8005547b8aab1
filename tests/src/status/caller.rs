//! Callers of a status service.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::extension::{Replica, binary};
use crate::processes::log_search::Secret;
use crate::processes::process::{Launch, Process};
use crate::requests::apply;
use crate::stack::Stack;
use crate::stack::kapp_controller::token;

/// How long a verb may take that asks once.
const ANSWER: Duration = Duration::from_mins(1);

/// ClusterBootstraps that a caller may `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Its own namespace.
    OwnNamespace,
    /// All namespaces.
    Everywhere,
    /// Nothing.
    None,
}

/// A ServiceAccount, its token in a file, and the authorities of the service's certificate.
pub struct Caller<'a> {
    stack: &'a Stack,
    namespace: String,
    name: String,
    directory: PathBuf,
}

impl<'a> Caller<'a> {
    /// Makes a ServiceAccount with these rights. The namespace is there.
    pub async fn create(stack: &'a Stack, namespace: &str, name: &str, rights: Rights) -> Result<Self> {
        let directory = stack
            .core()
            .directory()
            .subdirectory(format!("{namespace}-{name}"))?;
        let caller = Self {
            stack,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            directory,
        };
        let mut objects = vec![caller.account()];
        objects.extend(caller.role(rights));
        apply::apply_all(&stack.client(), &objects).await?;
        caller.gets_a_token().await?;
        Ok(caller)
    }

    fn account(&self) -> Value {
        let metadata = json!({"name": self.name, "namespace": self.namespace});
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    }

    async fn gets_a_token(&self) -> Result<()> {
        let token = token(&self.stack.client(), &self.namespace, &self.name).await?;
        let secret = Secret::new("a token of a caller of the status service", &token);
        self.stack.core().directory().guard([secret]);
        // A reader sees the old one or the new one, as it does where the kubelet writes it.
        let next = self.directory.join("next-token");
        fs::write(&next, token)?;
        Ok(fs::rename(next, self.token_file())?)
    }

    /// Has another token in its file from now on, and the one before is not accepted any more: its ServiceAccount is another one.
    pub async fn has_another_token(&self) -> Result<()> {
        let path = format!(
            "/api/v1/namespaces/{}/serviceaccounts/{}",
            self.namespace, self.name
        );
        let request = http::Request::delete(path).body(Vec::new())?;
        self.stack.client().request_text(request).await?;
        apply::apply_all(&self.stack.client(), &[self.account()]).await?;
        self.gets_a_token().await
    }

    fn role(&self, rights: Rights) -> Vec<Value> {
        let (prefix, place) = match rights {
            Rights::None => return Vec::new(),
            Rights::OwnNamespace => ("", json!({"name": self.name, "namespace": self.namespace})),
            Rights::Everywhere => ("Cluster", json!({"name": self.global_name()})),
        };
        let rule = json!({"apiGroups": ["run.tanzu.vmware.com"], "resources": ["clusterbootstraps"], "verbs": ["get"]});
        let api_version = "rbac.authorization.k8s.io/v1";
        let reference = json!({
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": format!("{prefix}Role"),
            "name": place["name"],
        });
        let subject = json!({"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace});
        vec![
            json!({"apiVersion": api_version, "kind": format!("{prefix}Role"), "metadata": place, "rules": [rule]}),
            json!({
                "apiVersion": api_version, "kind": format!("{prefix}RoleBinding"), "metadata": place,
                "roleRef": reference, "subjects": [subject],
            }),
        ]
    }

    fn global_name(&self) -> String {
        format!("{}-{}", self.namespace, self.name)
    }

    /// Takes the rights in its own namespace back.
    pub async fn loses_its_rights(&self) -> Result<()> {
        let path = format!(
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{}",
            self.namespace, self.name
        );
        let request = http::Request::delete(path).body(Vec::new())?;
        self.stack.client().request_text(request).await?;
        Ok(())
    }

    /// The file with its token.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// The file with the authorities of the service's certificate.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.stack.management().pki().file("ca.crt")
    }

    /// The flags of the binary's verbs that ask a replica as this caller.
    fn flags(&self, replica: &Replica) -> Vec<String> {
        let file = |path: PathBuf| path.display().to_string();
        let flags = [
            "--server".to_owned(),
            replica.status_address(),
            "--ca".to_owned(),
            file(self.ca_file()),
            "--token-file".to_owned(),
            file(self.token_file()),
        ];
        flags.into()
    }

    /// Runs `sluice <words>` to its end.
    pub async fn sluice(&self, replica: &Replica, words: &[&str]) -> Result<Output> {
        let running = Command::new(binary()?)
            .args(words)
            .args(self.flags(replica))
            .env_clear()
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(ANSWER, running).await;
        Ok(output.with_context(|| format!("sluice {words:?} did not end within {ANSWER:?}"))??)
    }

    /// Starts `sluice <words>`, which is logged as `log` and may end by itself.
    pub fn start_sluice(&self, log: &str, replica: &Replica, words: &[&str]) -> Result<Process> {
        let launch = Launch::new(log, binary()?)
            .args(words.iter().copied())
            .args(self.flags(replica));
        let process = Process::start(self.stack.core().directory(), launch)?;
        process.may_end(true);
        Ok(process)
    }
}
