//! State of a kind of Sluice whose CustomResourceDefinition may be missing.
//!
//! Without its definition a kind has no objects, and nothing waits for it. Only the API server can say so: a refused, failed or outstanding
//! list means that objects may exist.

use std::time::{Duration, Instant};

use kube::Resource;

use super::{Failure, Sign, stores::GateKinds};

/// Objects of the kind that the store shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionalState {
    /// All objects.
    Listed,
    /// The definition does not exist, and so no object does.
    Missing,
    /// Objects may exist that the store does not show, for this reason.
    Unlisted(String),
}

/// Duration after which an accepted watch did not start with an error, such as that of a resourceVersion which has expired.
const STEADY: Duration = Duration::from_secs(5);

/// Result of a read of the definition, after the API server refused a list with 401, 403 or 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefinitionRead {
    /// The definition does not exist.
    Missing,
    /// The definition exists, and the API server does not serve its kind yet.
    Exists,
    /// The read failed, with this status code if there was a response.
    Failed(Option<u16>),
}

/// Kind whose definition may be missing.
#[derive(Debug)]
pub struct OptionalKind {
    /// Name of the definition.
    api: String,
    was_listed: bool,
    state: OptionalState,
    /// Refusal of the last request for lack of a right. The API server authorizes a request before it looks for the kind.
    forbidden: Option<String>,
    /// End of the time after which an accepted watch counts, if the kind was refused before.
    steady_at: Option<Instant>,
}

impl OptionalKind {
    /// Returns kind `K` before its first list.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        let api = format!("{}.{}", K::plural(&()), K::group(&()));
        Self {
            state: OptionalState::Unlisted(format!("waiting for {api} to be listed")),
            was_listed: false,
            forbidden: None,
            steady_at: None,
            api,
        }
    }

    /// Returns the name of its CustomResourceDefinition: `<plural>.<group>`.
    #[must_use]
    pub fn definition(&self) -> &str {
        &self.api
    }

    /// Returns the state.
    #[must_use]
    pub const fn state(&self) -> &OptionalState {
        &self.state
    }

    /// Observes a sign of the watch. Returns whether the definition has to be read, because it may be missing.
    #[must_use]
    pub fn saw(&mut self, sign: Sign) -> bool {
        match sign {
            Sign::Filled => {
                self.was_listed = true;
                self.listed();
                false
            }
            Sign::Changed => {
                if self.was_listed {
                    self.listed();
                }
                false
            }
            Sign::Emptied(_) => {
                (self.was_listed, self.steady_at) = (false, None);
                self.unlist(&format!("waiting for {} to be listed", self.api));
                false
            }
            Sign::Failed(failure) => self.failed(failure),
        }
    }

    /// Observes that the API server has accepted a watch, which continues from the last list. No event has arrived yet.
    pub fn watching(&mut self, now: Instant) {
        if self.was_listed && self.state != OptionalState::Listed {
            self.steady_at.get_or_insert(now + STEADY);
        }
    }

    /// Returns the time of the next [`Self::wake`], if there is one.
    #[must_use]
    pub const fn wake_at(&self) -> Option<Instant> {
        self.steady_at
    }

    /// Observes that the time of [`Self::wake_at`] has come: the watch shows all changes since the last list.
    pub fn wake(&mut self, now: Instant) {
        if self.steady_at.is_some_and(|at| at <= now) {
            self.listed();
        }
    }

    fn listed(&mut self) {
        self.steady_at = None;
        self.state = OptionalState::Listed;
    }

    /// Observes the definition.
    pub fn read(&mut self, definition: DefinitionRead) {
        let forbidden = self.forbidden.take();
        let api = &self.api;
        let why = match (definition, forbidden) {
            (DefinitionRead::Missing, _) => {
                self.state = OptionalState::Missing;
                return;
            }
            (_, Some(forbidden)) => forbidden,
            (DefinitionRead::Exists, None) => {
                format!(
                    "CustomResourceDefinition {api} exists, but the API server does not serve it; see its conditions"
                )
            }
            (DefinitionRead::Failed(Some(401 | 403)), None) => {
                format!(
                    "Sluice may not get CustomResourceDefinition {api}; apply ClusterRole sluice of its version"
                )
            }
            (DefinitionRead::Failed(_), None) => {
                format!(
                    "the API server does not tell whether CustomResourceDefinition {api} exists; the log of Sluice says why"
                )
            }
        };
        self.unlist(&why);
    }

    fn failed(&mut self, failure: Failure) -> bool {
        (self.forbidden, self.steady_at) = (None, None);
        let api = &self.api;
        let why = match failure.refusal() {
            Some(404) => return true,
            Some(401 | 403) => {
                let why = format!("Sluice may not list {api}; {ROLE}");
                // Without a list, the definition decides.
                if self.state == OptionalState::Listed {
                    self.unlist(&why);
                }
                self.forbidden = Some(why);
                return true;
            }
            Some(code) => format!("the API server refuses to list {api} with {code}"),
            // The cache stays valid while the API server is down, and no release is confirmed meanwhile.
            None if self.state == OptionalState::Listed => return false,
            None => format!("{api} cannot be listed; the log of Sluice says why"),
        };
        self.unlist(&why);
        false
    }

    fn unlist(&mut self, why: &str) {
        self.state = OptionalState::Unlisted(why.to_owned());
    }
}

