//! The three sources, which judge the same objects.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::Package,
    labels::{annotation, name},
    run::{ClusterBootstrap, PackageRecord, PackageState, Readiness, SCHEMA, UpgradeRecord},
};

use super::*;
use crate::{
    digest::DigestInputs,
    kubeconfig,
    packages::bootstrap::PackageFacts,
    reasons::PackageReason,
    reconcile::cluster::{
        Context, Effects, Failure, Interrupt, LocalState, Object, Read, ReadPhase, ReadResult, Server, Step,
        Watched,
        confirm::confirm,
        drift_check::{DriftCheck, check_drift},
        packages::Packages,
        plan::plan,
        tests::{clock, facts},
        validate::validate,
        workload::Reach,
    },
};

const NAME: &str = "antrea.test.1.0.0";
const UID: &str = "workload";

/// Secret that is the values source of the package.
const VALUES: &str = "values";

/// Content of that Secret in the plan.
const PLANNED_VALUES: &str = "YTogMQ==";

/// Token of the current kubeconfig.
const TOKEN: &str = "token";

/// Source of a judgement.
#[derive(Clone, Copy, Debug)]
enum Source {
    Watches,
    Reads,
    Lists,
}

/// Objects of one package on both API servers.
#[derive(Clone, Debug)]
struct World {
    readiness: Readiness,
    install: Value,
    app: Value,
    /// App in the cache, if that is behind.
    cached_app: Option<Value>,
    secret: Value,
    /// Whether the Secret has the label by which it is listed.
    is_labeled: bool,
    /// Package on the management cluster. The cached one is `package("a")`.
    source: Value,
    copy: Value,
    /// First run that the watch observed.
    first: Option<FirstSeenRun>,
    latch: Option<PackageRecord>,
    /// The values source, as read after the plan.
    values: &'static str,
    /// Whether the watches of the workload cluster have their first lists.
    is_filled: bool,
    /// Whether a check before the writes found an input altered.
    was_altered: bool,
    /// Token of the kubeconfig that the connection was opened with.
    token: &'static str,
    /// Reads that the workload API server refuses.
    refused: fn(&Read) -> bool,
}

fn package(path: &str) -> Value {
    json!({
        "apiVersion": "data.packaging.carvel.dev/v1alpha1", "kind": "Package",
        "metadata": {"name": NAME, "namespace": "system", "resourceVersion": "1"},
        "spec": {"refName": "antrea.test", "version": "1.0.0", "template": {"spec": steps(path)}},
    })
}

fn steps(path: &str) -> Value {
    json!({"fetch": [{"inline": {}}], "template": [{"ytt": {"paths": [path]}}], "deploy": [{"kapp": {}}]})
}

fn typed<K: serde::de::DeserializeOwned>(object: &Value) -> Option<K> {
    (!object.is_null()).then(|| serde_json::from_value(object.clone()).unwrap())
}

fn is(condition: &str) -> Value {
    json!([{"type": condition, "status": "True"}])
}

fn run(started_at: &str) -> FirstSeenRun {
    let run = json!({
        "appUID": "app", "appGeneration": 5, "fetchStartedAt": started_at, "deployStartedAt": started_at,
    });
    serde_json::from_value(run).unwrap()
}

/// Sets a field of an object, if the object exists.
fn set(object: &mut Value, [parent, field]: [&str; 2], value: Value) {
    if !object.is_null() {
        object[parent][field] = value;
    }
}

fn planned(context: &Context<'_>) -> Step<Vec<Planned>> {
    let bootstrap = context.facts.bootstrap.as_deref().unwrap();
    let inputs = DigestInputs {
        workload: Some(UID),
        ..DigestInputs::default()
    };
    plan(context, &bootstrap.spec, inputs, None).map(|plan| plan.planned)
}

