//! Packages that were edited in place: settled clusters take them one after the other.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use sluice_core::retry::spread;

/// When each Cluster, by its UID, was first seen with a Package that it has in an earlier form. A new leader begins again.
#[derive(Debug, Default)]
pub(super) struct Edited(HashMap<String, Instant>);

impl Edited {
    /// How long the Cluster with this UID still leaves an edited Package as it is; `None` once its time has come.
    pub(super) fn wait(&mut self, uid: &str, over: Duration, now: Instant) -> Option<Duration> {
        let since = *self.0.entry(uid.to_owned()).or_insert(now);
        let left = spread(uid, over).saturating_sub(now.duration_since(since));
        (!left.is_zero()).then_some(left)
    }

    /// There is no edit any more that the Cluster could wait with.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVER: Duration = Duration::from_mins(10);

    #[test]
    fn a_cluster_waits_for_its_time_once() {
        let (mut edited, began) = (Edited::default(), Instant::now());
        let time = spread("uid", OVER);
        assert_eq!(edited.wait("uid", OVER, began), Some(time));
        let nearly = began + time.saturating_sub(Duration::from_millis(1));
        assert_eq!(edited.wait("uid", OVER, nearly), Some(Duration::from_millis(1)));
        assert_eq!(edited.wait("uid", OVER, began + time), None);
        assert_eq!(edited.wait("uid", OVER, began + OVER), None);
        edited.forget("uid");
        assert_eq!(edited.wait("uid", OVER, began + OVER), Some(time), "another edit");
    }
}
