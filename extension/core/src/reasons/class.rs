//! Classes of reasons.

/// Class of a reason: whether it ends without an operator, and what it means for events, phases and retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// An object, a server or a node that is not as Sluice needs it.
    Blocked,
    /// A step of every upgrade, by Sluice or kapp-controller.
    Progress,
    /// A step of every upgrade, by Cluster API. Meanwhile Cluster API calls no hook for the gate.
    ClusterApi,
    /// A user forbids writes. Cluster API still calls hooks.
    Pause,
    /// A user forbids writes, and Cluster API calls no hook.
    ClusterPause,
    /// The Cluster is being deleted, and Cluster API calls no other hook.
    Deletion,
    /// Changes with each retry of kapp-controller, or with each step of a delivery system.
    Retries,
    /// Specific to the called replica: another replica may decide otherwise.
    Replica,
    /// A cache or the record lags behind the call or the API server.
    Lag,
}

impl Class {
    /// Whether writes to the workload cluster are forbidden.
    #[must_use]
    pub const fn is_pause(self) -> bool {
        matches!(self, Self::Pause | Self::ClusterPause)
    }

    /// Whether the reason is a step of every upgrade.
    #[must_use]
    pub const fn is_step(self) -> bool {
        matches!(self, Self::Progress | Self::ClusterApi)
    }

    /// Whether Cluster API calls no hook for a gate that is closed for the reason.
    #[must_use]
    pub const fn is_uncalled(self) -> bool {
        matches!(self, Self::ClusterApi | Self::ClusterPause | Self::Deletion)
    }
}
