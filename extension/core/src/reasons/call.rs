//! Why a call is held, as far as no record says it.

use super::table::held;

held! {
    /// Why a call is held whatever its gate says.
    CallReason:
    "The call, or what the replica that answers knows" {
        /// This replica has not read yet what tells whether Sluice manages the Cluster, and whether it asks for a release to be
        /// resolved. The message names the API that it has not listed. Only Clusters whose answer depends on that API are held.
        Starting("hook message"):
            "nothing; if it lasts, look at the definition of that API, at the roles in `manifests/base`, and at the API server",
        /// For more than 45 s this replica has had no proof from the API server that it has missed no change of a Cluster,
        /// ClusterBootstrap or TanzuKubernetesRelease. It stays ready and ends the connection with its answer, so that the next call
        /// may reach another replica.
        ReplicaStale("hook message, log (`Stale: …`, `Current again: …`)"):
            "nothing while the API server is away; otherwise look at the way from this replica to it",
        /// For 45 s longer than a lease lasts this replica has not seen that any replica takes or renews it: what records say is not
        /// looked at any more. Clusters without Sluice, and deletions that were let go on, are not held.
        NoLeader("hook message, log (`No leader: …`, `A replica leads again`)"):
            "look at the log of the replicas, at the lease `sluice-leader`, and at the Role that lets them write it",
        /// The Cluster is managed, but the leader has not looked at it yet.
        RecordNotFound("hook message"): "nothing; if it lasts, look at the leader's log",
        /// The record was written by another release of Sluice.
        RecordSchemaUnknown("hook message"): "finish the update of all replicas",
        /// The record is of an earlier Cluster of the same name.
        RecordUIDMismatch("hook message"): "nothing; it is written again",
        /// The Cluster was edited after the record was computed. Also: BeforeClusterCreate or BeforeClusterUpgrade is called for a Cluster
        /// with neither label nor ClusterBootstrap which the replica has not seen yet as it is, or whose class it has not seen.
        ClusterNotObserved("hook message"): "nothing",
        /// The ClusterBootstrap was edited after the record was computed.
        BootstrapNotObserved("hook message"): "nothing",
        /// The release label was edited after the record was computed.
        LabelNotObserved("hook message"): "nothing",
        /// The record is for another `topology.version`.
        RecordTargetMismatch("hook message"): "nothing",
        /// Cluster API asks about a version that is no step of the known way.
        VersionNotPlanned("hook message"): "compare `kubernetesVersions` of the ClusterClass with `status.upgrade.hop`",
        /// The gate is closed for a reason that this release does not know.
        GateClosed("hook message"): "finish the update of all replicas",
        /// Under `/capi-1.11`, the control plane would skip a minor version.
        MinorVersionsSkipped("hook message"): "upgrade one minor at a time, or update Cluster API",
    }
}
