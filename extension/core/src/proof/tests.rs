use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use proptest::prelude::*;
use rstest::rstest;
use sluice_crds::foreign::Condition;
use sluice_crds::foreign::packaging::{
    AppSpec, AppStatus, DeployStatus, InlineFiles, PackageInstallSpec, PackageInstallStatus, PackageRef,
    SecretRef, StepStatus, TemplateStep, TemplateTool, Values, VersionSelection,
};

use super::*;

const TARGET: Target<'static> = Target {
    name: "antrea",
    ref_name: "antrea.tanzu.vmware.com",
    version: "1.9.0",
    digest: "d2",
    secret_name: "one-antrea-data-values-d2",
    kept: false,
    sync_period: None,
    judged_on: JudgedOn::Workload,
    readiness: Readiness::Reconciled,
    phase: Phase::BeforeControlPlane,
};

/// No step of the package takes values.
const PLAIN: Target<'static> = Target {
    sync_period: Some("10m0.234s"),
    ..TARGET
};

const APPLIED: Target<'static> = Target {
    readiness: Readiness::Applied,
    ..TARGET
};

fn is(type_: &str) -> Vec<Condition> {
    vec![Condition {
        type_: type_.into(),
        status: "True".into(),
        ..Condition::default()
    }]
}

fn secret(name: &str) -> Values {
    Values {
        secret_ref: Some(SecretRef {
            name: name.into(),
            key: None,
        }),
    }
}

fn ytt(name: &str) -> Vec<TemplateStep> {
    let tool = TemplateTool {
        values_from: vec![secret(name)],
        inline: None,
    };
    vec![TemplateStep {
        ytt: Some(tool),
        helm_template: None,
    }]
}

fn then() -> Time {
    Time(Timestamp::from_second(1).unwrap())
}

fn proven_install() -> PackageInstall {
    PackageInstall {
        metadata: ObjectMeta {
            uid: Some("install".into()),
            generation: Some(2),
            ..ObjectMeta::default()
        },
        spec: PackageInstallSpec {
            package_ref: Some(PackageRef {
                ref_name: TARGET.ref_name.into(),
                version_selection: Some(VersionSelection {
                    constraints: Some(TARGET.version.into()),
                    prereleases: None,
                }),
            }),
            values: vec![secret(TARGET.secret_name)],
            ..PackageInstallSpec::default()
        },
        status: Some(PackageInstallStatus {
            observed_generation: Some(2),
            version: Some(TARGET.version.into()),
            conditions: is("ReconcileSucceeded"),
            ..PackageInstallStatus::default()
        }),
    }
}

