//! Sources of values whose kinds are unknown until a configuration references them.

use std::sync::{Arc, Mutex};

use kube::core::{DynamicObject, ObjectMeta};
use sluice_core::{
    cache::{NamedKind, NamedKinds},
    protocol::{Failure, Object, ReadResult, Server, Source},
};

use crate::queue::dependents::Dependents;
use crate::{
    cache::{contract::Contract, kind_watch::KindWatch, rollbacks::Rollbacks, watch::reporting},
    clock::now,
    lock::lock,
};

/// Watches of all kinds that configurations depend on, started with the first dependent.
pub struct Watches {
    dependents: Dependents,
    contract: Contract,
    rollbacks: Rollbacks,
    watched: Mutex<NamedKinds<NamedKind, Arc<KindWatch<DynamicObject>>>>,
}

impl Watches {
    /// Returns no watches yet. Reads kinds that a Cluster references as far as `contract` allows.
    #[must_use]
    pub fn new(contract: Contract, dependents: Dependents, rollbacks: Rollbacks) -> Self {
        Self {
            dependents,
            contract,
            rollbacks,
            watched: Mutex::default(),
        }
    }

    /// Reads a source and watches its kind from the first read on.
    pub(super) async fn read(&self, source: &Source) -> ReadResult {
        let (resource, store) = match self.watch(source).settled().await {
            Ok(Some(settled)) => settled,
            Ok(None) => return ReadResult::Absent,
            Err(why) => return ReadResult::Unwatchable(why),
        };
        let found = match source {
            Source::Every { .. } => store.first_undecodable().map_or_else(|| Ok(store.state()), Err),
            Source::Object { namespace, name, .. } => store
                .found(namespace.as_deref(), name)
                .map(|found| found.into_iter().collect()),
        };
        let found = match found {
            Ok(found) => found,
            Err(object) => return ReadResult::Failed(Failure::undecodable(Server::Management, object)),
        };
        let listed = found.iter().map(|object| Object::listed(&resource, object));
        ReadResult::Listed(listed.collect())
    }

    /// Returns the watch of the kind of `source`.
    fn watch(&self, source: &Source) -> Arc<KindWatch<DynamicObject>> {
        let standing = |watch: &Arc<_>| KindWatch::state(watch).standing();
        let mut watched = lock(&self.watched);
        let watch = watched.ask(source.into(), now(), standing, |named| {
            Arc::new(self.open(source, named))
        });
        Arc::clone(watch)
    }

    fn open(&self, source: &Source, named: &NamedKind) -> KindWatch<DynamicObject> {
        let on = {
            let (dependents, named) = (self.dependents.clone(), named.clone());
            let kind = named.kind.clone();
            let touched = move |meta: &ObjectMeta, _| dependents.changed(&named.sources(meta));
            reporting(kind, "Failed to watch sources of configurations", touched)
        };
        let changed = {
            let (dependents, sources) = (self.dependents.clone(), [named.every(), source.clone()]);
            move || dependents.changed(&sources)
        };
        KindWatch::open(
            self.contract.clone(),
            named.clone(),
            true,
            self.rollbacks.clone(),
            on,
            changed,
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_crds::foreign::cluster::ObjectReference;

    use super::*;
    use crate::cache::control_plane::tests::{GROUP, Server};

    fn reference(group: &str, kind: &str) -> Source {
        let reference = json!({"apiGroup": group, "kind": kind, "name": "one"});
        let reference: ObjectReference = serde_json::from_value(reference).unwrap();
        Source::referred("team-a", &reference)
    }

    fn watches(server: &Server, groups: Vec<String>) -> Watches {
        Watches::new(
            Contract::new(server.client(), groups),
            Dependents::default(),
            Rollbacks::default(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_referenced_kind_must_follow_the_contract() {
        let server = Server::new(None);
        let watches = watches(&server, Vec::new());
        let (good, deployment) = (reference(GROUP, "Good"), reference("apps", "Deployment"));
        assert!(matches!(watches.read(&good).await, ReadResult::Listed(found) if found.len() == 1));
        let read = watches.read(&deployment).await;
        assert!(matches!(read, ReadResult::Unwatchable(_)), "{read:?}");
        let secret = watches.read(&reference("", "Secret")).await;
        assert!(
            matches!(secret, ReadResult::Absent),
            "nothing is known of it: {secret:?}"
        );
        assert!(!server.asked_for("/api/v1/namespaces/team-a/secrets/one"));
        assert!(!server.asked_for("/apis/apps/v1/deployments"));
        let known = Source::namespaced("apps", "Deployment", "team-a", "one");
        let _not_listed_here = watches.read(&known).await;
        assert!(
            server.asked_for("/apis/apps/v1/deployments"),
            "a kind that Sluice names"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_of_the_operator_needs_no_label() {
        let server = Server::new(None);
        server.set(|state| state.labelled = false);
        let good = reference(GROUP, "Good");
        let read = watches(&server, Vec::new()).read(&good).await;
        assert!(matches!(read, ReadResult::Unwatchable(_)), "{read:?}");
        let read = watches(&server, vec![GROUP.to_owned()]).read(&good).await;
        assert!(matches!(read, ReadResult::Listed(_)), "{read:?}");
    }
}