impl World {
    /// All is proven.
    fn new() -> Self {
        let mut world = Self {
            readiness: Readiness::Reconciled,
            install: Value::Null,
            app: Value::Null,
            cached_app: None,
            secret: Value::Null,
            is_labeled: true,
            source: package("a"),
            copy: package("a"),
            first: None,
            latch: None,
            values: PLANNED_VALUES,
            is_filled: true,
            was_altered: false,
            token: TOKEN,
            refused: |_| false,
        };
        let facts = world.facts();
        let planned = world
            .with_reads(&facts, |context, _| planned(context))
            .unwrap()
            .remove(0);
        world.install = json!(planned.install(&facts));
        world.install["metadata"]["uid"] = json!("install");
        world.install["metadata"]["generation"] = json!(2);
        world.install["status"] =
            json!({"observedGeneration": 2, "version": "1.0.0", "conditions": is("ReconcileSucceeded")});
        world.app = json!({
            "apiVersion": "kappctrl.k14s.io/v1alpha1", "kind": "App",
            "metadata": {
                "name": planned.install_name, "namespace": "system", "uid": "app", "generation": 5,
                "annotations": {annotation::PACKAGE_VERSION: "1.0.0"},
                "ownerReferences": [{"apiVersion": "a", "kind": "b", "name": "c", "uid": "install"}],
            },
            "spec": steps("a"),
            "status": {"observedGeneration": 5, "conditions": is("ReconcileSucceeded")},
        });
        world.app["spec"]["template"][0]["ytt"]["valuesFrom"] =
            json!([{"secretRef": {"name": planned.secret_name}}]);
        let values = planned.values().unwrap();
        world.secret = json!(planned.values_secret(&facts.owner, "system", values));
        world
    }

    /// kapp waits for objects of a run that began at the second second.
    fn waits(&mut self) {
        let at = "1970-01-01T00:00:02Z";
        let step = json!({"exitCode": 0, "startedAt": at, "updatedAt": at});
        let output = "1:00:00AM: ---- waiting on 1 changes [2/3 done] ----\n";
        let deploy = json!({"startedAt": at, "updatedAt": at, "stdout": output});
        set(&mut self.install, ["status", "conditions"], is("Reconciling"));
        set(&mut self.app, ["status", "conditions"], is("Reconciling"));
        set(&mut self.app, ["status", "fetch"], step.clone());
        set(&mut self.app, ["status", "template"], step);
        set(&mut self.app, ["status", "deploy"], deploy);
    }

    /// The App is made from `package("b")`.
    fn is_made_from_another(&mut self) {
        if !self.app.is_null() {
            self.app["spec"]["template"][0]["ytt"]["paths"] = json!(["b"]);
        }
    }

    /// The record has this proof.
    fn is_recorded(&mut self, state: PackageState, proven: Option<Readiness>, generation: i64) {
        let digest = self.secret["metadata"]["name"].as_str().unwrap_or_default();
        let record = json!({
            "name": "antrea", "version": "1.0.0", "state": "Pending",
            "valuesDigest": digest.strip_prefix("one-antrea-data-values-").unwrap_or_default(),
        });
        let record: PackageRecord = serde_json::from_value(record).unwrap();
        self.latch = Some(PackageRecord {
            state,
            app_uid: Some("app".to_owned()),
            app_generation: Some(generation),
            proven_readiness: proven,
            first_seen_run: Some(run("1970-01-01T00:00:01Z")),
            ..record
        });
    }

    fn facts(&self) -> Facts {
        let spec = json!({
            "cni": {"refName": NAME, "valuesFrom": {"secretRef": VALUES}},
            "upgradePolicy": {"packages": [{"package": "antrea", "readiness": self.readiness}]},
        });
        let mut bootstrap = ClusterBootstrap::new("one", serde_json::from_value(spec).unwrap());
        let record = UpgradeRecord {
            schema: SCHEMA,
            cluster_uid: "uid".to_owned(),
            workload_uid: Some(UID.to_owned()),
            packages: self.latch.iter().cloned().collect(),
            ..UpgradeRecord::default()
        };
        bootstrap.status.get_or_insert_default().upgrade = Some(record);
        let of_package = PackageFacts::of(&typed::<Package>(&package("a")).unwrap());
        Facts {
            bootstrap: Some(Arc::new(bootstrap)),
            catalogue: Arc::new([(NAME.to_owned(), of_package)].into()),
            ..facts()
        }
    }

