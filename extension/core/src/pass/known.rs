//! What is known to a pass, and how it asks for more. Nothing here is read: the process reads what a pass asks for.

use std::{collections::HashMap, sync::Arc, time::Instant};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_crds::{
    foreign::Package,
    run::{ClusterBootstrapSpec, ClusterBootstrapTemplate},
};

use super::{
    Facts, Failure, Memory,
    ask::{Ask, Contact, Key, Moment, Resource, Server, Sight, Watched},
    write::{Verb, Write},
};
use crate::hold::Hold;

/// Why a pass, or a part of it, does not go on with what is known.
#[derive(Debug)]
pub enum Stop {
    /// These have to be read first.
    Need(Vec<Ask>),
    /// These have to be written first, in this order.
    Write(Vec<Write>),
    /// An API server refused a request or did not answer.
    Failed(Failure),
    /// The upgrade has to wait.
    Held(Hold),
}

/// What a part of a pass comes to.
pub type Step<T> = Result<T, Stop>;

impl Stop {
    /// What the upgrade waits for.
    ///
    /// # Errors
    /// It is not that.
    pub fn held(self) -> Step<Hold> {
        match self {
            Self::Held(hold) => Ok(hold),
            other => Err(other),
        }
    }

    /// What an API server answered.
    ///
    /// # Errors
    /// It is not that.
    pub fn failed(self) -> Step<Failure> {
        match self {
            Self::Failed(failure) => Ok(failure),
            other => Err(other),
        }
    }
}

impl From<Hold> for Stop {
    fn from(hold: Hold) -> Self {
        Self::Held(hold)
    }
}

/// The parts of a pass that do not depend on each other: what all of them need is asked for at once. When nothing has to be read, each
/// part's own outcome.
///
/// # Errors
/// What has to be read first.
pub(super) fn together<T>(parts: impl IntoIterator<Item = Step<T>>) -> Step<Vec<Step<T>>> {
    let (mut outcomes, mut needs) = (Vec::new(), Vec::new());
    for part in parts {
        match part {
            Err(Stop::Need(asks)) => needs.extend(asks),
            outcome => outcomes.push(outcome),
        }
    }
    if needs.is_empty() {
        return Ok(outcomes);
    }
    Err(Stop::Need(needs))
}

/// Parts of a pass that do not depend on each other's writes: what they have to write is written in their order, up to the first part
/// that stops for another reason.
///
/// # Errors
/// What has to be written first; or why the first part that did not come to its end did not.
pub(super) fn in_order(parts: impl IntoIterator<Item = Step<()>>) -> Step<()> {
    let mut writes = Vec::new();
    let mut outcome = Ok(());
    for part in parts {
        match part {
            Ok(()) => {}
            Err(Stop::Write(more)) => writes.extend(more),
            Err(stop) => {
                outcome = Err(stop);
                break;
            }
        }
    }
    if writes.is_empty() {
        return outcome;
    }
    Err(Stop::Write(writes))
}

/// What time it is.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// For people, and for what other machines have written.
    pub now: Timestamp,
    /// For what this process remembers.
    pub instant: Instant,
}

/// All that is known to one pass. It only grows while the pass lasts, and what was answered once is not asked again.
#[derive(Debug)]
pub struct Known<'a> {
    /// The Cluster and what belongs to it, from memory.
    pub facts: &'a Facts,
    /// What the pass before has left.
    pub memory: &'a Memory,
    /// When the pass began.
    pub began: Clock,
    answers: HashMap<Ask, Answer>,
    outcomes: HashMap<(Key, Verb), Result<Object, Failure>>,
}

/// An object as an API server has it. Its text is not shown: it may be a Secret.
#[derive(Clone)]
pub struct Object(pub Value);

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let metadata = &self.0["metadata"];
        write!(f, "{} at {}", metadata["name"], metadata["resourceVersion"])
    }
}

/// What became of an [`Ask`].
#[derive(Debug, Clone)]
pub enum Answer {
    /// The object.
    Found(Object),
    /// Several objects.
    Listed(Vec<Object>),
    /// A Package of the catalogue.
    Package(Arc<Package>),
    /// The template of a release.
    Template(Arc<ClusterBootstrapTemplate>),
    /// There is none.
    Absent,
    /// How a kind is served.
    Served(Resource),
    /// An API server refused the request or did not answer.
    Failed(Failure),
    /// What the watches of PackageInstalls and Apps show of one name.
    Watched(Box<Watched>),
    /// A connection to the workload, by its number.
    Connected(u64),
    /// No connection can be made; why, without anything that the kubeconfig holds.
    NotConnected(String),
    /// How the workload answers.
    Contact(Contact),
}

