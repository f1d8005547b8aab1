//! Validation rules of an UpgradeGate, and the rights of its author.
//!
//! A gate has Sluice read objects, with the rights of Sluice, and shows the result of rules about them. So each author needs the right to read
//! these objects. [`GateReview::of`] validates the gate. [`judge`] is a function of the review and of finished lookups: it returns the missing
//! lookups first, and then its verdict. A right that is not known refuses the write.

mod rights;
mod spec;

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource as _;
use sluice_crds::{
    foreign::Cluster,
    lifecycle::{GateMode, UpgradeGate, UpgradeGateSpec},
};

pub use self::rights::{Author, Right};
use self::spec::decoded;
use super::Verdict;
use crate::{
    fault::Fault,
    gates::{
        compiled::{CompiledCheck, compile_written},
        expression::{Expression, Variable},
    },
    protocol::Server,
    text::one_line,
};

/// Maximum length of the name of an author in a message, in characters.
const LONGEST_AUTHOR: usize = 128;

/// Write of an UpgradeGate.
#[derive(Debug, Clone)]
pub struct GateWrite<'a> {
    /// Namespace of the gate.
    pub namespace: &'a str,
    /// Name of the gate; empty if the API server generates it.
    pub name: &'a str,
    /// Account that writes.
    pub author: Author,
    /// JSON of the spec.
    pub spec: &'a str,
    /// JSON of the stored spec; `None` for a create.
    pub old_spec: Option<&'a str>,
}

/// Review of a valid gate, whose author needs rights.
#[derive(Debug, Clone)]
pub struct GateReview {
    namespace: String,
    author: Author,
    checks: Vec<CompiledCheck>,
    warnings: Vec<String>,
}

/// Kind of the management cluster that a check names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckedKind {
    /// Group and version, `apps/v1`.
    pub api_version: String,
    /// Kind, `DaemonSet`.
    pub kind: String,
}

impl CheckedKind {
    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// How the management API server serves a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// In namespaces, as this API resource.
    Namespaced {
        /// Plural name of the resource.
        plural: String,
    },
    /// Cluster-scoped.
    ClusterWide,
    /// Not at all.
    Nowhere,
}

/// Finished lookups of a review. An error says why the result is not known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateLookups {
    /// Discovered kinds.
    pub kinds: BTreeMap<CheckedKind, Result<Served, String>>,
    /// Rights, and whether the author has them.
    pub rights: BTreeMap<Right, Result<bool, String>>,
}

/// Lookups that a verdict still needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeededLookups {
    /// Kinds to discover.
    pub kinds: BTreeSet<CheckedKind>,
    /// Rights to ask for.
    pub rights: BTreeSet<Right>,
}

/// Result of a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// All rights are known, or one is missing.
    Known(Verdict),
    /// A right is not known: the write is refused with this message, and may be repeated.
    Unknown(String),
}

/// Right that a check needs.
struct Needed {
    right: Right,
    /// The kind, if the API server does not serve it.
    unserved: Option<CheckedKind>,
}

/// Why the right that a check needs cannot be asked for.
enum NoRight {
    /// The kind has to be discovered.
    Missing(CheckedKind),
    /// No account may write the check.
    Refused(Fault),
    /// The kind is not known: a message.
    Unknown(String),
}