    /// Judges the package by a source. Returns the packages and what a drift check reports.
    fn observed(&self, source: Source) -> Step<(Packages, String)> {
        self.with_reads(&self.facts(), |context, effects| {
            self.packages(source, context, effects)
        })
    }

    /// Calls `step` until its reads are answered.
    fn with_reads<T>(&self, facts: &Facts, step: impl Fn(&Context<'_>, &mut Effects) -> Step<T>) -> Step<T> {
        let local = LocalState::default();
        let mut context = Context::new(facts, &local, clock());
        loop {
            let mut effects = Effects::of(&local);
            match step(&context, &mut effects) {
                Err(Interrupt::Need(reads)) => {
                    for read in reads {
                        let answer = self.answer(&read);
                        context.record_answer(read, answer);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn packages(
        &self,
        source: Source,
        context: &Context<'_>,
        effects: &mut Effects,
    ) -> Step<(Packages, String)> {
        let bootstrap = context.facts.bootstrap.as_deref().unwrap();
        let validated = validate(context)?;
        let mut packages = Packages::of(planned(context)?, Some(UID));
        if let Source::Lists = source {
            let said = match check_drift(context, &validated, bootstrap, &mut packages)? {
                DriftCheck::Differs(what) => what.unwrap_or_default(),
                DriftCheck::Unseen(hold) => hold.to_string(),
                DriftCheck::AsRecorded | DriftCheck::ToRecord => String::new(),
            };
            return Ok((packages, said));
        }
        if self.was_altered {
            let names = packages
                .planned
                .iter()
                .map(|planned| planned.install_name.clone());
            packages.altered = names.collect();
        }
        packages.connected = true;
        packages.kubeconfig = Some(kubeconfig::digest(kubeconfig_with(self.token).as_bytes()));
        packages.reach = Reach::Reached { uid: UID.to_owned() };
        packages.judge(context, effects)?;
        if let Source::Reads = source {
            confirm(context, effects, &validated, bootstrap, &mut packages, &[])?;
        }
        Ok((packages, String::new()))
    }

    /// Returns the judgement of a source, if a drift check does not find an altered input before.
    fn judged(&self, source: Source) -> Option<Judgement> {
        let (packages, _) = self.observed(source).unwrap();
        packages.judged.into_iter().next()
    }

    fn answer(&self, read: &Read) -> ReadResult {
        if (self.refused)(read) {
            return ReadResult::Failed(Failure {
                code: Some(403),
                ..Failure::other(Server::Workload, "forbidden")
            });
        }
        let listed = |object: &Value| {
            let objects = Some(object).filter(|object| !object.is_null());
            ReadResult::Listed(objects.into_iter().cloned().map(Object).collect())
        };
        match read {
            Read::Object(key, phase) if key.name == VALUES => {
                let values = match phase {
                    ReadPhase::Confirm => self.values,
                    ReadPhase::Plan => PLANNED_VALUES,
                };
                ReadResult::Found(Object(
                    json!({"metadata": {"name": VALUES}, "data": {"values.yaml": values}}),
                ))
            }
            Read::Object(key, _) => {
                let found = self.object(key.server, &key.resource.kind, &key.name);
                if found.is_null() {
                    ReadResult::Absent
                } else {
                    ReadResult::Found(Object(found))
                }
            }
            Read::Package(_) => ReadResult::Package(Arc::new(typed(&package("a")).unwrap())),
            Read::Watched(..) => ReadResult::Watched(Box::new(Watched {
                install: typed(&self.install).map(Arc::new),
                app: typed(self.cached_app.as_ref().unwrap_or(&self.app)).map(Arc::new),
                first_seen: self.first.clone(),
                filled: self.is_filled,
            })),
            Read::DriftCheckConnection(_) => ReadResult::Connected(0),
            Read::Installs => listed(&self.install),
            Read::Apps => listed(&self.app),
            Read::PackageNames => listed(&self.copy),
            Read::LabelledSecrets if !self.is_labeled => listed(&Value::Null),
            Read::LabelledSecrets => listed(&self.secret),
            read => panic!("{read:?}"),
        }
    }

    fn object(&self, server: Server, kind: &str, name: &str) -> Value {
        let identity = build::identity("system");
        match (server, kind) {
            (Server::Management, "Secret") => kubeconfig_secret(),
            (Server::Management, "Package") => self.source.clone(),
            (_, "Package") => self.copy.clone(),
            (_, "PackageInstall") => self.install.clone(),
            (_, "App") => self.app.clone(),
            (_, "Secret") if self.secret["metadata"]["name"] == name => self.secret.clone(),
            (_, "Namespace") => {
                let mut namespace = json!(identity.namespace);
                namespace["metadata"]["uid"] = json!(UID);
                namespace
            }
            (_, "ServiceAccount") => json!(identity.service_account),
            (_, "ClusterRole") => json!(identity.cluster_role),
            (_, "ClusterRoleBinding") => json!(identity.cluster_role_binding),
            _ => Value::Null,
        }
    }
}

fn kubeconfig_with(token: &str) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {
            "server": "https://10.0.0.1:6443", "certificate-authority-data": STANDARD.encode("authority"),
        }}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "users": [{"name": "one", "user": {"token": token}}],
    });
    config.to_string()
}

fn kubeconfig_secret() -> Value {
    json!(Secret {
        data: Some(
            [(
                name::KUBECONFIG_KEY.to_owned(),
                k8s_openapi::ByteString(kubeconfig_with(TOKEN).into())
            )]
            .into()
        ),
        ..Secret::default()
    })
}

type Edit = fn(&mut World);

/// Edits of PackageInstall and App, which all sources see.
const OBJECTS: &[Edit] = &[
    World::waits,
    |world| world.install = Value::Null,
    |world| world.app = Value::Null,
    |world| set(&mut world.install, ["spec", "paused"], json!(true)),
    |world| set(&mut world.install, ["metadata", "generation"], json!(3)),
    |world| set(&mut world.install, ["status", "conditions"], is("Reconciling")),
    |world| set(&mut world.app, ["metadata", "generation"], json!(6)),
    |world| set(&mut world.app, ["metadata", "annotations"], json!({})),
    |world| set(&mut world.app, ["status", "conditions"], is("Reconciling")),
    |world| set(&mut world.app, ["status", "conditions"], is("ReconcileFailed")),
    OTHER_PERIOD,
];

/// No clause of [`proof::judge`] covers this field.
const OTHER_PERIOD: Edit = |world| set(&mut world.install, ["spec", "syncPeriod"], json!("7m0s"));

/// State of the inputs, known independently of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Truth {
    Right,
    /// The Secret or the copy is missing or altered.
    Altered,
    /// The copy is altered, and the App is not made from it. A drift check reads the copy only if it is not listed or does not match the App.
    AlteredCopy,
    /// The App is made from another Package.
    NotMade,
    /// The values source or the Package on the management cluster has changed since the plan.
    Outdated,
}

const INPUTS: &[(Truth, Edit)] = &[
    (Truth::Right, |_| {}),
    (Truth::Right, |_| {}),
    (Truth::Right, |world| world.is_labeled = false),
    (Truth::Altered, |world| world.secret = Value::Null),
    (Truth::Altered, |world| {
        set(&mut world.secret, ["data", "more"], json!("YQ=="));
    }),
    (Truth::Altered, |world| world.copy = Value::Null),
    (Truth::AlteredCopy, |world| world.copy = package("b")),
    (Truth::Altered, |world| {
        world.copy = package("b");
        world.is_made_from_another();
    }),
    (Truth::NotMade, World::is_made_from_another),
    (Truth::Outdated, |world| world.source = package("b")),
    (Truth::Outdated, |world| world.values = "YTogMg=="),
];

const LATCHES: &[Edit] = &[
    |_| {},
    |world| world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 5),
    |world| world.is_recorded(PackageState::Ready, Some(Readiness::Applied), 5),
    |world| world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 4),
    |world| world.is_recorded(PackageState::Reconciling, None, 5),
    |world| world.is_recorded(PackageState::Failed, None, 5),
];

