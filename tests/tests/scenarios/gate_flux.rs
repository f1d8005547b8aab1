//! An add-on that Flux delivers holds a chained upgrade: each hop waits for the chart, the files and the Pods of its row.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use sluice_tests::objects::{Chart, Check, Class, Gate, HelmRelease, Kustomization};
use sluice_tests::observer::{Event, Milestone, Revision};
use sluice_tests::scenario::verdict::in_order;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS, WatchLog, Written, gates};
use sluice_tests::stack::flux::FluxController;
use sluice_tests::wait;

use crate::gates_only::{is_over, nothing_is_forbidden, opens_for};

/// Name of the Cluster.
const CLUSTER: &str = "prod-1";

/// Name of the gate.
const ADDONS: &str = "addons";

/// Name of the chart, its release and its DaemonSet.
const CNI: &str = "cni";

/// Name of the directory of files, its Deployment and the container of that.
const OPERATOR: &str = "operator";

/// Minor version, chart and tag of its image, and tag of the operator: one row for each of [`VERSIONS`].
const ROWS: [(&str, (&str, &str), &str); 3] = [
    ("1.34", ("1.17.4", "v1.17.4"), "v1"),
    ("1.35", ("1.18.2", "v1.18.2"), "v2"),
    ("1.36", ("1.19.0", "v1.19.0"), "v3"),
];

/// Checks that are tied to a row.
const TIED: [&str; 3] = ["chart", "agent", "operator"];

/// Time in which nothing may be released.
const LATER: Duration = Duration::from_secs(5);

/// Group, version and kind of the record.
const RECORD: (&str, &str, &str) = ("lifecycle.sluice.dev", "v1alpha1", "ClusterUpgrade");

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "gate-flux",
        "each hop of a chained upgrade waits until helm-controller has deployed the chart of its row, kustomize-controller has applied the latest commit, and their Pods run; a suspended HelmRelease and a Kustomization behind its source release nothing",
        |scene| Box::pin(run(scene)),
    )
    .gates_only()
    .audited()
    .class(Class {
        kubernetes_versions: VERSIONS.map(str::to_owned).to_vec(),
        ..gates::class()
    })
}

async fn run(scene: Scene) -> Result<()> {
    let (release, files) = delivered(&scene).await?;
    let one = create(&scene, &release, &files).await?;
    scene.gate(&gate()).await?;
    scene.gate_is_in_force(ADDONS).await?;
    let log = scene.watch(&[RECORD]).await?;

    let since = one.upgrade_unmanaged(VERSIONS[2]).await?;
    is_held_at(&one, VERSIONS[1]).await?;
    one.says("ChecksNotReady: addons/chart", TIMEOUT).await?;
    let release = a_suspended_release_holds(&one, &release, since).await?;
    a_late_kustomization_holds(&one, &files, since).await?;
    one.control_plane_written(VERSIONS[1], since, TIMEOUT).await?;

    // The rows of the hop before are judged again until here.
    is_held_at(&one, VERSIONS[2]).await?;
    let release = release.version(ROWS[2].1.0);
    scene.apply(&[release.manifest(scene.namespace())]).await?;
    one.released(&release, TIMEOUT).await?;
    let revision = commit(&scene, ROWS[2].2).await?;
    one.applied(&files, &revision, TIMEOUT).await?;
    one.control_plane_written(VERSIONS[2], since, TIMEOUT).await?;
    one.is_settled(TIMEOUT).await?;
    is_over(&one).await?;

    scene.world().observer().catch_up().await?;
    order_is_right(&one, &log, since).await?;
    nothing_is_forbidden(&scene)
}

/// The HelmRelease and the Kustomization of the Cluster, which are not applied yet.
async fn delivered(scene: &Scene) -> Result<(HelmRelease, Kustomization)> {
    let charts = ROWS.map(|(_, chart, _)| chart);
    let release = scene.helm_release(CLUSTER, &charts).await?;
    let files = scene.kustomization(CLUSTER, OPERATOR).await?;
    Ok((release, files))
}

