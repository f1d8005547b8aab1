//! What the watch of a kind sees, as far as it says something of the server.

use kube::core::ApiResource;

use crate::limits::GivenUp;
use crate::rbac::missing_rule;

/// What a watch has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// An object that is new, changed or gone.
    Changed,
    /// The store holds every object of the server.
    Filled,
    /// The store was emptied, and why.
    Emptied(GivenUp),
    /// A list or watch failed.
    Failed(Failure),
}

/// How a list or watch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// It was a list.
    pub of_list: bool,
    /// The server answered, with an error.
    pub answered: bool,
    /// The status that it answered with, instead of a list or watch.
    pub code: Option<u16>,
}

impl Failure {
    /// A watch that was not answered.
    pub const WATCH: Self = Self {
        of_list: false,
        answered: false,
        code: None,
    };

    /// The status of a refusal, which another try does not change at once.
    #[must_use]
    pub fn refusal(&self) -> Option<u16> {
        self.code.filter(|code| (400..429).contains(code))
    }

    /// Why objects of a kind cannot be read: one line.
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
    fn a_failure_says_why(#[case] code: Option<u16>, #[case] of_list: bool, #[case] why: &str) {
        let failure = Failure {
            of_list,
            answered: code.is_some(),
            code,
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Foo"));
        let said = failure.why(&resource);
        assert!(said.starts_with(why), "{said}");
    }
}
