//! A package never becomes ready, and a user overrides the gates that wait for it. The commands of docs/how-to/override.md, run as they
//! stand there.

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_tests::install::{Guide, Shell};
use sluice_tests::objects::{Release, TKR};
use sluice_tests::observer::{Event, Revision};
use sluice_tests::scenario::verdict::none_between;
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::kubelet::Delay;
use sluice_tests::wait;

use crate::common::{is_completed, record_says, shell, shell_of};

const USER: &str = "alice";

const REASON: &str = "CHG-4711: metrics is unused here";

const BEFORE_CONTROL_PLANE: &str = "BeforeControlPlaneUpgrade";
const AFTER_CONTROL_PLANE: &str = "AfterControlPlaneUpgrade";

const OVERRIDES: &str = "sluice_upgrade_overrides_total";

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "override",
        "a package never becomes ready: an override passes it for the control plane only, another one for the workers; one that is revoked, has expired, precedes the upgrade or was written for an earlier one opens nothing",
        |scene| Box::pin(run(scene)),
    )
    // Cluster API is stopped.
    .own_stack()
}

/// The releases, the page, and those who run its commands.
struct Site {
    scene: Scene,
    old: Release,
    /// Its metrics becomes ready on request.
    new: Release,
    page: Guide,
    admin: Shell,
    /// Of [`USER`].
    user: Shell,
}

impl Site {
    async fn open(scene: &Scene) -> Result<Self> {
        let old = scene
            .release(VERSIONS[1], "1.0.0", Delay::NONE)?
            .additional(scene.package("metrics", "1.0.0"));
        let new = scene
            .release(VERSIONS[2], "2.0.0", Delay::NONE)?
            .additional(scene.slow_package("metrics", "2.0.0", Delay::Never));
        for release in [&old, &new] {
            scene.publish(release).await?;
        }
        Ok(Self {
            scene: scene.clone(),
            old,
            new,
            page: Guide::page("docs/how-to/override.md")?,
            admin: shell(scene, "home-override").await?,
            user: shell_of(scene, "home-override-user", USER).await?,
        })
    }

    /// Runs commands of the page about a Cluster.
    async fn run(&self, shell: &Shell, commands: &str, cluster: &Cluster) -> Result<String> {
        let release = self.new.name();
        let expires = in_future(SignedDuration::from_hours(4));
        let variables = [
            ("CLUSTER", cluster.name()),
            ("VERSION", self.new.kubernetes()),
            ("RELEASE", release.as_str()),
            ("PACKAGE", "metrics"),
            ("EXPIRES", expires.as_str()),
            ("REASON", REASON),
            ("CREATOR", USER),
        ];
        let said = shell.run(&self.page.commands(commands)?, &variables).await?;
        said.well().with_context(|| format!("run {commands:?}"))
    }

    /// An UpgradeOverride as its user writes it.
    fn manifest(&self, cluster: &Cluster, name: &str, gate: &str, left: SignedDuration) -> Value {
        json!({
            "apiVersion": "lifecycle.sluice.dev/v1alpha1",
            "kind": "UpgradeOverride",
            "metadata": {"name": name, "namespace": self.scene.namespace()},
            "spec": {
                "clusterName": cluster.name(),
                "target": {"kubernetesVersion": self.new.kubernetes(), "release": self.new.name()},
                "gate": gate,
                "packages": ["metrics"],
                "reason": REASON,
                "expiresAt": in_future(left),
            },
        })
    }

    /// Has the user create an override. Returns its UID.
    async fn create(&self, manifest: &Value) -> Result<String> {
        let commands = format!("kubectl create -f - <<'EOF'\n{manifest}\nEOF\n");
        self.user.run(&commands, &[]).await?.well()?;
        self.uid(manifest).await
    }

    async fn uid(&self, manifest: &Value) -> Result<String> {
        let name = manifest["metadata"]["name"].as_str().context("no name")?;
        let object = self.scene.objects().get(&self.path(name)).await?;
        let object = object.with_context(|| format!("no UpgradeOverride {name}"))?;
        let uid = object["metadata"]["uid"].as_str();
        Ok(uid.context("an object without UID")?.to_owned())
    }

    fn path(&self, name: &str) -> String {
        let namespace = self.scene.namespace();
        format!("/apis/lifecycle.sluice.dev/v1alpha1/namespaces/{namespace}/upgradeoverrides/{name}")
    }