/// A Cluster at the old version, with the add-ons of its row.
async fn create(scene: &Scene, release: &HelmRelease, files: &Kustomization) -> Result<Cluster> {
    let cluster = scene.cluster(CLUSTER).unmanaged(VERSIONS[0]).workers(1);
    let cluster = cluster.create().await?;
    cluster.is_available(TIMEOUT).await?;
    cluster.is_settled(TIMEOUT).await?;
    let revision = commit(scene, ROWS[0].2).await?;
    let namespace = scene.namespace();
    scene
        .apply(&[release.manifest(namespace), files.manifest(namespace)])
        .await?;
    cluster.released(release, TIMEOUT).await?;
    cluster.applied(files, &revision, TIMEOUT).await?;
    cluster.rolled_out(CNI, ROWS[0].1.1, TIMEOUT).await?;
    Ok(cluster)
}

/// Commits the Deployment of the operator with this tag. Returns the revision.
async fn commit(scene: &Scene, tag: &str) -> Result<String> {
    let labels = json!({"app": OPERATOR});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": OPERATOR, "namespace": Chart::NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": OPERATOR, "image": Chart::new(OPERATOR, "", tag).image()}]},
            },
        },
    });
    // JSON is YAML.
    let (path, content) = (format!("{OPERATOR}/deployment.yaml"), deployment.to_string());
    let git = scene.world().git().await?;
    git.commit(&[(path.as_str(), content.as_str())]).await
}

fn gate() -> Gate {
    let workload = |name, kind, object| Check::workload(name, ("apps/v1", kind), Chart::NAMESPACE, object);
    let agent = workload("agent", "DaemonSet", CNI).container(Chart::CONTAINER);
    let operator = workload("operator", "Deployment", OPERATOR).container(OPERATOR);
    let gate = Gate::new(ADDONS)
        .check(Check::helm_release("chart", "cni-${cluster}").version_key("chart"))
        .check(agent.version_key("image"))
        .check(Check::kustomization("files", "operator-${cluster}").health_only())
        .check(operator.version_key("operator"));
    ROWS.iter().fold(gate, |gate, (minor, (chart, image), operator)| {
        gate.row(
            minor,
            &[("chart", *chart), ("image", *image), ("operator", *operator)],
        )
    })
}

/// Waits until the Cluster is held by the chart on its way to a version.
async fn is_held_at(cluster: &Cluster, hop: &str) -> Result<()> {
    let what = format!("Cluster {} to be held before {hop}", cluster.name());
    cluster
        .cluster_upgrade_until(what, TIMEOUT, |record| {
            let status = &record["status"];
            let is_held = status["heldBy"] == "addons/chart" && status["reason"] == "NotAtVersion";
            if is_held && status["upgrade"]["hop"] == hop {
                Ok(())
            } else {
                wait::not_yet(status)
            }
        })
        .await
}

