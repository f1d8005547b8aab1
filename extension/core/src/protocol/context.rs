//! What is known to a pass, and how it asks for more. Nothing here is read: the process reads what a pass asks for.

use crate::clock::Clock;
use std::collections::{HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_crds::{
    decode::Limit,
    foreign::{Cluster, Package},
    run::ClusterBootstrapSpec,
};

use super::{
    Done, Error, Failure, Interrupt, Object, ReadResult, Source, Step,
    read::{Contact, Key, Read, ReadPhase, ReadPoint, Resource, Server, Watched},
    read_result::answers_of,
    write::{Verb, Write},
};
use crate::{decode::Undecodable, protocol::LastDriftCheck};

/// What a pass is made over, as it is known from memory.
pub trait Reconciler: Sized {
    /// What a pass remembers for the next one.
    type LocalState;
    /// What a pass leaves, whether it came to its end or not.
    type Effects;
    /// What has to be waited for.
    type Hold;

    /// What a pass leaves that does nothing.
    fn effects(memory: &Self::LocalState) -> Self::Effects;

    /// The pass, as far as it comes with what is known.
    ///
    /// # Errors
    /// What has to be read or written before it goes on; or why it cannot.
    fn reconcile(known: &Context<'_, Self>, after: &mut Self::Effects) -> Step<Done, Self::Hold>;
}

/// All that is known to one pass. It only grows while the pass lasts, and what was answered once is not asked again.
#[derive(Debug)]
pub struct Context<'a, S: Reconciler> {
    /// What the pass is made over, with what belongs to it, from memory.
    pub facts: &'a S,
    /// What the pass before has left.
    pub memory: &'a S::LocalState,
    /// When the pass began.
    pub began: Clock,
    answers: HashMap<Read, ReadResult>,
    outcomes: HashMap<(Key, Verb), Result<Object, Failure>>,
    /// How many bytes the answers of the workload take.
    of_workload: usize,
    /// The same of the objects that were read from the management cluster.
    of_management: usize,
}

impl<'a, S: Reconciler> Context<'a, S> {
    /// What is known when a pass begins.
    #[must_use]
    pub fn new(facts: &'a S, memory: &'a S::LocalState, began: Clock) -> Self {
        Self {
            facts,
            memory,
            began,
            answers: HashMap::new(),
            outcomes: HashMap::new(),
            of_workload: 0,
            of_management: 0,
        }
    }

    /// Whether this was answered.
    #[must_use]
    pub fn has(&self, ask: &Read) -> bool {
        self.answers.contains_key(ask)
    }

    /// Those of `asks` that have to be answered, each once.
    ///
    /// # Errors
    /// All were: a pass that asks for nothing else would never end.
    pub fn unanswered(&self, asks: Vec<Read>) -> Result<HashSet<Read>, Error> {
        let unanswered: HashSet<Read> = asks.into_iter().filter(|ask| !self.has(ask)).collect();
        if unanswered.is_empty() {
            return Err(Error::Unfinished("it asks for what it knows".to_owned()));
        }
        Ok(unanswered)
    }

    /// Whether what became of this write is known.
    #[must_use]
    pub fn has_outcome(&self, write: &Write) -> bool {
        self.outcomes.contains_key(&(write.key.clone(), write.verb))
    }

    /// Takes what was answered. Once the answers of a server take more than [its limit](answers_of) together, this one and all later ones
    /// of it that carry anything are failures.
    pub fn record_answer(&mut self, ask: Read, answer: ReadResult) {
        let server = ask.server();
        let (all, size) = match (server, &answer) {
            (Server::Workload, _) => (&mut self.of_workload, answer.size()),
            (Server::Management, ReadResult::Found(_)) => (&mut self.of_management, answer.size()),
            // From memory, or metadata.
            (Server::Management, _) => (&mut self.of_management, 0),
        };
        *all += size;
        let answer = if size > 0 && *all > answers_of(server) {
            ReadResult::Failed(Failure {
                too_long: true,
                ..Failure::other(server, "all answers of a pass together are too large")
            })
        } else {
            answer
        };
        self.answers.insert(ask, answer);
    }

    /// Takes what became of a write: the object as it is now, or the refusal.
    pub fn record_outcome(&mut self, write: Write, outcome: Result<Object, Failure>) {
        self.outcomes.insert((write.key, write.verb), outcome);
    }

    pub(crate) fn answer(&self, ask: Read) -> Step<&ReadResult, S::Hold> {
        match self.answers.get(&ask) {
            Some(ReadResult::Failed(failure)) => Err(Interrupt::Failed(failure.clone())),
            Some(answer) => Ok(answer),
            None => Err(Interrupt::Need(vec![ask])),
        }
    }

    /// An object as its API server has it; `None` when there is none.
    pub(crate) fn object(&self, key: Key, sight: ReadPhase) -> Step<Option<&Value>, S::Hold> {
        let server = key.server;
        match self.answer(Read::Object(key, sight))? {
            ReadResult::Found(Object(value)) => Ok(Some(value)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(server)),
        }
    }

    /// The same, typed.
    pub(crate) fn read<K>(
        &self,
        name: &str,
        at: (Server, Option<&str>),
        sight: ReadPhase,
    ) -> Step<Option<K>, S::Hold>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (server, namespace) = at;
        let found = self.object(Key::of::<K>(server, namespace, name), sight)?;
        found.map(|found| typed(server, found)).transpose()
    }

    /// The objects that an [`Read`] lists.
    pub(crate) fn listed(&self, ask: Read) -> Step<&[Object], S::Hold> {
        let server = ask.server();
        match self.answer(ask)? {
            ReadResult::Listed(objects) => Ok(objects),
            _ => Err(unexpected(server)),
        }
    }

    /// A Package of the catalogue, as the watch shows it.
    pub(crate) fn package(&self, name: &str) -> Step<Option<&Package>, S::Hold> {
        match self.answer(Read::Package(name.to_owned()))? {
            ReadResult::Package(package) => Ok(Some(package)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// A Cluster, as the watch shows it.
    pub(crate) fn cluster(&self, namespace: &str, name: &str) -> Step<Option<&Cluster>, S::Hold> {
        match self.answer(Read::Cluster(namespace.to_owned(), name.to_owned()))? {
            ReadResult::Cluster(cluster) => Ok(Some(cluster)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// What watches were asked for so far.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Source> {
        self.answers.keys().filter_map(Read::source)
    }

    /// The template of a release, as the watch shows it.
    pub(crate) fn template(&self, release: &str) -> Step<Option<&ClusterBootstrapSpec>, S::Hold> {
        match self.answer(Read::Template(release.to_owned()))? {
            ReadResult::Template(template) => Ok(Some(&template.spec.0)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// How a kind is served, if it is.
    pub(crate) fn served(&self, ask: Read) -> Step<Option<Resource>, S::Hold> {
        match self.answer(ask)? {
            ReadResult::Served(resource) => Ok(Some(resource.clone())),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    pub(crate) fn watched(&self, server: Server, name: &str) -> Step<&Watched, S::Hold> {
        match self.answer(Read::Watched(server, name.to_owned()))? {
            ReadResult::Watched(watched) => Ok(watched),
            _ => Err(unexpected(server)),
        }
    }

    pub(crate) fn contact(&self, moment: ReadPoint) -> Step<&Contact, S::Hold> {
        match self.answer(Read::Contact(moment))? {
            ReadResult::Contact(contact) => Ok(contact),
            _ => Err(unexpected(Server::Workload)),
        }
    }

    pub(crate) fn may_check_drift(&self, last: LastDriftCheck) -> Step<bool, S::Hold> {
        match self.answer(Read::DriftCheckPermit(last))? {
            ReadResult::Turn(granted) => Ok(*granted),
            _ => Err(unexpected(Server::Workload)),
        }
    }

    /// What became of `write`: the object as it is now.
    ///
    /// # Errors
    /// It was not made yet, or was refused.
    pub(crate) fn write(&self, write: Write) -> Step<&Value, S::Hold> {
        match self.outcomes.get(&(write.key.clone(), write.verb)) {
            Some(Ok(Object(written))) => Ok(written),
            Some(Err(failure)) => Err(Interrupt::Failed(failure.clone())),
            None => Err(Interrupt::Write(vec![write])),
        }
    }

    /// The object of `key` as it was after it was written so in this pass.
    pub(crate) fn made(&self, key: &Key, verb: Verb) -> Option<&Value> {
        let written = self.outcomes.get(&(key.clone(), verb))?.as_ref().ok()?;
        Some(&written.0)
    }

    /// The object of `key` as it is after it was changed, or else made, in this pass.
    pub(crate) fn written(&self, key: &Key) -> Option<&Value> {
        self.made(key, Verb::Patch)
            .or_else(|| self.made(key, Verb::Create))
    }

    /// Creates an object; `false` when there was one.
    pub(crate) fn create(&self, write: Write) -> Step<bool, S::Hold> {
        match self.write(write) {
            Ok(_) => Ok(true),
            Err(Interrupt::Failed(failure)) if failure.is_conflict() => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

/// An object of `server` as what it has to be.
pub(crate) fn typed<K: DeserializeOwned, H>(server: Server, found: &Value) -> Step<K, H> {
    K::deserialize(found).map_err(|error| {
        let failure = match Undecodable::of::<K>(&found.to_string(), Limit::whole(usize::MAX)) {
            Some(object) => Failure::undecodable(server, object.into()),
            None => Failure::unreadable(server, &error),
        };
        Interrupt::Failed(failure)
    })
}

/// Only a bug of the process answers a question with something else.
pub(crate) fn unexpected<H>(server: Server) -> Interrupt<H> {
    Interrupt::Failed(Failure::other(server, "the answer to another question"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use std::time::Instant;

    struct Nothing;

    impl Reconciler for Nothing {
        type LocalState = ();
        type Effects = ();
        type Hold = ();

        fn effects((): &()) {}

        fn reconcile(_known: &Context<'_, Self>, (): &mut ()) -> Step<Done, ()> {
            Ok(Done::AwaitChange)
        }
    }

    #[test]
    fn what_is_known_is_not_asked_for_again() {
        let began = Clock {
            now: Timestamp::UNIX_EPOCH,
            instant: Instant::now(),
        };
        let mut known = Context::new(&Nothing, &(), began);
        let asks = || vec![Read::Installs, Read::LabelledSecrets, Read::Installs];
        let unanswered = |known: &Context<'_, Nothing>| known.unanswered(asks()).map(|asks| asks.len());
        assert_eq!(unanswered(&known).ok(), Some(2), "each once");
        known.record_answer(Read::Installs, ReadResult::Absent);
        assert_eq!(unanswered(&known).ok(), Some(1));
        known.record_answer(Read::LabelledSecrets, ReadResult::Absent);
        assert!(matches!(unanswered(&known), Err(Error::Unfinished(_))));
    }

    /// A tenant chooses how many Secrets a ClusterBootstrap names, and what is in them.
    #[test]
    fn the_answers_of_each_server_have_a_limit_together() {
        let began = Clock {
            now: Timestamp::UNIX_EPOCH,
            instant: Instant::now(),
        };
        for server in [Server::Management, Server::Workload] {
            let mut known = Context::<Nothing>::new(&Nothing, &(), began);
            let ask = |number: usize| {
                let key = Key::of::<Cluster>(server, Some("team-a"), &number.to_string());
                Read::Object(key, ReadPhase::Plan)
            };
            let large = Value::from("x".repeat(1024 * 1024));
            let fit = answers_of(server) / (1024 * 1024);
            for number in 0..2 * fit {
                known.record_answer(ask(number), ReadResult::Found(Object(large.clone())));
                let answer = known.answer(ask(number));
                assert_eq!(answer.is_ok(), number < fit, "{server}: {number}");
            }
            known.record_answer(ask(2 * fit), ReadResult::Absent);
            assert!(known.answer(ask(2 * fit)).is_ok(), "{server}: it carries nothing");
        }
    }
}
