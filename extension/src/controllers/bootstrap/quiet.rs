//! For how long objects have not changed.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use sluice_crds::foreign::App;

/// How long an App that is being deployed may show nothing. kapp writes a line at least every minute while it waits.
const QUIET: Duration = Duration::from_secs(90);

/// The same for an App that by its own account has not moved for as long: this process, which may be a new one, only has to
/// see for itself that it does not.
const GLANCE: Duration = Duration::from_secs(10);

/// The version in which each object was seen last, since when, and whether that was told.
#[derive(Debug, Default)]
pub(super) struct Quiet(BTreeMap<(String, String), Seen>);

#[derive(Debug)]
struct Seen {
    version: String,
    since: Instant,
    told: bool,
}

impl Quiet {
    /// Whether the App of the Cluster with this UID has had this version for long, since it was first seen or since this was
    /// last said. `moved` is when it moved by its own account.
    pub(super) fn is_over(
        &mut self,
        uid: &str,
        app: &App,
        moved: Option<Timestamp>,
        now: (Instant, Timestamp),
    ) -> bool {
        let key = (uid.to_owned(), app.name_any());
        let version = app.resource_version().unwrap_or_default();
        let by_its_account = moved.is_some_and(|moved| {
            now.1.duration_since(moved) >= SignedDuration::from_secs(QUIET.as_secs().cast_signed())
        });
        match self.0.get_mut(&key) {
            Some(seen) if seen.version == version => {
                let long = if by_its_account && !seen.told {
                    GLANCE
                } else {
                    QUIET
                };
                let over = now.0.duration_since(seen.since) >= long;
                if over {
                    (seen.since, seen.told) = (now.0, true);
                }
                over
            }
            _ => {
                let seen = Seen {
                    version,
                    since: now.0,
                    told: false,
                };
                self.0.insert(key, seen);
                false
            }
        }
    }

    /// Forgets the Apps of a Cluster.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.retain(|(of, _), _| of != uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(version: &str) -> App {
        let mut app = App::default();
        app.metadata.name = Some("one".to_owned());
        app.metadata.resource_version = Some(version.to_owned());
        app
    }

    /// Whether quiet is told at each of these seconds; the App moved at second 0 by its own account.
    fn told(moved: bool, seconds: &[u64]) -> Vec<bool> {
        let (mut quiet, began, epoch) = (Quiet::default(), Instant::now(), Timestamp::UNIX_EPOCH);
        let moved = moved.then_some(epoch);
        seconds
            .iter()
            .map(|&second| {
                let now = (
                    began + Duration::from_secs(second),
                    epoch + SignedDuration::from_secs(second.cast_signed()),
                );
                quiet.is_over("uid", &app("7"), moved, now)
            })
            .collect()
    }

    #[test]
    fn an_object_that_changes_is_never_quiet() {
        let (mut quiet, began) = (Quiet::default(), Instant::now());
        for step in 0..10_u32 {
            let now = (began + QUIET * step, Timestamp::UNIX_EPOCH);
            assert!(!quiet.is_over("uid", &app(&step.to_string()), None, now));
        }
    }

    #[test]
    fn quiet_is_told_once_for_each_period() {
        assert_eq!(
            told(false, &[0, 60, 89, 90, 100, 179, 180]),
            [false, false, false, true, false, false, true]
        );
    }

    /// A leader that has just begun has seen nothing yet; where leaders follow each other quickly, none would ever tell.
    #[test]
    fn an_app_that_has_not_moved_for_long_is_told_soon_and_then_once_for_each_period() {
        assert_eq!(
            told(true, &[100, 105, 109, 110, 115, 130, 199, 200]),
            [false, false, false, true, false, false, false, true]
        );
        assert_eq!(told(true, &[50, 60, 89, 90]), [false, false, false, true]);
    }

    #[test]
    fn each_object_has_its_own_time() {
        let (mut quiet, began) = (Quiet::default(), Instant::now());
        let at = |seconds| (began + Duration::from_secs(seconds), Timestamp::UNIX_EPOCH);
        assert!(!quiet.is_over("uid", &app("7"), None, at(0)));
        assert!(!quiet.is_over("other", &app("7"), None, at(90)));
        quiet.forget("uid");
        assert!(!quiet.is_over("uid", &app("7"), None, at(90)), "begins anew");
    }
}
