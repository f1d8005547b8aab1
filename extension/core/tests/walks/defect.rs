//! Planted defects: each walk of [`crate::planted`] about one of them must fail.
//!
//! A defect is a fact that a process does not observe. That equals a product without the clause that depends on this fact.

use serde_json::{Value, json};
use sluice_core::reconcile::cluster::{Server, Verb, Write};
use sluice_crds::labels::{annotation, label, name};
use sluice_test_store::merge;

use crate::{
    connection::time_at,
    objects::{
        PACKAGES, RELEASED, a_release, a_template, bootstrap, cluster, control_plane, package, package_name,
        package_place, release, template, worker,
    },
    overridden::OVERRIDES,
    servers::{Place, Servers, place, place_of},
    supervisor::tkgs_values,
};

/// Defect of the processes in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Defect {
    /// A release needs no read.
    Unconfirmed,
    /// A call shares a read that was sent before it arrived.
    SharedTooLate,
    /// The cache answers the reads of a release.
    ConfirmedByCache,
    /// A replica takes every record for one of the current generation of the Cluster.
    GenerationUnseen,
    /// A replica takes a call about an earlier generation of the Cluster for one about that of the record.
    EarlierGenerationTaken,
    /// A replica takes every record for one of the current label.
    LabelUnseen,
    /// ... of the current ClusterBootstrap.
    BootstrapEditUnseen,
    /// ... of the current Cluster.
    EarlierClusterUnseen,
    /// A leader opens gates without a read of the control plane.
    ControlPlaneUnread,
    /// A leader opens gates without a read of the Cluster.
    ClusterUnread,
    /// A leader opens gates without a read of PackageInstalls and Apps.
    PackagesUnread,
    /// A leader opens gates without a read of the values sources, and of the values Secrets on the workload.
    ValuesUnread,
    /// A leader takes a values source that was created again for the earlier one.
    RecreationUnseen,
    /// A leader opens gates without a read of the UID of the workload.
    ServerUnread,
    /// A leader opens gates without a read of the kubeconfig.
    KubeconfigUnread,
    /// A leader does not observe pauses.
    PauseUnseen,
    /// A leader does not observe that the Cluster is being deleted.
    DeletionUnseen,
    /// A leader takes a control plane for settled once its spec has the version.
    RolloutUnseen,
    /// A leader takes every App for one whose generation kapp-controller has observed.
    ChangeUnseen,
    /// A leader takes a run in progress for a success.
    RunUnseen,
    /// A leader does not observe that a run has failed since the proof.
    FailureUnseen,
    /// A leader does not observe that a package is paused or canceled.
    StopUnseen,
    /// A leader finds no PackageInstall to uninstall.
    InstallsUnlisted,
    /// A leader takes a silent workload for one that serves the objects of its caches.
    SilenceUnseen,
    /// A leader takes packages that were deployed on an earlier version of the API server for deployed on the current one.
    StageUnseen,
    /// A write ignores its preconditions.
    PreconditionIgnored,
    /// A leader writes entries of machines without a read of the ClusterClass.
    ClassUnread,
    /// ... of the TanzuKubernetesRelease.
    ReleaseUnread,
    /// ... of the OSImages.
    ImagesUnread,
    /// A leader does not observe that a release is deactivated.
    DeactivationUnseen,
    /// A leader takes a topology for one that Cluster API has reconciled.
    ChangeOfTopologyUnseen,
    /// A leader takes all machines for replaced.
    ReplacementUnseen,
    /// The webhook takes workers for those of the version of the control plane.
    DeferralUnseen,
    /// A leader takes the UID of the management cluster for that of another one.
    OwnServerUnseen,
    /// A leader takes a Cluster for one whose kapp-controller was never installed by Sluice.
    InstallerUnseen,
    /// A leader does not observe the recorded answer about a Supervisor.
    SupervisorAnswerUnseen,
    /// A leader selects Nodes by the label of the Cluster, whatever the hop.
    HopUnseen,
    /// A leader takes every release, template and Package of the beginning for existing.
    AbsenceUnseen,
    /// A leader does not observe which Kubernetes versions a Package permits.
    SelectionUnseen,
    /// A leader takes the verdict of admission for evidence: it observes no change of the catalogue since the target was set.
    VerdictTaken,
    /// A leader takes the packages of any release for those that a rollback goes back to.
    ReleaseOfPackagesUnseen,
    /// A rollback keeps the open gates of the cancelled upgrade.
    GatesCarried,
    /// A leader takes its own steps of an upgrade for those of Cluster API, whatever the Cluster shows.
    ShownStepsUnseen,
    /// A replica takes the gates of a record for those of any step.
    StepOfGateUnseen,
    /// A leader opens gates by overrides without a read of them.
    OverrideUnread,
    /// ... of the policy by which they name their user.
    PolicyUnread,
    /// A leader takes every override for one of the current Cluster.
    ClusterOfOverrideUnseen,
    /// ... of the version of the hop.
    VersionOfOverrideUnseen,
    /// ... of the release of the hop.
    ReleaseOfOverrideUnseen,
    /// ... of the workers.
    GateOfOverrideUnseen,
    /// ... of every package.
    PackagesOfOverrideUnseen,
    /// ... that has not expired.
    ExpiryUnseen,
    /// A leader does not observe that an override is gone.
    RevocationUnseen,
    /// A leader takes the policy of overrides, and its binding, for as old as the API server.
    PolicyAgeUnseen,
    /// A leader does not observe which overrides existed before the upgrade.
    SpentOverridesUnseen,
    /// A leader takes the overrides in its cache for all that exist.
    OverridesUnlisted,
    /// A replica takes every override for one that has not expired.
    ClockUnseen,
}

