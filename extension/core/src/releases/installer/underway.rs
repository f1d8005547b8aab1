//! Packages whose releases are being installed: only a few at once, and none for long without a fault.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;

use super::{InstallFault, InstallReason, InstallState};

/// So many are installed at once. kapp-controller fetches without a deadline, and Clusters wait for the same workers of it, of which there
/// are ten by default: servers that do not answer must not take all of them at once.
const AT_ONCE: usize = 3;

/// How long one may take. Then it is at fault, and no longer one of those at work: kapp-controller need never come to an end with it.
const PATIENCE: Duration = Duration::from_mins(5);

/// How soon a Package asks again that may not begin yet.
const LATER: Duration = Duration::from_secs(2);

/// Since when which Packages are underway.
#[derive(Debug, Default)]
pub struct Underway(HashMap<String, Timestamp>);

impl Underway {
    /// Takes in how far a Package of this name is whose PackageInstall exists, and returns what is to be said of it, and when it is looked at
    /// again where nothing wakes it.
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

    /// Forgets a Package that has no PackageInstall, and says whether one may be made: if not, when it asks again.
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

/// How much longer one may take that is underway since then; `None` where its time is over.
fn left(since: Timestamp, now: Timestamp) -> Option<Duration> {
    let lasts = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    PATIENCE.checked_sub(lasts).filter(|left| !left.is_zero())
}

fn lasting(package: &str) -> InstallFault {
    InstallFault {
        reason: InstallReason::TKRPackageFailed,
        message: format!(
            "Package {package}: kapp-controller has been at work for {} minutes; look whether the server answers from which the Package, or its \
             bundle, is fetched; it keeps a worker of kapp-controller until then",
            PATIENCE.as_secs() / 60
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
        // One that is made again has its place.
        assert_eq!(underway.begins("a", at(3)), None);
        let failed = InstallState::Failed(lasting("b"));
        assert_eq!(underway.saw("b", failed.clone(), at(4)), (failed, None));
        assert_eq!(underway.begins("d", at(5)), None);
        assert_eq!(underway.begins("e", at(6)), Some(LATER));
        underway.saw("c", InstallState::Settled, at(7));
        assert_eq!(underway.begins("e", at(8)), None);
    }

    /// kapp-controller fetches without a deadline: what hangs hangs for ever, and its PackageInstall stays.
    #[test]
    fn one_that_takes_long_gives_up_its_place() {
        let mut underway = Underway::default();
        for package in ["a", "b", "c"] {
            assert_eq!(underway.begins(package, at(0)), None);
        }
        assert_eq!(underway.begins("d", at(299)), Some(LATER));
        assert_eq!(underway.begins("d", at(300)), None);
        // They are said for as long as they last, and take no place of others.
        for second in [300, 600, 900] {
            let (state, _) = underway.saw("a", InstallState::Underway, at(second));
            assert!(matches!(state, InstallState::Failed(_)), "{state:?}");
        }
        assert_eq!(underway.begins("e", at(301)), None);
        assert_eq!(underway.begins("f", at(302)), None);
        assert_eq!(underway.begins("g", at(303)), Some(LATER), "three at once");
        // One of those that hang comes to its end, and begins again.
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
    fn one_that_takes_long_is_said() {
        let mut underway = Underway::default();
        let (state, again) = underway.saw("a", InstallState::Underway, at(0));
        assert_eq!((state, again), (InstallState::Underway, Some(PATIENCE)));
        let (state, again) = underway.saw("a", InstallState::Underway, at(299));
        assert_eq!(
            (state, again),
            (InstallState::Underway, Some(Duration::from_secs(1)))
        );
        let (state, again) = underway.saw("a", InstallState::Underway, at(300));
        assert!(matches!(state, InstallState::Failed(_)), "{state:?}");
        assert_eq!(again, None);
        // It came to an end, and begins again with other contents.
        underway.saw("a", InstallState::Settled, at(400));
        let (state, _) = underway.saw("a", InstallState::Underway, at(401));
        assert_eq!(state, InstallState::Underway);
        // A clock that goes back says nothing.
        assert_eq!(
            underway.saw("a", InstallState::Underway, at(0)).0,
            InstallState::Underway
        );
    }
}
