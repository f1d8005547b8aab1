//! Output of `sluice plan`.

use console::Style;
use serde::Serialize;
use sluice_core::upgrade_plan::{Effect, Finding, Hop, UpgradePlan};

use super::not_made::NotMade;
use crate::{
    connection::Trouble,
    documents,
    lines::columns,
    terminal::{Terminal, clean},
};

/// Version of the schema of the JSON document.
const SCHEMA: u32 = 1;

/// Result of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// No finding blocks the upgrade.
    Ready,
    /// A gate will hold the upgrade, or Cluster API refuses it.
    Blocked,
}

/// Cluster of a plan.
#[derive(Debug, Clone, Copy, Serialize)]
struct Of<'a> {
    namespace: &'a str,
    name: &'a str,
}

/// Output as JSON or YAML, documented in `docs/reference/plan.md`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    schema: u32,
    cluster: Of<'a>,
    from: &'a str,
    to: &'a str,
    verdict: Verdict,
    hops: &'a [Hop],
    findings: &'a [Finding],
    not_made: &'a [NotMade],
}

impl<'a> Document<'a> {
    pub(super) fn of(
        (namespace, name): (&'a str, &'a str),
        plan: &'a UpgradePlan,
        not_made: &'a [NotMade],
    ) -> Self {
        Self {
            schema: SCHEMA,
            cluster: Of { namespace, name },
            from: &plan.from,
            to: &plan.to,
            verdict: if plan.is_blocked() {
                Verdict::Blocked
            } else {
                Verdict::Ready
            },
            hops: &plan.hops,
            findings: &plan.findings,
            not_made,
        }
    }

    /// Returns the document as JSON.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub(super) fn json(&self) -> Result<String, Trouble> {
        documents::json(self)
    }

    /// Returns the document as YAML.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub(super) fn yaml(&self) -> Result<String, Trouble> {
        documents::yaml(self)
    }

    /// Renders the versions with the verdict, and the table of steps.
    pub(super) fn steps(&self, terminal: &Terminal) -> Vec<String> {
        let verdict = match self.verdict {
            Verdict::Ready => terminal.styled(Style::new().green().bold(), "READY"),
            Verdict::Blocked => terminal.styled(Style::new().red().bold(), "BLOCKED"),
        };
        let mut lines = vec![format!(
            "{}: {}  {verdict}",
            clean(self.cluster.name),
            self.path()
        )];
        if self.hops.is_empty() {
            return lines;
        }
        let head = ["HOP", "RELEASE", "PACKAGE", "FROM", "TO"].map(str::to_owned);
        let rows = self.hops.iter().flat_map(rows);
        let table: Vec<[String; 5]> = std::iter::once(head).chain(rows).collect();
        lines.extend(columns(&table));
        lines
    }

    /// `v1.34.4 > v1.35.4 > v1.36.3, workers once`.
    fn path(&self) -> String {
        let hops = self.hops.iter().map(|hop| hop.version.as_str());
        let mut versions: Vec<&str> = std::iter::once(self.from)
            .filter(|from| !from.is_empty())
            .chain(hops)
            .collect();
        versions.dedup();
        let path = match versions[..] {
            [] => return format!("{}, no control plane yet", clean(self.to)),
            [version] if version == self.to => return format!("{}, no change of version", clean(version)),
            _ => clean(&versions.join(" > ")).into_owned(),
        };
        let workers = self.hops.iter().filter(|hop| hop.workers).count();
        match workers {
            0 => path,
            1 => path + ", workers once",
            2 => path + ", workers twice",
            times => format!("{path}, workers {times} times"),
        }
    }

    /// Renders the findings with their remedies, and the checks that were not made.
    pub(super) fn findings(&self, terminal: &Terminal) -> Vec<String> {
        let findings = self.findings.iter().map(|finding| {
            let effect = match finding.effect {
                Effect::Blocks => terminal.styled(Style::new().red(), "BLOCKS"),
                Effect::Warns => terminal.styled(Style::new().yellow(), "WARNS"),
            };
            let hop = finding.hop.as_deref().unwrap_or("-");
            let parts = [hop, finding.reason.as_str(), &finding.message];
            let [hop, reason, message] = parts.map(|part| clean(part).into_owned());
            [effect, hop, reason, message]
        });
        let rows: Vec<[String; 4]> = findings.collect();
        let mut lines = Vec::new();
        for (line, finding) in columns(&rows).into_iter().zip(self.findings) {
            lines.push(line);
            if !finding.remedy.is_empty() {
                lines.push(format!("        {}", finding.remedy));
            }
        }
        let not_made = self.not_made.iter();
        lines.extend(not_made.map(|check| format!("NOT MADE  {}  {}", check.check, clean(&check.why))));
        lines
    }
}

