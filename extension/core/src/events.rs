//! Kubernetes events: one per change of the state of an object.

use std::{collections::HashMap, hash::Hash};

use crate::{
    providers::Problem,
    reasons::{GateReason, Hold},
};

/// Kubernetes event of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Hold of the Cluster.
    Held(Hold),
    /// Other normal event: reason and note.
    Said(&'static str, String),
    /// Other warning: reason and note.
    Warned(&'static str, String),
    /// Warning that an override has opened a gate, with its note. The ClusterBootstrap gets it, too.
    Overridden(String),
}

/// Reason of the event about a gate that an override has opened.
pub const OVERRIDDEN: &str = "UpgradeOverridden";

/// Maximum number of different texts per object whose repetitions are counted.
const COUNTED: usize = 16;

/// Content of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice<'a> {
    /// Whether the event is a warning.
    pub warns: bool,
    /// Reason of the event.
    pub reason: &'a str,
    /// Note of the event.
    pub note: &'a str,
}

impl<'a> Notice<'a> {
    /// Returns the event of a hold. Steps of every upgrade get no event; the record reports them.
    #[must_use]
    pub fn of_hold(hold: &'a Hold) -> Option<Self> {
        (!hold.reason.class().is_step()).then(|| Self {
            warns: !matches!(
                hold.reason,
                GateReason::PackagesNotReady | GateReason::ChecksNotReady | GateReason::RollbackInProgress
            ),
            reason: hold.reason.as_str(),
            note: &hold.message,
        })
    }

    /// Returns the notice of an event from a reconcile; `None` for a step of every upgrade.
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
            Event::Overridden(note) => Some(Self {
                warns: true,
                reason: OVERRIDDEN,
                note,
            }),
        }
    }

    /// Creates a normal event.
    #[must_use]
    pub const fn said(reason: &'a str, note: &'a str) -> Self {
        Self {
            warns: false,
            reason,
            note,
        }
    }

    /// Returns the warning about a configuration.
    #[must_use]
    pub fn of_problem(problem: &'a Problem) -> Self {
        Self {
            warns: true,
            reason: problem.reason.as_str(),
            note: &problem.message,
        }
    }
}

/// Published events per object, by UID. `C` counts the repetitions of one text.
#[derive(Debug)]
pub struct Published<C>(HashMap<String, Texts<C>>);

/// Published events of one object.
#[derive(Debug)]
struct Texts<C> {
    last: String,
    /// Counters by reason and note. A counter treats two events with one reason as the same and repeats the first note, so each text
    /// has its own.
    counters: HashMap<String, C>,
}

impl<C> Default for Published<C> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<C: Clone> Published<C> {
    /// Returns the counter of a text about the object with this UID; none if the text was the last one published.
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

    /// Forgets a deleted object.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Returns the number of known objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no object is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// UID of each object at its last reconcile. Callers that read objects by name learn from it which object was deleted.
#[derive(Debug)]
pub struct Uids<N>(HashMap<N, String>);

impl<N> Default for Uids<N> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<N: Hash + Eq + Clone> Uids<N> {
    /// Observes the current UID of the object with this name; `None` if it does not exist. Returns the UID of a previous object that is
    /// gone.
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
        assert_eq!(warns(GateReason::RollbackInProgress), Some(false));
        assert_eq!(warns(GateReason::TKRNotFound), Some(true));
    }

    #[test]
    fn only_problems_are_warnings() {
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
    fn counted_texts_are_bounded() {
        let mut published = Published::default();
        for number in 0..=COUNTED {
            published.counter("a", notice(&number.to_string()), || ());
        }
        assert!(published.0["a"].counters.len() <= COUNTED);
    }
}
