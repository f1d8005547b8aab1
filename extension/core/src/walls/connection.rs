//! What the requests and watches of one connection have shown of the server behind it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Breaker, FirstSeenRuns, GivenUp, Identity, Sign};

/// Whether a server answers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// It answered the last request.
    #[default]
    Answers,
    /// It has not answered since then.
    Silent(Timestamp),
}

/// What is known of the server behind a connection.
#[derive(Debug, Default)]
pub struct Connection {
    /// Whether its watches find that it answers.
    pub contact: Contact,
    /// Whether a pass asks it.
    pub breaker: Breaker,
    /// Whose data it serves.
    pub identity: Identity,
    /// How often a watch failed or was filled.
    pub disturbances: u64,
    /// The runs that its Apps have shown.
    pub runs: FirstSeenRuns,
    /// Why stores are not filled that had to be emptied, by kind.
    given_up: BTreeMap<String, GivenUp>,
}

impl Connection {
    /// Takes in what the watch of a kind has seen. Whether the Cluster is woken for it.
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
        // Silence counts from its first sign, however often the server is tried meanwhile.
        self.contact = match (self.contact, silent) {
            (Contact::Silent(_), true) => return false,
            (Contact::Answers, true) => Contact::Silent(now),
            (_, false) => Contact::Answers,
        };
        true
    }

    /// Why a store had to be emptied that is not filled again yet. What the stores show is not all then.
    #[must_use]
    pub fn given_up(&self) -> Option<GivenUp> {
        self.given_up.values().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walls::Failure;

    const SILENCE: Sign = Sign::Failed(Failure::WATCH);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn silence_counts_from_its_first_sign() {
        let mut connection = Connection::default();
        assert!(connection.saw("App", SILENCE, at(10)));
        for second in 11..100 {
            assert!(!connection.saw("App", SILENCE, at(second)));
            assert_eq!(connection.contact, Contact::Silent(at(10)));
        }
        assert!(connection.saw("App", Sign::Changed, at(100)));
        assert_eq!(connection.contact, Contact::Answers);
        // Until kapp-controller has brought its kinds, "not found" is a sign of life.
        let not_found = Failure {
            of_list: true,
            answered: true,
            code: Some(404),
        };
        assert!(connection.saw("App", Sign::Failed(not_found), at(101)));
        assert_eq!(connection.contact, Contact::Answers);
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

    /// Another server may answer at the same address then.
    #[test]
    fn what_fails_or_is_filled_disturbs() {
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
}
