//! Packages of a cancelled upgrade go back, unless the control plane takes its version. The commands of docs/how-to, run as they stand there.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_tests::install::{Guide, Shell};
use sluice_tests::objects::Release;
use sluice_tests::objects::packages::TestPackage;
use sluice_tests::observer::{Event, Revision};
use sluice_tests::provider::{GROUP, VERSION};
use sluice_tests::scenario::verdict::{in_order, none_between};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{held, is_completed, proven_before_written, releases, shell};
use crate::on_its_way::{Admission, OnItsWay, Question};

const COMPLAINT: &str = "metrics 2.2.0 needs a value that nobody gives";

/// The webhooks of Cluster API.
const WEBHOOKS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/capi-mutating-webhook-configuration",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/capi-validating-webhook-configuration",
];

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "rolled-back",
        "two releases fail one after the other, and the upgrade is cancelled: packages go back, kapp-controller first; a control plane that moved keeps them, also where Cluster API was stopped before it wrote the version",
        |scene| Box::pin(run(scene)),
    )
    // Cluster API is stopped.
    .own_stack()
    .audited()
}

/// Releases that the Clusters are moved to and from.
struct Releases {
    old: Release,
    /// Its antrea becomes ready on request.
    held: Release,
    /// Its antrea never becomes ready.
    first: Release,
    /// Its metrics cannot be rendered.
    second: Release,
    good: Release,
    /// Its metrics becomes ready on request.
    slow_metrics: Release,
}

impl Releases {
    async fn publish(scene: &Scene) -> Result<Self> {
        let (old, held) = releases(scene).await?;
        let antrea = |version, delay| scene.slow_package("antrea", version, delay);
        let release = |build: u32, antrea: TestPackage, metrics: TestPackage| -> Result<Release> {
            let build = format!("{}.{build}", scene.namespace());
            let kapp_controller = scene.kapp_controller(antrea.version())?;
            Ok(Release::new(VERSIONS[2], build, kapp_controller, antrea).additional(metrics))
        };
        let all = Self {
            old,
            held,
            first: release(
                2,
                antrea("2.1.0", Delay::Never).waits(10),
                scene.package("metrics", "2.1.0"),
            )?,
            second: release(
                3,
                antrea("2.2.0", Delay::NONE),
                scene.package("metrics", "2.2.0").broken(COMPLAINT),
            )?,
            good: release(4, antrea("2.3.0", Delay::NONE), scene.package("metrics", "2.3.0"))?,
            slow_metrics: release(
                5,
                antrea("2.4.0", Delay::NONE),
                scene.slow_package("metrics", "2.4.0", Delay::Never),
            )?,
        };
        for release in [&all.first, &all.second, &all.good, &all.slow_metrics] {
            scene.publish(release).await?;
        }
        Ok(all)
    }
}

/// The pages, and a shell for their commands.
struct Pages {
    cancel: Guide,
    roll_back: Guide,
    shell: Shell,
}

impl Pages {
    async fn open(scene: &Scene) -> Result<Self> {
        Ok(Self {
            cancel: Guide::page("docs/how-to/cancel.md")?,
            roll_back: Guide::page("docs/how-to/roll-back.md")?,
            shell: shell(scene, "home-rolled-back").await?,
        })
    }

    async fn run(&self, page: &Guide, commands: &str, cluster: &Cluster, old: &Release) -> Result<String> {
        let release = old.name();
        let variables = [
            ("CLUSTER", cluster.name()),
            ("VERSION", old.kubernetes()),
            ("RELEASE", release.as_str()),
        ];
        let said = self.shell.run(&page.commands(commands)?, &variables).await?;
        said.well().with_context(|| format!("run {commands:?}"))
    }

    async fn ask_for_rollback(&self, cluster: &Cluster, old: &Release) -> Result<()> {
        let asked = self.run(&self.roll_back, "ask for a rollback", cluster, old);
        asked.await.map(drop)
    }

    /// Cancels an upgrade. Returns the revision from before.
    async fn cancel(&self, cluster: &Cluster, old: &Release) -> Result<Revision> {
        let before = cluster.scene().world().observer().catch_up().await?;
        self.run(&self.cancel, "cancel", cluster, old).await?;
        Ok(before)
    }
}

async fn run(scene: Scene) -> Result<()> {
    let releases = Releases::publish(&scene).await?;
    let pages = Pages::open(&scene).await?;
    tokio::try_join!(
        went_back(&scene, &releases, &pages),
        moved(&scene, &releases, &pages),
    )?;
    stopped(&scene, &releases, &pages).await
}