/// helm-controller observes the generation of a HelmRelease that is suspended and edited in one write, which stays Ready. Returns the one that
/// is resumed and deployed.
async fn a_suspended_release_holds(
    one: &Cluster,
    release: &HelmRelease,
    since: Revision,
) -> Result<HelmRelease> {
    let scene = one.scene();
    let new = release.clone().version(ROWS[1].1.0);
    let suspended = new.clone().suspended(true);
    scene.apply(&[suspended.manifest(scene.namespace())]).await?;
    one.held_by("addons/chart", "DeliverySuspended", TIMEOUT).await?;
    tokio::time::sleep(LATER).await;
    one.held_by("addons/chart", "DeliverySuspended", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;

    scene.apply(&[new.manifest(scene.namespace())]).await?;
    one.released(&new, TIMEOUT).await?;
    one.rolled_out(CNI, ROWS[1].1.1, TIMEOUT).await?;
    one.held_by("addons/operator", "NotAtVersion", TIMEOUT).await?;
    one.control_plane_is_untouched(since).await?;
    Ok(new)
}

/// A Kustomization stays Ready at the commit before until kustomize-controller has applied the next one.
async fn a_late_kustomization_holds(one: &Cluster, files: &Kustomization, since: Revision) -> Result<()> {
    let flux = one.scene().world().flux().await?;
    flux.freeze(FluxController::Kustomize).await?;
    let revision = commit(one.scene(), ROWS[1].2).await?;
    let what = format!("Cluster {} to be held by the Kustomization", one.name());
    let held = one
        .cluster_upgrade_until(what, TIMEOUT, |record| {
            if record["status"]["heldBy"] == "addons/files" {
                Ok(())
            } else {
                wait::not_yet(&record["status"])
            }
        })
        .await;
    // Whatever came of it: other scenarios need the controller.
    flux.thaw(FluxController::Kustomize).await?;
    held?;
    one.control_plane_is_untouched(since).await?;
    one.applied(files, &revision, TIMEOUT).await
}

/// For each hop the checks of its row, the record that opens the gate, and the write that it allows; then the workers: by resourceVersion.
async fn order_is_right(one: &Cluster, log: &WatchLog, since: Revision) -> Result<()> {
    let (milestones, writes) = (one.milestones(), log.writes().await?);
    let first = |what: &str, wanted: &dyn Fn(&Event) -> bool| {
        let mut later = milestones.iter().filter(|milestone| milestone.revision > since);
        let found = later.find(|milestone| wanted(&milestone.event));
        found
            .map(|milestone| milestone.revision)
            .with_context(|| format!("{what} was not seen"))
    };
    let runs = |wanted: &str| {
        first(
            "a control plane that runs",
            &|event| matches!(event, Event::ControlPlaneRuns { version } if version == wanted),
        )
    };
    let seen = Seen {
        one,
        milestones: &milestones,
        writes: &writes,
        since,
    };
    seen.hop_is_in_order(1, since)?;
    seen.hop_is_in_order(2, runs(VERSIONS[1])?)?;
    let workers = first(
        "the workers",
        &|event| matches!(event, Event::WorkersWritten { version, .. } if version == VERSIONS[2]),
    )?;
    in_order(&[
        ("the control plane that runs the last version", runs(VERSIONS[2])?),
        (
            "the record that opens BeforeWorkersUpgrade",
            seen.opens("BeforeWorkersUpgrade", VERSIONS[2])?,
        ),
        ("the version of the workers", workers),
    ])
}

/// What was seen of an upgrade that began after a revision.
struct Seen<'a> {
    one: &'a Cluster,
    milestones: &'a [Milestone],
    writes: &'a [Written],
    since: Revision,
}

impl Seen<'_> {
    fn opens(&self, hook: &str, version: &str) -> Result<Revision> {
        opens_for(self.writes, self.one, (hook, version), self.since)
    }

    /// The hop of a row comes after all of its proofs. Those that are tied to the row come after `before`.
    fn hop_is_in_order(&self, row: usize, before: Revision) -> Result<()> {
        let (version, minor) = (VERSIONS[row], ROWS[row].0);
        let written = self.last(
            Revision::MAX,
            "the control plane",
            &|event| matches!(event, Event::ControlPlaneWritten { version: written } if written == version),
        )?;
        let opened = self.opens("BeforeControlPlaneUpgrade", version)?;
        let proven = |name: &str| {
            self.last(written, name, &|event| {
                matches!(event, Event::CheckProven { check, minor: of, .. } if check == name && of == minor)
            })
        };
        let record = ("the record that opens BeforeControlPlaneUpgrade", opened);
        for name in TIED {
            in_order(&[
                ("the begin of the hop", before),
                (name, proven(name)?),
                record,
                (version, written),
            ])?;
        }
        in_order(&[("files", proven("files")?), record])
    }

    /// The last milestone before a revision that is wanted.
    fn last(&self, before: Revision, what: &str, wanted: &dyn Fn(&Event) -> bool) -> Result<Revision> {
        let mut earlier = self.milestones.iter().rev();
        let found = earlier.find(|milestone| milestone.revision < before && wanted(&milestone.event));
        found
            .map(|milestone| milestone.revision)
            .with_context(|| format!("{what} was not seen"))
    }
}
