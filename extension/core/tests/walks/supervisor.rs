//! Clusters on a Supervisor: model of its VirtualMachines, invariants of the answer and of the values that depend on it, and walks.
//!
//! - withdrawn: a recorded answer stays, and all values follow it;
//! - unrecorded: no values are written before an answer is recorded;
//! - selector: values select Nodes by the release of the hop, whose label the entries of all parts give to their Nodes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rstest::rstest;
use serde_json::{Value, json};
use sluice_core::reconcile::cluster::{
    Object, ReadResult,
    Server::{self, Management},
    Verb, Write,
};
use sluice_crds::{
    labels::{annotation, label, name},
    run::{Outcome, SupervisorAnswer},
};

use crate::{
    capi::{brief, record},
    defect::Defect,
    machines::{entries, labelled, release_in, servers_with_images},
    named::SEEN,
    objects::{
        HIGHER_RELEASE, PACKAGES, RELEASES, TEAM, bootstrap, cluster, no_values, of_package,
        version_of_release,
    },
    planted::assert_is_found,
    servers::{Place, Servers, place, refused},
    users::Edit,
    walk::{
        Step::{self, *},
        Walk,
    },
};

/// Name of infrastructure on a Supervisor.
const SUPERVISED: &str = "supervised";

/// The Cluster is created on a Supervisor.
const CREATED: [Step; 10] = [Round; 10];

/// The leader reconciles up to date until it waits for kapp-controller.
const RECONCILED: [[Step; 2]; 6] = [SEEN; 6];

fn virtual_machine() -> Place {
    place(Management, "virtualmachines", TEAM, "one-node")
}

/// Returns the place of an object while which the list of VirtualMachines is refused.
fn refusal() -> Place {
    place(Management, "refusals", "", "virtualmachines")
}

/// Returns the initial state of walks on a Supervisor.
pub(crate) fn servers_on_supervisor() -> Servers {
    let mut servers = servers_with_images();
    servers.edit(&cluster(), |cluster| {
        cluster["spec"]["infrastructureRef"] = json!({
            "apiGroup": "vmware.infrastructure.cluster.x-k8s.io", "kind": "VSphereCluster", "name": SUPERVISED,
        });
    });
    set_virtual_machines(&mut servers, true);
    servers
}

/// Returns the reference to the infrastructure of the Cluster, if this is a walk on vSphere.
fn infrastructure(servers: &Servers) -> Option<&Value> {
    let infrastructure = &servers.get(&cluster())?["spec"]["infrastructureRef"];
    (!infrastructure.is_null()).then_some(infrastructure)
}

/// Whether this is a walk on a Supervisor.
pub(crate) fn is_on_supervisor(servers: &Servers) -> bool {
    infrastructure(servers).is_some_and(|infrastructure| infrastructure["name"] == SUPERVISED)
}

/// Creates or deletes the VirtualMachine of the Cluster.
pub(crate) fn set_virtual_machines(servers: &mut Servers, exist: bool) {
    if exist {
        let labels = json!({label::CAPV_CLUSTER_NAME: "one"});
        servers.put(virtual_machine(), json!({"metadata": {"labels": labels}}));
    } else {
        servers.remove(&virtual_machine());
    }
}

/// Has the management API server refuse the list of VirtualMachines, or answer it.
pub(crate) fn refuse_virtual_machines(servers: &mut Servers, refuses: bool) {
    if refuses {
        servers.put(refusal(), json!({"metadata": {}}));
    } else {
        servers.remove(&refusal());
    }
}

/// Returns the VirtualMachines of the Cluster.
pub(crate) fn virtual_machines(servers: &Servers) -> ReadResult {
    if servers.get(&refusal()).is_some() {
        return ReadResult::Failed(refused(Management, Some(403)));
    }
    let all = servers.of(Management, "virtualmachines");
    ReadResult::Listed(all.map(|(_, object)| Object(object.clone())).collect())
}

/// Returns the content of `tkgs-values.yaml` for Nodes of a release.
pub(crate) fn tkgs_values(release: &str) -> Value {
    let document = json!({
        "nodeSelector": {label::TKR: release},
        "deployment": {
            "updateStrategy": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
        },
        "daemonset": {"updateStrategy": "OnDelete"},
    });
    json!(BASE64_STANDARD.encode(format!("{document}\n")))
}