async fn went_back(scene: &Scene, releases: &Releases, pages: &Pages) -> Result<()> {
    let Releases {
        old,
        first,
        second,
        good,
        ..
    } = releases;
    let cluster = scene.cluster("one").create_settled(old).await?;
    pages.ask_for_rollback(&cluster, old).await?;
    let before = cluster.upgrade(first).await?;
    cluster
        .milestone("antrea 2.1.0 to fail", TIMEOUT, before, |event| {
            matches!(event, Event::PackageFailed { ref_name, version }
                if ref_name.starts_with("antrea.") && version == "2.1.0")
        })
        .await?;
    cluster.relabel(second).await?;
    cluster.says("metrics 2.2.0", TIMEOUT).await?;
    cluster.control_plane_is_untouched(before).await?;

    let began = Timestamp::now();
    let cancelled = pages.cancel(&cluster, old).await?;
    let shown = pages
        .run(&pages.roll_back, "wait for the rollback", &cluster, old)
        .await?;
    ensure!(shown.contains("RolledBack"), "kubectl shows {shown}");
    pages
        .run(&pages.roll_back, "see what stayed", &cluster, old)
        .await?;
    is_back(&cluster, old, cancelled).await?;
    let back = Timestamp::now();
    cluster.control_plane_is_untouched(before).await?;
    pages
        .run(&pages.cancel, "remove the annotation", &cluster, old)
        .await?;

    let bumped = Timestamp::now();
    let before = cluster.upgrade(good).await?;
    proven_before_written(&cluster, good, before).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_completed(&cluster).await?;
    let mut requests = cluster.requests()?;
    let of_rollback = requests.management_writes(cluster.name(), (began, back))?;
    let of_upgrade = requests.management_writes(cluster.name(), (bumped, Timestamp::now()))?;
    ensure!(
        of_rollback.len() <= of_upgrade.len() + 2,
        "a rollback makes more than two writes beyond those of an upgrade: {of_rollback:?} and {of_upgrade:?}"
    );
    Ok(())
}

/// All packages of `old` run in the workload cluster: the observer has their proof from after they went back, that of kapp-controller
/// before any other began.
async fn is_back(cluster: &Cluster, old: &Release, cancelled: Revision) -> Result<()> {
    let name = old.name();
    let went_back = |event: &Event| matches!(event, Event::RolledBack { release } if *release == name);
    let went_back = cluster
        .milestone("packages to go back", TIMEOUT, cancelled, went_back)
        .await?;
    let since = went_back.revision;
    cluster.packages_proven(old, since, TIMEOUT).await?;
    let mut packages = old.packages();
    let kapp_controller = packages.next().context("a release without kapp-controller")?;
    let proven = cluster.package_proven(kapp_controller, since, TIMEOUT).await?;
    for package in packages {
        let begins = |event: &Event| {
            matches!(event, Event::PackageWorking { ref_name, version }
                if ref_name == package.ref_name() && version == package.version())
        };
        let what = format!("{} to be deployed", package.name());
        let begun = cluster.milestone(&what, TIMEOUT, since, begins).await?;
        in_order(&[
            ("the proof of kapp-controller", proven.revision),
            (what.as_str(), begun.revision),
        ])?;
        let runs = cluster.echoed(package).await?;
        ensure!(
            runs["version"] == package.version(),
            "{} runs as {runs}",
            package.name()
        );
    }
    Ok(())
}

/// The control plane runs the version, and workers are held by a package.
async fn moved(scene: &Scene, releases: &Releases, pages: &Pages) -> Result<()> {
    let (old, new) = (&releases.old, &releases.slow_metrics);
    let cluster = scene.cluster("moved").create_settled(old).await?;
    let own = json!([{"package": "metrics", "phase": "AfterControlPlane"}]);
    let policy = json!({"onCancel": "Rollback", "packages": own});
    cluster
        .patch_bootstrap(&json!({"spec": {"upgradePolicy": policy}}))
        .await?;
    let before = cluster.upgrade(new).await?;
    let runs =
        |event: &Event| matches!(event, Event::ControlPlaneRuns { version } if version == new.kubernetes());
    let what = "the control plane to run the version";
    cluster.milestone(what, TIMEOUT, before, runs).await?;

    let cancelled = pages.cancel(&cluster, old).await?;
    is_refused(&cluster, cancelled).await?;
    cluster.delay("metrics", Delay::NONE);
    goes_on(&cluster, new).await
}

