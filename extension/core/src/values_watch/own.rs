//! Writes of this process. The reconcile that made a write observes it or requeues the Cluster.

use kube::core::ObjectMeta;
use serde_json::Value;

use crate::protocol::{Object, Server, Verb, Write};

/// Returns the metadata that the watch will deliver for a write: the UID and, except for deletions, the resourceVersion. `None` if another
/// client may have edited the object since it was read.
#[must_use]
pub fn own_write(write: &Write, written: &Object) -> Option<ObjectMeta> {
    if write.key.server != Server::Management {
        return None;
    }
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let meta = &written.0["metadata"];
    let (uid, version) = (text(&meta["uid"]), text(&meta["resourceVersion"]));
    let precondition = &write.body["metadata"]["resourceVersion"];
    let (uid, resource_version) = match write.verb {
        Verb::Create => (uid?, Some(version?)),
        Verb::Replace | Verb::ReplaceStatus | Verb::Patch | Verb::PatchStatus if !precondition.is_null() => {
            (uid?, Some(version?))
        }
        Verb::Delete => (text(&write.body)?, None),
        _ => return None,
    };
    Some(ObjectMeta {
        uid: Some(uid),
        resource_version,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::protocol::Key;

    #[rstest]
    #[case::made(Verb::Create, json!({}), "u 7")]
    #[case::as_it_was_read(Verb::Patch, json!({"metadata": {"resourceVersion": "6"}}), "u 7")]
    #[case::replaced(Verb::Replace, json!({"metadata": {"resourceVersion": "6"}}), "u 7")]
    #[case::whatever_it_was(Verb::Patch, json!({"metadata": {"labels": {}}}), "")]
    #[case::whatever_it_was_applied(Verb::Apply, json!({"metadata": {"resourceVersion": "6"}}), "")]
    #[case::deleted(Verb::Delete, json!("u"), "u gone")]
    #[case::deleted_whichever_it_was(Verb::Delete, json!(null), "")]
    fn a_write_based_on_the_read_version_is_recorded(
        #[case] verb: Verb,
        #[case] body: Value,
        #[case] shown: &str,
    ) {
        let written = if verb == Verb::Delete {
            json!({"kind": "Status", "status": "Success"})
        } else {
            json!({"metadata": {"uid": "u", "resourceVersion": "7"}})
        };
        for (server, shown) in [(Server::Management, shown), (Server::Workload, "")] {
            let write = Write {
                key: Key::of::<Secret>(server, Some("team-a"), "one"),
                verb,
                body: body.clone(),
                why: "",
            };
            let own = own_write(&write, &Object(written.clone()));
            let own = own.map(|meta| {
                let version = meta.resource_version.unwrap_or_else(|| "gone".to_owned());
                format!("{} {version}", meta.uid.unwrap_or_default())
            });
            assert_eq!(own.unwrap_or_default(), shown);
        }
    }
}