    /// Upgrades, and returns once nothing but metrics is waited for, with the revision from before.
    async fn held(&self, cluster: &Cluster) -> Result<Revision> {
        let before = cluster.upgrade(&self.new).await?;
        cluster.says("metrics 2.0.0", TIMEOUT).await?;
        record_says(cluster, "antrea", "Ready").await?;
        cluster.control_plane_is_untouched(before).await?;
        Ok(before)
    }
}

/// The time after so long, as the API writes it.
fn in_future(left: SignedDuration) -> String {
    (Timestamp::now() + left)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

async fn run(scene: Scene) -> Result<()> {
    let site = Site::open(&scene).await?;
    let create = |name| scene.cluster(name).workers(1).create_settled(&site.old);
    let (one, two) = tokio::try_join!(create("one"), create("two"))?;
    let extension = scene.world().extension()?;
    extension
        .admit_overrides("override", scene.namespace(), one.name())
        .await?;
    site.run(&site.admin, "allow a user", &one).await?;

    let (before_one, before_two) =
        tokio::try_join!(control_plane_only(&site, &one), left_in_advance(&site, &two))?;
    let cluster_api = scene.world().stack().cluster_api();
    cluster_api.freeze().await?;
    let ended = tokio::try_join!(revoked(&site, &one), expired(&site, &two));
    // Also after a failure: the scenario ends with deletions.
    cluster_api.thaw().await?;
    ended?;
    tokio::try_join!(
        workers_go_on(&site, &one, before_one),
        used_again(&site, &two, before_two),
    )?;

    for (gate, least) in [("ControlPlane", 3.0), ("Workers", 2.0)] {
        let series = format!("{OVERRIDES}{{gate=\"{gate}\"}}");
        let count = extension.metric(&series).await?;
        ensure!(count >= least, "{series} is {count}, not at least {least}");
    }
    Ok(())
}

/// The control plane goes without metrics, and workers wait for it. Returns the revision from before the upgrade.
async fn control_plane_only(site: &Site, cluster: &Cluster) -> Result<Revision> {
    let before = site.held(cluster).await?;
    let step = site.run(&site.admin, "find the step", cluster).await?;
    for text in [site.new.kubernetes(), &site.new.name(), "metrics"] {
        ensure!(step.contains(text), "the page shows {step:?}, without {text}");
    }
    let mut forged = site.manifest(cluster, "forged", "ControlPlane", SignedDuration::from_hours(1));
    forged["spec"]["requestedBy"] = json!("bob");
    let commands = format!("kubectl create -f - <<'EOF'\n{forged}\nEOF\n");
    site.user.run(&commands, &[]).await?.refused("spec.requestedBy")?;

    site.run(&site.user, "override the control plane", cluster)
        .await?;
    cluster
        .control_plane_written(site.new.kubernetes(), before, TIMEOUT)
        .await?;
    let shown = site.run(&site.user, "see the override", cluster).await?;
    ensure!(shown.contains(USER), "kubectl shows {shown}");
    is_overridden(cluster, "ControlPlane", before).await?;
    cluster.says(AFTER_CONTROL_PLANE, TIMEOUT).await?;
    gate_is(cluster, AFTER_CONTROL_PLANE, None).await?;
    let now = cluster.scene().world().observer().catch_up().await?;
    none_between(&cluster.milestones(), (before, now), is_proof)?;
    none_between(&cluster.milestones(), (before, now), is_roll)?;
    Ok(before)
}

/// An override that exists before the upgrade, as one that was left in Git, opens nothing. Returns the revision from before the upgrade.
async fn left_in_advance(site: &Site, cluster: &Cluster) -> Result<Revision> {
    let left = site.manifest(cluster, "two-left", "ControlPlane", SignedDuration::from_hours(4));
    let uid = site.create(&left).await?;
    let before = site.held(cluster).await?;
    is_spent(cluster, &uid).await?;
    let what = "UpgradeOverride two-left not to be accepted";
    wait::until(what, TIMEOUT, || async {
        let object = site.scene.objects().get(&site.path("two-left")).await?;
        let conditions = object.unwrap_or_default()["status"]["conditions"].take();
        let mut known = conditions.as_array().into_iter().flatten();
        let is_spent = |condition: &Value| {
            condition["type"] == "Accepted"
                && condition["status"] == "False"
                && condition["reason"] == "Spent"
        };
        if known.any(is_spent) {
            Ok(())
        } else {
            wait::not_yet(conditions)
        }
    })
    .await?;
    gate_is(cluster, BEFORE_CONTROL_PLANE, None).await?;
    cluster.control_plane_is_untouched(before).await?;
    Ok(before)
}

/// The gate of the workers closes when the override is deleted. Cluster API is stopped.
async fn revoked(site: &Site, cluster: &Cluster) -> Result<()> {
    site.run(&site.user, "override the workers", cluster).await?;
    gate_is(cluster, AFTER_CONTROL_PLANE, Some("one-workers")).await?;
    site.run(&site.user, "revoke", cluster).await?;
    gate_is(cluster, AFTER_CONTROL_PLANE, None).await
}

/// The gate of the control plane closes when the override expires. Cluster API is stopped.
async fn expired(site: &Site, cluster: &Cluster) -> Result<()> {
    let short = site.manifest(
        cluster,
        "two-short",
        "ControlPlane",
        SignedDuration::from_secs(45),
    );
    site.create(&short).await?;
    gate_is(cluster, BEFORE_CONTROL_PLANE, Some("two-short")).await?;
    gate_is(cluster, BEFORE_CONTROL_PLANE, None).await
}

/// Workers go by another override, and metrics stays unproven until it is ready.
async fn workers_go_on(site: &Site, cluster: &Cluster, before: Revision) -> Result<()> {
    is_asked_and_holds(cluster).await?;
    let now = cluster.scene().world().observer().catch_up().await?;
    none_between(&cluster.milestones(), (before, now), is_roll)?;

    site.run(&site.user, "override the workers", cluster).await?;
    cluster
        .milestone("the workers to be written", TIMEOUT, now, is_roll)
        .await?;
    is_overridden(cluster, "Workers", now).await?;
    let is_done = |event: &Event| matches!(event, Event::WorkersDone { .. });
    cluster
        .milestone("the workers to be done", TIMEOUT, now, is_done)
        .await?;
    let bootstrap = cluster.bootstrap().await?;
    let outcome = &bootstrap["status"]["upgrade"]["outcome"];
    ensure!(outcome.is_null(), "the upgrade is {outcome} without metrics");
    let conditions = bootstrap["status"]["conditions"].as_array();
    let mut ready = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["type"] == "Ready");
    ensure!(
        ready.any(|condition| condition["status"] == "False"),
        "Ready without metrics: {conditions:?}"
    );

    let trace = site.run(&site.admin, "see the trace", cluster).await?;
    for text in [
        "UpgradeOverridden",
        "cluster/one",
        "clusterbootstrap/one",
        USER,
        REASON,
    ] {
        ensure!(trace.contains(text), "the page shows {trace:?}, without {text}");
    }
    completes(
        cluster,
        &[("one-control-plane", "ControlPlane"), ("one-workers", "Workers")],
    )
    .await
}

