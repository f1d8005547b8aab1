//! The model's numbers as the objects that the functions under test read.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_core::packages::bootstrap::{
    Catalogue, Inputs, KeptVersions, PackageFacts, Release, below_release as compare,
};
use sluice_core::proof::{JudgedOn, Target};
use sluice_core::reasons::Hold;
use sluice_crds::foreign::packaging::{
    AppSpec, AppStatus, PackageInstallSpec, PackageInstallStatus, PackageRef, SecretRef, TemplateStep,
    TemplateTool, Values, VersionSelection,
};
use sluice_crds::foreign::{App as RealApp, Condition, PackageInstall as RealInstall};
use sluice_crds::labels::annotation;
use sluice_crds::run::{ClusterBootstrapPackage, ClusterBootstrapSpec, Phase, Readiness};

use crate::world::{App, Install, PACKAGE_VERSIONS, RELEASES, State, Stop, Wish, version};

pub(crate) const NAMES: [&str; 2] = ["kapp-controller", "antrea"];
const REF_NAMES: [&str; 2] = ["kapp-controller.tanzu.vmware.com", "antrea.tanzu.vmware.com"];

/// No clock runs in the model.
pub(crate) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// By release in the spec and release that is wanted, what the product says of the one as the other.
static BELOW: LazyLock<Vec<Vec<Option<Hold>>>> = LazyLock::new(|| {
    let releases = 0..RELEASES.len();
    let against = |current| {
        releases
            .clone()
            .map(|release| compared(current, release))
            .collect()
    };
    releases.clone().map(against).collect()
});

/// What keeps the packages of one release from being those of another.
pub(crate) fn below_release(current: u8, release: u8) -> Option<Hold> {
    BELOW[usize::from(current)][usize::from(release)].clone()
}

fn compared(current: usize, release: usize) -> Option<Hold> {
    let facts = |package: usize, version: &str| PackageFacts {
        ref_name: REF_NAMES[package].into(),
        version: version.into(),
        ..PackageFacts::default()
    };
    let catalogue: Catalogue = PACKAGE_VERSIONS
        .iter()
        .flat_map(|version| [0, 1].map(|package| facts(package, version)))
        .map(|facts| (format!("{}.{}", facts.ref_name, facts.version), facts))
        .collect();
    let (current, new) = (spec(current), spec(release));
    compare(&Inputs {
        cluster: "one",
        current: &current,
        old: None,
        new: &new,
        release: Release {
            name: RELEASES[release].0,
            packages: &[0, 1].map(|package| package_name(package, release)),
        },
        catalogue: &catalogue,
        unmanaged_cni: false,
        kept: &KeptVersions::default(),
    })
}

fn spec(release: usize) -> ClusterBootstrapSpec {
    let package = |package| {
        Some(ClusterBootstrapPackage {
            ref_name: package_name(package, release),
            values_from: None,
        })
    };
    ClusterBootstrapSpec {
        kapp: package(0),
        cni: package(1),
        ..ClusterBootstrapSpec::default()
    }
}

fn package_name(package: usize, release: usize) -> String {
    format!("{}.{}", REF_NAMES[package], PACKAGE_VERSIONS[release])
}

/// What a wish comes to as text.
pub(crate) struct Names {
    pub(crate) digest: String,
    pub(crate) secret: String,
}

impl Names {
    pub(crate) fn of(package: usize, wish: Wish) -> Self {
        let digest = format!("{}on{}of{}", wish.values, version(wish.stage), wish.server);
        let secret = format!("one-{}-data-values-{digest}", NAMES[package]);
        Self { digest, secret }
    }
}

pub(crate) fn target(package: usize, wish: Wish, names: &Names, phase: Phase) -> Target<'_> {
    Target {
        name: NAMES[package],
        ref_name: REF_NAMES[package],
        version: PACKAGE_VERSIONS[usize::from(wish.package)],
        digest: &names.digest,
        secret_name: &names.secret,
        kept: false,
        sync_period: None,
        judged_on: if package == 0 {
            JudgedOn::Management
        } else {
            JudgedOn::Workload
        },
        readiness: Readiness::Reconciled,
        phase,
    }
}

fn conditions(state: State) -> Vec<Condition> {
    let type_ = match state {
        State::Reconciling => "Reconciling",
        State::Succeeded => "ReconcileSucceeded",
        State::Failed => "ReconcileFailed",
    };
    vec![Condition {
        type_: type_.into(),
        status: "True".into(),
        ..Condition::default()
    }]
}

fn values(package: usize, wish: Wish) -> Vec<Values> {
    vec![Values {
        secret_ref: Some(SecretRef {
            name: Names::of(package, wish).secret,
            key: None,
        }),
    }]
}

pub(crate) fn install(package: usize, install: &Install) -> Option<RealInstall> {
    let version = PACKAGE_VERSIONS.get(usize::from(install.wish.package))?;
    Some(RealInstall {
        metadata: ObjectMeta {
            uid: Some(format!("install-{package}")),
            generation: Some(install.generation.into()),
            ..ObjectMeta::default()
        },
        spec: PackageInstallSpec {
            paused: install.stop == Stop::Paused,
            canceled: install.stop == Stop::Canceled,
            package_ref: Some(PackageRef {
                ref_name: REF_NAMES[package].into(),
                version_selection: Some(VersionSelection {
                    constraints: Some((*version).into()),
                    prereleases: None,
                }),
            }),
            values: values(package, install.wish),
            ..PackageInstallSpec::default()
        },
        status: Some(PackageInstallStatus {
            observed_generation: Some(install.observed.into()),
            version: PACKAGE_VERSIONS
                .get(usize::from(install.chosen))
                .map(|chosen| (*chosen).into()),
            conditions: conditions(install.state),
            ..PackageInstallStatus::default()
        }),
    })
}

pub(crate) fn app(package: usize, app: &App) -> Option<RealApp> {
    let version = *PACKAGE_VERSIONS.get(usize::from(app.wish.package))?;
    let tool = TemplateTool {
        values_from: values(package, app.wish),
        inline: None,
    };
    Some(RealApp {
        metadata: ObjectMeta {
            uid: Some(format!("app-{package}-{}", app.made_on)),
            generation: Some(app.generation.into()),
            annotations: Some(BTreeMap::from([(
                annotation::PACKAGE_VERSION.into(),
                version.into(),
            )])),
            owner_references: Some(vec![OwnerReference {
                uid: format!("install-{package}"),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: AppSpec {
            paused: app.stop == Stop::Paused,
            canceled: app.stop == Stop::Canceled,
            template: vec![TemplateStep {
                ytt: Some(tool),
                helm_template: None,
            }],
            ..AppSpec::default()
        },
        status: Some(AppStatus {
            observed_generation: Some(app.observed.into()),
            conditions: conditions(app.state),
            ..AppStatus::default()
        }),
    })
}
