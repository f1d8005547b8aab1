//! Checks that a plan lacks.

use serde::Serialize;

/// Check that was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct NotMade {
    /// Name of the check.
    pub check: &'static str,
    /// Reason on one line.
    pub why: String,
}

impl NotMade {
    /// Returns a check that the user did not ask for.
    pub(super) fn not_asked(check: &'static str, flag: &str) -> Self {
        Self {
            check,
            why: format!("not asked for; add {flag}"),
        }
    }
}