/// Renders a step, one row for each package.
fn rows(hop: &Hop) -> Vec<[String; 5]> {
    let shown = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), |text| clean(text).into_owned());
    let mut step = [shown(Some(&hop.version)), shown(hop.release.as_deref())];
    if hop.packages.is_empty() {
        let [version, release] = step;
        return vec![[version, release, shown(None), shown(None), shown(None)]];
    }
    let mut rows = Vec::new();
    for package in &hop.packages {
        let [version, release] = std::mem::take(&mut step);
        let to = if package.from.as_ref() == Some(&package.to) {
            "(same)".to_owned()
        } else {
            shown(Some(&package.to))
        };
        let from = shown(package.from.as_deref());
        rows.push([version, release, shown(Some(&package.name)), from, to]);
    }
    rows
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};
    use sluice_core::{
        reasons::{GateReason, Hold},
        upgrade_plan::{FindingReason, PackageChange, WarningReason},
    };

    use super::*;
    use crate::terminal::escaped;

    const PLAIN: Terminal = Terminal::of(None, false);

    fn package(name: &str, from: Option<&str>, to: &str) -> PackageChange {
        PackageChange {
            name: name.to_owned(),
            from: from.map(str::to_owned),
            to: to.to_owned(),
        }
    }

    fn hop(version: &str, workers: bool, packages: Vec<PackageChange>) -> Hop {
        Hop {
            version: version.to_owned(),
            release: (!packages.is_empty()).then(|| format!("{version}---vmware.1")),
            workers,
            packages,
        }
    }

    fn plan(hops: Vec<Hop>, findings: Vec<Finding>) -> UpgradePlan {
        let to = hops.last().map_or("v1.34.4", |hop| &hop.version);
        UpgradePlan {
            from: "v1.34.4".to_owned(),
            to: to.to_owned(),
            hops,
            findings,
        }
    }

    fn blocks(message: &str) -> Finding {
        let hold = Hold::new(GateReason::PackageExcludesKubernetes, message);
        let finding = Finding::of_hold(Some("v1.36.3"), hold);
        Finding {
            remedy: "Publish a Package.",
            ..finding
        }
    }

    fn warns() -> Finding {
        let reason = FindingReason::Warning(WarningReason::EvictionNeverAllowed);
        let finding = Finding::new(
            None,
            reason,
            "PodDisruptionBudget shop/db: 3 of 3 Pods".to_owned(),
        );
        Finding {
            remedy: "",
            ..finding
        }
    }

    fn two_steps() -> UpgradePlan {
        let hops = vec![
            hop(
                "v1.35.4",
                false,
                vec![
                    package("kapp-controller", Some("0.52.0"), "0.53.1"),
                    package("antrea", None, "1.9.0"),
                ],
            ),
            hop("v1.36.3", true, vec![package("metrics", Some("1.1.0"), "1.1.0")]),
        ];
        plan(
            hops,
            vec![blocks("Package metrics allows Kubernetes <1.36.0"), warns()],
        )
    }

    #[test]
    fn a_table_shows_steps_and_findings() {
        let plan = two_steps();
        let not_made = [NotMade::not_asked("values", "--values")];
        let document = Document::of(("prod", "edge-1"), &plan, &not_made);
        assert_eq!(
            document.steps(&PLAIN),
            [
                "edge-1: v1.34.4 > v1.35.4 > v1.36.3, workers once  BLOCKED",
                "HOP      RELEASE             PACKAGE          FROM    TO",
                "v1.35.4  v1.35.4---vmware.1  kapp-controller  0.52.0  0.53.1",
                "                             antrea           -       1.9.0",
                "v1.36.3  v1.36.3---vmware.1  metrics          1.1.0   (same)",
            ]
        );
        assert_eq!(
            document.findings(&PLAIN),
            [
                "BLOCKS  v1.36.3  PackageExcludesKubernetes  Package metrics allows Kubernetes <1.36.0",
                "        Publish a Package.",
                "WARNS   -        EvictionNeverAllowed       PodDisruptionBudget shop/db: 3 of 3 Pods",
                "NOT MADE  values  not asked for; add --values",
            ]
        );
    }
    #[rstest]
    #[case::no_step(plan(Vec::new(), Vec::new()), "edge-1: v1.34.4, no change of version  READY")]
    #[case::no_change(
        plan(vec![hop("v1.34.4", true, Vec::new())], Vec::new()),
        "edge-1: v1.34.4, no change of version  READY"
    )]
    #[case::no_control_plane(
        UpgradePlan { from: String::new(), ..plan(Vec::new(), Vec::new()) },
        "edge-1: v1.34.4, no control plane yet  READY"
    )]
    #[case::workers_between(
        plan(vec![hop("v1.35.4", true, Vec::new()), hop("v1.36.3", true, Vec::new())], Vec::new()),
        "edge-1: v1.34.4 > v1.35.4 > v1.36.3, workers twice  READY"
    )]
    #[case::warning(
        plan(vec![hop("v1.35.4", false, Vec::new())], vec![warns()]),
        "edge-1: v1.34.4 > v1.35.4  READY"
    )]
    fn the_first_line_has_versions_and_verdict(#[case] plan: UpgradePlan, #[case] line: &str) {
        let document = Document::of(("prod", "edge-1"), &plan, &[]);
        assert_eq!(document.steps(&PLAIN)[0], line);
    }

    #[test]
    fn a_document_has_the_documented_fields() {
        let plan = two_steps();
        let not_made = [NotMade::not_asked("workload", "--workload")];
        let document = Document::of(("prod", "edge-1"), &plan, &not_made);
        let json: Value = serde_json::from_str(&document.json().unwrap()).unwrap();
        let expected = json!({
            "schema": 1,
            "cluster": {"namespace": "prod", "name": "edge-1"},
            "from": "v1.34.4",
            "to": "v1.36.3",
            "verdict": "blocked",
            "hops": [
                {"version": "v1.35.4", "release": "v1.35.4---vmware.1", "workers": false, "packages": [
                    {"name": "kapp-controller", "from": "0.52.0", "to": "0.53.1"}, {"name": "antrea", "to": "1.9.0"},
                ]},
                {"version": "v1.36.3", "release": "v1.36.3---vmware.1", "workers": true, "packages": [
                    {"name": "metrics", "from": "1.1.0", "to": "1.1.0"},
                ]},
            ],
            "findings": [
                {"hop": "v1.36.3", "effect": "blocks", "reason": "PackageExcludesKubernetes",
                 "message": "Package metrics allows Kubernetes <1.36.0", "remedy": "Publish a Package."},
                {"effect": "warns", "reason": "EvictionNeverAllowed",
                 "message": "PodDisruptionBudget shop/db: 3 of 3 Pods", "remedy": ""},
            ],
            "notMade": [{"check": "workload", "why": "not asked for; add --workload"}],
        });
        assert_eq!(json, expected);
        let yaml: Value = serde_saphyr::from_str(&document.yaml().unwrap()).unwrap();
        assert_eq!(yaml, expected);
    }

    #[test]
    fn texts_of_objects_direct_no_terminal() {
        const HOSTILE: &str = "\u{1b}[2J\n\u{9b}31m\u{202e}";
        let mut plan = plan(
            vec![hop(HOSTILE, true, vec![package(HOSTILE, None, HOSTILE)])],
            vec![blocks(HOSTILE)],
        );
        plan.hops[0].release = Some(HOSTILE.to_owned());
        let not_made = [NotMade {
            check: "values",
            why: HOSTILE.to_owned(),
        }];
        let document = Document::of((HOSTILE, HOSTILE), &plan, &not_made);
        let is_plain =
            |text: &str| !text.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}'));
        let lines = [document.steps(&PLAIN), document.findings(&PLAIN)].concat();
        assert!(
            lines.iter().all(|line| is_plain(line) && !line.contains('\n')),
            "{lines:?}"
        );
        let json = escaped(&document.json().unwrap()).into_owned();
        assert!(is_plain(&json), "{json:?}");
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["notMade"][0]["why"], HOSTILE, "JSON keeps the text");
        assert!(is_plain(&escaped(&document.yaml().unwrap())));
    }
}
