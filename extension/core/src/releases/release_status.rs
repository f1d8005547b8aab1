//! Write of the labels and conditions of one release or OSImage.

use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sluice_crds::run::{Condition, Requirements};

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
    /// State of its requirements, null without any; `None` if it does not change.
    requirements: Option<Value>,
}

impl ReleaseStatus {
    /// Compares the desired labels and conditions with the object.
    pub(super) fn of<K>(
        object: &K,
        mut labels: Labels,
        before: &[Condition],
        conditions: Vec<Condition>,
    ) -> Self
    where
        K: kube::Resource<DynamicType = ()>,
    {
        labels.retain(|key, value| object.labels().get(key) != value.as_ref());
        Self {
            key: Key::of::<K>(Server::Management, None, &object.name_any()),
            uid: object.uid(),
            version: object.resource_version(),
            labels,
            conditions: (conditions != before).then_some(conditions),
            requirements: None,
        }
    }

    /// Compares the desired state of the requirements of a release with the recorded one.
    pub(super) fn requires(&mut self, recorded: Option<&Requirements>, desired: Option<&Requirements>) {
        if recorded == desired {
            return;
        }
        // Each field is named: a merge keeps those that a patch omits.
        let patch = desired.map(|desired| {
            json!({
                "requires": desired.requires, "overridden": desired.overridden, "proven": desired.proven,
            })
        });
        self.requirements = Some(patch.unwrap_or_default());
    }

    /// Returns the writes, unless the object is up to date.
    pub(super) fn if_any(self) -> Option<Self> {
        let is_due = !self.labels.is_empty() || self.conditions.is_some() || self.requirements.is_some();
        is_due.then_some(self)
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
        let mut status = Map::new();
        if let Some(conditions) = &mark.conditions {
            status.insert("conditions".to_owned(), json!(conditions));
        }
        if let Some(requirements) = &mark.requirements {
            status.insert("requirements".to_owned(), requirements.clone());
        }
        if !status.is_empty() {
            let patch = json!({
                "metadata": {"uid": mark.uid, "resourceVersion": version},
                "status": status,
            });
            context.write(Write::patch_status(mark.key.clone(), patch, "conditions"))?;
        }
        Ok(Done::AwaitChange)
    }
}
