//! Context of a reconcile: facts, results and requests for more reads. The executor, not this module, performs the reads.

use crate::clock::Clock;
use std::collections::{HashMap, HashSet};

use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_crds::{
    decode::{self, Limit},
    foreign::{Cluster, Package},
    run::ClusterBootstrapSpec,
};

use super::{
    Done, Error, Failure, Interrupt, Object, ReadResult, Source, Step,
    read::{Contact, Key, Read, ReadPhase, ReadPoint, Resource, SecretVersion, Server, Watched},
    read_result::answers_of,
    write::{Verb, Write},
};
use crate::{decode::Undecodable, protocol::LastDriftCheck};

/// Cached objects that a reconcile works on.
pub trait Reconciler: Sized {
    /// State that a reconcile keeps for the next one.
    type LocalState;
    /// Effects of a reconcile, complete or not.
    type Effects;
    /// Reason to wait.
    type Hold;

    /// Returns the effects of a reconcile that does nothing.
    fn effects(local: &Self::LocalState) -> Self::Effects;

    /// Reconciles as far as the known results allow.
    ///
    /// # Errors
    /// The missing reads or writes, or the reason why the reconcile cannot continue.
    fn reconcile(context: &Context<'_, Self>, after: &mut Self::Effects) -> Step<Done, Self::Hold>;
}

/// Facts and results of one reconcile. Results only accumulate, and no read is repeated.
#[derive(Debug)]
pub struct Context<'a, S: Reconciler> {
    /// Reconciled object and its dependents, from the cache.
    pub facts: &'a S,
    /// State that the previous reconcile left.
    pub local: &'a S::LocalState,
    /// Start of the reconcile.
    pub began: Clock,
    answers: HashMap<Read, ReadResult>,
    outcomes: HashMap<(Key, Verb), Result<Object, Failure>>,
    /// Size of all results of the workload cluster, in bytes.
    of_workload: usize,
    /// Size of the objects read from the management cluster, in bytes.
    of_management: usize,
}

impl<'a, S: Reconciler> Context<'a, S> {
    /// Returns the context at the start of a reconcile.
    #[must_use]
    pub fn new(facts: &'a S, local: &'a S::LocalState, began: Clock) -> Self {
        Self {
            facts,
            local,
            began,
            answers: HashMap::new(),
            outcomes: HashMap::new(),
            of_workload: 0,
            of_management: 0,
        }
    }

    /// Returns the context of other facts, with the templates that are known here.
    pub(crate) fn of_other<'b>(&'b self, facts: &'b S) -> Context<'b, S> {
        let known = self.answers.iter();
        let templates = known.filter(|(read, _)| matches!(read, Read::Template(_)));
        Context {
            answers: templates
                .map(|(read, answer)| (read.clone(), answer.clone()))
                .collect(),
            ..Context::new(facts, self.local, self.began)
        }
    }

    /// Returns whether the result of this read is known.
    #[must_use]
    pub fn has(&self, read: &Read) -> bool {
        self.answers.contains_key(read)
    }

    /// Returns the reads of `reads` without a result, each once.
    ///
    /// # Errors
    /// All results are known: a reconcile that requests only known reads would never end.
    pub fn unanswered(&self, reads: Vec<Read>) -> Result<HashSet<Read>, Error> {
        let unanswered: HashSet<Read> = reads.into_iter().filter(|read| !self.has(read)).collect();
        if unanswered.is_empty() {
            return Err(Error::Unfinished("it requests only known reads".to_owned()));
        }
        Ok(unanswered)
    }

    /// Returns whether the outcome of this write is known.
    #[must_use]
    pub fn has_outcome(&self, write: &Write) -> bool {
        self.outcomes.contains_key(&(write.key.clone(), write.verb))
    }

    /// Records the result of a read. Once the results of a server exceed its memory limit together, this result and all later ones
    /// with content become failures.
    pub fn record_answer(&mut self, read: Read, answer: ReadResult) {
        let server = read.server();
        let is_read = matches!(answer, ReadResult::Found(_)) || matches!(read, Read::Labelled { .. });
        let (all, size) = match server {
            Server::Workload => (&mut self.of_workload, answer.size()),
            Server::Management if is_read => (&mut self.of_management, answer.size()),
            // Shared with the cache, or only metadata.
            Server::Management => (&mut self.of_management, 0),
        };
        *all += size;
        let answer = if size > 0 && *all > answers_of(server) {
            ReadResult::Failed(Failure {
                too_long: true,
                ..Failure::other(server, "results of the reconcile exceed the size limit")
            })
        } else {
            answer
        };
        self.answers.insert(read, answer);
    }

