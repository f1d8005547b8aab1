//! Condition `UpdatesAvailable` of a Cluster.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::{
    foreign::{Cluster, condition},
    labels::name::UPDATES_AVAILABLE,
};

use super::{Evaluation, conditions::Said, evaluation::updates_of, labels::from_label};
use crate::{
    cluster::release_of,
    protocol::{Context, Done, Key, ReadPhase, Reconciler, Server, Step, Write},
    version::Ordered,
};

/// Write of the condition of a Cluster.
///
/// Cluster API owns the status, Sluice this one condition. A server-side apply leaves all other fields alone. A preceding read of the
/// Cluster preserves the time of the last transition.
#[derive(Debug)]
pub struct UpdatesAvailableWrite {
    namespace: String,
    name: String,
    uid: Option<String>,
    /// The desired condition; `None` for a Cluster without a release.
    said: Option<Said>,
}

/// Returns the write of a Cluster; `None` if its condition is up to date, or if it is being deleted.
#[must_use]
pub fn of_cluster(cluster: &Cluster, evaluation: &Evaluation) -> Option<UpdatesAvailableWrite> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let release = release_of(&cluster.metadata);
    let said = (!release.is_empty()).then(|| {
        let version = from_label(&release);
        let by_name = || Ordered::of(&version);
        let context = evaluation.version(&release).cloned().or_else(by_name);
        metav1(updates_of(context.as_ref(), &release, &evaluation.updates))
    });
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    let found = condition::find(conditions.unwrap_or_default(), UPDATES_AVAILABLE);
    let is_said = match (found, &said) {
        (None, None) => true,
        (Some(found), Some(said)) => {
            (found.status.as_str(), &found.reason, &found.message)
                == (said.status, &said.reason, &said.message)
        }
        _ => false,
    };
    (!is_said).then(|| UpdatesAvailableWrite {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        uid: cluster.uid(),
        said,
    })
}

/// Adds the reason that Kubernetes requires of every condition.
fn metav1(said: Said) -> Said {
    let reason = if said.reason.is_empty() {
        UPDATES_AVAILABLE.to_owned()
    } else {
        said.reason
    };
    Said { reason, ..said }
}

impl Reconciler for UpdatesAvailableWrite {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(context: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        let UpdatesAvailableWrite {
            namespace,
            name,
            uid,
            said,
        } = context.facts;
        let key = Key::of::<Cluster>(Server::Management, Some(namespace), name);
        let Some(found) = context.object(key.clone(), ReadPhase::Plan)? else {
            return Ok(Done::AwaitChange);
        };
        if found["metadata"]["uid"].as_str() != uid.as_deref() {
            return Ok(Done::AwaitChange);
        }
        let conditions = found["status"]["conditions"].as_array();
        let of_type = |condition: &&Value| condition["type"] == UPDATES_AVAILABLE;
        let before = conditions.into_iter().flatten().find(of_type);
        let next: Vec<Value> = said.iter().map(|said| condition(said, before, context)).collect();
        if next.first() != before {
            let body = json!({
                "apiVersion": found["apiVersion"], "kind": found["kind"],
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"conditions": next},
            });
            context.write(Write::apply_status(key, body, "available updates"))?;
        }
        Ok(Done::AwaitChange)
    }
}

/// Builds the condition, with the time of its last transition.
fn condition(said: &Said, before: Option<&Value>, context: &Context<'_, UpdatesAvailableWrite>) -> Value {
    let before = before.filter(|before| before["status"] == said.status);
    let since = before.map(|before| before["lastTransitionTime"].clone());
    let now = || {
        json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            context.began.now
        ))
    };
    json!({
        "type": UPDATES_AVAILABLE, "status": said.status, "reason": said.reason, "message": said.message,
        "lastTransitionTime": since.unwrap_or_else(now),
    })
}
