//! Whatever blocks an upgrade, the verb, the API server and the record name it alike.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_tests::install::{Said, Shell};
use sluice_tests::objects::{Class, Release, TKR, upgrade};
use sluice_tests::scenario::{Cluster, Scenario, Scene, TIMEOUT, VERSIONS};
use sluice_tests::stack::{SYSTEM_NAMESPACE, kubelet::Delay};
use sluice_tests::wait;

use super::{DRY_RUN, EXEMPTION, admit, patch, planned, verb};
use crate::back_and_forth::UNSAFE;
use crate::common::{metrics, release, shell};
use crate::missing_things::gate_names;

pub(crate) fn scenario() -> Scenario {
    Scenario::new(
        "plan",
        "for each cause that blocks an upgrade, the plan of the verb, a dry run of kubectl and the recorded gate name it alike; a label of a deactivated release of the same version is refused; an exemption, other modes and stopped replicas admit the upgrade, and its gate holds",
        |scene| Box::pin(run(scene)),
    )
    .class(Class {
        kubernetes_versions: VERSIONS.map(str::to_owned).to_vec(),
        ..Class::default()
    })
    // The release of the step between is found by its Kubernetes version, and replicas are stopped.
    .own_stack()
}

async fn run(scene: Scene) -> Result<()> {
    let releases = [
        release(&scene, VERSIONS[0], "1.0.0", Delay::NONE)?,
        release(&scene, VERSIONS[1], "2.0.0", Delay::NONE)?,
        release(&scene, VERSIONS[2], "3.0.0", Delay::NONE)?,
    ];
    for release in &releases {
        scene.publish(release).await?;
    }
    let bench = Bench {
        cluster: scene.cluster("one").create_settled(&releases[0]).await?,
        shell: shell(&scene, "home-plan").await?,
        scene: scene.clone(),
        releases,
    };
    let webhooks = admit(&scene).await?;
    bench.answers_nothing().await?;
    bench.lists_hops().await?;
    bench.judges_label().await?;
    for row in bench.rows() {
        bench.judge(&row).await.context(row.what)?;
    }
    bench.is_admitted_otherwise().await?;

    let [_, between, new] = &bench.releases;
    let before = scene.world().observer().catch_up().await?;
    bench.patch(&bench.bump(), "").await?.well()?;
    for release in [between, new] {
        let version = release.kubernetes();
        bench
            .cluster
            .control_plane_written(version, before, TIMEOUT)
            .await?;
    }
    bench.cluster.is_settled(TIMEOUT).await?;
    scene.objects().delete(&webhooks).await
}

/// Answer of admission to a change of version.
#[derive(Debug, Clone, Copy)]
enum Admission {
    Refuses,
    Warns,
}

impl Admission {
    fn refuses(self) -> bool {
        matches!(self, Self::Refuses)
    }
}

/// Cause that blocks an upgrade.
struct Row {
    what: &'static str,
    /// Path of an object and the change of it; without a change it is deleted.
    spoils: Option<(String, Option<Value>)>,
    /// Merged into the Cluster.
    bump: Value,
    /// Step that it blocks.
    hop: &'static str,
    reason: &'static str,
    /// Part of each message.
    names: String,
    admission: Admission,
}

impl Row {
    /// Whether kubectl says why.
    fn is_named(&self, errors: &str) -> bool {
        errors.contains(self.reason) && errors.contains(&self.names)
    }
}

struct Bench {
    scene: Scene,
    cluster: Cluster,
    shell: Shell,
    releases: [Release; 3],
}