    /// Records the outcome of a write: the written object, or the failure.
    pub fn record_outcome(&mut self, write: Write, outcome: Result<Object, Failure>) {
        self.outcomes.insert((write.key, write.verb), outcome);
    }

    pub(crate) fn answer(&self, read: Read) -> Step<&ReadResult, S::Hold> {
        match self.answers.get(&read) {
            Some(ReadResult::Failed(failure)) => Err(Interrupt::Failed(failure.clone())),
            Some(answer) => Ok(answer),
            None => Err(Interrupt::Need(vec![read])),
        }
    }

    /// Returns an object as stored by its API server; `None` if it does not exist.
    pub(crate) fn object(&self, key: Key, sight: ReadPhase) -> Step<Option<&Value>, S::Hold> {
        let server = key.server;
        match self.answer(Read::Object(key, sight))? {
            ReadResult::Found(Object(value)) => Ok(Some(value)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(server)),
        }
    }

    /// Returns an object as stored by its API server, decoded to its type.
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

    /// Returns the objects that a [`Read`] lists.
    pub(crate) fn listed(&self, read: Read) -> Step<&[Object], S::Hold> {
        let server = read.server();
        match self.answer(read)? {
            ReadResult::Listed(objects) => Ok(objects),
            _ => Err(unexpected(server)),
        }
    }