prop_compose! {
    fn any_world()(
        objects in prop::collection::vec(prop::sample::select(OBJECTS), 0..3),
        inputs in prop::sample::select(INPUTS),
        latch in prop::sample::select(LATCHES),
        first in prop::option::of(prop::sample::select(vec!["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"])),
        readiness in prop::sample::select(vec![Readiness::Reconciled, Readiness::Applied]),
    ) -> (Truth, World) {
        let mut world = World { readiness, first: first.map(run), ..World::new() };
        latch(&mut world);
        for edit in objects.into_iter().chain([inputs.1]) {
            edit(&mut world);
        }
        (inputs.0, world)
    }
}

/// Returns all of a judgement that evidence of any age and completeness determines.
fn verdict(judged: &Judgement) -> (PackageState, &str, bool) {
    (judged.record.state, &judged.record.reason, judged.settled)
}

fn without_run(judged: Judgement) -> Judgement {
    let record = PackageRecord {
        first_seen_run: None,
        ..judged.record
    };
    Judgement {
        record,
        confirmed: false,
        ..judged
    }
}

proptest! {
    #[test]
    fn sources_agree_and_missing_evidence_confirms_nothing((truth, world) in any_world()) {
        let [watched, read] = [Source::Watches, Source::Reads].map(|source| world.judged(source).unwrap());
        let listed = world.judged(Source::Lists);

        prop_assert!(!watched.confirmed, "watches show no inputs");
        prop_assert!(!listed.as_ref().is_some_and(|listed| listed.confirmed), "the Package is cached");
        prop_assert_eq!(read.confirmed, read.ready() && truth == Truth::Right);
        if read.confirmed {
            prop_assert!(watched.ready() && listed.as_ref().is_some_and(Judgement::ready), "nothing is confirmed that a cache objects to");
        }
        if truth != Truth::AlteredCopy {
            prop_assert_eq!(listed.is_none(), truth == Truth::Altered, "altered inputs end a drift check");
        }
        prop_assert_eq!(
            read.record.repairs == 1,
            matches!(truth, Truth::Altered | Truth::AlteredCopy) && !(world.install.is_null() && world.app.is_null())
        );
        if let Some(listed) = listed.as_ref().filter(|_| truth == Truth::NotMade) {
            prop_assert_eq!(verdict(listed), verdict(&read));
            prop_assert!(!listed.ready());
        }
        if truth == Truth::Right {
            prop_assert_eq!(&Judgement { confirmed: watched.confirmed, ..read.clone() }, &watched);
            prop_assert_eq!(listed.map(without_run), Some(without_run(read)));
        }
    }
}