fn proven_app() -> App {
    App {
        metadata: ObjectMeta {
            uid: Some("app".into()),
            generation: Some(5),
            annotations: Some(BTreeMap::from([(
                annotation::PACKAGE_VERSION.into(),
                TARGET.version.into(),
            )])),
            owner_references: Some(vec![OwnerReference {
                uid: "install".into(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: AppSpec {
            template: ytt(TARGET.secret_name),
            ..AppSpec::default()
        },
        status: Some(AppStatus {
            observed_generation: Some(5),
            conditions: is("ReconcileSucceeded"),
            ..AppStatus::default()
        }),
    }
}

/// PackageInstall, App and the recorded judgement.
struct Seen {
    install: PackageInstall,
    app: Option<App>,
    latch: Option<PackageRecord>,
}

impl Seen {
    fn proven() -> Self {
        Self {
            install: proven_install(),
            app: Some(proven_app()),
            latch: None,
        }
    }

    /// The same for a package that takes no values.
    fn plain() -> Self {
        let mut seen = Self::proven();
        seen.app().spec.template = vec![TemplateStep::default()];
        seen.app().spec.sync_period = PLAIN.sync_period.map(str::to_owned);
        seen
    }

    /// kapp-controller resyncs the proven App.
    fn resync() -> Self {
        let latch = Self::proven().judge(&TARGET).record;
        let mut seen = Self {
            latch: Some(latch),
            ..Self::proven()
        };
        seen.install_status().conditions = is("Reconciling");
        seen.app_status().conditions = is("Reconciling");
        seen
    }

    /// Every object is written, and kapp waits for one of them.
    fn waiting() -> Self {
        let mut seen = Self::resync();
        let step = StepStatus {
            exit_code: Some(0),
            started_at: Some(then()),
            updated_at: Some(then()),
            ..StepStatus::default()
        };
        // The App was first seen before it had run.
        seen.latch = Some(PackageRecord {
            first_seen_run: Some(FirstSeenRun {
                app_uid: "app".into(),
                app_generation: 5,
                fetch_started_at: None,
                deploy_started_at: None,
            }),
            ..record_of(&TARGET, PackageState::Reconciling, None)
        });
        let status = seen.app_status();
        status.fetch = Some(step.clone());
        status.template = Some(step);
        status.deploy = Some(DeployStatus {
            started_at: Some(then()),
            stdout: Some("1:00:00AM: ---- waiting on 1 changes [2/3 done] ----\n".into()),
            ..DeployStatus::default()
        });
        seen
    }

    fn app(&mut self) -> &mut App {
        self.app.as_mut().unwrap()
    }

    fn install_status(&mut self) -> &mut PackageInstallStatus {
        self.install.status.as_mut().unwrap()
    }

    fn app_status(&mut self) -> &mut AppStatus {
        self.app().status.as_mut().unwrap()
    }

    fn latch(&mut self) -> &mut PackageRecord {
        self.latch.as_mut().unwrap()
    }

    fn judge(&self, target: &Target<'_>) -> Judgement {
        self.judge_by(CLAUSES, target)
    }

    fn judge_by(&self, clauses: &[Clause], target: &Target<'_>) -> Judgement {
        judge_by(
            clauses,
            target,
            Some(&self.install),
            self.app.as_ref(),
            self.latch.as_ref(),
        )
    }
}

type Edit = fn(&mut Seen);

/// Defect, edit of a proven package that introduces it, and expected reason.
#[rustfmt::skip]
const WRONG: &[(&str, Edit, PackageReason)] = &[
    ("install deleting", |s| s.install.metadata.deletion_timestamp = Some(then()), PackageReason::PackageInstallDeleting),
    ("install paused", |s| s.install.spec.paused = true, PackageReason::PackageInstallPaused),
    ("install canceled", |s| s.install.spec.canceled = true, PackageReason::PackageInstallCanceled),
    ("install of another package", |s| s.install.spec.package_ref.as_mut().unwrap().ref_name = "calico.tanzu.vmware.com".into(), PackageReason::PackageInstallMismatch),
    ("install of another version", |s| s.install.spec.package_ref.as_mut().unwrap().version_selection.as_mut().unwrap().constraints = Some("1.8.0".into()), PackageReason::PackageInstallMismatch),
    ("install of any version", |s| s.install.spec.package_ref.as_mut().unwrap().version_selection.as_mut().unwrap().constraints = Some(">=1.0.0".into()), PackageReason::PackageInstallMismatch),
    ("install of no package", |s| s.install.spec.package_ref = None, PackageReason::PackageInstallMismatch),
    ("install with other values", |s| s.install.spec.values = vec![secret("one-antrea-data-values-d1")], PackageReason::PackageInstallMismatch),
    ("install with more values", |s| s.install.spec.values.push(secret("mine")), PackageReason::PackageInstallMismatch),
    ("install without values", |s| s.install.spec.values.clear(), PackageReason::PackageInstallMismatch),
    ("install without status", |s| s.install.status = None, PackageReason::PackageInstallNotObserved),
    ("install not observed", |s| s.install.metadata.generation = Some(3), PackageReason::PackageInstallNotObserved),
    ("install never observed", |s| { s.install.metadata.generation = None; s.install_status().observed_generation = None; }, PackageReason::PackageInstallNotObserved),
    ("install at another version", |s| s.install_status().version = Some("1.8.0".into()), PackageReason::PackageInstallVersionMismatch),
    ("install at no version", |s| s.install_status().version = None, PackageReason::PackageInstallVersionMismatch),
    ("install reconciling", |s| s.install_status().conditions = is("Reconciling"), PackageReason::PackageInstallReconciling),
    ("install without conditions", |s| s.install_status().conditions.clear(), PackageReason::PackageInstallReconciling),
    ("install with success unknown", |s| s.install_status().conditions[0].status = "Unknown".into(), PackageReason::PackageInstallReconciling),
    ("install succeeded and reconciling", |s| s.install_status().conditions.extend(is("Reconciling")), PackageReason::PackageInstallReconciling),
    ("install being removed", |s| s.install_status().conditions = is("Deleting"), PackageReason::PackageInstallReconciling),
    ("no app", |s| s.app = None, PackageReason::AppNotFound),
    ("app of another install", |s| s.app().metadata.owner_references.as_mut().unwrap()[0].uid = "before".into(), PackageReason::AppOwnerMismatch),
    ("app without owner", |s| s.app().metadata.owner_references = None, PackageReason::AppOwnerMismatch),
    ("install without uid", |s| s.install.metadata.uid = None, PackageReason::AppOwnerMismatch),
    ("app deleting", |s| s.app().metadata.deletion_timestamp = Some(then()), PackageReason::AppDeleting),
    ("app paused", |s| s.app().spec.paused = true, PackageReason::AppPaused),
    ("app canceled", |s| s.app().spec.canceled = true, PackageReason::AppCanceled),
    ("app manually controlled", |s| { s.app().metadata.annotations.as_mut().unwrap().insert(annotation::MANUALLY_CONTROLLED.into(), String::new()); }, PackageReason::AppManuallyControlled),
    ("app at another version", |s| { s.app().metadata.annotations.as_mut().unwrap().insert(annotation::PACKAGE_VERSION.into(), "1.8.0".into()); }, PackageReason::AppVersionMismatch),
    ("app at no version", |s| s.app().metadata.annotations = None, PackageReason::AppVersionMismatch),
    ("app with other values", |s| s.app().spec.template = ytt("one-antrea-data-values-d1"), PackageReason::AppValuesMismatch),
    ("app without values", |s| s.app().spec.template[0].ytt.get_or_insert_default().values_from.clear(), PackageReason::AppValuesMismatch),
    ("app that takes no values", |s| s.app().spec.template = vec![TemplateStep::default()], PackageReason::AppValuesMismatch),
    ("app not observed", |s| s.app().metadata.generation = Some(6), PackageReason::AppNotObserved),
    ("app never observed", |s| { s.app().metadata.generation = None; s.app_status().observed_generation = None; }, PackageReason::AppNotObserved),
    ("app without status", |s| s.app().status = None, PackageReason::AppNotObserved),
    ("app reconciling", |s| s.app_status().conditions = is("Reconciling"), PackageReason::AppReconciling),
    ("app without conditions", |s| s.app_status().conditions.clear(), PackageReason::AppReconciling),
    ("app failed, install not yet", |s| s.app_status().conditions = is("ReconcileFailed"), PackageReason::AppFailed),
    ("both failed", |s| { s.app_status().conditions = is("ReconcileFailed"); s.install_status().conditions = is("ReconcileFailed"); }, PackageReason::AppFailed),
];

#[test]
fn package_install_and_app_together_are_a_proof() {
    let judged = Seen::proven().judge(&TARGET);
    assert!(judged.ready() && judged.settled);
    assert_eq!(judged.record.app_uid.as_deref(), Some("app"));
    assert_eq!(judged.record.app_generation, Some(5));
    assert_eq!(
        (judged.record.reason.as_str(), judged.record.message.as_str()),
        ("", "")
    );
}

#[test]
fn anything_wrong_is_no_proof_and_is_named() {
    for (name, edit, expected) in WRONG {
        let mut seen = Seen::proven();
        edit(&mut seen);
        let judged = seen.judge(&TARGET);
        assert!(!judged.ready() && !judged.settled, "{name} is ready");
        assert_eq!(judged.record.reason, expected.as_str(), "{name}");
        assert_eq!(
            (judged.record.app_uid, judged.record.app_generation),
            (None, None),
            "{name}"
        );
    }
}

#[test]
fn without_any_one_clause_something_wrong_is_ready() {
    for left_out in 0..CLAUSES.len() {
        let mut fewer = CLAUSES.to_vec();
        fewer.remove(left_out);
        let accepted = WRONG.iter().any(|(_, edit, _)| {
            let mut seen = Seen::proven();
            edit(&mut seen);
            seen.judge_by(&fewer, &TARGET).ready()
        });
        let accepted = accepted
            || PLAIN_WRONG.iter().any(|(_, edit)| {
                let mut seen = Seen::plain();
                edit(&mut seen);
                seen.judge_by(&fewer, &PLAIN).ready()
            });
        assert!(accepted, "no case needs clause {left_out}");
    }
}

/// Defects of an App that takes no values.
const PLAIN_WRONG: &[(&str, Edit)] = &[
    ("period of the stage before", |s| {
        s.app().spec.sync_period = Some("10m0.123s".into());
    }),
    ("period that an operator has set", |s| {
        s.app().spec.sync_period = Some("10m0s".into());
    }),
    ("no period", |s| s.app().spec.sync_period = None),
];

/// kapp-controller does not update an App without a step that takes values if only the values differ. Its old success once counted
/// for the new stage, and workers were released without a proof on the new API server.
#[test]
fn a_package_that_takes_no_values_is_proven_by_its_sync_period() {
    assert!(Seen::plain().judge(&PLAIN).ready());
    for (name, edit) in PLAIN_WRONG {
        let mut seen = Seen::plain();
        edit(&mut seen);
        let judged = seen.judge(&PLAIN);
        assert!(!judged.ready() && !judged.settled, "{name} is ready");
        assert_eq!(judged.record.reason, "AppValuesMismatch", "{name}");
    }
    assert!(!Seen::plain().judge(&TARGET).ready(), "values may not be ignored");
}

#[test]
fn without_package_install_nothing_was_written() {
    let judged = judge(&TARGET, None, Some(&proven_app()), None);
    assert_eq!(judged.record.state, PackageState::Pending);
    assert_eq!(judged.record.reason, "PackageInstallPending");
}

#[rstest]
#[case::overlay(|s: &mut Seen| s.app().spec.template = vec![TemplateStep { ytt: Some(TemplateTool { values_from: vec![], inline: Some(InlineFiles { paths_from: vec![secret(TARGET.secret_name)] }) }), helm_template: None }])]
#[case::helm(|s: &mut Seen| s.app().spec.template = vec![TemplateStep { ytt: None, helm_template: Some(TemplateTool { values_from: vec![secret("own"), secret(TARGET.secret_name)], inline: None }) }])]
fn values_reach_an_app_in_several_ways(#[case] edit: Edit) {
    let mut seen = Seen::proven();
    edit(&mut seen);
    assert!(seen.judge(&TARGET).ready());
}

#[rustfmt::skip]
#[rstest]
#[case::other_values(|s: &mut Seen| s.install.spec.values = vec![secret("d1")], PackageState::Pending)]
#[case::deleting(|s: &mut Seen| s.install.metadata.deletion_timestamp = Some(then()), PackageState::Pending)]
#[case::not_observed(|s: &mut Seen| s.install.metadata.generation = Some(3), PackageState::Applied)]
#[case::paused(|s: &mut Seen| s.install.spec.paused = true, PackageState::Applied)]
#[case::no_app(|s: &mut Seen| s.app = None, PackageState::Applied)]
#[case::app_not_observed(|s: &mut Seen| s.app().metadata.generation = Some(6), PackageState::Applied)]
#[case::failure_of_the_version_before(|s: &mut Seen| { s.install_status().conditions = is("ReconcileFailed"); s.app_status().conditions = is("ReconcileFailed"); s.app().metadata.generation = Some(6); }, PackageState::Applied)]
#[case::app_reconciling(|s: &mut Seen| s.app_status().conditions = is("Reconciling"), PackageState::Reconciling)]
#[case::app_done_install_not_yet(|s: &mut Seen| s.install_status().conditions = is("Reconciling"), PackageState::Reconciling)]
#[case::app_failed(|s: &mut Seen| s.app_status().conditions = is("ReconcileFailed"), PackageState::Failed)]
#[case::version_missing(|s: &mut Seen| { s.install_status().conditions = is("ReconcileFailed"); s.install_status().version = Some("1.8.0".into()); s.app().metadata.annotations.as_mut().unwrap().insert(annotation::PACKAGE_VERSION.into(), "1.8.0".into()); }, PackageState::Failed)]
#[case::first_version_missing(|s: &mut Seen| { s.install_status().conditions = is("ReconcileFailed"); s.install_status().version = None; s.app = None; }, PackageState::Failed)]
fn how_far_a_package_is(#[case] edit: Edit, #[case] state: PackageState) {
    let mut seen = Seen::proven();
    edit(&mut seen);
    assert_eq!(seen.judge(&TARGET).record.state, state);
}

#[test]
fn a_failure_has_the_message_of_kapp_controller() {
    let mut seen = Seen::proven();
    seen.app_status().conditions = is("ReconcileFailed");
    seen.app_status().useful_error_message = Some("ytt: Error: no such key".into());
    let record = seen.judge(&TARGET).record;
    assert_eq!(
        (record.reason.as_str(), record.message.as_str()),
        ("AppFailed", "ytt: Error: no such key")
    );
}

#[test]
fn a_missing_version_has_the_message_of_its_condition() {
    let mut seen = Seen::proven();
    seen.app = None;
    seen.install_status().version = None;
    seen.install_status().conditions = is("ReconcileFailed");
    seen.install_status().conditions[0].message = "Expected to find at least one version".into();
    let record = seen.judge(&TARGET).record;
    assert_eq!(record.reason, "PackageInstallFailed");
    assert_eq!(record.message, "Expected to find at least one version");
}

#[test]
fn a_long_message_is_cut_between_characters() {
    let mut seen = Seen::proven();
    seen.app_status().conditions = is("ReconcileFailed");
    seen.app_status().useful_error_message = Some("é".repeat(2000));
    assert_eq!(seen.judge(&TARGET).record.message.len(), 1024);
}

mod applied;
mod latch;
mod withdrawn;
