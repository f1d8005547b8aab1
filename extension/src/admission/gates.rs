//! Reviews of UpgradeGates, whose authors need rights, see [`sluice_core::admission::upgrade_gate`].
//!
//! The management API server decides these rights. No review waits for a list.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, Client, api::PostParams, discovery::Scope};
use serde::Deserialize;
use sluice_core::{
    admission::{
        Verdict,
        upgrade_gate::{
            Author, CheckedKind, GateLookups, GateReview, GateVerdict, GateWrite, NeededLookups, Right,
            Served, judge,
        },
    },
    decode::OF_TENANT,
    rbac::missing_rule,
};
use sluice_crds::decode::{self, Limit};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    kept::Text,
    lookups::LATE,
    wire::{Changed, Malformed, Object, changed, text},
};
use crate::kube_client::{
    bounded::{Bounds, REQUEST, bounded},
    middleware::Transport,
    responses::{code, served_in},
};

/// Concurrent requests of all reviews. API servers limit the share of each client.
const REQUESTS: usize = 16;

/// Maximum size of a response: the list of the resources of a group.
const LARGEST: usize = 1024 * 1024;

/// Review of a gate.
#[derive(Debug)]
pub(super) struct Review {
    /// UID that the response repeats.
    pub(super) uid: String,
    pub(super) namespace: String,
    /// Name of the gate; empty where the API server generates it.
    pub(super) name: String,
    /// Rights to ask for, or the verdict where it depends on none.
    pub(super) begun: Result<GateReview, Verdict>,
    /// Memory of the author, in bytes.
    pub(super) memory: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: Option<Text>,
}

/// Account in a review. None of its texts may be cut: another account may have the shorter name.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UserInfo {
    username: String,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

/// Parses the body of a review of an UpgradeGate. A gate that is being deleted is reviewed like any other: Sluice still reads its objects.
pub(super) fn parse(body: &[u8]) -> Result<Review, Malformed> {
    let of = ("lifecycle.sluice.dev", "v1alpha1", "UpgradeGate");
    let Changed {
        uid,
        namespace,
        name,
        objects,
        user,
    } = changed::<Object<'_, Metadata>>(body, of)?;
    let Some((new, old)) = objects else {
        return Ok(Review {
            uid,
            namespace,
            name: name.unwrap_or_default(),
            begun: Err(Verdict::default()),
            memory: 0,
        });
    };
    let user = user.ok_or_else(|| Malformed("request.userInfo is missing".to_owned()))?;
    let read = decode::from_str::<UserInfo>(user.get(), Limit::whole(OF_TENANT));
    let (user, memory) = read.map_err(|error| Malformed(format!("request.userInfo: {error}")))?;
    let name = name.or(new.metadata.name.as_ref().map(|name| name.0.clone()));
    let name = name.unwrap_or_default();
    let begun = GateReview::of(GateWrite {
        namespace: &namespace,
        name: &name,
        author: Author {
            name: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
        },
        spec: or_empty(text(&new)),
        old_spec: old.as_ref().map(|old| or_empty(text(old))),
    });
    Ok(Review {
        uid,
        namespace,
        name,
        begun,
        memory,
    })
}

/// Returns the text of an object without fields for an absent one.
fn or_empty(spec: &str) -> &str {
    if spec.is_empty() { "{}" } else { spec }
}

/// Asks the management API server for rights.
#[derive(Clone)]
pub struct Rights {
    client: Client,
    requests: Arc<Semaphore>,
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}

impl Rights {
    /// Creates lookups at the management API server. `client` has no rate limit, and no fence: each replica answers reviews, and a
    /// SubjectAccessReview stores nothing. Callers determine the number of requests, so no other part of Sluice uses its connections.
    #[must_use]
    pub fn new(client: impl Into<Transport>) -> Self {
        let bounds = Bounds {
            answer: LARGEST,
            ..REQUEST
        };
        Self {
            client: bounded(client, bounds).into_client(),
            requests: Arc::new(Semaphore::new(REQUESTS)),
        }
    }

    /// Judges a review. A lookup that exceeds `limit` has no result, so the gate is refused.
    pub(super) async fn judge(&self, review: &GateReview, limit: Duration) -> GateVerdict {
        let until = Instant::now() + limit;
        let mut finished = GateLookups::default();
        loop {
            let NeededLookups { kinds, rights } = match judge(review, &finished) {
                Ok(verdict) => return verdict,
                Err(needed) => needed,
            };
            let kinds = join_all(kinds.into_iter().map(|kind| async move {
                let found = self.before(until, self.kind(&kind)).await;
                (kind, found)
            }));
            let rights = join_all(rights.into_iter().map(|right| async move {
                let allowed = self.before(until, self.right(&right, review.author())).await;
                (right, allowed)
            }));
            let (kinds, rights) = tokio::join!(kinds, rights);
            finished.kinds.extend(kinds);
            finished.rights.extend(rights);
        }
    }

    /// Sends a request in its turn.
    async fn before<T>(
        &self,
        until: Instant,
        request: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let sent = async {
            let _one_of_all = self.requests.acquire().await;
            request.await
        };
        let late = |_elapsed| Err(LATE.to_owned());
        timeout_at(until, sent).await.unwrap_or_else(late)
    }

    /// Discovers a kind. A definition counts at once, so nothing is cached.
    async fn kind(&self, CheckedKind { api_version, kind }: &CheckedKind) -> Result<Served, String> {
        match served_in(&self.client, api_version, kind).await {
            Ok(Some((resource, Scope::Namespaced))) => Ok(Served::Namespaced {
                plural: resource.plural,
            }),
            Ok(Some((_, Scope::Cluster))) => Ok(Served::ClusterWide),
            Ok(None) => Ok(Served::Nowhere),
            Err(error) => Err(reason(&error, || {
                format!("Sluice may not discover {api_version}; bind ClusterRole system:discovery to it")
            })),
        }
    }

    async fn right(&self, right: &Right, author: &Author) -> Result<bool, String> {
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        match reviews
            .create(&PostParams::default(), &right.review(author))
            .await
        {
            Ok(reviewed) => Right::allowed(&reviewed),
            Err(error) => Err(reason(&error, || {
                let rule = missing_rule("create", "authorization.k8s.io", "subjectaccessreviews");
                format!("Sluice may not ask for it; {rule}")
            })),
        }
    }
}

/// Returns why a request failed. `forbidden` is for a missing right of Sluice.
fn reason(error: &kube::Error, forbidden: impl FnOnce() -> String) -> String {
    match code(error) {
        Some(403) => forbidden(),
        Some(code) => format!("the API server answers with {code}"),
        None => "the API server does not answer".to_owned(),
    }
}