/// All sources judge the whole spec of the PackageInstall.
#[test]
fn no_source_accepts_another_sync_period() {
    let mut world = World::new();
    OTHER_PERIOD(&mut world);
    for source in [Source::Watches, Source::Reads, Source::Lists] {
        let judged = world.judged(source).unwrap();
        let reason = PackageReason::PackageInstallMismatch.as_str();
        assert_eq!(
            verdict(&judged),
            (PackageState::Reconciling, reason, false),
            "{source:?}"
        );
    }
}

/// What was found altered may be deployed, although its repair is not to be seen.
#[rstest]
#[case::by_watches(Source::Watches)]
#[case::by_reads(Source::Reads)]
fn a_package_that_was_found_altered_is_deployed_again(#[case] source: Source) {
    let mut world = World {
        was_altered: true,
        ..World::new()
    };
    world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 5);
    let judged = world.judged(source).unwrap();
    let reason = PackageReason::PackageInstallPending.as_str();
    assert_eq!(verdict(&judged), (PackageState::Pending, reason, false));
    assert_eq!(judged.record.repairs, 1);
}

/// Without a complete list, a missing object is no evidence.
#[test]
fn watches_without_their_first_lists_leave_the_recorded_proof() {
    let mut world = World {
        is_filled: false,
        ..World::new()
    };
    world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 5);
    (world.install, world.app) = (Value::Null, Value::Null);
    let judged = world.judged(Source::Watches).unwrap();
    assert!(judged.ready() && !judged.confirmed);
}