impl GateReview {
    /// Validates a write.
    ///
    /// # Errors
    /// The verdict, if it depends on no lookup.
    pub fn of(write: GateWrite<'_>) -> Result<Self, Verdict> {
        let GateWrite {
            namespace,
            name,
            author,
            spec,
            old_spec,
        } = write;
        // Labels, owners and finalizers of a gate can be written whether the stored gate is valid or not, and by other accounts.
        if old_spec == Some(spec) {
            return Err(Verdict::default());
        }
        let new = decoded(spec).map_err(refused)?;
        // After a change of the definition, the stored spec may be undecodable. Then all of the new spec counts as changed.
        let old = old_spec.and_then(|old| decoded(old).ok());
        if old.as_ref() == Some(&new) {
            return Err(Verdict::default());
        }
        let ends_holds = old.is_some_and(|old| only_ends_holds(old, &new));
        match compile_written(&UpgradeGate::new(name, new)) {
            // The way out of a hold must depend neither on the rights of the author nor on the validity of the gate.
            Err(fault) if ends_holds => Err(Verdict {
                warnings: vec![fault.to_string()],
                ..Verdict::default()
            }),
            Ok(_) if ends_holds => Err(Verdict::default()),
            Err(fault) => Err(refused(fault)),
            Ok(gate) => Ok(Self {
                namespace: namespace.to_owned(),
                author,
                warnings: gate.warnings(),
                checks: gate.checks,
            }),
        }
    }

    /// Account that writes.
    #[must_use]
    pub const fn author(&self) -> &Author {
        &self.author
    }
}

/// Whether a write changes nothing but the mode to Audit. It has Sluice read nothing that Sluice did not read before.
fn only_ends_holds(old: UpgradeGateSpec, new: &UpgradeGateSpec) -> bool {
    let audited = UpgradeGateSpec {
        mode: GateMode::Audit,
        ..old
    };
    audited == *new
}

fn refused(fault: Fault) -> Verdict {
    Verdict {
        faults: vec![fault],
        ..Verdict::default()
    }
}

/// Judges a review by finished lookups.
///
/// # Errors
/// The lookups that the verdict still needs.
pub fn judge(review: &GateReview, finished: &GateLookups) -> Result<GateVerdict, NeededLookups> {
    let mut missing = NeededLookups::default();
    let mut verdict = Verdict {
        warnings: review.warnings.clone(),
        ..Verdict::default()
    };
    let mut unknown = None;
    let mut reported = BTreeSet::new();
    for (at, check) in review.checks.iter().enumerate() {
        let field = format!("spec.checks[{at}]");
        if let Some(cel) = check.cel.as_ref().filter(|cel| cel.uses(Variable::Cluster)) {
            let right = review.right_to_clusters();
            match finished.rights.get(&right) {
                None => {
                    missing.rights.insert(right);
                }
                Some(Ok(false)) if reported.insert(right.clone()) => {
                    verdict.faults.push(review.without_clusters(&field, cel, &right));
                }
                Some(Ok(_)) => {}
                Some(Err(why)) => {
                    unknown.get_or_insert_with(|| review.not_known(&field, why));
                }
            }
        }
        let needed = match review.needed(&field, check, finished) {
            Ok(needed) => needed,
            Err(NoRight::Missing(kind)) => {
                missing.kinds.insert(kind);
                continue;
            }
            Err(NoRight::Refused(fault)) => {
                verdict.faults.push(fault);
                continue;
            }
            Err(NoRight::Unknown(text)) => {
                unknown.get_or_insert(text);
                continue;
            }
        };
        match finished.rights.get(&needed.right) {
            None => {
                missing.rights.insert(needed.right);
            }
            Some(Ok(true)) => verdict.warnings.extend(needed.unserved.map(|kind| {
                let CheckedKind { api_version, kind } = kind;
                format!(
                    "{field}.object: the API server does not serve {kind} in {api_version}; the check is not proven before its \
                     definition is installed"
                )
            })),
            // One fault for each right: a gate may have many checks of workloads.
            Some(Ok(false)) if reported.insert(needed.right.clone()) => {
                verdict.faults.push(review.denied(&field, check, &needed));
            }
            Some(Ok(false)) => {}
            Some(Err(why)) => {
                unknown.get_or_insert_with(|| review.not_known(&field, why));
            }
        }
    }
    if missing != NeededLookups::default() {
        return Err(missing);
    }
    // A right that is missing for certain is no reason to repeat the write.
    Ok(match unknown {
        Some(text) if verdict.faults.is_empty() => GateVerdict::Unknown(text),
        _ => GateVerdict::Known(verdict),
    })
}

