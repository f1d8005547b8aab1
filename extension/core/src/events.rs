//! Events for people: one for each change of what an object waits for.

use std::{collections::HashMap, hash::Hash};

use crate::{
    providers::Problem,
    reasons::{GateReason, Hold},
};

/// One event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What the Cluster waits for.
    Held(Hold),
    /// Something else: reason and note.
    Said(&'static str, String),
    /// Something else that is wrong: reason and note.
    Warned(&'static str, String),
}

/// What every upgrade waits for at some point; the record says it to all who ask.
const PROGRESS: [GateReason; 6] = [
    GateReason::BootstrapNotMerged,
    GateReason::ControlPlaneCreating,
    GateReason::ControlPlaneUpgrading,
    GateReason::KappControllerRestarting,
    GateReason::PackagesUnknown,
    GateReason::WorkersUpgrading,
];

/// So many different texts of one object are counted when they are repeated.
const COUNTED: usize = 16;

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice<'a> {
    /// Whether something is wrong.
    pub warns: bool,
    /// Its reason.
    pub reason: &'a str,
    /// What happened, or what is waited for.
    pub note: &'a str,
}

impl<'a> Notice<'a> {
    /// That a Cluster waits, and for what. Steps that every upgrade goes through are no event.
    #[must_use]
    pub fn of_hold(hold: &'a Hold) -> Option<Self> {
        let said = !PROGRESS.contains(&hold.reason);
        said.then(|| Self {
            warns: hold.reason != GateReason::PackagesNotReady,
            reason: hold.reason.as_str(),
            note: &hold.message,
        })
    }

    /// What a pass says of its Cluster, if that is one.
    #[must_use]
    pub fn of(event: &'a Event) -> Option<Self> {
        match event {
            Event::Held(hold) => Self::of_hold(hold),
            Event::Said(reason, note) => Some(Self::said(reason, note)),
            Event::Warned(reason, note) => Some(Self {
                warns: true,
                reason,
                note,
            }),
        }
    }

    /// That something went well.
    #[must_use]
    pub const fn said(reason: &'a str, note: &'a str) -> Self {
        Self {
            warns: false,
            reason,
            note,
        }
    }

    /// What is wrong with a configuration.
    #[must_use]
    pub fn of_problem(problem: &'a Problem) -> Self {
        Self {
            warns: true,
            reason: problem.reason.as_str(),
            note: &problem.message,
        }
    }
}

/// What was published about each object, by UID. `C` counts how often one text is repeated.
#[derive(Debug)]
pub struct Published<C>(HashMap<String, Texts<C>>);

/// What was published about one object.
#[derive(Debug)]
struct Texts<C> {
    last: String,
    /// By reason and note. What counts takes two events of one reason for the same and repeats the note of the first one, so
    /// there is one for each text.
    counters: HashMap<String, C>,
}

impl<C> Default for Published<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Clone> Published<C> {
    /// What counts the repetitions of a text about the object with this UID; none if it was published last.
    pub fn counter(&mut self, uid: &str, notice: Notice<'_>, fresh: impl FnOnce() -> C) -> Option<C> {
        let text = format!("{}: {}", notice.reason, notice.note);
        let nothing = || Texts {
            last: String::new(),
            counters: HashMap::new(),
        };
        let texts = self.0.entry(uid.to_owned()).or_insert_with(nothing);
        if texts.last == text {
            return None;
        }
        texts.last.clone_from(&text);
        if texts.counters.len() >= COUNTED {
            texts.counters.clear();
        }
        Some(texts.counters.entry(text).or_insert_with(fresh).clone())
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Of how many objects something is known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is known of any object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The UID that each object had when it had its turn last. Who looks at objects by their names learns so which one is gone.
#[derive(Debug)]
pub struct Uids<N>(HashMap<N, String>);

impl<N> Default for Uids<N> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<N: Hash + Eq + Clone> Uids<N> {
    /// The object of this name has this UID now, or there is none. Returns the UID of the one before, if that is gone.
    pub fn saw(&mut self, name: &N, uid: Option<&str>) -> Option<String> {
        let before = match uid {
            Some(uid) => self.0.insert(name.clone(), uid.to_owned()),
            None => self.0.remove(name),
        };
        before.filter(|before| Some(before.as_str()) != uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Reason;

    fn notice(note: &str) -> Notice<'_> {
        Notice {
            warns: true,
            reason: "TKRNotFound",
            note,
        }
    }

    #[test]
    fn steps_that_every_upgrade_goes_through_are_no_event() {
        let warns = |reason| {
            let hold = Hold::new(reason, "");
            Notice::of_hold(&hold).map(|notice| notice.warns)
        };
        assert_eq!(warns(GateReason::WorkersUpgrading), None);
        assert_eq!(warns(GateReason::PackagesNotReady), Some(false));
        assert_eq!(warns(GateReason::TKRNotFound), Some(true));
    }

    #[test]
    fn a_problem_warns_and_what_went_well_does_not() {
        let said = Event::Said("Retriggered", "note".to_owned());
        assert_eq!(Notice::of(&said), Some(Notice::said("Retriggered", "note")));
        assert!(!Notice::said("Retriggered", "note").warns);
        let held = Event::Held(Hold::new(GateReason::TKRNotFound, "missing"));
        let notice = Notice::of(&held).map(|notice| (notice.warns, notice.note));
        assert_eq!(notice, Some((true, "missing")));
        let problem = Problem::new(Reason::CIDRMissing, "no CIDR");
        let Notice { warns, reason, note } = Notice::of_problem(&problem);
        assert_eq!((warns, reason, note), (true, "CIDRMissing", "no CIDR"));
    }

    #[test]
    fn a_text_is_published_when_it_is_another_one_than_the_last() {
        let (mut published, mut made) = (Published::default(), 0);
        let mut publish = |published: &mut Published<u32>, uid, note| {
            published.counter(uid, notice(note), || {
                made += 1;
                made
            })
        };
        assert_eq!(publish(&mut published, "a", "one"), Some(1));
        assert_eq!(publish(&mut published, "a", "one"), None);
        assert_eq!(publish(&mut published, "b", "one"), Some(2), "of another object");
        assert_eq!(publish(&mut published, "a", "two"), Some(3));
        assert_eq!(publish(&mut published, "a", "one"), Some(1), "it is counted on");
        published.forget("a");
        assert_eq!(publish(&mut published, "a", "one"), Some(4));
    }

    #[test]
    fn an_object_is_gone_when_there_is_none_or_another_one_of_its_name() {
        let mut uids = Uids::default();
        assert_eq!(uids.saw(&"one", None), None);
        assert_eq!(uids.saw(&"one", Some("a")), None);
        assert_eq!(uids.saw(&"two", Some("b")), None);
        assert_eq!(uids.saw(&"one", Some("a")), None, "it is there still");
        assert_eq!(uids.saw(&"one", Some("c")).as_deref(), Some("a"));
        assert_eq!(uids.saw(&"one", None).as_deref(), Some("c"));
        assert_eq!(uids.saw(&"one", None), None);
        assert_eq!(uids.0.len(), 1);
    }

    #[test]
    fn what_is_counted_has_a_limit() {
        let mut published = Published::default();
        for number in 0..=COUNTED {
            published.counter("a", notice(&number.to_string()), || ());
        }
        assert!(published.0["a"].counters.len() <= COUNTED);
    }
}