#[test]
fn a_recorded_proof_confirms_nothing_without_objects() {
    let mut world = World::new();
    world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 5);
    let facts = world.facts();
    let planned = world.with_reads(&facts, |context, _| planned(context)).unwrap();
    let inputs = Inputs {
        source: Input::AsPlanned,
        values: Input::AsPlanned,
        copy: Input::AsPlanned,
        app: Input::AsPlanned,
    };
    let evidence = Evidence {
        objects: None,
        first_seen_run: None,
        inputs,
        altered: false,
    };
    let judged = judge(&facts, Some(UID), &planned[0], &evidence);
    assert!(judged.ready() && !judged.confirmed);
}

/// A list shows only the run of its moment.
#[test]
fn the_first_run_of_an_app_is_that_of_the_watch() {
    let [first, shown] = ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"].map(run);
    let mut world = World {
        readiness: Readiness::Applied,
        first: Some(first.clone()),
        ..World::new()
    };
    world.waits();
    for (source, expected) in [
        (Source::Watches, &first),
        (Source::Reads, &first),
        (Source::Lists, &shown),
    ] {
        let judged = world.judged(source).unwrap();
        assert_eq!(
            judged.record.first_seen_run.as_ref(),
            Some(expected),
            "{source:?}"
        );
        assert!(!judged.ready(), "{source:?}: the first run is not recorded");
    }
}

/// Neither a watch nor a list shows the difference. The message of the package names the watch if the watch was behind.
#[rstest]
#[case::app_of_an_earlier_generation(
    |world: &mut World| {
        world.cached_app = Some(world.app.clone());
        world.app["metadata"]["generation"] = json!(6);
    },
    PackageReason::AppNotObserved,
    "waiting for kapp-controller to observe the App (the watch differed from the API server)"
)]
#[case::app_that_is_gone(
    |world: &mut World| world.cached_app = Some(world.app.take()),
    PackageReason::AppNotFound,
    "waiting for kapp-controller to create the App (the watch differed from the API server)"
)]
#[case::app_from_another_package(
    World::is_made_from_another,
    PackageReason::AppTemplateMismatch,
    "waiting for an App made from the current content of Package antrea.test.1.0.0"
)]
#[case::altered_secret(
    |world: &mut World| world.secret["data"] = json!({}),
    PackageReason::PackageInstallPending,
    "the copy of the Package or the values Secret was altered; Sluice deploys it again"
)]
fn a_read_that_contradicts_the_watch_prevails(
    #[case] edit: Edit,
    #[case] reason: PackageReason,
    #[case] message: &str,
) {
    let mut world = World::new();
    edit(&mut world);
    let [watched, read] = [Source::Watches, Source::Reads].map(|source| world.judged(source).unwrap());
    assert!(watched.ready() && !watched.confirmed);
    assert!(!read.ready() && !read.settled && !read.confirmed);
    assert_eq!(
        (read.record.reason.as_str(), read.record.message.as_str()),
        (reason.as_str(), message)
    );
}

/// The message of kapp-controller stays as it is, also if only a read shows the failure.
#[test]
fn a_failure_that_only_a_read_shows_has_the_message_of_kapp_controller() {
    let mut world = World::new();
    world.cached_app = Some(world.app.clone());
    world.app["status"] = json!({
        "observedGeneration": 5, "conditions": is("ReconcileFailed"), "usefulErrorMessage": "no such key",
    });
    let read = world.judged(Source::Reads).unwrap();
    assert_eq!(
        verdict(&read),
        (PackageState::Failed, PackageReason::AppFailed.as_str(), false)
    );
    assert_eq!(read.record.message, "no such key");
}