impl Defect {
    /// Whether a leader takes an object of this kind from the cache where it must read it.
    pub(crate) fn is_unread(self, plural: &str) -> bool {
        match self {
            Self::ControlPlaneUnread => plural == "goods",
            Self::ClusterUnread => plural == "clusters",
            Self::PackagesUnread => ["packageinstalls", "apps"].contains(&plural),
            Self::ValuesUnread => plural == "secrets",
            Self::ServerUnread => plural == "namespaces",
            Self::ClassUnread => plural == "clusterclasses",
            Self::ReleaseUnread => plural == "tanzukubernetesreleases",
            Self::ImagesUnread => plural == "osimages",
            Self::OverrideUnread | Self::RevocationUnseen => plural == OVERRIDES,
            Self::PolicyUnread => plural.starts_with("validatingadmissionpolic"),
            _ => false,
        }
    }

    /// Whether a leader takes objects of this kind from the cache where it must list them.
    pub(crate) fn is_unlisted(self, plural: &str) -> bool {
        self.is_unread(plural) || self == Self::OverridesUnlisted && plural == OVERRIDES
    }

    /// Returns an object as a leader observes it.
    pub(crate) fn seen(self, place: &Place, mut object: Value) -> Value {
        let plural = place.1.as_str();
        let is_package = ["packageinstalls", "apps"].contains(&plural);
        match self {
            Self::PauseUnseen if *place == cluster() || *place == bootstrap() => {
                remove(&mut object["spec"], |field| field == "paused");
                remove(&mut object["metadata"]["annotations"], |field| {
                    field.starts_with(annotation::BEFORE_UPGRADE_PREFIX)
                });
            }
            Self::DeletionUnseen if *place == cluster() => {
                remove(&mut object["metadata"], |field| field == "deletionTimestamp");
            }
            Self::RolloutUnseen if *place == control_plane() => {
                object["status"]["version"] = object["spec"]["version"].clone();
            }
            Self::ChangeUnseen if plural == "apps" => {
                object["status"]["observedGeneration"] = object["metadata"]["generation"].clone();
            }
            Self::RunUnseen if is_package && object["status"]["conditions"][0]["type"] == "Reconciling" => {
                object["status"]["conditions"] = json!([{"type": "ReconcileSucceeded", "status": "True"}]);
            }
            Self::FailureUnseen if plural == "apps" => {
                remove(&mut object["status"], |field| {
                    field == "consecutiveReconcileFailures"
                });
            }
            Self::StopUnseen if is_package => {
                remove(&mut object["spec"], |field| {
                    field == "paused" || field == "canceled"
                });
            }
            Self::SupervisorAnswerUnseen if *place == bootstrap() => {
                if let Some(record) = object.pointer_mut("/status/upgrade") {
                    remove(record, |field| field == "supervisor");
                }
            }
            Self::SpentOverridesUnseen if *place == bootstrap() => {
                if let Some(record) = object.pointer_mut("/status/upgrade") {
                    record["spentOverrides"] = json!([]);
                }
            }
            Self::PolicyAgeUnseen if plural.starts_with("validatingadmissionpolic") => {
                object["metadata"]["creationTimestamp"] = json!(time_at(0).to_string());
            }
            Self::ReleaseOfPackagesUnseen if *place == bootstrap() => {
                let record = &object["status"]["upgrade"];
                let release = record["rollback"]["release"].clone();
                if record["outcome"].is_null() && !release.is_null() {
                    object["metadata"]["annotations"][annotation::RESOLVED_TKR] = release;
                }
            }
            Self::DeactivationUnseen if plural == "tanzukubernetesreleases" => {
                remove(&mut object["metadata"]["labels"], |field| {
                    field == label::DEACTIVATED
                });
            }
            Self::SelectionUnseen if plural == "packages" => {
                remove(&mut object["spec"], |field| field == "kubernetesVersionSelection");
            }
            Self::ShownStepsUnseen if *place == cluster() => {
                for part in ["/status/controlPlane", "/status/workers"] {
                    if let Some(part) = object.pointer_mut(part) {
                        remove(part, |field| field == "upgradePlan");
                    }
                }
                object["metadata"]["annotations"][annotation::UPGRADE_STEP] = json!("");
            }
            Self::InstallerUnseen if *place == bootstrap() => {
                if let Some(record) = object.pointer_mut("/status/upgrade") {
                    record["kappController"] = json!("Unmanaged");
                }
            }
            Self::ChangeOfTopologyUnseen if *place == cluster() => {
                let generation = object["metadata"]["generation"].clone();
                if let Some(condition) = object.pointer_mut("/status/conditions/0") {
                    condition["observedGeneration"] = generation;
                }
            }
            Self::ReplacementUnseen if plural == "goods" || plural == "machinedeployments" => {
                let generation = object["metadata"]["generation"].clone();
                object["status"]["observedGeneration"] = generation;
                object["status"]["upToDateReplicas"] = object["status"]["replicas"].clone();
            }
            _ => {}
        }
        object
    }