/// Returns the data of the values Secret of a package with these own values, for Nodes of a release.
pub(crate) fn with_tkgs_values(servers: &Servers, own: Value, release: usize) -> Value {
    if !is_on_supervisor(servers) || own.is_null() {
        return own;
    }
    let mut data = if own == no_values() { json!({}) } else { own };
    data[name::TKGS_VALUES_KEY] = tkgs_values(RELEASES[release]);
    data
}

/// Returns the release whose Nodes a values Secret selects.
fn selected(secret: &Value) -> Option<String> {
    let content = secret["data"][name::TKGS_VALUES_KEY].as_str()?;
    let content = BASE64_STANDARD.decode(content).expect("base64");
    let content: Value = serde_json::from_slice(&content).expect("a document");
    content["nodeSelector"][label::TKR].as_str().map(str::to_owned)
}

fn is_values(write: &Write) -> bool {
    let key = &write.key;
    key.resource.plural == "secrets" && key.name.contains("-data-values-") && write.verb != Verb::Delete
}

fn answer(servers: &Servers) -> Option<SupervisorAnswer> {
    record(servers)?.supervisor
}

/// Whether a release is that of the hop, and the Nodes of the hop get its label. Entries that replace machines by those of a higher release
/// of their version are written later.
fn is_of_hop(servers: &Servers, release: &str) -> bool {
    let Some(index) = RELEASES.iter().position(|known| *known == release) else {
        return false;
    };
    let (Some(cluster), Some(bootstrap)) = (servers.get(&cluster()), servers.get(&bootstrap())) else {
        return false;
    };
    let is_merged = bootstrap["metadata"]["annotations"][annotation::RESOLVED_TKR] == release;
    let entries = entries(cluster, version_of_release(index));
    let are_labelled = entries.iter().all(|entry| release_in(entry) == Some(index));
    let is_requested = labelled(servers) == Some(index)
        && entries
            .iter()
            .all(|entry| release_in(entry).is_some_and(|made_of| made_of < index));
    is_merged && (are_labelled || is_requested)
}

/// Asserts the invariants of the last step of a leader, which made these writes.
pub(crate) fn judge(before: &Servers, after: &Servers, made: &[Write]) {
    if infrastructure(before).is_none() {
        return;
    }
    let (recorded, current) = (answer(before), answer(after));
    assert!(
        recorded.is_none() || current == recorded,
        "withdrawn: {recorded:?} becomes {current:?}"
    );
    for write in made.iter().filter(|write| is_values(write)) {
        let (name, selected) = (&write.key.name, selected(&write.body));
        let Some(recorded) = &recorded else {
            panic!("unrecorded: {name} is written before an answer is recorded");
        };
        assert!(
            selected.is_some() == recorded.found,
            "withdrawn: {name} selects {selected:?}, and the answer is {recorded:?}"
        );
        if let Some(selected) = selected {
            // The step may have merged the packages of the hop.
            assert!(
                is_of_hop(before, &selected) || is_of_hop(after, &selected),
                "selector: {name} selects Nodes of {selected}, whose label the Nodes of the hop do not get"
            );
        }
    }
}

/// Returns the specs of all PackageInstalls.
fn installs(walk: &Walk) -> Vec<Value> {
    let installs = PACKAGES.map(|package| walk.servers.get(&of_package(package, "packageinstalls")).cloned());
    installs
        .into_iter()
        .flatten()
        .map(|install| {
            let metadata = &install["metadata"];
            json!([metadata["uid"], metadata["generation"], install["spec"]])
        })
        .collect()
}

fn created() -> Walk {
    let mut walk = Walk::on_supervisor();
    walk.take(&CREATED);
    walk
}

fn is_completed(walk: &Walk) -> bool {
    record(&walk.servers).is_some_and(|record| record.outcome == Some(Outcome::Completed))
}

#[rstest]
#[case::one_hop(1)]
#[case::two_hops(2)]
fn an_upgrade_completes(#[case] to: usize) {
    let mut walk = created();
    assert_eq!(answer(&walk.servers).map(|answer| answer.found), Some(true));
    walk.step(User(Edit::Target(to)));
    walk.take(&RECONCILED.concat());
    walk.calm();
    walk.finish();
}