/// Cluster API has the answer of the hook, and is stopped before it writes the version.
async fn stopped(scene: &Scene, releases: &Releases, pages: &Pages) -> Result<()> {
    let (old, new) = (&releases.old, &releases.held);
    let cluster = scene.cluster("late").create_settled(old).await?;
    pages.ask_for_rollback(&cluster, old).await?;
    let before = held(&cluster, new).await?;
    let admission = next_version(scene, &cluster, new.kubernetes()).await?;
    let required = optional_webhooks(scene).await?;
    cluster.delay("antrea", Delay::NONE);
    let dry_run = admission.holds_one().await?;
    let cluster_api = scene.world().stack().cluster_api();
    cluster_api.freeze().await?;
    let cancelled = cancelled_meanwhile(&cluster, old, pages, (dry_run, before)).await;
    // Also after a failure: the scenario ends with deletions.
    cluster_api.thaw().await?;
    for (path, webhooks) in WEBHOOKS.iter().zip(&required) {
        scene.objects().merge(path, webhooks).await?;
    }
    let cancelled = cancelled?;

    let written = cluster
        .control_plane_written(new.kubernetes(), cancelled, TIMEOUT)
        .await?;
    is_refused(&cluster, written.revision).await?;
    none_between(&cluster.milestones(), (before, written.revision), is_rollback)?;
    goes_on(&cluster, new).await
}

/// Returns once the record knows the cancellation, with the revision from before it. Packages stay.
async fn cancelled_meanwhile(
    cluster: &Cluster,
    old: &Release,
    pages: &Pages,
    (dry_run, before): (OnItsWay, Revision),
) -> Result<Revision> {
    cluster.control_plane_is_untouched(before).await?;
    dry_run.goes_on()?;
    let cancelled = pages.cancel(cluster, old).await?;
    pages
        .run(&pages.cancel, "see the cancellation", cluster, old)
        .await?;
    let generation = cluster.object().await?["metadata"]["generation"].take();
    let what = format!("the record of {} to know generation {generation}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            if record["observedClusterGeneration"] == generation {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await?;
    let now = cluster.scene().world().observer().catch_up().await?;
    none_between(&cluster.milestones(), (cancelled, now), is_rollback)?;
    cluster.control_plane_is_untouched(before).await?;
    Ok(cancelled)
}

fn is_rollback(event: &Event) -> bool {
    matches!(event, Event::RolledBack { .. })
}

/// The webhook that the management API server asks when Cluster API tries a version of a control plane before it writes it.
async fn next_version(scene: &Scene, cluster: &Cluster, version: &str) -> Result<Admission> {
    let object = cluster.object().await?;
    let name = object["spec"]["controlPlaneRef"]["name"].as_str();
    let name = name.context("a Cluster without control plane")?;
    let condition = format!(
        "request.dryRun && object.metadata.name == '{name}' && object.spec.version == '{version}' \
         && oldObject.spec.version != object.spec.version"
    );
    let question = Question {
        group: GROUP,
        resource: "harnesscontrolplanes",
        condition: &condition,
    };
    let path = format!(
        "/apis/{GROUP}/{VERSION}/namespaces/{}/harnesscontrolplanes/{name}?dryRun=All",
        scene.namespace()
    );
    let (objects, change) = (scene.objects(), json!({"spec": {"version": version}}));
    Admission::of(scene.world().stack().management(), &question, || async {
        format!("{:?}", objects.merge(&path, &change).await)
    })
    .await
}

/// Lets Clusters be written while Cluster API is stopped, as they can be where another replica serves its webhooks. Returns the
/// webhooks from before.
async fn optional_webhooks(scene: &Scene) -> Result<Vec<Value>> {
    let mut required = Vec::new();
    for path in WEBHOOKS {
        let found = scene.objects().get(path).await?;
        let webhooks = found.context("Cluster API has no webhooks")?["webhooks"].take();
        let mut optional = webhooks.clone();
        for webhook in optional.as_array_mut().into_iter().flatten() {
            webhook["failurePolicy"] = json!("Ignore");
            webhook["timeoutSeconds"] = json!(1);
        }
        scene
            .objects()
            .merge(path, &json!({"webhooks": optional}))
            .await?;
        required.push(json!({"webhooks": webhooks}));
    }
    Ok(required)
}

/// The ClusterBootstrap says that packages stay because the control plane has moved, and they do.
async fn is_refused(cluster: &Cluster, since: Revision) -> Result<()> {
    let what = format!("the rollback of {} to be refused", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let conditions = &bootstrap["status"]["conditions"];
            let mut known = conditions.as_array().into_iter().flatten();
            let refused = known.any(|condition| {
                condition["type"] == "Rollback"
                    && condition["status"] == "False"
                    && condition.to_string().contains("ControlPlaneMoved")
            });
            if refused {
                Ok(())
            } else {
                wait::not_yet(conditions)
            }
        })
        .await?;
    let now = cluster.scene().world().observer().catch_up().await?;
    none_between(&cluster.milestones(), (since, now), is_rollback)
}

/// What is left: the upgrade is asked for again, and completed.
async fn goes_on(cluster: &Cluster, new: &Release) -> Result<()> {
    cluster.upgrade(new).await?;
    cluster.is_settled(TIMEOUT).await?;
    is_completed(cluster).await
}
