//! Text output: the table of `status`, and the lines of `watch`.

use console::{Style, measure_text_width, pad_str};
use sluice_proto::status::v1::{Cluster, Gate, Outcome, Override, Package, PackageState, Upgrade};

use super::terminal::{Terminal, clean};

/// Width of a bar, in characters.
const BAR: usize = 10;

/// Returns the numbers of proven packages and of all packages.
fn proven(upgrade: &Upgrade) -> (usize, usize) {
    let ready = |package: &&Package| package.state() == PackageState::Ready;
    (
        upgrade.packages.iter().filter(ready).count(),
        upgrade.packages.len(),
    )
}

/// `[#####-----] 2/4`.
fn bar(terminal: &Terminal, (proven, all): (usize, usize)) -> String {
    let full = (BAR * proven).checked_div(all).unwrap_or(0);
    let done = terminal.styled(Style::new().green(), &"#".repeat(full));
    format!("[{done}{}] {proven}/{all}", "-".repeat(BAR - full))
}

fn outcome(upgrade: &Upgrade) -> Option<&'static str> {
    match upgrade.outcome() {
        Outcome::Unspecified => None,
        Outcome::Completed => Some("completed"),
        Outcome::Cancelled => Some("cancelled"),
        Outcome::RolledBack => Some("rolled back"),
    }
}

/// Renders a closed gate with its reason.
fn waits(gate: &Gate) -> String {
    let Gate {
        hook,
        version,
        reason,
        message,
        ..
    } = gate;
    let text = format!("{hook} {version} waits: {reason}");
    match message.as_str() {
        "" => clean(&text).into_owned(),
        message => clean(&format!("{text}, {message}")).into_owned(),
    }
}

/// Renders an open gate with the override that has opened it.
fn opened(gate: &Gate) -> String {
    let Gate {
        hook,
        version,
        overridden_by,
        ..
    } = gate;
    let text = format!("{hook} {version} is open");
    match overridden_by {
        None => clean(&text).into_owned(),
        Some(Override {
            name, user, reason, ..
        }) => clean(&format!("{text} by override {name} of {user}: {reason}")).into_owned(),
    }
}

/// Renders a package that is not proven.
fn unproven(package: &Package, state: &str) -> String {
    let Package {
        name,
        version,
        reason,
        message,
        ..
    } = package;
    let parts = [reason.as_str(), message.as_str()]
        .into_iter()
        .filter(|part| !part.is_empty());
    let why = parts.collect::<Vec<_>>().join(", ");
    let text = format!("{name} {version} {state}");
    let text = if why.is_empty() {
        text
    } else {
        format!("{text}: {why}")
    };
    clean(&text).into_owned()
}

const fn state(package: PackageState) -> &'static str {
    match package {
        PackageState::Unspecified => "in an unknown state",
        PackageState::Pending => "pending",
        PackageState::Applied => "applied",
        PackageState::Reconciling => "reconciling",
        PackageState::Ready => "proven",
        PackageState::Failed => "failed",
    }
}

/// Returns the changes since the last printed state: versions, the end, each gate and each package, in this order, because a narrow
/// terminal shows only the first ones.
pub(super) fn changes(terminal: &Terminal, before: Option<&Cluster>, cluster: &Cluster) -> Vec<String> {
    let mut changes = Vec::new();
    let Some(now) = &cluster.upgrade else {
        return changes;
    };
    let was_pending = before.is_some_and(|before| before.pending);
    let before = before.and_then(|before| before.upgrade.as_ref());
    if before.is_none_or(|before| (&before.to, &before.hop) != (&now.to, &now.hop)) {
        let by = if now.hop.is_empty() || now.hop == now.to {
            String::new()
        } else {
            format!(" by {}", now.hop)
        };
        let from = if now.from.is_empty() { "nothing" } else { &now.from };
        changes.push(clean(&format!("{from} to {}{by}", now.to)).into_owned());
    }
    if let Some(ended) = outcome(now).filter(|ended| before.and_then(outcome) != Some(*ended)) {
        changes.push(terminal.styled(Style::new().bold(), ended));
    }
    if cluster.pending && !was_pending {
        changes.push(clean(&pending(cluster)).into_owned());
    }
    let gates = before.map_or(&[][..], |before| &before.gates);
    for gate in now.gates.iter().filter(|gate| !gates.contains(gate)) {
        changes.push(if gate.open {
            let style = match gate.overridden_by {
                Some(_) => Style::new().yellow().bold(),
                None => Style::new().green().bold(),
            };
            terminal.styled(style, &opened(gate))
        } else {
            terminal.styled(Style::new().yellow(), &waits(gate))
        });
    }
    let packages = before.map_or(&[][..], |before| &before.packages);
    for package in &now.packages {
        if packages.contains(package) {
            continue;
        }
        let style = match package.state() {
            PackageState::Ready => Style::new().green(),
            PackageState::Failed => Style::new().red(),
            _ => Style::new(),
        };
        let text = unproven(package, state(package.state()));
        changes.push(terminal.styled(style, &text));
    }
    changes
}

