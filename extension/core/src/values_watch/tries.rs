//! Retries of failed watches, and the log message of each refusal.

use std::time::{Duration, Instant};

use kube::core::ApiResource;

use super::Watched;
use crate::{cache::KindHealth, limits::Backoff, rbac::missing_rule};

/// First delay after a refusal, which only an administrator can resolve.
const MIN_DELAY: Duration = Duration::from_secs(10);

/// Longest delay after a refusal.
const MAX_DELAY: Duration = Duration::from_mins(5);

/// Cause for the end of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Trouble {
    /// The API server does not serve the kind, or the kind is cluster-scoped and provides no values.
    Unserved,
    /// The API server refuses the list or watch, with this status.
    Refused(u16, ApiResource),
    /// Any other, transient cause.
    Passing,
}

impl Trouble {
    /// Returns the cause for the status code of a refused request, or for a request without a response.
    #[must_use]
    pub fn of(code: Option<u16>, resource: &ApiResource) -> Self {
        match code {
            Some(404) => Self::Unserved,
            Some(code @ (400 | 403 | 405 | 406)) => Self::Refused(code, resource.clone()),
            _ => Self::Passing,
        }
    }
}

/// Attempts to watch one target.
#[derive(Debug)]
pub(super) struct WatchAttempts {
    failures: Backoff,
    refusals: Backoff,
    not_before: Option<Instant>,
    /// Time since which the watch has no data.
    troubled_at: Option<Instant>,
    /// Logged message about the refusal.
    said: Option<String>,
}

impl Default for WatchAttempts {
    fn default() -> Self {
        Self {
            failures: KindHealth::delays(),
            refusals: Backoff::new(MIN_DELAY, MAX_DELAY),
            not_before: None,
            troubled_at: None,
            said: None,
        }
    }
}

impl WatchAttempts {
    /// Returns the earliest time of the next attempt.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Returns the time since which the watch has no data.
    pub(super) fn troubled_at(&self) -> Option<Instant> {
        self.troubled_at
    }

    pub(super) fn troubled(&mut self, now: Instant) {
        self.troubled_at.get_or_insert(now);
    }

    /// Records a successful watch. Returns whether an earlier refusal was logged.
    pub(super) fn readable(&mut self) -> bool {
        self.troubled_at = None;
        self.failures.reset();
        self.refusals.reset();
        self.said.take().is_some()
    }

    /// Records the end of an attempt. Returns a message to log if it differs from the last one.
    pub(super) fn ended(&mut self, watched: &Watched, trouble: &Trouble, now: Instant) -> Option<String> {
        let wait = match trouble {
            Trouble::Passing => self.failures.failed(now),
            Trouble::Unserved | Trouble::Refused(..) => self.refusals.failed(now),
        };
        self.not_before = Some(now + wait);
        self.troubled_at = Some(now);
        let Trouble::Refused(code, resource) = trouble else {
            return None;
        };
        let text = refusal(watched, *code, resource);
        let before = self.said.replace(text.clone());
        (before.as_ref() != Some(&text)).then_some(text)
    }
}