impl<'a> Known<'a> {
    /// What is known when a pass begins.
    #[must_use]
    pub fn new(facts: &'a Facts, memory: &'a Memory, began: Clock) -> Self {
        Self {
            facts,
            memory,
            began,
            answers: HashMap::new(),
            outcomes: HashMap::new(),
        }
    }

    /// Whether this was answered.
    #[must_use]
    pub fn has(&self, ask: &Ask) -> bool {
        self.answers.contains_key(ask)
    }

    /// Whether what became of this write is known.
    #[must_use]
    pub fn has_made(&self, write: &Write) -> bool {
        self.outcomes.contains_key(&(write.key.clone(), write.verb))
    }

    /// Takes what was answered.
    pub fn learn(&mut self, ask: Ask, answer: Answer) {
        self.answers.insert(ask, answer);
    }

    /// Takes what became of a write: the object as it is now, or the refusal.
    pub fn wrote(&mut self, write: Write, outcome: Result<Object, Failure>) {
        self.outcomes.insert((write.key, write.verb), outcome);
    }

    pub(super) fn answer(&self, ask: Ask) -> Step<&Answer> {
        match self.answers.get(&ask) {
            Some(Answer::Failed(failure)) => Err(Stop::Failed(failure.clone())),
            Some(answer) => Ok(answer),
            None => Err(Stop::Need(vec![ask])),
        }
    }

    /// An object as its API server has it; `None` when there is none.
    pub(super) fn object(&self, key: Key, sight: Sight) -> Step<Option<&Value>> {
        let server = key.server;
        match self.answer(Ask::Object(key, sight))? {
            Answer::Found(Object(value)) => Ok(Some(value)),
            Answer::Absent => Ok(None),
            _ => Err(unexpected(server)),
        }
    }

    /// The same, typed.
    pub(super) fn read<K>(&self, name: &str, at: (Server, Option<&str>), sight: Sight) -> Step<Option<K>>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let (server, namespace) = at;
        let found = self.object(Key::of::<K>(server, namespace, name), sight)?;
        found.map(|found| typed(server, found)).transpose()
    }

    /// The objects that an [`Ask`] lists.
    pub(super) fn listed(&self, ask: Ask) -> Step<&[Object]> {
        match self.answer(ask)? {
            Answer::Listed(objects) => Ok(objects),
            _ => Err(unexpected(Server::Workload)),
        }
    }

    /// A Package of the catalogue, as the watch shows it.
    pub(super) fn package(&self, name: &str) -> Step<Option<&Package>> {
        match self.answer(Ask::Package(name.to_owned()))? {
            Answer::Package(package) => Ok(Some(package)),
            Answer::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// The template of a release, as the watch shows it.
    pub(super) fn template(&self, release: &str) -> Step<Option<&ClusterBootstrapSpec>> {
        match self.answer(Ask::Template(release.to_owned()))? {
            Answer::Template(template) => Ok(Some(&template.spec.0)),
            Answer::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// How a kind is served, if it is.
    pub(super) fn served(&self, ask: Ask) -> Step<Option<Resource>> {
        match self.answer(ask)? {
            Answer::Served(resource) => Ok(Some(resource.clone())),
            Answer::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    pub(super) fn watched(&self, server: Server, name: &str) -> Step<&Watched> {
        match self.answer(Ask::Watched(server, name.to_owned()))? {
            Answer::Watched(watched) => Ok(watched),
            _ => Err(unexpected(server)),
        }
    }

    pub(super) fn contact(&self, moment: Moment) -> Step<&Contact> {
        match self.answer(Ask::Contact(moment))? {
            Answer::Contact(contact) => Ok(contact),
            _ => Err(unexpected(Server::Workload)),
        }
    }

    /// What became of `write`: the object as it is now.
    ///
    /// # Errors
    /// It was not made yet, or was refused.
    pub(super) fn write(&self, write: Write) -> Step<&Value> {
        match self.outcomes.get(&(write.key.clone(), write.verb)) {
            Some(Ok(Object(written))) => Ok(written),
            Some(Err(failure)) => Err(Stop::Failed(failure.clone())),
            None => Err(Stop::Write(vec![write])),
        }
    }

    /// Creates an object; `false` when there was one.
    pub(super) fn create(&self, write: Write) -> Step<bool> {
        match self.write(write) {
            Ok(_) => Ok(true),
            Err(Stop::Failed(failure)) if failure.is_conflict() => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

/// An object of `server` as what it has to be.
pub(super) fn typed<K: DeserializeOwned>(server: Server, found: &Value) -> Step<K> {
    K::deserialize(found).map_err(|error| Stop::Failed(Failure::unreadable(server, &error)))
}

/// Only a bug of the process answers a question with something else.
fn unexpected(server: Server) -> Stop {
    Stop::Failed(Failure::other(server, "the answer to another question"))
}