/// Renders the pending upgrade of a Cluster whose record has ended.
fn pending(cluster: &Cluster) -> String {
    let Cluster {
        topology_version,
        tkr_label,
        ..
    } = cluster;
    match tkr_label.as_str() {
        "" => format!("an upgrade to {topology_version} is to begin"),
        release => format!("an upgrade to {topology_version}, release {release}, is to begin"),
    }
}

/// Renders one line of `watch`.
pub(super) fn line(terminal: &Terminal, cluster: &Cluster, changes: &[String]) -> String {
    let Cluster { namespace, name, .. } = cluster;
    let named = format!("{namespace}/{name}");
    let counted = cluster.upgrade.as_ref().map(proven).unwrap_or_default();
    format!(
        "{}  {}  {}",
        clean(&named),
        bar(terminal, counted),
        changes.join("; ")
    )
}

/// Renders the table of `status`, line by line.
pub(super) fn table(terminal: &Terminal, clusters: &[Cluster]) -> Vec<String> {
    let head = ["NAMESPACE", "NAME", "UPGRADE", "PACKAGES", "GATE"].map(str::to_owned);
    let rows: Vec<[String; 5]> = std::iter::once(head)
        .chain(clusters.iter().map(|cluster| row(terminal, cluster)))
        .collect();
    columns(&rows)
}

/// Aligns the columns of rows.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| measure_text_width(&row[column]))
            .max()
            .unwrap_or(0)
    });
    let padded = rows.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let cells =
            cells.map(|(cell, width)| pad_str(cell, width, console::Alignment::Left, None).into_owned());
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    padded.collect()
}

