//! Hold reasons of a call, independent of a record.

use super::table::held;

held! {
    /// Reason to hold a call independent of its gate.
    CallReason:
    "The call, or what the replica that answers knows" {
        /// This replica has not listed an API yet that determines whether Sluice manages the Cluster, or whether the Cluster
        /// requests a release. The message names the API. Only Clusters whose decision depends on that API are held.
        Starting("hook message"):
            "nothing; if it lasts, check the definition of that API, the roles in `manifests/base`, and the API server",
        /// The cache of this replica would release the call, but the objects that the release depends on could not be read from the API
        /// server within 500 ms, or too many other reads were in flight. The message names an object. The log of the replica names the cause of
        /// a failed read. The call is repeated after a second, possibly by another replica.
        ReleaseNotConfirmed("hook message, log (`Failed to confirm release`)"):
            "nothing while the API server is unavailable or overloaded; otherwise check the network between this replica and the API server, \
             and the roles in `manifests/base`",
        /// This replica has observed no acquisition or renewal of the leader lease for the lease duration plus 45 s, so no replica
        /// updates records. Unmanaged Clusters and released deletions are not held.
        NoLeader("hook message, log (`No leader: …`, `A replica leads again`)"):
            "check the logs of the replicas, the lease `sluice-leader`, and the Role that permits writing it",
        /// Sluice manages the Cluster, but the leader has not reconciled it yet.
        RecordNotFound("hook message"): "nothing; if it lasts, check the log of the leader",
        /// Another release of Sluice wrote the record.
        RecordSchemaUnknown("hook message"): "finish the update of all replicas",
        /// The record belongs to an earlier Cluster of the same name.
        RecordUIDMismatch("hook message"): "nothing; the leader writes a new record",
        /// The Cluster was edited after the record was computed. Also for BeforeClusterCreate or BeforeClusterUpgrade of a Cluster
        /// with neither label nor ClusterBootstrap, while the cache of the replica lacks its latest generation or its class.
        ClusterNotObserved("hook message"): "nothing",
        /// The ClusterBootstrap was edited after the record was computed.
        BootstrapNotObserved("hook message"): "nothing",
        /// The release label was edited after the record was computed.
        LabelNotObserved("hook message"): "nothing",
        /// The record is for another `topology.version`.
        RecordTargetMismatch("hook message"): "nothing",
        /// Cluster API calls for a version that is not a step of the known upgrade plan.
        VersionNotPlanned("hook message"): "compare `kubernetesVersions` of the ClusterClass with `status.upgrade.hop`",
        /// The gate is closed for a reason that this release does not know.
        GateClosed("hook message"): "finish the update of all replicas",
        /// Under `/capi-1.11`, the control plane would skip a minor version.
        MinorVersionsSkipped("hook message"): "upgrade one minor at a time, or update Cluster API",
    }
}
