//! Request of hook GenerateUpgradePlan, reduced to the fields that Sluice reads.

use sluice_crds::{
    decode::{Fault, Limit, from_str},
    foreign::cluster::Variables,
};

use crate::{
    decode::CACHED, upgrade::tkr::pinned_versions, upgrade_plan::NoRelease, version::KubernetesVersion,
};

/// One call of GenerateUpgradePlan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanCall {
    /// Namespace of the Cluster.
    pub namespace: String,
    /// Name of the Cluster.
    pub name: String,
    /// UID of the Cluster.
    pub uid: String,
    /// Version of the control plane.
    pub from: String,
    /// Version of the topology.
    pub to: String,
    /// Kubernetes versions for which variable `TKR_DATA` names a release.
    pub pinned: Vec<String>,
}

impl PlanCall {
    /// Whether the upgrade passes minor versions, whose steps depend on releases.
    #[must_use]
    pub fn passes_minors(&self) -> bool {
        let [from, to] = [&self.from, &self.to].map(|text| text.parse::<KubernetesVersion>());
        matches!((from, to), (Ok(from), Ok(to)) if !from.minors_before(&to).is_empty())
    }
}

/// Error for a call that is not answered with steps. The hook cannot hold, so Cluster API retries it after a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    /// A minor version has no release.
    #[error("NoReleaseForMinorVersion: {0}")]
    NoRelease(#[from] NoRelease),
    /// The releases are neither in the cache nor readable.
    #[error("ReleasesNotListed: the TanzuKubernetesReleases could not be listed; Cluster API tries again")]
    NotListed,
}

impl NoPlan {
    /// Returns the spelling in metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NoRelease(_) => "NoReleaseForMinorVersion",
            Self::NotListed => "ReleasesNotListed",
        }
    }
}

/// Returns the Kubernetes versions for which `spec.topology.variables` of a request name a release.
///
/// # Errors
/// The text is no list, or its variables exceed the memory limit of a cached Cluster.
pub fn pinned_in(variables: &str) -> Result<Vec<String>, Fault> {
    // Any other value reads as an empty list.
    if !variables.starts_with('[') {
        return Err(Fault {
            path: ".".to_owned(),
            what: "expected a list".to_owned(),
        });
    }
    let (variables, _): (Variables, _) = from_str(variables, Limit::projected(CACHED))?;
    Ok(pinned_versions(&variables))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::equal("v1.36.3", "v1.36.3", false)]
    #[case::patch("v1.36.1", "v1.36.3", false)]
    #[case::one_minor("v1.35.4", "v1.36.3", false)]
    #[case::two_minors("v1.34.4+vmware.1", "v1.36.3+vmware.2", true)]
    #[case::lower("v1.36.3", "v1.34.4", false)]
    #[case::other_major("v1.34.4", "v2.36.3", false)]
    #[case::unparsable("v1.34.4", "latest", false)]
    fn only_minor_versions_between_depend_on_releases(
        #[case] from: &str,
        #[case] to: &str,
        #[case] expected: bool,
    ) {
        let call = PlanCall {
            namespace: String::new(),
            name: String::new(),
            uid: String::new(),
            from: from.to_owned(),
            to: to.to_owned(),
            pinned: Vec::new(),
        };
        assert_eq!(call.passes_minors(), expected);
    }

    #[rstest]
    #[case::none(json!([]), &[])]
    #[case::other_variable(json!([{"name": "other", "value": {"v1.35.4": {}}}]), &[])]
    #[case::pins(
        json!([
            {"name": "other", "value": 1},
            {"name": "TKR_DATA", "value": {
                "v1.34.4": {"labels": {"run.tanzu.vmware.com/tkr": "34"}},
                "v1.35.4": {"labels": {"run.tanzu.vmware.com/tkr": "35"}, "osImageRef": {}},
            }},
        ]),
        &["v1.34.4", "v1.35.4"]
    )]
    #[case::entries_without_a_release(
        json!([{"name": "TKR_DATA", "value": {
            "v1.33.9": null,
            "v1.34.4": {"osImageRef": {}},
            "v1.35.4": {"labels": {"run.tanzu.vmware.com/tkr": 35}},
            "v1.36.3": {"labels": ["run.tanzu.vmware.com/tkr"]},
        }}]),
        &[]
    )]
    #[case::no_entries(json!([{"name": "TKR_DATA", "value": ["v1.35.4"]}]), &[])]
    #[case::no_value(json!([{"name": "TKR_DATA"}]), &[])]
    fn pins_are_the_entries_that_name_a_release(
        #[case] variables: serde_json::Value,
        #[case] expected: &[&str],
    ) {
        let mut pinned = pinned_in(&variables.to_string()).unwrap();
        pinned.sort_unstable();
        assert_eq!(pinned, expected);
    }

    #[rstest]
    #[case::object("{}".to_owned())]
    #[case::word("\"TKR_DATA\"".to_owned())]
    #[case::cut("[{".to_owned())]
    #[case::empty(String::new())]
    #[case::large(tkr_data(&format!("[{}0]", "0,".repeat(CACHED))))]
    #[case::deep(tkr_data(&format!("{}{}", "[".repeat(1000), "]".repeat(1000))))]
    fn other_variables_are_refused(#[case] variables: String) {
        assert!(pinned_in(&variables).is_err());
    }

    fn tkr_data(value: &str) -> String {
        format!("[{{\"name\": \"TKR_DATA\", \"value\": {value}}}]")
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}\":,a-zA-Z_0-9. ]{0,80}") {
            if let Ok(pinned) = pinned_in(&text) {
                prop_assert!(pinned.is_empty());
            }
        }
    }
}