    /// Returns a Package of the catalogue, from the cache.
    pub(crate) fn package(&self, name: &str) -> Step<Option<&Package>, S::Hold> {
        match self.answer(Read::Package(name.to_owned()))? {
            ReadResult::Package(package) => Ok(Some(package)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// Returns a Cluster, from the cache.
    pub(crate) fn cluster(&self, namespace: &str, name: &str) -> Step<Option<&Cluster>, S::Hold> {
        match self.answer(Read::Cluster(namespace.to_owned(), name.to_owned()))? {
            ReadResult::Cluster(cluster) => Ok(Some(cluster)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// Whether the workload API server has refused the credentials of a request, or has not responded to one.
    pub(crate) fn is_refused_by_workload(&self) -> bool {
        let reads = self.answers.values().filter_map(|answer| match answer {
            ReadResult::Failed(failure) => Some(failure),
            _ => None,
        });
        let writes = self
            .outcomes
            .values()
            .filter_map(|outcome| outcome.as_ref().err());
        reads.chain(writes).any(|failure| {
            failure.server == Server::Workload && matches!(failure.code, None | Some(0 | 401 | 403))
        })
    }

    /// Returns the sources that the reconcile has requested so far.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Source> {
        self.answers.keys().filter_map(Read::source)
    }

    /// Returns the template of a release, from the cache.
    pub(crate) fn template(&self, release: &str) -> Step<Option<&ClusterBootstrapSpec>, S::Hold> {
        match self.answer(Read::Template(release.to_owned()))? {
            ReadResult::Template(template) => Ok(Some(&template.spec.0)),
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// Returns the API resource of a kind, if the API server serves it.
    pub(crate) fn served(&self, read: Read) -> Step<Option<Resource>, S::Hold> {
        match self.answer(read)? {
            ReadResult::Served(resource) | ReadResult::ServedClusterWide(resource) => {
                Ok(Some(resource.clone()))
            }
            ReadResult::Absent => Ok(None),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// Returns whether the API server serves a cluster-scoped kind, by the result of [`Read::Served`].
    pub(crate) fn is_cluster_wide(&self, read: &Read) -> bool {
        matches!(self.answers.get(read), Some(ReadResult::ServedClusterWide(_)))
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

    /// Returns whether the metadata watch of values sources shows this version of a Secret.
    pub(crate) fn is_shown(&self, version: &SecretVersion) -> Step<bool, S::Hold> {
        match self.answer(Read::Shown(version.clone()))? {
            ReadResult::Shown(is_shown) => Ok(*is_shown),
            _ => Err(unexpected(Server::Management)),
        }
    }

    /// Returns the object after `write`.
    ///
    /// # Errors
    /// The write is still to be made, or failed.
    pub(crate) fn write(&self, write: Write) -> Step<&Value, S::Hold> {
        match self.outcomes.get(&(write.key.clone(), write.verb)) {
            Some(Ok(Object(written))) => Ok(written),
            Some(Err(failure)) => Err(Interrupt::Failed(failure.clone())),
            None => Err(Interrupt::Write(vec![write])),
        }
    }

    /// Returns the object of `key` after a write with `verb` in this reconcile.
    pub(crate) fn made(&self, key: &Key, verb: Verb) -> Option<&Value> {
        let written = self.outcomes.get(&(key.clone(), verb))?.as_ref().ok()?;
        Some(&written.0)
    }

    /// Returns the object of `key` after its patch, or else its creation, in this reconcile.
    pub(crate) fn written(&self, key: &Key) -> Option<&Value> {
        self.made(key, Verb::Patch)
            .or_else(|| self.made(key, Verb::Create))
    }

    /// Creates an object; returns `false` if it existed.
    pub(crate) fn create(&self, write: Write) -> Step<bool, S::Hold> {
        match self.write(write) {
            Ok(_) => Ok(true),
            Err(Interrupt::Failed(failure)) if failure.is_conflict() => Ok(false),
            Err(stop) => Err(stop),
        }
    }
}

/// Decodes an object of `server`.
pub(crate) fn typed<K: DeserializeOwned, H>(server: Server, found: &Value) -> Step<K, H> {
    K::deserialize(found).map_err(|error| {
        let text = found.to_string();
        let fault = decode::from_str::<K>(&text, Limit::whole(usize::MAX)).err();
        let failure = match fault.and_then(|fault| Undecodable::of(&text, &fault)) {
            Some(object) => Failure::undecodable(server, object.into()),
            None => Failure::unreadable(server, &error),
        };
        Interrupt::Failed(failure)
    })
}

/// Returns the failure of a read with a result of the wrong variant, which only a bug of the executor causes.
pub(crate) fn unexpected<H>(server: Server) -> Interrupt<H> {
    Interrupt::Failed(Failure::other(server, "the result belongs to another read"))
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
    fn known_reads_are_not_repeated() {
        let began = Clock {
            now: Timestamp::UNIX_EPOCH,
            instant: Instant::now(),
        };
        let mut context = Context::new(&Nothing, &(), began);
        let reads = || vec![Read::Installs, Read::LabelledSecrets, Read::Installs];
        let unanswered =
            |context: &Context<'_, Nothing>| context.unanswered(reads()).map(|reads| reads.len());
        assert_eq!(unanswered(&context).ok(), Some(2), "each once");
        context.record_answer(Read::Installs, ReadResult::Absent);
        assert_eq!(unanswered(&context).ok(), Some(1));
        context.record_answer(Read::LabelledSecrets, ReadResult::Absent);
        assert!(matches!(unanswered(&context), Err(Error::Unfinished(_))));
    }

    /// A tenant chooses the number and content of the Secrets that a ClusterBootstrap names.
    #[test]
    fn results_of_each_server_share_a_limit() {
        let began = Clock {
            now: Timestamp::UNIX_EPOCH,
            instant: Instant::now(),
        };
        for server in [Server::Management, Server::Workload] {
            let mut context = Context::<Nothing>::new(&Nothing, &(), began);
            let read = |number: usize| {
                let key = Key::of::<Cluster>(server, Some("team-a"), &number.to_string());
                Read::Object(key, ReadPhase::Plan)
            };
            let large = Value::from("x".repeat(1024 * 1024));
            let fit = answers_of(server) / (1024 * 1024);
            for number in 0..2 * fit {
                context.record_answer(read(number), ReadResult::Found(Object(large.clone())));
                let answer = context.answer(read(number));
                assert_eq!(answer.is_ok(), number < fit, "{server}: {number}");
            }
            context.record_answer(read(2 * fit), ReadResult::Absent);
            assert!(context.answer(read(2 * fit)).is_ok(), "{server}: no content");
        }
    }
}
