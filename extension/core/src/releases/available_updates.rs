//! What a Cluster may take next, as a condition of it.

use kube::ResourceExt as _;
use serde_json::{Value, json};
use sluice_crds::foreign::{Cluster, condition};

use super::{
    Evaluation,
    conditions::{Said, UPDATES_AVAILABLE},
    evaluation::updates_of,
    labels::from_label,
};
use crate::{
    cluster::release_of,
    protocol::{Context, Done, Key, ReadPhase, Reconciler, Server, Step, Write},
    version::Ordered,
};

/// What has to be written of a Cluster.
///
/// The status is Cluster API's, and this one condition in it is Sluice's: it is applied, so that nothing else is touched, after the Cluster
/// was read, so that the time of its last transition is kept.
#[derive(Debug)]
pub struct Offer {
    namespace: String,
    name: String,
    uid: Option<String>,
    /// What the condition shall say; there shall be none of a Cluster without a release.
    said: Option<Said>,
}

/// What has to be written of a Cluster; `None` where it is as it shall be. One that is being deleted is left alone.
#[must_use]
pub fn of_cluster(cluster: &Cluster, survey: &Evaluation) -> Option<Offer> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let release = release_of(&cluster.metadata);
    let said = (!release.is_empty()).then(|| {
        let version = from_label(&release);
        let by_name = || Ordered::of(&version);
        let known = survey.version(&release).cloned().or_else(by_name);
        metav1(updates_of(known.as_ref(), &release, &survey.updates))
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
    (!is_said).then(|| Offer {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        uid: cluster.uid(),
        said,
    })
}

/// As Kubernetes' own conditions are: none is without a reason.
fn metav1(said: Said) -> Said {
    let reason = if said.reason.is_empty() {
        UPDATES_AVAILABLE.to_owned()
    } else {
        said.reason
    };
    Said { reason, ..said }
}

impl Reconciler for Offer {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(known: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        let Offer {
            namespace,
            name,
            uid,
            said,
        } = known.facts;
        let key = Key::of::<Cluster>(Server::Management, Some(namespace), name);
        let Some(found) = known.object(key.clone(), ReadPhase::Plan)? else {
            return Ok(Done::AwaitChange);
        };
        if found["metadata"]["uid"].as_str() != uid.as_deref() {
            return Ok(Done::AwaitChange);
        }
        let conditions = found["status"]["conditions"].as_array();
        let of_type = |condition: &&Value| condition["type"] == UPDATES_AVAILABLE;
        let before = conditions.into_iter().flatten().find(of_type);
        let next: Vec<Value> = said.iter().map(|said| condition(said, before, known)).collect();
        if next.first() != before {
            let body = json!({
                "apiVersion": found["apiVersion"], "kind": found["kind"],
                "metadata": {"name": name, "namespace": namespace, "uid": uid},
                "status": {"conditions": next},
            });
            known.write(Write::apply_status(
                key,
                body,
                "which releases the Cluster may take next",
            ))?;
        }
        Ok(Done::AwaitChange)
    }
}

/// The condition, with the time since when its status is so.
fn condition(said: &Said, before: Option<&Value>, known: &Context<'_, Offer>) -> Value {
    let before = before.filter(|before| before["status"] == said.status);
    let since = before.map(|before| before["lastTransitionTime"].clone());
    let now = || {
        json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
            known.began.now
        ))
    };
    json!({
        "type": UPDATES_AVAILABLE, "status": said.status, "reason": said.reason, "message": said.message,
        "lastTransitionTime": since.unwrap_or_else(now),
    })
}
