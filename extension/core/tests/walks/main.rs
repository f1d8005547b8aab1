//! Random walks: the real `reconcile` against models of two API servers, kapp-controller and Cluster API.
//!
//! Each step of a walk is one event: a read or write of a reconcile, a watch event, the start, end or interruption of a kapp-controller
//! run, a user's edit, a refused or unanswered request, a crashed or frozen process, a restored API server. Invariants:
//! - early: a gate opens only if each package was deployed from its source at some time during the reconcile that opens the gate;
//! - stale: each release was open in a record of the current Cluster and ClusterBootstrap on the API server at some moment between call
//!   and answer, whatever the age of the caches;
//! - deleted: a deletion is released only after its additional package was uninstalled, or cannot be, or after the limit of a deletion;
//! - outdated: a gate opens only for a state that the Cluster had at some time during the reconcile that opens the gate;
//! - paused: a reconcile whose caches show a pause or a deletion writes no PackageInstall;
//! - order: a reconcile with current caches writes no PackageInstall of the workload unless kapp-controller is deployed, and not stopped;
//! - open: a gate closes within a few reconciles after its proofs become invalid, or a pause begins;
//! - held: with correct inputs, a fair schedule completes the upgrade or the deletion within a bound;
//! - settled: afterwards no reconcile writes, and no gate changes;
//! - missing: afterwards the values that the ClusterBootstrap refers to exist;
//! - drift: Sluice repairs or reports a deletion, an edit or a failure on the workload of a settled Cluster within a sync period;
//! - late: a late write of a dead process overwrites no newer spec, data or status;
//! - itself: no PackageInstall of kapp-controller and no Package is written for the management cluster, and nothing at all for a Cluster
//!   that comes to reach it;
//! - entries of a release in `TKR_DATA` are written, and a record permits it, only if during the reconcile its packages were deployed (early),
//!   the Cluster requested it (outdated), class, release and images gave these entries (unconfirmed), and nothing was paused (paused);
//! - lower, ahead, other, unrecorded: entries replace only those of a lower release, of the version of all machines, by an open record;
//! - re-rendered: no entries are written twice for a release;
//! - pruned: the webhook removes no entry of a version that control plane or workers have;
//! - unmade: no gate before a version of the control plane opens without entries for the version;
//! - ahead, mixed, open, other, unconfirmed: entries for the next version are those of one release, and Cluster API cannot take the version
//!   meanwhile;
//! - generation: no call about an earlier generation of the Cluster than that of the record is released;
//! - withdrawn, unrecorded, selector: the answer about a Supervisor stays, and values follow it and the hop;
//! - plan: a plan names the first step of an upgrade that cannot end, and nothing else of the catalogue;
//! - admission: a change of the target is refused if a finding of its plan may refuse it, and otherwise the reason of a hold is a warning;
//! - record: such an upgrade is held before its first write with the reason of its plan, and any other completes;
//! - premature: packages of a cancelled upgrade go back only when no reconcile of Cluster API is left that takes its version;
//! - unrestored: they go back to exactly those of the snapshot that may, and a rollback ends only then;
//! - unproven: the record of a rollback opens a gate, or ends, only once the packages that went back are deployed;
//! - refused: Cluster API accepts the steps that GenerateUpgradePlan returns;
//! - unplanned: the next hop of a record is the first step that Cluster API shows;
//! - overridden: an override opens only the gate that it names, of the version, release and Cluster that it names, and each other gate and
//!   package still needs a proof;
//! - left, reused: an override that existed on the API server before the record of its upgrade opens no gate, and each releases one step;
//! - unspent: a record lists the overrides by which a step was made;
//! - revoked, expired, unenforced: an override opens a gate only if it exists, has not expired by the clock of the leader, and its policy
//!   exists and is older than the override by the time after which it is applied, at some time during the reconcile; and the gate releases
//!   a call only while it exists, and has not expired by the clock of the replica;
//! - incomplete: a record is completed only after all packages were deployed, whatever was overridden;
//! - early: no swap ends before all machines are made of the new images;
//! - after a crash at any step, or a refused or unanswered request, the final state equals that of the undisturbed run.
//!
//! `WALKS` sets the number of walks, `SEED` their random seed.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test that runs outside of test functions, too"
)]

mod capi;
mod connection;
mod defect;
mod ends;
mod fault;
mod generated;
mod kapp;
mod leader;
mod machines;
mod named;
mod objects;
mod odd;
mod overridden;
mod overrides;
mod planned;
mod planted;
mod pruned;
mod random;
mod replica;
mod rollback;
mod search;
mod servers;
mod supervisor;
mod swap;
mod truth;
mod users;
mod walk;