/// An override of a cancelled upgrade opens nothing in the next one to the same version.
async fn used_again(site: &Site, cluster: &Cluster, before: Revision) -> Result<()> {
    is_asked_and_holds(cluster).await?;
    cluster.control_plane_is_untouched(before).await?;
    let workers = site.manifest(cluster, "two-workers", "Workers", SignedDuration::from_hours(4));
    let uid = site.create(&workers).await?;
    let annotation = "unsafe.topology.cluster.x-k8s.io/disable-update-version-check";
    let (version, release) = (site.old.kubernetes(), site.old.name());
    cluster
        .patch(&json!({
            "metadata": {"labels": {TKR: release}, "annotations": {annotation: ""}},
            "spec": {"topology": {"version": version}},
        }))
        .await?;
    let what = format!("the upgrade of {} to be cancelled", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let phase = &bootstrap["status"]["phase"];
            if *phase == "Cancelled" {
                Ok(())
            } else {
                wait::not_yet(phase)
            }
        })
        .await?;

    let again = site.held(cluster).await?;
    site.scene.apply(std::slice::from_ref(&workers)).await?;
    ensure!(
        site.uid(&workers).await? == uid,
        "the manifest that was applied again is another object"
    );
    is_spent(cluster, &uid).await?;
    let control_plane = site.manifest(
        cluster,
        "two-control-plane",
        "ControlPlane",
        SignedDuration::from_hours(4),
    );
    site.create(&control_plane).await?;
    cluster
        .control_plane_written(site.new.kubernetes(), again, TIMEOUT)
        .await?;
    is_overridden(cluster, "ControlPlane", again).await?;
    cluster.says(AFTER_CONTROL_PLANE, TIMEOUT).await?;
    gate_is(cluster, AFTER_CONTROL_PLANE, None).await?;
    let now = cluster.scene().world().observer().catch_up().await?;
    none_between(&cluster.milestones(), (before, now), is_roll)?;
    completes(cluster, &[("two-control-plane", "ControlPlane")]).await
}

