//! Remedy texts for missing permissions.

/// Describes the ClusterRole that grants Sluice `verbs` on a kind of another project.
#[must_use]
pub fn missing_rule(verbs: &str, group: &str, plural: &str) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    format!(
        "add a ClusterRole that allows to {verbs} {plural} in group {group} and has the label \
         sluice.dev/aggregate-to-extension: \"true\""
    )
}
