//! Criteria of scenarios: orders of revisions, identities of objects, paces.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::observer::{Event, Milestone, Revision};

/// Fails unless each write came after the one before it.
pub fn in_order(writes: &[(&str, Revision)]) -> Result<()> {
    for pair in writes.windows(2) {
        let [(first, earlier), (second, later)] = pair else {
            continue;
        };
        ensure!(
            earlier < later,
            "{second} (revision {later}) did not come after {first} (revision {earlier}); the order should be {writes:?}"
        );
    }
    Ok(())
}

/// Identity of an object and of its spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
}

impl Identity {
    /// Of an object.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self {
            uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
            generation: metadata["generation"].as_i64().unwrap_or_default(),
        }
    }
}

/// Fails unless every object exists with the same UID, regardless of its spec.
pub fn same_objects(before: &BTreeMap<String, Identity>, after: &BTreeMap<String, Identity>) -> Result<()> {
    ensure!(!before.is_empty(), "there were no objects");
    for (name, was) in before {
        let is = after.get(name).with_context(|| format!("{name} is gone"))?;
        ensure!(!was.uid.is_empty(), "{name} had no UID");
        ensure!(
            is.uid == was.uid,
            "{name} is another object: it had UID {}, it has {}",
            was.uid,
            is.uid
        );
    }
    Ok(())
}

/// Fails unless `measured` is at most `factor` times the same duration in this run without the fault.
pub fn kept_pace(alone: Duration, measured: Duration, factor: f64) -> Result<()> {
    ensure!(!alone.is_zero(), "nothing was measured to compare with");
    let ratio = measured.as_secs_f64() / alone.as_secs_f64();
    ensure!(
        ratio <= factor,
        "it took {:.1} s, {ratio:.2} times the {:.1} s that it takes otherwise; {factor} times is allowed",
        measured.as_secs_f64(),
        alone.as_secs_f64()
    );
    Ok(())
}

/// Fails if any milestone between two revisions is one that must not be there.
pub fn none_between(
    milestones: &[Milestone],
    (after, before): (Revision, Revision),
    unwanted: impl Fn(&Event) -> bool,
) -> Result<()> {
    ensure!(
        after < before,
        "nothing lies between revisions {after} and {before}"
    );
    let found = milestones.iter().find(|milestone| {
        milestone.revision > after && milestone.revision < before && unwanted(&milestone.event)
    });
    ensure!(
        found.is_none(),
        "between revisions {after} and {before}: {found:?}"
    );
    Ok(())
}

/// Fails if a Node that is still there has another Pod than `before`, or none. Nodes have to be listed after the Pods.
pub fn pods_stay<P: Debug + PartialEq>(
    before: &BTreeMap<String, P>,
    now: &BTreeMap<String, P>,
    nodes: &BTreeSet<String>,
) -> Result<()> {
    ensure!(!before.is_empty(), "there were no Pods");
    for (node, pod) in before.iter().filter(|(node, _)| nodes.contains(*node)) {
        let found = now.get(node);
        ensure!(
            found == Some(pod),
            "Node {node} had the Pod {pod:?}, and has {found:?}"
        );
    }
    Ok(())
}

/// Fails unless both differ.
pub fn differs<T: Debug + PartialEq>(what: &str, before: &T, after: &T) -> Result<()> {
    ensure!(before != after, "{what} is still {before:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn objects(uid: &str, generation: i64) -> BTreeMap<String, Identity> {
        let identity = Identity {
            uid: uid.to_owned(),
            generation,
        };
        BTreeMap::from([("one-antrea".to_owned(), identity)])
    }

    #[test]
    fn writes_out_of_order_or_in_one_revision_are_refused() {
        assert!(in_order(&[("the proof", 4), ("the write", 5)]).is_ok());
        assert!(in_order(&[("the proof", 5), ("the write", 5)]).is_err());
        let error = in_order(&[("the edit", 3), ("the write", 5), ("the proof", 4)]).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the proof (revision 4) did not come after the write (revision 5)"),
            "{error}"
        );
    }

    #[test]
    fn an_object_that_was_made_again_is_another_one() {
        assert!(same_objects(&objects("a", 1), &objects("a", 2)).is_ok());
        assert!(same_objects(&objects("a", 1), &objects("b", 1)).is_err());
        assert!(same_objects(&objects("a", 1), &BTreeMap::new()).is_err());
        assert!(same_objects(&objects("", 1), &objects("", 1)).is_err());
        assert!(same_objects(&BTreeMap::new(), &BTreeMap::new()).is_err());
    }

    #[test]
    fn a_pod_may_only_go_with_its_node() {
        let pods = |pods: &[(&str, i32)]| -> BTreeMap<String, i32> {
            let pods = pods.iter();
            pods.map(|(node, pod)| ((*node).to_owned(), *pod)).collect()
        };
        let before = pods(&[("a", 1), ("b", 2)]);
        let stay = |now: &[(&str, i32)], nodes: &[&str]| {
            let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
            pods_stay(&before, &pods(now), &nodes)
        };
        assert!(stay(&[("a", 1), ("b", 2), ("c", 3)], &["a", "b", "c"]).is_ok());
        assert!(stay(&[("a", 1), ("c", 3)], &["a", "c"]).is_ok());
        assert!(stay(&[("a", 1)], &["a", "b"]).is_err());
        assert!(stay(&[("a", 1), ("b", 9)], &["a", "b"]).is_err());
        assert!(pods_stay(&BTreeMap::<String, i32>::new(), &before, &BTreeSet::new()).is_err());
    }

    #[test]
    fn paces_are_compared_by_their_ratio() {
        let seconds = Duration::from_secs;
        assert!(kept_pace(seconds(100), seconds(140), 1.5).is_ok());
        assert!(kept_pace(seconds(100), seconds(160), 1.5).is_err());
        assert!(kept_pace(Duration::ZERO, seconds(1), 1.5).is_err());
    }

    #[test]
    fn a_milestone_in_between_is_refused() {
        let written = Milestone {
            revision: 5,
            seen: Timestamp::UNIX_EPOCH,
            namespace: "a".to_owned(),
            cluster: "b".to_owned(),
            event: Event::WorkersWritten {
                machine_deployment: "md".to_owned(),
                version: "v1.36.3".to_owned(),
            },
        };
        let workers = |event: &Event| matches!(event, Event::WorkersWritten { .. });
        let milestones = [written];
        assert!(none_between(&milestones, (4, 6), workers).is_err());
        assert!(none_between(&milestones, (5, 9), workers).is_ok());
        assert!(none_between(&milestones, (1, 5), workers).is_ok());
        assert!(none_between(&milestones, (6, 4), workers).is_err());
        assert!(none_between(&milestones, (4, 6), |event| *event == Event::Bootstrapped).is_ok());
    }
}