fn row(terminal: &Terminal, cluster: &Cluster) -> [String; 5] {
    let named = [&cluster.namespace, &cluster.name].map(|part| clean(part).into_owned());
    let [namespace, name] = named;
    let Some(upgrade) = &cluster.upgrade else {
        let why = if cluster.managed {
            "no record yet"
        } else {
            "not managed"
        };
        return [namespace, name, "-".to_owned(), "-".to_owned(), why.to_owned()];
    };
    let versions = if upgrade.from.is_empty() {
        upgrade.to.clone()
    } else {
        format!("{} to {}", upgrade.from, upgrade.to)
    };
    let closed = upgrade.gates.iter().find(|gate| !gate.open);
    let gate = match (outcome(upgrade), closed) {
        (Some(_), _) if cluster.pending => clean(&pending(cluster)).into_owned(),
        (Some(ended), _) => ended.to_owned(),
        (None, Some(gate)) => terminal.styled(Style::new().yellow(), &waits(gate)),
        (None, None) => "open".to_owned(),
    };
    [
        namespace,
        name,
        clean(&versions).into_owned(),
        bar(terminal, proven(upgrade)),
        gate,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, state: PackageState) -> Package {
        Package {
            name: name.to_owned(),
            version: "2.0.0".to_owned(),
            state: state.into(),
            ..Package::default()
        }
    }

    fn gate(open: bool, message: &str) -> Gate {
        Gate {
            hook: "BeforeClusterUpgrade".to_owned(),
            version: "v1.36.3".to_owned(),
            open,
            reason: if open {
                String::new()
            } else {
                "PackagesNotReady".to_owned()
            },
            message: message.to_owned(),
            overridden_by: None,
        }
    }

    fn cluster(upgrade: Option<Upgrade>) -> Cluster {
        Cluster {
            namespace: "demo".to_owned(),
            name: "one".to_owned(),
            managed: true,
            upgrade,
            ..Cluster::default()
        }
    }

    fn held() -> Upgrade {
        Upgrade {
            from: "v1.35.4".to_owned(),
            to: "v1.36.3".to_owned(),
            hop: "v1.36.3".to_owned(),
            packages: vec![
                package("kapp-controller", PackageState::Ready),
                package("antrea", PackageState::Reconciling),
            ],
            gates: vec![gate(false, "waiting for antrea 2.0.0")],
            ..Upgrade::default()
        }
    }

    const PLAIN: Terminal = Terminal::of(None, false);

    #[test]
    fn a_line_says_what_has_changed_and_nothing_else() {
        let mut open = held();
        let changed = |before: Option<&Upgrade>, now: &Upgrade| {
            let before = before.map(|before| cluster(Some(before.clone())));
            changes(&PLAIN, before.as_ref(), &cluster(Some(now.clone())))
        };
        let said = |before: Option<&Upgrade>, now: &Upgrade| {
            line(&PLAIN, &cluster(Some(now.clone())), &changed(before, now))
        };
        assert_eq!(
            said(None, &open),
            "demo/one  [#####-----] 1/2  v1.35.4 to v1.36.3; BeforeClusterUpgrade v1.36.3 waits: PackagesNotReady, \
             waiting for antrea 2.0.0; kapp-controller 2.0.0 proven; antrea 2.0.0 reconciling"
        );
        let before = open.clone();
        open.packages[1] = package("antrea", PackageState::Ready);
        open.gates[0] = gate(true, "");
        assert_eq!(
            said(Some(&before), &open),
            "demo/one  [##########] 2/2  BeforeClusterUpgrade v1.36.3 is open; antrea 2.0.0 proven"
        );
        assert_eq!(changed(Some(&open), &open), Vec::<String>::new());
        let before = open.clone();
        open.outcome = Outcome::Completed.into();
        assert_eq!(changed(Some(&before), &open), ["completed"]);
        let (before, mut now) = (cluster(Some(open.clone())), cluster(Some(open)));
        (now.pending, now.topology_version, now.tkr_label) = (true, "v1.36.3".to_owned(), "r2".to_owned());
        let asks = "an upgrade to v1.36.3, release r2, is to begin";
        assert_eq!(changes(&PLAIN, Some(&before), &now), [asks]);
        assert_eq!(changes(&PLAIN, Some(&now), &now), Vec::<String>::new());
        assert!(table(&PLAIN, &[now])[1].ends_with(asks));
    }

    #[test]
    fn an_override_is_named_with_its_user() {
        let before = cluster(Some(held()));
        let mut open = held();
        open.gates[0] = Gate {
            overridden_by: Some(Override {
                name: "metrics".to_owned(),
                user: "ada".to_owned(),
                reason: "CHG-4711\u{1b}".to_owned(),
                expires_at: None,
            }),
            ..gate(true, "")
        };
        let mut now = cluster(Some(open));
        let changed = changes(&PLAIN, Some(&before), &now);
        let [line] = changed.as_slice() else {
            panic!("{changed:?}")
        };
        assert!(
            line.starts_with("BeforeClusterUpgrade v1.36.3 is open by override metrics of ada: CHG-4711"),
            "{line}"
        );
        assert!(!line.contains('\u{1b}'), "{line}");
        // The proof arrives later.
        let before = now.clone();
        if let Some(upgrade) = &mut now.upgrade {
            upgrade.gates[0] = gate(true, "");
        }
        assert_eq!(
            changes(&PLAIN, Some(&before), &now),
            ["BeforeClusterUpgrade v1.36.3 is open"]
        );
    }

    #[test]
    fn a_gate_that_opens_is_seen_on_80_columns() {
        let before = cluster(Some(held()));
        let mut open = held();
        open.gates[0] = gate(true, "");
        open.packages = ["kapp-controller", "antrea", "vsphere-cpi", "vsphere-csi"]
            .map(|name| package(name, PackageState::Ready))
            .into();
        let now = cluster(Some(open));
        let narrow = Terminal::of(Some(80), false);
        let line = line(&narrow, &now, &changes(&narrow, Some(&before), &now));
        let fitted = narrow.fit(&line);
        assert!(
            fitted.contains("BeforeClusterUpgrade v1.36.3 is open"),
            "{fitted}"
        );
    }

    #[test]
    fn a_table_has_a_row_for_each_cluster() {
        let ended = |outcome: Outcome| Upgrade {
            outcome: outcome.into(),
            ..held()
        };
        let unmanaged = Cluster {
            managed: false,
            ..cluster(None)
        };
        let clusters = [
            cluster(Some(held())),
            cluster(Some(ended(Outcome::Cancelled))),
            cluster(Some(ended(Outcome::RolledBack))),
            cluster(None),
            unmanaged,
        ];
        assert_eq!(
            table(&PLAIN, &clusters),
            [
                "NAMESPACE  NAME  UPGRADE             PACKAGES          GATE",
                "demo       one   v1.35.4 to v1.36.3  [#####-----] 1/2  BeforeClusterUpgrade v1.36.3 waits: PackagesNotReady, \
                 waiting for antrea 2.0.0",
                "demo       one   v1.35.4 to v1.36.3  [#####-----] 1/2  cancelled",
                "demo       one   v1.35.4 to v1.36.3  [#####-----] 1/2  rolled back",
                "demo       one   -                   -                 no record yet",
                "demo       one   -                   -                 not managed",
            ]
        );
    }

    #[test]
    fn texts_of_clusters_direct_no_terminal() {
        let mut hostile = held();
        hostile.gates[0] = gate(false, "\u{1b}[2J\nroot@host");
        hostile.packages[1].message = "\u{1b}]0;title\u{7}".to_owned();
        hostile.packages[1].name = "\u{9b}31m".to_owned();
        hostile.to = "v1\r".to_owned();
        let mut pending = cluster(Some(hostile.clone()));
        let ended = pending.upgrade.as_mut().unwrap();
        ended.outcome = Outcome::Completed.into();
        (pending.pending, pending.tkr_label) = (true, "\u{1b}[1m".to_owned());
        let hostile = cluster(Some(hostile));
        let said = |cluster: &Cluster| {
            changes(&PLAIN, None, cluster).join("") + &table(&PLAIN, std::slice::from_ref(cluster)).join("")
        };
        let all = said(&hostile) + &said(&pending);
        assert!(!all.contains(char::is_control), "{all:?}");
        assert!(all.contains("\\u{1b}[2J"), "{all}");
    }
}