impl Bench {
    fn rows(&self) -> Vec<Row> {
        let [old, between, new] = &self.releases;
        let of_package = metrics(&self.scene, "3.0.0").name();
        let package = format!(
            "/apis/data.packaging.carvel.dev/v1alpha1/namespaces/{SYSTEM_NAMESPACE}/packages/{of_package}"
        );
        let template = format!(
            "/apis/run.tanzu.vmware.com/v1alpha3/namespaces/{SYSTEM_NAMESPACE}/clusterbootstraptemplates/{}",
            new.name()
        );
        let range = json!({"spec": {"kubernetesVersionSelection": {"constraints": ">=1.34.0 <1.36.0"}}});
        vec![
            Row {
                what: "no release for a step",
                spoils: Some((format!("{}/{}", Release::PATH, between.name()), None)),
                bump: self.bump(),
                hop: VERSIONS[1],
                reason: "NoTKRForHop",
                names: format!("no TanzuKubernetesRelease is for Kubernetes {}", VERSIONS[1]),
                admission: Admission::Warns,
            },
            deactivated(new, VERSIONS[2]),
            Row {
                what: "no template",
                spoils: Some((template, None)),
                bump: self.bump(),
                hop: VERSIONS[2],
                reason: "TemplateNotFound",
                names: format!("{SYSTEM_NAMESPACE}/{}", new.name()),
                admission: Admission::Warns,
            },
            Row {
                what: "no Package",
                spoils: Some((package.clone(), None)),
                bump: self.bump(),
                hop: VERSIONS[2],
                reason: "PackageNotFound",
                names: of_package.clone(),
                admission: Admission::Warns,
            },
            Row {
                what: "a Package of other Kubernetes versions",
                spoils: Some((package, Some(range))),
                bump: self.bump(),
                hop: VERSIONS[2],
                reason: "PackageExcludesKubernetes",
                names: of_package,
                admission: Admission::Refuses,
            },
            Row {
                what: "label and version of different releases",
                spoils: None,
                bump: upgrade(VERSIONS[2], None),
                hop: VERSIONS[2],
                reason: "NoTKRForHop",
                names: format!("the label names {}", old.name()),
                admission: Admission::Warns,
            },
        ]
    }

    /// The upgrade over both steps.
    fn bump(&self) -> Value {
        let [_, _, new] = &self.releases;
        upgrade(new.kubernetes(), Some(&new.name()))
    }

    /// Brings about the cause, compares what each part says, and takes it back.
    async fn judge(&self, row: &Row) -> Result<()> {
        let sound = self.spoil(row).await?;
        if sound.is_some() {
            self.is_blocked(row, &format!("--to {}", self.releases[2].name()))
                .await?;
        }
        let (before, installs) = (
            self.scene.world().observer().catch_up().await?,
            self.cluster.installs().await?,
        );
        self.is_reviewed(row).await?;
        gate_names(&self.cluster, row.reason, &row.names).await?;
        self.is_blocked(row, "").await?;
        self.cluster.control_plane_is_untouched(before).await?;
        ensure!(
            self.cluster.installs().await? == installs,
            "packages were written while the upgrade was held"
        );
        // The cause is still there.
        self.goes_back().await?;
        self.repair(row, sound).await?;
        self.is_ready(row).await
    }

    /// A label of a deactivated release of the same Kubernetes version is refused; with an exemption, nothing is written for it.
    async fn judges_label(&self) -> Result<()> {
        let [old, _, _] = &self.releases;
        let build = format!("{}.2", self.scene.namespace());
        let other = release(&self.scene, VERSIONS[0], "1.1.0", Delay::NONE)?.build(build);
        self.scene.publish(&other).await?;
        let row = deactivated(&other, VERSIONS[0]);
        self.spoil(&row).await?;
        self.is_blocked(&row, &format!("--to {}", other.name())).await?;
        self.dry_run_says(&row, true).await?;
        let field = format!("metadata.labels[{TKR}]");
        self.patch(&row.bump, DRY_RUN).await?.refused(&field)?;

        let before = (
            self.cluster.bootstrap().await?["spec"].take(),
            self.cluster.installs().await?,
        );
        self.is_reviewed(&row).await?;
        // No hook is called at the same version, so no gate has the reason.
        let what = "the record to have the label, and the release from before".to_owned();
        self.cluster
            .bootstrap_until(what, TIMEOUT, |bootstrap| {
                let record = &bootstrap["status"]["upgrade"];
                if record["label"] == other.name() && record["tkr"] == old.name() {
                    Ok(())
                } else {
                    wait::not_yet(record)
                }
            })
            .await?;
        self.is_blocked(&row, "").await?;
        let after = (
            self.cluster.bootstrap().await?["spec"].take(),
            self.cluster.installs().await?,
        );
        ensure!(after == before, "{after:?}, before {before:?}");
        self.goes_back().await
    }

    /// Returns the object from before.
    async fn spoil(&self, row: &Row) -> Result<Option<Value>> {
        let Some((path, change)) = &row.spoils else {
            return Ok(None);
        };
        let objects = self.scene.objects();
        let sound = objects.get(path).await?.context("nothing to spoil")?;
        match change {
            None => objects.delete(path).await?,
            Some(change) => objects.merge(path, change).await?,
        }
        Ok(Some(sound))
    }