/// Returns a one-line message with the missing permission, the consequence and the remedy.
fn refusal(watched: &Watched, code: u16, resource: &ApiResource) -> String {
    let until = "changed values take effect within --sync-period";
    let way_out = match watched {
        _ if code != 403 => return format!("The API server refuses to watch {watched} with {code}: {until}"),
        Watched::Secrets(None) => "apply the roles of this release, or start Sluice with --secret-namespaces".to_owned(),
        Watched::Secrets(Some(_)) => {
            "add a RoleBinding there for ClusterRole sluice-secrets, as manifests/overlays/secret-namespaces has it".to_owned()
        }
        Watched::Kind(_) => missing_rule("list and watch", &resource.group, &resource.plural),
    };
    format!("Sluice is not permitted to list and watch {watched}: {until}; {way_out}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::core::GroupVersionKind;
    use rstest::rstest;

    use super::*;
    use crate::values_watch::GroupKind;

    fn secrets() -> ApiResource {
        ApiResource::erase::<Secret>(&())
    }

    fn all() -> Watched {
        Watched::Secrets(None)
    }

    fn forbidden() -> Trouble {
        Trouble::Refused(403, secrets())
    }

    #[rstest]
    #[case::forbidden(Some(403), forbidden())]
    #[case::no_metadata_alone(Some(406), Trouble::Refused(406, secrets()))]
    #[case::not_served(Some(404), Trouble::Unserved)]
    #[case::expired(Some(410), Trouble::Passing)]
    #[case::unknown(Some(401), Trouble::Passing)]
    #[case::too_many(Some(429), Trouble::Passing)]
    #[case::a_bug(Some(500), Trouble::Passing)]
    #[case::silence(None, Trouble::Passing)]
    fn refused_requests_are_refusals(#[case] code: Option<u16>, #[case] trouble: Trouble) {
        assert_eq!(Trouble::of(code, &secrets()), trouble);
    }

    #[test]
    fn a_refusal_is_logged_once_and_retried_with_growing_delays() {
        let (mut tries, mut now) = (WatchAttempts::default(), Instant::now());
        let mut said = 0;
        let mut delays = Vec::new();
        for _ in 0..40 {
            let text = tries.ended(&all(), &forbidden(), now);
            said += usize::from(text.is_some());
            let at = tries.not_before().unwrap();
            delays.push(at - now);
            now = at;
        }
        assert_eq!(said, 1);
        assert!(delays[0] >= MIN_DELAY && delays[0] <= MIN_DELAY * 2, "{delays:?}");
        assert!(
            delays[30..]
                .iter()
                .all(|delay| *delay >= MAX_DELAY / 2 && *delay <= MAX_DELAY),
            "{delays:?}"
        );

        assert!(tries.readable(), "the refusal was logged and is over");
        assert!(!tries.readable());
        let again = tries.ended(&all(), &forbidden(), now);
        assert!(again.is_some(), "it is logged again");
        assert!(
            tries.not_before().unwrap() <= now + MIN_DELAY * 2,
            "the backoff is reset"
        );
    }

    #[test]
    fn transient_failures_are_retried_soon_and_not_logged() {
        let (mut tries, now) = (WatchAttempts::default(), Instant::now());
        for trouble in [Trouble::Passing, Trouble::Unserved] {
            assert_eq!(tries.ended(&all(), &trouble, now), None);
        }
        let mut tries = WatchAttempts::default();
        tries.ended(&all(), &Trouble::Passing, now);
        assert!(tries.not_before().unwrap() <= now + Duration::from_secs(2));
    }

    #[rstest]
    #[case::secrets(all(), "not permitted to list and watch Secrets: ", "--secret-namespaces")]
    #[case::of_a_namespace(
        Watched::Secrets(Some("team-a".to_owned())),
        "Secrets in namespace team-a: ",
        "RoleBinding"
    )]
    #[case::a_kind(
        Watched::Kind(GroupKind { group: "fleet.test".to_owned(), kind: "Fleet\nConfig".to_owned() }),
        "Fleet\\nConfig in group fleet.test: ",
        "to list and watch fleetconfigs in group fleet.test and has the label sluice.dev/aggregate-to-extension"
    )]
    fn a_refusal_names_the_missing_permission_and_the_remedy(
        #[case] watched: Watched,
        #[case] missing: &str,
        #[case] way_out: &str,
    ) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("fleet.test", "v1", "FleetConfig"));
        let said = refusal(&watched, 403, &resource);
        assert!(said.contains(missing) && said.contains(way_out), "{said}");
        assert!(!said.contains('\n'), "{said}");
        assert!(refusal(&watched, 406, &resource).contains("with 406"));
    }
}