    /// Returns an override as a leader with these caches observes it.
    pub(crate) fn overridden(self, seen: &Servers, mut object: Value) -> Value {
        let at = |place: &Place, field: &str| {
            let found = seen.get(place).and_then(|found| found.pointer(field));
            found.cloned().unwrap_or_default()
        };
        let (field, value) = match self {
            Self::ClusterOfOverrideUnseen => ("/clusterUID", at(&cluster(), "/metadata/uid")),
            Self::VersionOfOverrideUnseen => (
                "/target/kubernetesVersion",
                at(&bootstrap(), "/status/upgrade/hop"),
            ),
            Self::ReleaseOfOverrideUnseen => ("/target/release", at(&bootstrap(), "/status/upgrade/tkr")),
            Self::GateOfOverrideUnseen => ("/gate", json!("Workers")),
            Self::PackagesOfOverrideUnseen => ("/packages", json!(["*"])),
            // Within seven days after the creation.
            Self::ExpiryUnseen => ("/expiresAt", json!(time_at(600_000).to_string())),
            _ => return object,
        };
        if let Some(seen) = object["spec"].pointer_mut(field) {
            *seen = value;
        }
        object
    }

    /// Changes the watched objects of a leader. `before` is what they were, and `admitted` what they were when the current target was first
    /// observed.
    pub(crate) fn watched(
        self,
        before: &Servers,
        seen: &mut Servers,
        admitted: &mut Option<(Value, Servers)>,
    ) {
        match self {
            Self::RevocationUnseen => {
                for (place, object) in before.of(Server::Management, OVERRIDES) {
                    if seen.get(place).is_none() {
                        seen.set(place.clone(), object.clone());
                    }
                }
            }
            Self::AbsenceUnseen => add_missing(seen),
            Self::VerdictTaken => {
                let cluster = seen.get(&cluster());
                let to = cluster.map(|cluster| cluster["spec"]["topology"]["version"].clone());
                let is_known = |(known, _): &&(Value, Servers)| to.as_ref() == Some(known);
                if let Some((_, objects)) = admitted.as_ref().filter(is_known) {
                    seen.take_over_kinds(Server::Management, &CATALOGUE, objects);
                } else {
                    *admitted = to.map(|to| (to, seen.clone()));
                }
            }
            _ => {}
        }
    }

    /// Returns a write as a leader makes it.
    pub(crate) fn made(self, servers: &Servers, mut write: Write) -> Write {
        let label = servers
            .get(&cluster())
            .and_then(|cluster| cluster["metadata"]["labels"][label::TKR].as_str());
        if self == Self::HopUnseen
            && write.key.resource.plural == "secrets"
            && let Some(label) = label
            && let Some(data) = write.body.get_mut("data")
            && let Some(content) = data.get_mut(name::TKGS_VALUES_KEY)
        {
            *content = tkgs_values(label);
        }
        if self == Self::GatesCarried && write.verb == Verb::ReplaceStatus {
            carry_gates(servers, &mut write);
        }
        write
    }

    /// Returns the objects of a replica as its webhook observes them.
    pub(crate) fn reviewed(self, servers: &Servers) -> Servers {
        let mut servers = servers.clone();
        if self == Self::DeferralUnseen
            && let (Some(plane), Some(mut workers)) =
                (servers.get(&control_plane()), servers.get(&worker()).cloned())
        {
            let version = plane["spec"]["version"].clone();
            workers["status"]["versions"][0]["version"] = version.clone();
            workers["spec"]["template"]["spec"]["version"] = version;
            servers.set(worker(), workers);
        }
        servers
    }

