//! Packages whose releases are being installed: only a few at once, and none for long without a word.

use std::{collections::HashMap, time::Duration};

use jiff::Timestamp;

use super::{InstallFault, InstallReason, InstallState};

/// So many are installed at once. kapp-controller fetches without a deadline, and Clusters wait for the same workers of it, of which there
/// are ten by default: a server that does not answer must not take all of them.
const AT_ONCE: usize = 3;

/// How long one may take before it is said.
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
        let lasts = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        match PATIENCE.checked_sub(lasts) {
            Some(left) if !left.is_zero() => (state, Some(left)),
            _ => (InstallState::Failed(lasting(package)), None),
        }
    }

    /// Forgets a Package that has no PackageInstall, and says whether one may be made: if not, when it asks again.
    pub fn begins(&mut self, package: &str, now: Timestamp) -> Option<Duration> {
        self.0.remove(package);
        if self.0.len() >= AT_ONCE {
            return Some(LATER);
        }
        self.0.insert(package.to_owned(), now);
        None
    }
}

fn lasting(package: &str) -> InstallFault {
    InstallFault {
        reason: InstallReason::TKRPackageFailed,
        message: format!(
            "Package {package}: kapp-controller has been at work for {} minutes; look whether the server answers from which the Package, or its \
             bundle, is fetched: {AT_ONCE} Packages are installed at once, and others wait",
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
