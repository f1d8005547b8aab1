//! Overrides that pass a reason.

use std::fmt;

/// Which UpgradeOverrides pass a gate that is closed for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overridable {
    /// None.
    Never,
    /// Those that name the package, or every package.
    Package,
    /// Those that name every package.
    Every,
}

impl Overridable {
    /// Whether an override of every package passes the reason wherever it occurs, and not only for the packages of a gate.
    #[must_use]
    pub const fn is_passed_by_every(self) -> bool {
        matches!(self, Self::Every)
    }
}

/// Cell of a table.
impl fmt::Display for Overridable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Never => "no",
            Self::Package => "the package, or `*`",
            Self::Every => "`*`",
        })
    }
}
