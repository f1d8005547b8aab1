//! Missing permissions, as operators are told of them.

/// The ClusterRole that an operator has to add so that Sluice may do `verbs` to a kind of another project.
#[must_use]
pub fn missing_rule(verbs: &str, group: &str, plural: &str) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    format!(
        "add a ClusterRole that allows to {verbs} {plural} in group {group} and has the label \
         sluice.dev/aggregate-to-extension: \"true\""
    )
}
