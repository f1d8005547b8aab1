//! Signs of the watch of a kind about its server.

use kube::core::ApiResource;

use crate::limits::GivenUp;
use crate::rbac::missing_rule;

/// Sign of a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// An object was created, changed or deleted.
    Changed,
    /// A list completed: the store contains all objects of the server.
    Filled,
    /// The store was emptied, for this reason.
    Emptied(GivenUp),
    /// A list or watch failed.
    Failed(Failure),
}

/// Failure of a list or watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Whether a list failed, not a watch.
    pub of_list: bool,
    /// Whether the server responded with an error.
    pub answered: bool,
    /// Status code of the response.
    pub code: Option<u16>,
}

impl Failure {
    /// Watch without a response.
    pub const WATCH: Self = Self {
        of_list: false,
        answered: false,
        code: None,
    };

    /// Returns the status code of a refusal, which an immediate retry does not change.
    #[must_use]
    pub fn refusal(&self) -> Option<u16> {
        self.code.filter(|code| (400..429).contains(code))
    }

    /// Returns a one-line reason why objects of a kind cannot be read.
    #[must_use]
    pub fn why(&self, resource: &ApiResource) -> String {
        let ApiResource { group, plural, .. } = resource;
        match self.refusal() {
            Some(401 | 403) => format!(
                "Sluice may not read {plural} in group {group}; {}",
                missing_rule("get, list and watch", group, plural)
            ),
            Some(code) => format!("the API server refuses to list {plural} in group {group} with {code}"),
            None => {
                let cannot_be = if self.of_list { "listed" } else { "watched" };
                format!("{plural} in group {group} cannot be {cannot_be}; the log of Sluice says why")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::forbidden(
        Some(403),
        true,
        "Sluice may not read foos in group example.com; add a ClusterRole"
    )]
    #[case::unknown(
        Some(401),
        true,
        "Sluice may not read foos in group example.com; add a ClusterRole"
    )]
    #[case::not_found(
        Some(404),
        true,
        "the API server refuses to list foos in group example.com with 404"
    )]
    #[case::too_many(Some(429), true, "foos in group example.com cannot be listed; ")]
    #[case::a_bug(Some(500), false, "foos in group example.com cannot be watched; ")]
    #[case::silence(None, true, "foos in group example.com cannot be listed; ")]
    fn a_failure_has_a_reason(#[case] code: Option<u16>, #[case] of_list: bool, #[case] why: &str) {
        let failure = Failure {
            of_list,
            answered: code.is_some(),
            code,
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
        let text = failure.why(&resource);
        assert!(text.starts_with(why), "{text}");
    }
}
