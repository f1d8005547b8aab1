//! State of one connection and of the server behind it, from requests and watches.

use std::{collections::BTreeMap, time::Instant};

use jiff::Timestamp;

use super::{
    FirstSeenRuns,
    identity::{Identity, Served},
};
use crate::cache::Sign;
use crate::limits::{Breaker, GivenUp};
use crate::{
    clock::Clock,
    protocol::{Contact, Failure},
};

/// Outstanding read of a server's UID, with the number of disturbances before it.
#[derive(Debug)]
pub struct Asking(u64);

/// State of the server behind a connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// Time since which the watches get no response, if that is so.
    pub silent_since: Option<Timestamp>,
    /// Circuit breaker for the requests of reconciles.
    pub breaker: Breaker,
    /// Cause of the last failure, if TLS or a proxy reported it.
    cause: Option<String>,
    /// First observed runs of its Apps.
    pub runs: FirstSeenRuns,
    /// Identity of the cluster that the server serves.
    identity: Identity,
    /// Number of watch failures and completed lists.
    disturbances: u64,
    /// Reasons of stores that were emptied and are not filled again, by kind.
    given_up: BTreeMap<String, GivenUp>,
}

impl Connection {
    /// Observes a sign of the watch of a kind. Returns whether to requeue the Cluster.
    pub fn saw(&mut self, kind: &str, sign: Sign, now: Timestamp) -> bool {
        match sign {
            Sign::Filled => drop(self.given_up.remove(kind)),
            Sign::Emptied(why) => drop(self.given_up.insert(kind.to_owned(), why)),
            Sign::Changed | Sign::Failed(_) => {}
        }
        if matches!(sign, Sign::Filled | Sign::Failed(_)) {
            self.disturbances += 1;
        }
        let silent = matches!(sign, Sign::Failed(failure) if !failure.answered);
        // Retries during the silence do not move its start.
        let goes_on = silent && self.silent_since.is_some();
        if !goes_on {
            self.silent_since = silent.then_some(now);
        }
        !goes_on
    }

    /// Records a request without a response; see [`Breaker::failed`]. `cause` is what TLS or a proxy reports.
    pub fn failed(&mut self, opens: bool, cause: Option<String>, now: Instant) {
        self.cause = cause;
        self.breaker.failed(opens, now);
    }

    /// Records a response. Returns whether the request before got none.
    pub fn answered(&mut self, now: Instant) -> bool {
        self.cause = None;
        self.breaker.answered(now)
    }

