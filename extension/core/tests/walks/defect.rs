//! Planted defects: each walk of [`crate::named`] about one of them must fail.

/// Defect of the processes in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Defect {
    /// A release needs no read.
    Unconfirmed,
    /// A call shares a read that was sent before it arrived.
    SharedTooLate,
    /// The cache answers the reads of a release.
    ConfirmedByCache,
    /// A leader opens gates without a read of the control plane.
    ControlPlaneUnread,
    /// A leader opens gates without a read of the Cluster.
    ClusterUnread,
}
