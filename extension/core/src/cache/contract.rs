//! Readable kinds among those that tenants name: kinds that implement a contract of Cluster API.

/// Returns whether the labels of a CustomResourceDefinition name a contract of Cluster API, such as `cluster.x-k8s.io/v1beta2`.
#[must_use]
pub fn is_named<'a>(mut labels: impl Iterator<Item = &'a String>) -> bool {
    labels.any(|label| {
        let version = label.strip_prefix("cluster.x-k8s.io/v");
        version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
    })
}

/// Returns the reason why a kind of `group` is not read: its definition names no contract.
#[must_use]
pub fn missing(definition: &str, group: &str) -> String {
    format!(
        "CustomResourceDefinition {definition} does not exist or has no label cluster.x-k8s.io/<contract version>; \
         name a kind of a control plane provider, or start Sluice with --control-plane-group={group}"
    )
}

/// Returns the reason of a failed API discovery; `code` is the status code of the response, if there was one.
#[must_use]
pub fn unanswered(code: Option<u16>) -> String {
    match code {
        Some(code) => format!("the API server refused its API discovery with {code}"),
        None => "the API server does not answer".to_owned(),
    }
}

/// Returns the reason of a failed read of a CustomResourceDefinition.
#[must_use]
pub fn unread(definition: &str, code: Option<u16>) -> String {
    match code {
        Some(403) => {
            format!(
                "Sluice may not get CustomResourceDefinition {definition}; apply the roles of this release"
            )
        }
        code => unanswered(code),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("cluster.x-k8s.io/v1beta2", true)]
    #[case("cluster.x-k8s.io/v1alpha4", true)]
    #[case("cluster.x-k8s.io/provider", false)]
    #[case("cluster.x-k8s.io/v", false)]
    #[case("cluster.x-k8s.io/vsphere", false)]
    #[case("app/v1beta2", false)]
    fn a_contract_is_a_version(#[case] label: &str, #[case] contract: bool) {
        let labels = ["app".to_owned(), label.to_owned()];
        assert_eq!(is_named(labels.iter()), contract);
    }
}