    /// Returns the cause of the last failure, if TLS or a proxy reported it and no response followed.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        self.cause.as_deref()
    }

    /// Returns the contact state as far as it is known. The UID of a responsive server must be read every few seconds, and after each watch
    /// failure or completed list. Another server may respond at the same address, with the same credentials.
    ///
    /// # Errors
    /// The UID of the server must be read; the result goes to [`Self::asked`] with this value.
    pub fn contact(&self, now: Clock) -> Result<Contact, Asking> {
        if let Some(since) = self.silent_since {
            let answered = self.breaker.last_answer();
            return Ok(Contact::Silent {
                since,
                now: now.now,
                last_answer: answered.map(|at| now.instant.duration_since(at)),
                cause: self.cause.clone(),
            });
        }
        if let Some(why) = self.given_up() {
            return Ok(Contact::GivenUp(why.to_string()));
        }
        match self.identity.known(self.disturbances, now.instant) {
            Some(uid) => Ok(Contact::Serves { uid: uid.to_owned() }),
            None => Err(Asking(self.disturbances)),
        }
    }

    /// Returns the contact state after a read of the UID.
    pub fn asked(&mut self, asking: &Asking, uid: Result<String, Failure>, now: Clock) -> Contact {
        match uid {
            Ok(uid) => match self.identity.read(uid, asking.0, now.instant) {
                Served::Same(uid) => Contact::Serves { uid },
                Served::Replaced => Contact::Replaced,
            },
            Err(failure) => Contact::Unread {
                since: self.identity.unread(now.now),
                failure,
            },
        }
    }

    /// Returns the reason of an emptied store that is not filled again. The stores are incomplete until then.
    #[must_use]
    pub fn given_up(&self) -> Option<GivenUp> {
        self.given_up.values().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{cache, protocol::Server};

    const SILENCE: Sign = Sign::Failed(cache::Failure::WATCH);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn silence_counts_from_its_first_sign() {
        let mut connection = Connection::default();
        assert!(connection.saw("App", SILENCE, at(10)));
        for second in 11..100 {
            assert!(!connection.saw("App", SILENCE, at(second)));
            assert_eq!(connection.silent_since, Some(at(10)));
        }
        assert!(connection.saw("App", Sign::Changed, at(100)));
        assert_eq!(connection.silent_since, None);
        // Until kapp-controller has installed its kinds, 404 is a normal response.
        let not_found = cache::Failure {
            of_list: true,
            answered: true,
            code: Some(404),
        };
        assert!(connection.saw("App", Sign::Failed(not_found), at(101)));
        assert_eq!(connection.silent_since, None);
    }

    #[test]
    fn a_store_is_given_up_until_it_is_filled_again() {
        let mut connection = Connection::default();
        connection.saw("App", Sign::Emptied(GivenUp::Panicked), at(1));
        connection.saw("PackageInstall", Sign::Filled, at(2));
        connection.saw("App", Sign::Changed, at(3));
        connection.saw("App", SILENCE, at(4));
        assert_eq!(connection.given_up(), Some(GivenUp::Panicked));
        connection.saw("App", Sign::Filled, at(5));
        assert_eq!(connection.given_up(), None);
    }

    /// Another server may respond at the same address afterwards.
    #[test]
    fn failures_and_completed_lists_are_disturbances() {
        let mut connection = Connection::default();
        let signs = [
            SILENCE,
            Sign::Filled,
            Sign::Changed,
            Sign::Emptied(GivenUp::Panicked),
        ];
        let counts = signs.map(|sign| {
            connection.saw("App", sign, at(1));
            connection.disturbances
        });
        assert_eq!(counts, [1, 2, 2, 2]);
    }

    /// Returns a short form of the contact state; `None` if the UID must be read.
    fn says(connection: &Connection, now: Clock) -> Option<String> {
        connection.contact(now).ok().map(|contact| format!("{contact:?}"))
    }

    #[test]
    fn the_uid_of_a_responsive_server_is_read() {
        let (mut connection, began) = (Connection::default(), Instant::now());
        let clock = |second| Clock {
            now: at(second),
            instant: began + Duration::from_secs(second.unsigned_abs()),
        };
        let refused = || Err(Failure::other(Server::Workload, "refused"));
        let uid = |uid: &str| Ok(uid.to_owned());

        let asking = connection.contact(clock(1)).unwrap_err();
        let never_known = connection.asked(&asking, refused(), clock(1));
        assert!(
            matches!(never_known, Contact::Unread { since: None, .. }),
            "{never_known:?}"
        );
        let asking = connection.contact(clock(2)).unwrap_err();
        let serves = connection.asked(&asking, uid("a"), clock(2));
        assert!(
            matches!(&serves, Contact::Serves { uid } if uid == "a"),
            "{serves:?}"
        );
        assert_eq!(
            says(&connection, clock(3)),
            Some(format!("{serves:?}")),
            "the UID is still valid"
        );

        connection.saw("App", Sign::Filled, at(4));
        let asking = connection.contact(clock(4)).unwrap_err();
        connection.saw("App", Sign::Filled, at(4));
        connection.asked(&asking, uid("a"), clock(4));
        let asking = connection
            .contact(clock(4))
            .expect_err("a disturbance during the read");
        let lost = connection.asked(&asking, refused(), clock(5));
        assert!(
            matches!(lost, Contact::Unread { since: Some(since), .. } if since == at(5)),
            "{lost:?}"
        );
        let asking = connection.contact(clock(6)).unwrap_err();
        let other = connection.asked(&asking, uid("b"), clock(6));
        assert!(matches!(other, Contact::Replaced), "{other:?}");
    }

    #[test]
    fn the_uid_is_not_read_while_watches_report_a_problem() {
        let (mut connection, began) = (Connection::default(), Instant::now());
        let now = Clock {
            now: at(20),
            instant: began + Duration::from_secs(3),
        };
        connection.saw("App", Sign::Emptied(GivenUp::Panicked), at(1));
        let why = says(&connection, now).unwrap();
        assert!(why.starts_with("GivenUp("), "{why}");
        assert!(!connection.answered(began));
        connection.failed(false, Some("UnknownIssuer".to_owned()), began);
        connection.saw("App", SILENCE, at(10));
        let silent = connection.contact(now).unwrap();
        let Contact::Silent {
            since,
            now,
            last_answer,
            cause,
        } = silent
        else {
            panic!("{silent:?}");
        };
        assert_eq!((since, now), (at(10), at(20)));
        assert_eq!(last_answer, Some(Duration::from_secs(3)));
        assert_eq!(cause.as_deref(), Some("UnknownIssuer"));
    }

    #[test]
    fn a_cause_lasts_until_the_next_response_or_failure() {
        let (mut connection, now) = (Connection::default(), Instant::now());
        connection.failed(true, Some("UnknownIssuer".to_owned()), now);
        assert_eq!(connection.cause(), Some("UnknownIssuer"));
        connection.failed(true, None, now);
        assert_eq!(connection.cause(), None);
        connection.failed(true, Some("UnknownIssuer".to_owned()), now);
        assert!(connection.answered(now));
        assert_eq!(connection.cause(), None);
    }
}