impl GateReview {
    /// Returns the right that a check needs.
    fn needed(&self, field: &str, check: &CompiledCheck, finished: &GateLookups) -> Result<Needed, NoRight> {
        if check.server == Server::Workload {
            return Ok(Needed {
                right: Right::read_workload(&self.namespace),
                unserved: None,
            });
        }
        let kind = CheckedKind {
            api_version: check.api_version.clone(),
            kind: check.kind_name.clone(),
        };
        match finished.kinds.get(&kind) {
            None => Err(NoRight::Missing(kind)),
            Some(Ok(Served::Namespaced { plural })) => {
                // The right to one name says nothing about another one.
                let name = if has_placeholder(check) {
                    ""
                } else {
                    check.name_template.as_str()
                };
                Ok(Needed {
                    right: Right::get(kind.group(), plural, &self.namespace, name),
                    unserved: None,
                })
            }
            // A definition that is installed later may name any resource of the group.
            Some(Ok(Served::Nowhere)) => Ok(Needed {
                right: Right::get_all(kind.group(), &self.namespace),
                unserved: Some(kind),
            }),
            Some(Ok(Served::ClusterWide)) => {
                let text = "the kind is cluster-scoped; name an object of the namespace of the gate";
                Err(NoRight::Refused(Fault::new(
                    format!("{field}.object.kind"),
                    kind.kind,
                    text,
                )))
            }
            Some(Err(why)) => Err(NoRight::Unknown(self.not_known(field, why))),
        }
    }

    /// Returns the fault of a check whose author lacks its right.
    fn denied(&self, field: &str, check: &CompiledCheck, needed: &Needed) -> Fault {
        let Needed { right, unserved } = needed;
        let lacks = format!("user {:?} may not {right}", self.author_name());
        let other = "or let an account that has this right write the gate";
        if check.server == Server::Workload {
            let text = format!("{lacks}; bind ClusterRole sluice-gate-author to the user there, {other}");
            return Fault::new(format!("{field}.cluster"), "Workload", text);
        }
        if let Some(CheckedKind { api_version, kind }) = unserved {
            let text = format!(
                "the API server does not serve {kind} in {api_version}, and {lacks}; install its definition first, {other}"
            );
            return Fault::new(format!("{field}.object.kind"), kind, text);
        }
        let without = if has_placeholder(check) {
            " without resourceNames, because the name has a placeholder"
        } else {
            ""
        };
        let text = format!("{lacks}; add a Role that allows it{without}, {other}");
        Fault::new(format!("{field}.object.name"), &check.name_template, text)
    }

    /// Returns the right that an expression with variable `cluster` needs. Its result tells about labels and annotations of any Cluster that
    /// the gate selects.
    fn right_to_clusters(&self) -> Right {
        Right::get(&Cluster::group(&()), &Cluster::plural(&()), &self.namespace, "")
    }

    /// Returns the fault of an expression that uses the Cluster, whose author may not read Clusters.
    fn without_clusters(&self, field: &str, cel: &Expression, right: &Right) -> Fault {
        let text = format!(
            "it uses cluster, and user {:?} may not {right}; add a Role that allows it without resourceNames, or let an account that \
             has this right write the gate",
            self.author_name()
        );
        Fault::new(format!("{field}.cel"), cel.text(), text)
    }

    /// Returns the message about a right that is not known.
    fn not_known(&self, field: &str, why: &str) -> String {
        let author = self.author_name();
        format!("{field}: it is not known whether user {author:?} may read the object: {why}; try again")
    }

    fn author_name(&self) -> String {
        one_line(&self.author.name, LONGEST_AUTHOR)
    }
}

/// Whether the name of the object depends on the Cluster or on its version.
fn has_placeholder(check: &CompiledCheck) -> bool {
    // A valid name has a dollar sign only there.
    check.name_template.contains('$')
}

#[cfg(test)]
mod tests;