/// metrics becomes ready, the upgrade is completed, and the history names the overrides.
async fn completes(cluster: &Cluster, overrides: &[(&str, &str)]) -> Result<()> {
    cluster.delay("metrics", Delay::NONE);
    cluster.is_settled(TIMEOUT).await?;
    is_completed(cluster).await?;
    let bootstrap = cluster.bootstrap().await?;
    let history = &bootstrap["status"]["history"][0]["overrides"];
    let is = |of: &Value, (name, gate): &(&str, &str)| {
        of["name"] == *name && of["gate"] == *gate && of["user"] == USER && of["reason"] == REASON
    };
    let found = history.as_array().map_or(&[][..], Vec::as_slice);
    let are_found = overrides
        .iter()
        .all(|wanted| found.iter().any(|of| is(of, wanted)));
    let are_wanted = found
        .iter()
        .all(|of| overrides.iter().any(|wanted| is(of, wanted)));
    ensure!(
        are_found && are_wanted,
        "the history has {history}, not {overrides:?}"
    );
    Ok(())
}

/// The observer has seen a step without proof, by an override that it has read, and an Event names its user.
async fn is_overridden(cluster: &Cluster, gate: &str, since: Revision) -> Result<()> {
    let wanted = |event: &Event| matches!(event, Event::Overridden { gate: of, .. } if *of == gate);
    let what = format!("a step by an override of gate {gate}");
    cluster.milestone(&what, TIMEOUT, since, wanted).await?;
    cluster
        .has_event_after(since, "UpgradeOverridden", USER, TIMEOUT)
        .await
}

/// Waits until the record has the gate of a hook open by an override, or closed because of metrics.
async fn gate_is(cluster: &Cluster, hook: &str, by: Option<&str>) -> Result<()> {
    let what = format!("gate {hook} of {} to be opened by {by:?}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let gates = &bootstrap["status"]["upgrade"]["gates"];
            let mut known = gates.as_array().into_iter().flatten();
            let gate = known.find(|gate| gate["hook"] == hook && gate["version"] == VERSIONS[2]);
            let is_so = gate.is_some_and(|gate| match by {
                Some(name) => gate["open"] == true && gate["overriddenBy"]["name"] == name,
                None => gate["open"] == false && gate.to_string().contains("metrics 2.0.0"),
            });
            if is_so { Ok(()) } else { wait::not_yet(gates) }
        })
        .await
}

/// Waits until the record lists an override as one that does not count.
async fn is_spent(cluster: &Cluster, uid: &str) -> Result<()> {
    let what = format!("the record of {} to list override {uid}", cluster.name());
    cluster
        .bootstrap_until(what, TIMEOUT, |bootstrap| {
            let record = &bootstrap["status"]["upgrade"];
            let mut spent = record["spentOverrides"].as_array().into_iter().flatten();
            if record["to"] == VERSIONS[2] && spent.any(|spent| spent == uid) {
                Ok(())
            } else {
                wait::not_yet(record)
            }
        })
        .await
}

/// Cluster API calls a hook of the Cluster from now on, and Sluice holds the first call.
async fn is_asked_and_holds(cluster: &Cluster) -> Result<()> {
    let since = Timestamp::now();
    let what = format!("a hook call about {}", cluster.name());
    let answer = wait::until(what, TIMEOUT, || async {
        let answers = cluster.hook_answers()?;
        match answers.into_iter().find(|answer| answer.timestamp > since) {
            Some(answer) => Ok(answer),
            None => wait::not_yet("none yet"),
        }
    })
    .await?;
    ensure!(answer.is_held(), "Sluice answered {answer:?}");
    Ok(())
}

fn is_proof(event: &Event) -> bool {
    matches!(event, Event::PackageProven { ref_name, version }
        if ref_name.starts_with("metrics.") && version == "2.0.0")
}

fn is_roll(event: &Event) -> bool {
    matches!(event, Event::WorkersWritten { .. })
}
