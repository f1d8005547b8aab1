//! Model of a replica that answers hooks: a cache of any age, and reads that confirm releases.

use std::time::Duration;

use kube::core::Status;
use serde_json::json;
use sluice_core::{
    gate::{
        confirmation::{Confirmation, NotConfirmed, ObjectRead, Reads, ReleaseObject},
        decision::Decision,
        hook_call::HookCall,
        index::{Index, Pace},
        stuck::Counted,
    },
    reasons::Hold,
};

use crate::{defect::Defect, servers::Servers, shown::Shown};

/// A replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    /// Objects in its caches.
    pub(crate) seen: Servers,
    pub(crate) defect: Option<Defect>,
}

impl Replica {
    /// Whether the replica releases a call. `servers` respond to its reads.
    pub(crate) fn releases(&self, servers: &Servers, call: &HookCall<'_>) -> bool {
        let call = match self.defect {
            Some(defect) => defect.called(call.clone()),
            None => call.clone(),
        };
        let stores = Shown(&self.seen);
        let index = Index {
            stores: &stores,
            system_namespace: "tkg-system",
            hold_unresolved: true,
            note: |_: &str| None::<Hold>,
        };
        let pace = Pace::of(call.uid, &Counted::default(), 600, Duration::ZERO);
        let mut reads = Reads::default();
        loop {
            match index.confirm(&call, &pace, false, &reads) {
                Confirmation::Decided(decision) => return decision == Decision::Release,
                Confirmation::Needs(_) if self.defect == Some(Defect::ReleaseNotConfirmed) => return true,
                Confirmation::Needs(objects) => {
                    for object in objects {
                        let found = respond(servers, &object).expect("a response");
                        reads.add(object, found);
                    }
                }
            }
        }
    }
}

/// Returns the response of the management API server to a read.
fn respond(servers: &Servers, object: &ReleaseObject) -> Result<ObjectRead, NotConfirmed> {
    let path = object.request()?.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let (group, namespace) = (parts[2], parts[5]);
    let (plural, name) = (parts[6], parts[7]);
    let place = (false, plural.to_owned(), namespace.to_owned(), name.to_owned());
    if let Some(found) = servers.get(&place) {
        return object.found(&found.to_string());
    }
    let details = json!({"name": name, "group": group, "kind": plural});
    let status = Status::failure("", "NotFound").with_code(404);
    object.absent(&status.with_details(serde_json::from_value(details).expect("details")))
}
