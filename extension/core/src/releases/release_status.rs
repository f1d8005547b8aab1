//! Write of the labels and conditions of one release or OSImage.

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_crds::run::Condition;

use super::labels::Labels;
use crate::protocol::{Context, Done, Key, Reconciler, Server, Step, Write};

/// Writes of an object: first its labels, then its status.
#[derive(Debug)]
pub struct ReleaseStatus {
    key: Key,
    uid: Option<String>,
    version: Option<String>,
    /// Changes of its labels.
    labels: Labels,
    /// All its conditions; `None` if they do not change.
    conditions: Option<Vec<Condition>>,
}

impl ReleaseStatus {
    /// Compares the desired labels and conditions with the object; returns `None` if they are equal.
    pub(super) fn of<K>(
        object: &K,
        mut labels: Labels,
        before: &[Condition],
        conditions: Vec<Condition>,
    ) -> Option<Self>
    where
        K: kube::Resource<DynamicType = ()>,
    {
        labels.retain(|key, value| object.labels().get(key) != value.as_ref());
        let conditions = (conditions != before).then_some(conditions);
        if labels.is_empty() && conditions.is_none() {
            return None;
        }
        Some(Self {
            key: Key::of::<K>(Server::Management, None, &object.name_any()),
            uid: object.uid(),
            version: object.resource_version(),
            labels,
            conditions,
        })
    }
}

impl Reconciler for ReleaseStatus {
    type LocalState = ();
    type Effects = ();
    type Hold = String;

    fn effects((): &()) {}

    fn reconcile(context: &Context<'_, Self>, (): &mut ()) -> Step<Done, String> {
        let mark = context.facts;
        let mut version = json!(mark.version);
        if !mark.labels.is_empty() {
            let patch = json!({
                "metadata": {"uid": mark.uid, "resourceVersion": version, "labels": mark.labels},
            });
            let written = context.write(Write::patch(mark.key.clone(), patch, "selection labels"))?;
            version = written["metadata"]["resourceVersion"].clone();
        }
        if let Some(conditions) = &mark.conditions {
            let patch: Value = json!({
                "metadata": {"uid": mark.uid, "resourceVersion": version},
                "status": {"conditions": conditions},
            });
            context.write(Write::patch_status(mark.key.clone(), patch, "conditions"))?;
        }
        Ok(Done::AwaitChange)
    }
}