/// Remedy of a missing rule for the kinds of gates.
const ROLE: &str = "apply ClusterRole sluice-gates of its version, or start Sluice with --gates=false";

/// Combines the states of UpgradeGates and ClusterUpgrades. Without UpgradeGates nothing is gated, whatever ClusterUpgrades exist.
#[must_use]
pub fn gate_kinds(gates: &OptionalState, upgrades: &OptionalState) -> GateKinds {
    use OptionalState::{Listed, Missing, Unlisted};
    match (gates, upgrades) {
        (Missing, _) => GateKinds::Off,
        (Unlisted(why), _) | (Listed, Unlisted(why)) => GateKinds::Unlisted(why.clone()),
        (Listed, Missing) => GateKinds::Unlisted(
            "CustomResourceDefinition clusterupgrades.lifecycle.sluice.dev does not exist; apply it in the version of Sluice".to_owned(),
        ),
        (Listed, Listed) => GateKinds::Listed,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use sluice_crds::lifecycle::UpgradeGate;

    use super::*;

    const fn failure(code: Option<u16>) -> Sign {
        Sign::Failed(Failure {
            of_list: true,
            answered: code.is_some(),
            code,
        })
    }

    fn unlisted(kind: &OptionalKind) -> Option<&str> {
        match kind.state() {
            OptionalState::Unlisted(why) => Some(why),
            OptionalState::Listed | OptionalState::Missing => None,
        }
    }

    fn listed() -> OptionalKind {
        let mut kind = OptionalKind::of::<UpgradeGate>();
        assert!(!kind.saw(Sign::Filled));
        assert_eq!(kind.state(), &OptionalState::Listed);
        kind
    }

    #[test]
    fn a_kind_is_unlisted_until_its_first_list() {
        let mut kind = OptionalKind::of::<UpgradeGate>();
        assert_eq!(kind.definition(), "upgradegates.lifecycle.sluice.dev");
        let waits = "waiting for upgradegates.lifecycle.sluice.dev to be listed";
        assert_eq!(unlisted(&kind), Some(waits));
        kind.watching(Instant::now());
        assert_eq!(kind.wake_at(), None);
        assert!(!kind.saw(Sign::Changed));
        assert_eq!(unlisted(&kind), Some(waits), "without a list");
        assert!(!kind.saw(Sign::Filled));
        assert_eq!(kind.state(), &OptionalState::Listed);
    }

    #[rstest]
    #[case::forbidden(
        Some(403),
        "Sluice may not list upgradegates.lifecycle.sluice.dev; apply ClusterRole sluice-gates"
    )]
    #[case::unknown(
        Some(401),
        "Sluice may not list upgradegates.lifecycle.sluice.dev; apply ClusterRole sluice-gates"
    )]
    #[case::refused(
        Some(400),
        "the API server refuses to list upgradegates.lifecycle.sluice.dev with 400"
    )]
    #[case::broken(Some(500), "upgradegates.lifecycle.sluice.dev cannot be listed; ")]
    #[case::silent(None, "upgradegates.lifecycle.sluice.dev cannot be listed; ")]
    fn a_failed_list_names_its_cause(#[case] code: Option<u16>, #[case] why: &str) {
        let mut kind = OptionalKind::of::<UpgradeGate>();
        let asks = kind.saw(failure(code));
        assert_eq!(
            asks,
            matches!(code, Some(401 | 403)),
            "the definition may be missing"
        );
        if asks {
            kind.read(DefinitionRead::Exists);
        }
        assert!(
            unlisted(&kind).is_some_and(|text| text.starts_with(why)),
            "{kind:?}"
        );
    }

    /// An outage must not hold every Cluster longer than it lasts. A lost right hides new gates.
    #[rstest]
    #[case::silent(None, true)]
    #[case::broken(Some(503), true)]
    #[case::throttled(Some(429), true)]
    #[case::forbidden(Some(403), false)]
    fn a_listed_kind_stays_listed_while_requests_fail(#[case] code: Option<u16>, #[case] stays: bool) {
        let (mut kind, now) = (listed(), Instant::now());
        assert_eq!(
            kind.saw(failure(code)),
            !stays,
            "a refusal asks for the definition"
        );
        assert_eq!(kind.state() == &OptionalState::Listed, stays, "{kind:?}");
        kind.watching(now);
        assert_eq!(kind.wake_at(), (!stays).then_some(now + STEADY));
        kind.wake(now + STEADY);
        assert_eq!(kind.state(), &OptionalState::Listed, "the watch goes on");
    }

    /// The API server sends the header of a watch before it looks for its resourceVersion.
    #[test]
    fn an_accepted_watch_that_starts_with_an_error_shows_nothing() {
        let (mut kind, now) = (listed(), Instant::now());
        assert!(kind.saw(failure(Some(403))));
        kind.watching(now);
        assert!(unlisted(&kind).is_some(), "no event has arrived");
        let expired = Failure {
            of_list: false,
            answered: true,
            code: None,
        };
        assert!(!kind.saw(Sign::Failed(expired)));
        assert_eq!(kind.wake_at(), None);
        kind.wake(now + STEADY);
        assert!(unlisted(&kind).is_some(), "it has ended");
        kind.watching(now);
        assert!(!kind.saw(Sign::Changed));
        assert_eq!(kind.state(), &OptionalState::Listed, "an event has arrived");
    }

    /// An update of the image alone brings neither the definition nor the role.
    #[test]
    fn a_missing_definition_is_seen_without_the_right_to_list() {
        let mut kind = OptionalKind::of::<UpgradeGate>();
        for _ in 0..2 {
            assert!(kind.saw(failure(Some(403))));
            kind.read(DefinitionRead::Missing);
            assert_eq!(kind.state(), &OptionalState::Missing);
        }
        assert!(kind.saw(failure(Some(403))));
        assert_eq!(
            kind.state(),
            &OptionalState::Missing,
            "until the definition is read"
        );
        for definition in [DefinitionRead::Exists, DefinitionRead::Failed(None)] {
            assert!(kind.saw(failure(Some(403))));
            kind.read(definition);
            let names_role = |why: &str| why.contains("apply ClusterRole sluice-gates");
            assert!(unlisted(&kind).is_some_and(names_role), "{kind:?}");
        }
    }

    #[rstest]
    #[case::missing(DefinitionRead::Missing, None)]
    #[case::not_served(DefinitionRead::Exists, Some("exists, but the API server does not serve it"))]
    #[case::forbidden(
        DefinitionRead::Failed(Some(403)),
        Some("may not get CustomResourceDefinition")
    )]
    #[case::silent(DefinitionRead::Failed(None), Some("does not tell whether"))]
    fn only_a_missing_definition_means_no_objects(
        #[case] definition: DefinitionRead,
        #[case] why: Option<&str>,
    ) {
        for mut kind in [OptionalKind::of::<UpgradeGate>(), listed()] {
            assert!(kind.saw(failure(Some(404))));
            kind.read(definition);
            match why {
                None => assert_eq!(kind.state(), &OptionalState::Missing),
                Some(why) => assert!(unlisted(&kind).is_some_and(|text| text.contains(why)), "{kind:?}"),
            }
            assert!(!kind.saw(Sign::Filled));
            assert_eq!(kind.state(), &OptionalState::Listed, "it is installed later");
        }
    }

    #[test]
    fn an_old_answer_does_not_outlive_a_failure() {
        let mut kind = OptionalKind::of::<UpgradeGate>();
        kind.read(DefinitionRead::Missing);
        assert!(!kind.saw(failure(Some(500))));
        assert!(unlisted(&kind).is_some(), "the definition may exist by now");
    }

    #[test]
    fn gates_are_off_only_without_their_definition() {
        use OptionalState::{Listed, Missing, Unlisted};
        let why = || Unlisted("why".to_owned());
        assert!(matches!(gate_kinds(&Missing, &why()), GateKinds::Off));
        assert!(matches!(gate_kinds(&Listed, &Listed), GateKinds::Listed));
        for (gates, upgrades) in [(why(), Listed), (Listed, why())] {
            assert!(matches!(gate_kinds(&gates, &upgrades), GateKinds::Unlisted(said) if said == "why"));
        }
        let GateKinds::Unlisted(said) = gate_kinds(&Listed, &Missing) else {
            panic!("ClusterUpgrades are needed");
        };
        assert!(said.contains("clusterupgrades.lifecycle.sluice.dev"), "{said}");
    }
}
