//! Concurrency limit and timeout for the installation of releases.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;

use super::{InstallFault, InstallReason, InstallState};

/// Maximum number of concurrent installations. kapp-controller fetches without a deadline, and Clusters need the same workers, ten by
/// default. Unresponsive servers must not occupy all of them.
const AT_ONCE: usize = 3;

/// Timeout of one installation. After it the installation is failed and does not count as concurrent, because kapp-controller may never
/// finish it.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Requeue delay of a Package that has to wait for its installation.
const LATER: Duration = Duration::from_secs(2);

/// Packages under installation, with their start times.
#[derive(Debug, Default)]
pub struct Underway(HashMap<String, Timestamp>);

impl Underway {
    /// Observes the state of a Package with a PackageInstall. Returns the state to report, and the requeue delay if no event requeues the
    /// Package earlier.
    pub fn saw(
        &mut self,
        package: &str,
        state: InstallState,
        now: Timestamp,
    ) -> (InstallState, Option<Duration>) {
        if state != InstallState::Underway {
            self.0.remove(package);
            return (state, None);
        }
        let since = *self.0.entry(package.to_owned()).or_insert(now);
        match left(since, now) {
            Some(left) => (state, Some(left)),
            None => (InstallState::Failed(lasting(package)), None),
        }
    }

    /// Forgets a Package without a PackageInstall. Returns the requeue delay if the PackageInstall may not be created yet.
    pub fn begins(&mut self, package: &str, now: Timestamp) -> Option<Duration> {
        self.0.remove(package);
        let at_work = self.0.values().filter(|since| left(**since, now).is_some());
        if at_work.count() >= AT_ONCE {
            return Some(LATER);
        }
        self.0.insert(package.to_owned(), now);
        None
    }
}

/// Time left for an installation that started at `since`; `None` after its timeout.
fn left(since: Timestamp, now: Timestamp) -> Option<Duration> {
    let lasts = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    TIMEOUT.checked_sub(lasts).filter(|left| !left.is_zero())
}

fn lasting(package: &str) -> InstallFault {
    InstallFault {
        reason: InstallReason::TKRPackageFailed,
        message: format!(
            "Package {package}: kapp-controller has been fetching for {} minutes and occupies one of its workers; check the server of the Package \
             and of its bundle",
            TIMEOUT.as_secs() / 60
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn only_a_few_are_installed_at_once() {
        let mut underway = Underway::default();
        for package in ["a", "b", "c"] {
            assert_eq!(underway.begins(package, at(0)), None);
            underway.saw(package, InstallState::Underway, at(1));
        }
        assert_eq!(underway.begins("d", at(2)), Some(LATER));
        // A repeated installation keeps its slot.
        assert_eq!(underway.begins("a", at(3)), None);
        let failed = InstallState::Failed(lasting("b"));
        assert_eq!(underway.saw("b", failed.clone(), at(4)), (failed, None));
        assert_eq!(underway.begins("d", at(5)), None);
        assert_eq!(underway.begins("e", at(6)), Some(LATER));
        underway.saw("c", InstallState::Settled, at(7));
        assert_eq!(underway.begins("e", at(8)), None);
    }

    /// kapp-controller fetches without a deadline: a stuck fetch never ends, and its PackageInstall stays.
    #[test]
    fn one_that_takes_long_gives_up_its_place() {
        let mut underway = Underway::default();
        for package in ["a", "b", "c"] {
            assert_eq!(underway.begins(package, at(0)), None);
        }
        assert_eq!(underway.begins("d", at(299)), Some(LATER));
        assert_eq!(underway.begins("d", at(300)), None);
        // Stuck installations stay failed and occupy no slot.
        for second in [300, 600, 900] {
            let (state, _) = underway.saw("a", InstallState::Underway, at(second));
            assert!(matches!(state, InstallState::Failed(_)), "{state:?}");
        }
        assert_eq!(underway.begins("e", at(301)), None);
        assert_eq!(underway.begins("f", at(302)), None);
        assert_eq!(underway.begins("g", at(303)), Some(LATER), "three at once");
        // One of the stuck installations ends, and begins again.
        underway.saw("a", InstallState::Settled, at(304));
        let (state, _) = underway.saw("a", InstallState::Underway, at(305));
        assert_eq!(state, InstallState::Underway);
        underway.saw("d", InstallState::Settled, at(306));
        assert_eq!(
            underway.begins("g", at(307)),
            Some(LATER),
            "a, e and f are at work"
        );
    }

    #[test]
    fn a_slow_installation_is_reported() {
        let mut underway = Underway::default();
        let (state, again) = underway.saw("a", InstallState::Underway, at(0));
        assert_eq!((state, again), (InstallState::Underway, Some(TIMEOUT)));
        let (state, again) = underway.saw("a", InstallState::Underway, at(299));
        assert_eq!(
            (state, again),
            (InstallState::Underway, Some(Duration::from_secs(1)))
        );
        let (state, again) = underway.saw("a", InstallState::Underway, at(300));
        assert!(matches!(state, InstallState::Failed(_)), "{state:?}");
        assert_eq!(again, None);
        // The installation ended, and begins again with other contents.
        underway.saw("a", InstallState::Settled, at(400));
        let (state, _) = underway.saw("a", InstallState::Underway, at(401));
        assert_eq!(state, InstallState::Underway);
        // A clock that goes back changes nothing.
        assert_eq!(
            underway.saw("a", InstallState::Underway, at(0)).0,
            InstallState::Underway
        );
    }
}
