//! The chart of a run, as CAAPH or Flux delivers it, and the gate that waits for it.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::disturbance::{Delivery, Kind};
use super::plan::Plan;
use super::stage::delivers;
use crate::objects::{Chart, Check, Gate, HelmChartProxy, HelmRelease};
use crate::scenario::{Cluster, Scene};

/// Version of the chart and tag of its image, before and after.
pub(super) const CHARTS: [(&str, &str); 2] = [("1.17.4", "v1.17.4"), ("1.18.2", "v1.18.2")];

/// Label of a Cluster that its gate selects; its value is the name of the run.
pub(super) const RUN: &str = "soak-run";

/// Checks of the gate.
pub(super) const CHECKS: [&str; 2] = ["chart", "agent"];

/// How long Helm waits for Pods where it does.
const WAITS: &str = "1m";

/// The object by which a chart is delivered.
#[derive(Clone)]
pub(super) enum Addon {
    Proxy(HelmChartProxy),
    Release(HelmRelease),
}

impl Addon {
    /// That of a run, at the chart version before. Chart and release have the name of the run, because one Cluster may get those of
    /// several runs.
    pub(super) fn of(plan: &Plan, repository: &str) -> Self {
        let name = plan.name();
        let version = CHARTS[0].0;
        // A controller can only be killed during an upgrade that lasts.
        let waits = plan.kind == Kind::ControllerKilled;
        match plan.delivery {
            Delivery::Caaph => {
                let proxy = HelmChartProxy::new(&name, repository)
                    .version(version)
                    .selects(&json!({delivers(&name): "true"}));
                Self::Proxy(if waits {
                    proxy.options(json!({"wait": true, "timeout": WAITS}))
                } else {
                    proxy
                })
            }
            Delivery::Flux => {
                let release = HelmRelease::new(&name, &name).version(version).cluster(&name);
                Self::Release(match plan.kind {
                    Kind::ControllerKilled => release.waits(WAITS),
                    Kind::RolledBack => release.rolls_back(),
                    _ => release,
                })
            }
        }
    }

    /// The same at the chart version after.
    pub(super) fn bumped(&self) -> Self {
        let version = CHARTS[1].0;
        match self.clone() {
            Self::Proxy(proxy) => Self::Proxy(proxy.version(version)),
            Self::Release(release) => Self::Release(release.version(version)),
        }
    }

    /// With these values.
    pub(super) fn values(self, values: &str) -> Self {
        match self {
            Self::Proxy(proxy) => Self::Proxy(proxy.values(values)),
            Self::Release(release) => Self::Release(release.values(values)),
        }
    }

    pub(super) async fn apply(&self, scene: &Scene) -> Result<()> {
        match self {
            Self::Proxy(proxy) => scene.deliver(proxy).await,
            Self::Release(release) => scene.apply(&[release.manifest(scene.namespace())]).await,
        }
    }

    /// Waits until the chart is deployed in a Cluster at the version that this asks for.
    pub(super) async fn delivered(&self, cluster: &Cluster, deadline: Duration) -> Result<()> {
        match self {
            Self::Proxy(proxy) => cluster.delivered(proxy, deadline).await,
            Self::Release(release) => cluster.released(release, deadline).await,
        }
    }

    /// Where it is on the management API server.
    pub(super) fn path(&self, scene: &Scene) -> String {
        match self {
            Self::Proxy(proxy) => scene.proxy_path(proxy.name()),
            Self::Release(release) => scene.helm_release_path(release.name()),
        }
    }

    fn check(&self, name: &str) -> Check {
        match self {
            Self::Proxy(proxy) => Check::proxy(name, proxy.name()),
            Self::Release(release) => Check::helm_release(name, release.name()),
        }
    }
}

/// The gate of a run: the chart, and the DaemonSet that it installs.
pub(super) fn gate(plan: &Plan, addon: &Addon) -> Gate {
    row(old_gate(plan, addon), plan.minors()[1], CHARTS[1])
}

/// The same with the row of the version before alone, as it was before the upgrade was prepared.
pub(super) fn old_gate(plan: &Plan, addon: &Addon) -> Gate {
    let name = plan.name();
    let [chart, agent] = CHECKS;
    let agent = Check::workload(agent, ("apps/v1", "DaemonSet"), Chart::NAMESPACE, &name);
    let gate = Gate::new(&name)
        .selects(&json!({RUN: name}))
        .check(addon.check(chart).version_key("chart"))
        .check(agent.container(Chart::CONTAINER).version_key("image"));
    row(gate, plan.minors()[0], CHARTS[0])
}

fn row(gate: Gate, minor: &str, (chart, image): (&str, &str)) -> Gate {
    gate.row(minor, &[("chart", chart), ("image", image)])
}

/// An object of the workload cluster that the gate checks.
pub(super) fn agent_path(name: &str) -> String {
    format!("/apis/apps/v1/namespaces/{}/daemonsets/{name}", Chart::NAMESPACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(kind: Kind, delivery: Delivery) -> Plan {
        Plan {
            kind,
            delivery,
            ..Plan::of(7, 0)
        }
    }

    #[test]
    fn the_old_gate_lacks_the_row_of_the_new_version() {
        let plan = plan(Kind::OldGateApplied, Delivery::Flux);
        let addon = Addon::of(&plan, "http://127.0.0.1:1");
        let versions = |gate: &Gate| gate.object("soak")["spec"]["versions"].take();
        let [before, after] = plan.minors();
        let old = json!({"kubernetes": before, "values": {"chart": "1.17.4", "image": "v1.17.4"}});
        let new = json!({"kubernetes": after, "values": {"chart": "1.18.2", "image": "v1.18.2"}});
        assert_eq!(versions(&old_gate(&plan, &addon)), json!([old]));
        assert_eq!(versions(&gate(&plan, &addon)), json!([old, new]));
    }

    #[test]
    fn helm_waits_only_where_its_controller_is_killed() {
        let spec = |kind, delivery| match Addon::of(&plan(kind, delivery), "") {
            Addon::Proxy(proxy) => proxy.object("soak")["spec"].take(),
            Addon::Release(release) => release.manifest("soak")["spec"].take(),
        };
        assert_eq!(
            spec(Kind::ControllerKilled, Delivery::Caaph)["options"]["wait"],
            true
        );
        assert_eq!(spec(Kind::LeaderKilled, Delivery::Caaph)["options"], json!({}));
        let upgrade = |kind| spec(kind, Delivery::Flux)["upgrade"].take();
        assert!(upgrade(Kind::ControllerKilled)["disableWait"].is_null());
        assert_eq!(upgrade(Kind::LeaderKilled)["disableWait"], true);
        assert_eq!(upgrade(Kind::RolledBack)["remediation"]["strategy"], "rollback");
    }
}