    async fn repair(&self, row: &Row, sound: Option<Value>) -> Result<()> {
        let (Some((path, _)), Some(sound)) = (&row.spoils, sound) else {
            return Ok(());
        };
        self.scene.objects().restore(path, &sound).await
    }

    /// Exit code and JSON of the verb.
    async fn plan(&self, arguments: &str) -> Result<(Option<i32>, Value)> {
        planned(&self.shell, &self.scene, &format!("one {arguments}")).await
    }

    /// Merges a change into the Cluster with kubectl.
    async fn patch(&self, change: &Value, flags: &str) -> Result<Said> {
        patch(&self.shell, change, flags).await
    }

    /// The verb names what it cannot answer in one line.
    async fn answers_nothing(&self) -> Result<()> {
        for (arguments, names) in [("none", "none"), ("one --to v1.99.0", "v1.99.0")] {
            let said = verb(&self.shell, &self.scene, arguments).await?;
            ensure!(
                matches!(said.code, Some(1 | 2))
                    && said.output.is_empty()
                    && said.errors.contains(names)
                    && said.errors.lines().count() == 1,
                "plan {arguments}: {said:?}"
            );
        }
        Ok(())
    }

    /// The verb lists both steps with their releases and packages.
    async fn lists_hops(&self) -> Result<()> {
        let [old, between, new] = &self.releases;
        let (code, plan) = self.plan(&format!("--to {}", new.name())).await?;
        ensure!(
            code == Some(0)
                && plan["schema"] == 1
                && plan["verdict"] == "ready"
                && plan["from"] == old.kubernetes()
                && plan["to"] == new.kubernetes(),
            "exit code {code:?}: {plan}"
        );
        let hops = plan["hops"].as_array().context("no hops")?;
        let listed: Vec<(&Value, &Value)> = hops
            .iter()
            .map(|hop| (&hop["version"], &hop["release"]))
            .collect();
        let wanted = [between, new].map(|release| (json!(release.kubernetes()), json!(release.name())));
        ensure!(
            listed
                .into_iter()
                .eq(wanted.iter().map(|(version, name)| (version, name))),
            "{plan}"
        );
        let antrea = json!({"name": "antrea", "from": "2.0.0", "to": "3.0.0"});
        let packages = hops[1]["packages"].as_array().context("no packages")?;
        ensure!(packages.contains(&antrea), "{plan}");
        Ok(())
    }

    /// The verb names the cause.
    async fn is_blocked(&self, row: &Row, arguments: &str) -> Result<()> {
        let (code, plan) = self.plan(arguments).await?;
        let mut findings = plan["findings"].as_array().into_iter().flatten();
        let names_it = findings.any(|finding| {
            let message = finding["message"].as_str().unwrap_or_default();
            finding["effect"] == "blocks"
                && finding["reason"] == row.reason
                && finding["hop"] == row.hop
                && message.contains(&row.names)
                && finding["remedy"]
                    .as_str()
                    .is_some_and(|remedy| !remedy.is_empty())
        });
        ensure!(
            code == Some(3) && plan["verdict"] == "blocked" && names_it,
            "exit code {code:?}: {plan}"
        );
        Ok(())
    }

    /// The verb finds nothing that blocks, and a dry run says nothing.
    async fn is_ready(&self, row: &Row) -> Result<()> {
        let arguments = format!("--to {}", self.releases[2].name());
        wait::until("a plan that is ready", TIMEOUT, || async {
            let (code, plan) = self.plan(&arguments).await?;
            let said = self.patch(&self.bump(), DRY_RUN).await?;
            let is_ready = code == Some(0) && plan["verdict"] == "ready";
            if is_ready && said.succeeded && !row.is_named(&said.errors) {
                Ok(())
            } else {
                wait::not_yet(format!("exit code {code:?}: {plan}; {}", said.errors))
            }
        })
        .await?;
        Ok(())
    }

    /// Waits until a dry run of kubectl is refused, or not, with the cause in its messages.
    async fn dry_run_says(&self, row: &Row, is_refused: bool) -> Result<()> {
        // The API server asks the webhook, and the caches of the replicas show the cause, only some time later.
        let what = format!("a dry run that is refused ({is_refused}) to name {:?}", row.names);
        wait::until(what, TIMEOUT, || async {
            let said = self.patch(&row.bump, DRY_RUN).await?;
            if said.succeeded != is_refused && row.is_named(&said.errors) {
                Ok(())
            } else {
                wait::not_yet(format!("{said:?}"))
            }
        })
        .await?;
        Ok(())
    }