    /// Returns the PackageInstall after a write that requests the same package and values for another version of the API server, if a
    /// leader takes its package for deployed.
    pub(crate) fn taken_for_deployed(self, servers: &Servers, write: &Write) -> Option<Value> {
        let Write { key, verb, body, .. } = write;
        let is_of_values = key.resource.plural == "packageinstalls"
            && *verb == Verb::Patch
            && body["spec"]["packageRef"].is_null();
        let values = |spec: &Value| {
            let name = spec["values"][0]["secretRef"]["name"].as_str()?;
            let namespace = key.namespace.as_deref().unwrap_or_default();
            let secret = servers.get(&place(key.server, "secrets", namespace, name))?;
            Some(secret["data"].clone())
        };
        let mut install = servers.get(&place_of(key))?.clone();
        let (before, after) = (values(&install["spec"])?, values(&body["spec"])?);
        if self != Self::StageUnseen || !is_of_values || before != after {
            return None;
        }
        merge(&mut install, body);
        Some(install)
    }

    /// Returns the objects of a replica with the record that it takes for one of the call.
    pub(crate) fn recorded(
        self,
        servers: &Servers,
        call: &sluice_core::gate::hook_call::HookCall<'_>,
    ) -> Servers {
        let mut servers = servers.clone();
        let Some(mut bootstrap) = servers.get(&bootstrap()).cloned() else {
            return servers;
        };
        let generation = bootstrap["metadata"]["generation"].clone();
        let Some(record) = bootstrap.pointer_mut("/status/upgrade") else {
            return servers;
        };
        match self {
            Self::GenerationUnseen => record["observedClusterGeneration"] = json!(call.generation),
            Self::EarlierGenerationTaken
                if record["observedClusterGeneration"].as_i64() > Some(call.generation) =>
            {
                record["observedClusterGeneration"] = json!(call.generation);
            }
            Self::LabelUnseen => record["label"] = json!(call.label),
            Self::BootstrapEditUnseen => record["observedBootstrapGeneration"] = generation,
            Self::EarlierClusterUnseen => record["clusterUID"] = json!(call.uid),
            Self::StepOfGateUnseen => {
                let gates = record["gates"].as_array_mut().into_iter().flatten();
                for gate in gates.filter(|gate| gate["hook"] == call.hook.as_str()) {
                    gate["version"] = json!(call.first_step.unwrap_or(call.version));
                }
            }
            _ => return servers,
        }
        servers.set(crate::objects::bootstrap(), bootstrap);
        servers
    }
}

/// Kinds of the objects that admission judges.
const CATALOGUE: [&str; 3] = ["tanzukubernetesreleases", "clusterbootstraptemplates", "packages"];

/// Adds the initial releases, templates and Packages that do not exist.
fn add_missing(seen: &mut Servers) {
    for version in 0..RELEASED {
        let mut objects = vec![
            (release(version), a_release(version)),
            (template(version), a_template(version)),
        ];
        objects.extend(PACKAGES.map(|which| {
            let place = package_place(&package_name(which, version));
            (place, package(which, version, "a"))
        }));
        for (place, object) in objects {
            if seen.get(&place).is_none() {
                seen.put(place, object);
            }
        }
    }
}

/// Returns a PackageInstall or an App as if it were deployed with the values in this spec of the PackageInstall.
pub(crate) fn deployed_with(spec: &Value, plural: &str, mut object: Value) -> Value {
    match plural {
        "packageinstalls" => object["spec"]["values"] = spec["values"].clone(),
        "apps" => {
            if let Some(tool) = object.pointer_mut("/spec/template/0/ytt") {
                tool["valuesFrom"] = spec["values"].clone();
            }
        }
        _ => return object,
    }
    object["spec"]["syncPeriod"] = spec["syncPeriod"].clone();
    object
}

/// Opens the gates in the first record of a rollback that are open in the record of the cancelled upgrade.
fn carry_gates(servers: &Servers, write: &mut Write) {
    let found = servers
        .get(&place_of(&write.key))
        .map(|object| object["status"]["upgrade"].clone());
    let (Some(before), Some(record)) = (found, write.body.pointer_mut("/status/upgrade")) else {
        return;
    };
    if record["rollback"].is_null() || record["rollback"] == before["rollback"] {
        return;
    }
    let was_open = |gate: &Value| {
        let mut gates = before["gates"].as_array().into_iter().flatten();
        gates.any(|other| {
            other["open"] == true && other["hook"] == gate["hook"] && other["version"] == gate["version"]
        })
    };
    for gate in record["gates"].as_array_mut().into_iter().flatten() {
        if was_open(gate) {
            gate["open"] = json!(true);
        }
    }
}

fn remove(of: &mut Value, is_removed: impl Fn(&str) -> bool) {
    if let Some(fields) = of.as_object_mut() {
        fields.retain(|field, _| !is_removed(field));
    }
}
