//! Summarizes the conditions of kapp-controller.

use std::fmt;

use sluice_crds::foreign::{App, PackageInstall, condition};

/// Summary of kapp-controller's conditions of a PackageInstall or App.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summary {
    /// Reconciliation is in progress.
    Reconciling,
    /// The last attempt failed.
    ReconcileFailed,
    /// The last attempt succeeded.
    ReconcileSucceeded,
    /// Deletion is in progress.
    Deleting,
    /// The deletion failed.
    DeleteFailed,
}

impl Summary {
    /// All summaries, by descending precedence.
    pub const ALL: [Self; 5] = [
        Self::Reconciling,
        Self::ReconcileFailed,
        Self::ReconcileSucceeded,
        Self::Deleting,
        Self::DeleteFailed,
    ];

    /// Returns the type of kapp-controller's condition.
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

    /// Returns the first condition in [`Summary::ALL`] that is true, as in the addons-manager.
    #[must_use]
    pub fn of(conditions: &[condition::Condition]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|summary| condition::is_true(conditions, summary.as_str()))
    }

    /// Summarizes the conditions of a PackageInstall.
    #[must_use]
    pub fn of_install(install: &PackageInstall) -> Option<Self> {
        Self::of(&install.status.as_ref()?.conditions)
    }

    /// Summarizes the conditions of an App.
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