    /// kubectl names the cause, and the Cluster is upgraded only by an exemption where admission refuses.
    async fn is_reviewed(&self, row: &Row) -> Result<()> {
        self.dry_run_says(row, row.admission.refuses()).await?;
        if !row.admission.refuses() {
            let said = self.patch(&row.bump, "").await?;
            ensure!(said.succeeded && row.is_named(&said.errors), "{said:?}");
            return Ok(());
        }
        for skipped in [None, Some(VERSIONS[1])] {
            let said = self.patch(&exempt(&row.bump, skipped), "").await?;
            ensure!(
                !said.succeeded && row.is_named(&said.errors),
                "with exemption {skipped:?}: {said:?}"
            );
        }
        let version = self.cluster.object().await?["spec"]["topology"]["version"].take();
        ensure!(version == VERSIONS[0], "a refused upgrade has written {version}");
        let to = row.bump["spec"]["topology"]["version"].as_str();
        self.patch(&exempt(&row.bump, to), "").await?.well()?;
        Ok(())
    }

    /// The Cluster goes back to its control plane's version, whatever blocks its upgrade.
    async fn goes_back(&self) -> Result<()> {
        let [old, _, _] = &self.releases;
        let mut back = exempt(&upgrade(old.kubernetes(), Some(&old.name())), None);
        back["metadata"]["annotations"][UNSAFE] = json!("");
        self.patch(&back, "").await?.well()?;
        self.cluster.is_settled(TIMEOUT).await
    }

    /// Other edits, other modes and stopped replicas admit what is refused otherwise, and the gate holds.
    async fn is_admitted_otherwise(&self) -> Result<()> {
        let row = deactivated(&self.releases[2], VERSIONS[2]);
        let sound = self.spoil(&row).await?;
        self.dry_run_says(&row, true).await?;
        let mut paused = row.bump.clone();
        paused["spec"]["paused"] = json!(true);
        for (what, edit) in [
            ("an upgrade of a paused Cluster", paused),
            ("a label", json!({"metadata": {"labels": {"team": "a"}}})),
            (
                "a scaling",
                json!({"spec": {"topology": {"controlPlane": {"replicas": 3}}}}),
            ),
        ] {
            self.patch(&edit, DRY_RUN).await?.well().context(what)?;
        }

        self.starts_with(&["--upgrade-checks=Warn"]).await?;
        self.dry_run_says(&row, false).await?;
        self.starts_with(&["--upgrade-checks=Off"]).await?;
        let said = self.patch(&row.bump, DRY_RUN).await?;
        ensure!(
            said.succeeded && !row.is_named(&said.errors),
            "mode Off: {said:?}"
        );
        self.starts_with(&[]).await?;
        self.dry_run_says(&row, true).await?;

        let extension = self.scene.world().extension()?;
        let before = self.scene.world().observer().catch_up().await?;
        extension.kill().await?;
        self.patch(&row.bump, "").await?.well()?;
        extension.restart().await?;
        gate_names(&self.cluster, row.reason, &row.names).await?;
        self.is_blocked(&row, "").await?;
        self.cluster.control_plane_is_untouched(before).await?;
        self.goes_back().await?;
        self.repair(&row, sound).await?;
        self.is_ready(&row).await
    }

    /// Replaces all replicas by others with these arguments.
    async fn starts_with(&self, arguments: &[&str]) -> Result<()> {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let extension = self.scene.world().extension()?;
        extension
            .roll_out(|settings| settings.arguments.clone_from(&arguments))
            .await
    }
}

/// A release that is deactivated, and the upgrade to it.
fn deactivated(release: &Release, hop: &'static str) -> Row {
    let label = json!({"metadata": {"labels": {"deactivated": ""}}});
    Row {
        what: "a release that is deactivated",
        spoils: Some((format!("{}/{}", Release::PATH, release.name()), Some(label))),
        bump: upgrade(release.kubernetes(), Some(&release.name())),
        hop,
        reason: "TKRNotUsable",
        names: release.name(),
        admission: Admission::Refuses,
    }
}

/// A change of a Cluster together with its exemption, which is removed where there is none.
fn exempt(change: &Value, version: Option<&str>) -> Value {
    let mut change = change.clone();
    change["metadata"]["annotations"] = json!({EXEMPTION: version});
    change
}
