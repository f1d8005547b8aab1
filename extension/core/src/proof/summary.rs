//! kapp-controller's conditions, summarized.

use std::fmt;

use sluice_crds::foreign::{App, PackageInstall, condition};

/// What kapp-controller's conditions of a PackageInstall or App come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summary {
    /// It is being worked on.
    Reconciling,
    /// The last attempt failed.
    ReconcileFailed,
    /// The last attempt succeeded.
    ReconcileSucceeded,
    /// It is being removed.
    Deleting,
    /// Its removal failed.
    DeleteFailed,
}

impl Summary {
    /// Every summary, the one that counts most first.
    pub const ALL: [Self; 5] = [
        Self::Reconciling,
        Self::ReconcileFailed,
        Self::ReconcileSucceeded,
        Self::Deleting,
        Self::DeleteFailed,
    ];

    /// The type of kapp-controller's condition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reconciling => "Reconciling",
            Self::ReconcileFailed => "ReconcileFailed",
            Self::ReconcileSucceeded => "ReconcileSucceeded",
            Self::Deleting => "Deleting",
            Self::DeleteFailed => "DeleteFailed",
        }
    }

    /// The first condition in [`Summary::ALL`] that is true, as the addons-manager read them.
    #[must_use]
    pub fn of(conditions: &[condition::Condition]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|summary| condition::is_true(conditions, summary.as_str()))
    }

    /// What the conditions of a PackageInstall come to.
    #[must_use]
    pub fn of_install(install: &PackageInstall) -> Option<Self> {
        Self::of(&install.status.as_ref()?.conditions)
    }

    /// What the conditions of an App come to.
    #[must_use]
    pub fn of_app(app: &App) -> Option<Self> {
        Self::of(&app.status.as_ref()?.conditions)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
