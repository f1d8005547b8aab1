//! `sluice override list`.

use std::{process::ExitCode, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use sluice_core::decode::Undecodable;
use sluice_crds::lifecycle::{OverriddenGate, UpgradeOverride};

use crate::{
    arguments::{ListOverridesArgs, OutputFormat},
    connection::Trouble,
    documents,
    lines::columns,
    management,
    reader::Reader,
    terminal::{Terminal, clean, escaped, print},
};

/// Version of the schema of the JSON document.
const SCHEMA: u32 = 1;

/// Output as JSON or YAML, documented in `docs/reference/override-command.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    schema: u32,
    overrides: Vec<Row<'a>>,
    not_decoded: Vec<NotDecoded<'a>>,
}

/// One UpgradeOverride.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    cluster: &'a str,
    gate: OverriddenGate,
    kubernetes_version: &'a str,
    release: &'a str,
    packages: &'a [String],
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<&'a str>,
    expires_at: &'a Time,
    /// By the clock of this machine.
    expired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<Known<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<Known<'a>>,
}

/// A condition.
#[derive(Debug, Clone, Copy, Serialize)]
struct Known<'a> {
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

/// An object that cannot be decoded.
#[derive(Debug, Serialize)]
struct NotDecoded<'a> {
    namespace: &'a str,
    name: &'a str,
    why: &'a str,
}

pub(super) async fn list(asked: &ListOverridesArgs, terminal: &Terminal) -> Result<ExitCode, Trouble> {
    let (client, of_context) = management::client(&asked.management).await?;
    let namespace = asked.namespace.as_deref().unwrap_or(&of_context);
    let namespace = (!asked.all_namespaces).then_some(namespace);
    let mut reader = Reader::new(client);
    let overrides = listed(&mut reader, namespace, asked.cluster.as_deref()).await?;
    let undecodable = reader.take_undecodable();
    let document = Document::of(&overrides, &undecodable, Timestamp::now());
    match asked.output {
        OutputFormat::Table => {
            for line in document.lines() {
                terminal.line(&line)?;
            }
        }
        OutputFormat::Json => print(&escaped(&documents::json(&document)?))?,
        OutputFormat::Yaml => print(escaped(&documents::yaml(&document)?).trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists the overrides of a namespace or of all, and of one Cluster or of all.
///
/// # Errors
/// The API server refuses the request or does not respond.
pub(super) async fn listed(
    reader: &mut Reader,
    namespace: Option<&str>,
    cluster: Option<&str>,
) -> Result<Vec<Arc<UpgradeOverride>>, Trouble> {
    let mut overrides: Vec<Arc<UpgradeOverride>> = reader.list(namespace, "").await?;
    overrides.retain(|of| cluster.is_none_or(|cluster| of.spec.cluster_name == cluster));
    Ok(overrides)
}

impl<'a> Document<'a> {
    pub(super) fn of(
        overrides: &'a [Arc<UpgradeOverride>],
        undecodable: &'a [Arc<Undecodable>],
        now: Timestamp,
    ) -> Self {
        let not_decoded = undecodable.iter().map(|of| NotDecoded {
            namespace: of.metadata.namespace.as_deref().unwrap_or_default(),
            name: of.metadata.name.as_deref().unwrap_or_default(),
            why: &of.why,
        });
        Self {
            schema: SCHEMA,
            overrides: overrides.iter().map(|of| row(of, now)).collect(),
            not_decoded: not_decoded.collect(),
        }
    }

    /// Renders the table, and the objects that cannot be decoded.
    pub(super) fn lines(&self) -> Vec<String> {
        let head = [
            "NAMESPACE",
            "NAME",
            "CLUSTER",
            "GATE",
            "VERSION",
            "PACKAGES",
            "ACCEPTED",
            "USED",
            "EXPIRES",
            "REQUESTED BY",
        ];
        let rows = self.overrides.iter().map(Row::cells);
        let table: Vec<[String; 10]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
        let mut lines = columns(&table);
        let not_decoded = self.not_decoded.iter();
        lines.extend(not_decoded.map(|of| {
            let text = format!("NOT DECODED  {}/{}: {}", of.namespace, of.name, of.why);
            clean(&text).into_owned()
        }));
        lines
    }
}

impl Row<'_> {
    fn cells(&self) -> [String; 10] {
        let packages = self.packages.join(",");
        let (accepted, used) = (shown(self.accepted), shown(self.used));
        let expires = if self.expired {
            format!("{} (expired)", self.expires_at.0)
        } else {
            self.expires_at.0.to_string()
        };
        let cells = [
            self.namespace,
            self.name,
            self.cluster,
            self.gate.as_str(),
            self.kubernetes_version,
            &packages,
            &accepted,
            &used,
            &expires,
            self.requested_by.unwrap_or("-"),
        ];
        cells.map(|cell| clean(cell).into_owned())
    }
}

/// Renders a condition: the status, with the reason unless it is True.
fn shown(known: Option<Known<'_>>) -> String {
    match known {
        None => "-".to_owned(),
        Some(known) if known.status == "True" => known.status.to_owned(),
        Some(known) => format!("{} ({})", known.status, known.reason),
    }
}

fn row(of: &UpgradeOverride, now: Timestamp) -> Row<'_> {
    let spec = &of.spec;
    let conditions = of.status.as_ref().map(|status| status.conditions.as_slice());
    let conditions = conditions.unwrap_or_default();
    Row {
        namespace: of.metadata.namespace.as_deref().unwrap_or_default(),
        name: of.metadata.name.as_deref().unwrap_or_default(),
        uid: of.metadata.uid.as_deref().unwrap_or_default(),
        cluster: &spec.cluster_name,
        gate: spec.gate,
        kubernetes_version: &spec.target.kubernetes_version,
        release: &spec.target.release,
        packages: &spec.packages,
        reason: &spec.reason,
        requested_by: spec.requested_by.as_deref(),
        expires_at: &spec.expires_at,
        expired: now >= spec.expires_at.0,
        accepted: known(conditions, "Accepted"),
        used: known(conditions, "Used"),
    }
}

fn known<'a>(conditions: &'a [Condition], named: &str) -> Option<Known<'a>> {
    let found = conditions.iter().find(|condition| condition.type_ == named)?;
    Some(Known {
        status: &found.status,
        reason: &found.reason,
        message: &found.message,
    })
}
