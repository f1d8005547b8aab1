//! Which kinds may be read that an object of a tenant names: those that keep to a contract of Cluster API.

/// Whether a CustomResourceDefinition with these labels says to which contract of Cluster API the kind keeps. One is
/// `cluster.x-k8s.io/v1beta2`.
#[must_use]
pub fn is_named<'a>(mut labels: impl Iterator<Item = &'a String>) -> bool {
    labels.any(|label| {
        let version = label.strip_prefix("cluster.x-k8s.io/v");
        version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
    })
}

/// Why a kind of `group` may not be read whose definition names no contract.
#[must_use]
pub fn missing(definition: &str, group: &str) -> String {
    format!(
        "CustomResourceDefinition {definition} does not exist or has no label cluster.x-k8s.io/<contract version>; \
         name a kind of a control plane provider, or start Sluice with --control-plane-group={group}"
    )
}

/// Why it is not known how a kind is served: the API server answered with this status, or not at all.
#[must_use]
pub fn unanswered(code: Option<u16>) -> String {
    match code {
        Some(code) => format!("the API server refused to say how it is served with {code}"),
        None => "the API server does not answer".to_owned(),
    }
}

/// The same where its definition was asked for.
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