#[test]
fn machines_of_another_release_are_made() {
    let mut walk = created();
    walk.step(User(Edit::Label(HIGHER_RELEASE)));
    walk.finish_swap();
}

/// Neither a refusal nor deleted VirtualMachines change an answer, because no request is made.
#[test]
fn a_recorded_answer_stays() {
    let mut walk = created();
    walk.take(&[
        User(Edit::VirtualMachines(false)),
        User(Edit::RefuseVirtualMachines(true)),
        Crash(0),
        User(Edit::Target(1)),
    ]);
    walk.take(&RECONCILED.concat());
    walk.calm();
    walk.finish();
}

#[test]
fn nothing_is_written_without_an_answer() {
    let mut walk = Walk::on_supervisor();
    walk.step(User(Edit::RefuseVirtualMachines(true)));
    walk.take(&CREATED);
    assert_eq!(answer(&walk.servers), None);
    assert_eq!(installs(&walk), Vec::<Value>::new());
    let said = brief(record(&walk.servers).as_ref());
    assert!(said.contains("VirtualMachines cannot be listed"), "{said}");
    walk.step(User(Edit::RefuseVirtualMachines(false)));
    walk.finish();
}

/// After `clusterctl move`, whose objects lose their status, the answer is found again.
#[test]
fn a_moved_cluster_is_asked_again() {
    let mut walk = created();
    walk.step(User(Edit::Move));
    walk.take(&CREATED);
    assert_eq!(answer(&walk.servers).map(|answer| answer.found), Some(true));
    walk.calm();
    walk.finish();
}

#[test]
fn package_installs_of_the_addons_manager_are_kept() {
    let mut walk = created();
    // Another process finds the Cluster.
    walk.take(&[User(Edit::OfAddonsManager), Crash(0)]);
    for package in PACKAGES {
        walk.take(&[Deploy(package)]);
    }
    let before = installs(&walk);
    assert_eq!(before.len(), PACKAGES.len());
    walk.take(&CREATED);
    let said = brief(record(&walk.servers).as_ref());
    assert!(is_completed(&walk), "{said}");
    assert_eq!(installs(&walk), before, "{said}");
    walk.step(User(Edit::Target(1)));
    walk.finish();
    assert_ne!(installs(&walk), before);
}

#[test]
fn a_cluster_without_virtual_machines_gets_its_own_values() {
    let mut walk = Walk::on_supervisor();
    walk.servers.edit(&cluster(), |cluster| {
        cluster["spec"]["infrastructureRef"]["name"] = json!("plain");
    });
    walk.step(User(Edit::VirtualMachines(false)));
    walk.take(&CREATED);
    assert_eq!(answer(&walk.servers).map(|answer| answer.found), Some(false));
    for server in [Server::Workload, Management] {
        let mut secrets = walk.servers.of(server, "secrets");
        assert!(secrets.all(|(_, secret)| selected(secret).is_none()));
    }
    // An answer stays.
    walk.step(User(Edit::VirtualMachines(true)));
    walk.take(&CREATED);
    assert_eq!(answer(&walk.servers).map(|answer| answer.found), Some(false));
}

/// Each planted defect fails one walk by the name of its invariant, and that walk passes without it.
#[rstest]
#[case::withdrawn_answer(
    Defect::SupervisorAnswerUnseen,
    &[User(Edit::VirtualMachines(false)), User(Edit::Target(1))],
    "withdrawn: "
)]
#[case::selector_of_the_wrong_release(Defect::HopUnseen, &[User(Edit::Target(2))], "selector: ")]
fn a_planted_defect_is_found(#[case] defect: Defect, #[case] steps: &[Step], #[case] invariant: &str) {
    let run = |defect: Option<Defect>| {
        let mut walk = created();
        walk.plant(defect);
        walk.take(steps);
        walk.take(&RECONCILED.concat());
        walk
    };
    assert_is_found(|| run(Some(defect)), invariant);
    let mut walk = run(None);
    walk.calm();
    walk.finish();
}
