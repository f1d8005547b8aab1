//! Hold reasons of a call, independent of a record.

use super::table::{act, held, wait};

held! {
    /// Reason to hold a call independent of its gate.
    CallReason:
    "The call, or what the replica that answers knows" {
        /// This replica has not listed an API yet that determines whether Sluice manages the Cluster, or whether the Cluster
        /// requests a release. The message names the API. Only Clusters whose decision depends on that API are held.
        Starting("hook message"): "required API not listed by this replica", Replica, Never,
            wait(
                "10 s after the start of the replica",
                "check the definition of that API, the roles in `manifests/base`, and the API server",
            ),
        /// The cache of this replica would release the call, but the objects that the release depends on could not be read from the API
        /// server within 500 ms, or too many other reads were in flight. The message names an object. The log of the replica names the cause of
        /// a failed read. The call is repeated after a second, possibly by another replica.
        ReleaseNotConfirmed("hook message, log (`Failed to confirm release`)"): "release not confirmed by the API server", Replica, Never,
            wait(
                "1 s, or as long as the API server is unavailable or overloaded",
                "check the network between this replica and the API server, and the roles in `manifests/base`",
            ),
        /// This replica has observed no acquisition or renewal of the leader lease for the lease duration plus 45 s, so no replica
        /// updates records. Unmanaged Clusters and released deletions are not held.
        NoLeader("hook message, log (`No leader: …`, `A replica leads again`)"): "no Sluice replica holds the leader lease", Lag, Never,
            act("check the logs of the replicas, the lease `sluice-leader`, and the Role that permits writing it"),
        /// Sluice manages the Cluster, but the leader has not reconciled it yet.
        RecordNotFound("hook message"): "Cluster not reconciled yet", Lag, Never,
            wait("10 s", "check the log of the leader"),
        /// Another release of Sluice wrote the record.
        RecordSchemaUnknown("hook message"): "waiting for the leader to rewrite the record", Lag, Never,
            act("finish the update of all replicas"),
        /// The record belongs to an earlier Cluster of the same name.
        RecordUIDMismatch("hook message"): "record of an earlier Cluster of this name", Lag, Never,
            wait("10 s, until the leader writes a new record", "check the log of the leader"),
        /// The Cluster was edited after the record was computed. Also for BeforeClusterCreate or BeforeClusterUpgrade of a Cluster
        /// with neither label nor ClusterBootstrap, while the cache of the replica lacks its latest generation or its class.
        ClusterNotObserved("hook message"): "latest edit of the Cluster not observed", Lag, Never,
            wait("10 s", "check the log of the leader, and the network between the replicas and the API server"),
        /// Cluster API calls about an earlier generation of the Cluster than the record has observed, because its cache is outdated. It
        /// would continue without the latest edit, for example without an entry of `TKR_DATA` that Sluice has written since.
        CallOutdated("hook message"): "call about an earlier generation of the Cluster", Lag, Never,
            wait("10 s", "check the log of Cluster API, and the network between Cluster API and the API server"),
        /// The ClusterBootstrap was edited after the record was computed.
        BootstrapNotObserved("hook message"): "latest edit of the ClusterBootstrap not observed", Lag, Never,
            wait("10 s", "check the log of the leader for failed writes of the ClusterBootstrap"),
        /// An UpgradeGate that selects the Cluster was created or edited after the ClusterUpgrade was computed, or the label of the Cluster
        /// that it selects was.
        GatesNotObserved("hook message"): "UpgradeGates not observed", Lag, Never,
            wait("10 s", "check the log of the leader for failed writes of the ClusterUpgrade"),
        /// The release label was edited after the record was computed.
        LabelNotObserved("hook message"): "release label not observed", Lag, Never,
            wait("10 s", "check the log of the leader"),
        /// The record is for another `topology.version`.
        RecordTargetMismatch("hook message"): "target version not observed", Lag, Never,
            wait("10 s", "check the log of the leader"),
        /// Cluster API calls for a version that is not a step of the known upgrade plan.
        VersionNotPlanned("hook message"): "version not in the upgrade plan", Lag, Never,
            act(
                "compare `kubernetesVersions` of the ClusterClass with `status.upgrade.hop`; if Sluice plans the steps, nothing for \
                 10 min, until Cluster API asks for the plan again",
            ),
        /// The UpgradeOverride that opened the gate has expired by the clock of this replica, or the replica does not know the time. The leader
        /// closes the gate.
        OverrideExpired("hook message"): "override expired", Lag, Never,
            act("prove the packages, or create another UpgradeOverride"),
        /// The UpgradeOverride that opened the gate was deleted. The leader closes the gate.
        OverrideRevoked("hook message"): "override deleted", Lag, Never,
            act("prove the packages, or create another UpgradeOverride"),
        /// The gate is closed for a reason that this release does not know.
        GateClosed("hook message"): "gate closed for an unknown reason", Blocked, Never,
            act("finish the update of all replicas"),
        /// Under `/capi-1.11`, the control plane would skip a minor version.
        MinorVersionsSkipped("hook message"): "minor version of the control plane skipped", Blocked, Never,
            act("upgrade one minor at a time, or update Cluster API"),
    }
}