#[rstest]
#[case::without_its_label(|world: &mut World| world.is_labeled = false, false)]
#[case::missing(|world: &mut World| world.secret = Value::Null, true)]
#[case::altered(|world: &mut World| world.secret["data"] = json!({}), true)]
fn a_secret_that_is_not_listed_is_read(#[case] edit: Edit, #[case] is_altered: bool) {
    let mut world = World::new();
    edit(&mut world);
    let (packages, said) = world.observed(Source::Lists).unwrap();
    let ready = packages.judged.iter().any(Judgement::ready);
    assert_eq!(ready, !is_altered);
    assert_eq!(world.judged(Source::Reads).unwrap().ready(), ready);
    if is_altered {
        let expected = format!(
            "the values Secret of package {NAME} is missing or was altered on the workload API server"
        );
        assert_eq!(said, expected);
    }
}

/// A kind that a source cannot read gives no judgement, or that of the record, which confirms nothing.
#[rstest]
#[case::listed_apps(Source::Lists, |read: &Read| *read == Read::Apps)]
#[case::listed_secrets(Source::Lists, |read: &Read| *read == Read::LabelledSecrets)]
#[case::read_app(Source::Reads, |read: &Read| is_of(read, "App"))]
#[case::read_copy(Source::Reads, |read: &Read| is_of(read, "Package"))]
#[case::read_secret(Source::Reads, |read: &Read| is_of(read, "Secret"))]
fn an_unreadable_kind_confirms_nothing(#[case] source: Source, #[case] refused: fn(&Read) -> bool) {
    let expected = "WorkloadUnreachable: the workload API server answers with 403";
    for is_recorded in [false, true] {
        let mut world = World {
            refused,
            ..World::new()
        };
        if is_recorded {
            world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 5);
        }
        let (packages, said) = world.observed(source).unwrap();
        assert!(packages.judged.iter().all(|judged| !judged.confirmed));
        assert!(packages.judged.iter().all(|judged| judged.ready() == is_recorded));
        match (source, packages.reach) {
            (Source::Reads, Reach::NotYet(hold)) => assert_eq!(hold.to_string(), expected),
            (Source::Lists, _) => assert_eq!((said.as_str(), packages.judged.len()), (expected, 0)),
            (source, reach) => panic!("{source:?}: {reach:?}"),
        }
    }
}

/// A connection may lead to another workload cluster than the current kubeconfig.
#[rstest]
fn a_connection_with_another_kubeconfig_confirms_nothing(#[values(false, true)] is_recorded: bool) {
    let mut world = World {
        token: "earlier",
        ..World::new()
    };
    if is_recorded {
        world.is_recorded(PackageState::Ready, Some(Readiness::Reconciled), 5);
    }
    let (packages, _) = world.observed(Source::Reads).unwrap();
    assert!(matches!(packages.reach, Reach::Lost(_)), "{:?}", packages.reach);
    assert!(!packages.connected);
    assert!(packages.judged.iter().all(|judged| !judged.confirmed));
    assert!(packages.judged.iter().all(|judged| judged.ready() == is_recorded));
}

fn is_of(read: &Read, kind: &str) -> bool {
    matches!(read, Read::Object(key, ReadPhase::Confirm) if key.server == Server::Workload && *key.resource.kind == *kind)
}

/// An undecodable object ends the reconcile: its gates close for the object that the message names.
#[test]
fn an_undecodable_object_of_a_watch_gives_no_judgement() {
    let world = World {
        refused: |read| matches!(read, Read::Watched(..)),
        ..World::new()
    };
    assert!(matches!(
        world.observed(Source::Watches),
        Err(Interrupt::Failed(_))
    ));
    assert!(matches!(world.observed(Source::Reads), Err(Interrupt::Failed(_))));
}
