//! Authentication and authorization of callers by the management API server, cached for a short time.

use std::{net::IpAddr, sync::Mutex, time::Duration};

use k8s_openapi::{api::authentication::v1::TokenReview, api::authorization::v1::SubjectAccessReview};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use sluice_core::{error_chain::error_chain, lock::lock};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tonic::Status;

use super::{
    answers::Answers,
    reviews::{Refusal, User, access_review, allowed, token_review, user},
    uncached_callers::UncachedCallers,
};

/// Concurrent reviews: of callers accepted before, of other callers, and of open streams. Each class has its own limit, so that none waits
/// for another.
const KNOWN: usize = 4;
const UNKNOWN: usize = 4;
const REAUTHORIZATIONS: usize = 4;

/// Callers with a previously accepted token that may wait for a review.
const WAITING: usize = 256;

/// Timeout of one review.
const REVIEW: Duration = Duration::from_secs(5);

/// Timeout of the re-authorization of a stream, including all waits.
const REAUTHORIZATION: Duration = Duration::from_secs(10);

/// Digest of a token, its key in the cache.
type Token = [u8; 32];

/// Authorization of callers.
pub(super) struct Access {
    client: Client,
    users: Answers<Token, Verdict<User>>,
    rights: Answers<(Token, String), Verdict<()>>,
    known: Semaphore,
    waiting: Semaphore,
    unknown: Semaphore,
    uncached_callers: Mutex<UncachedCallers>,
    reauthorizations: Semaphore,
}

/// Result of a review.
#[derive(Clone)]
enum Verdict<V> {
    Accepted(V),
    Refused(Refusal),
}

impl<V> From<Result<V, Refusal>> for Verdict<V> {
    fn from(said: Result<V, Refusal>) -> Self {
        match said {
            Ok(said) => Self::Accepted(said),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// Origin of an authorization.
#[derive(Clone, Copy)]
enum Asks {
    /// Call from this address.
    Call(IpAddr),
    /// Re-authorization of an open stream.
    Reauthorization,
}

impl Access {
    /// Creates an authorization over `client`, which has no other user.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            users: Answers::default(),
            rights: Answers::default(),
            known: Semaphore::new(KNOWN),
            waiting: Semaphore::new(WAITING),
            unknown: Semaphore::new(UNKNOWN),
            uncached_callers: Mutex::default(),
            reauthorizations: Semaphore::new(REAUTHORIZATIONS),
        }
    }

    /// Returns the user of this token, who calls from this address and may see a namespace, or all namespaces for an empty one.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED, or an error while the API server does not respond or may not be called now.
    pub(super) async fn may_see(&self, token: &str, namespace: &str, peer: IpAddr) -> Result<User, Status> {
        self.user(token, namespace, Asks::Call(peer)).await
    }

    /// Checks whether the user of this token may still see the content of its stream.
    ///
    /// # Errors
    /// Same as [`Self::may_see`].
    pub(super) async fn still_may_see(&self, token: &str, namespace: &str) -> Result<(), Status> {
        let late = |_| Status::unavailable("the management API server did not authorize the caller in time");
        let authorized = timeout(
            REAUTHORIZATION,
            self.user(token, namespace, Asks::Reauthorization),
        );
        authorized.await.map_err(late)?.map(drop)
    }

    async fn user(&self, token: &str, namespace: &str, asks: Asks) -> Result<User, Status> {
        let digest: Token = Sha256::digest(token).into();
        let review = async || Ok(user(self.review(&token_review(token)).await?).into());
        let user = self.answer(&self.users, digest, asks, review).await?;
        let review = async || {
            let review: SubjectAccessReview = self.review(&access_review(&user, namespace)).await?;
            Ok(allowed(&review, &user, namespace).into())
        };
        let asked = (digest, namespace.to_owned());
        self.answer(&self.rights, asked, asks, review).await?;
        Ok(user)
    }

    /// Returns the result from the cache, or of a review once its turn comes.
    async fn answer<K, V>(
        &self,
        answers: &Answers<K, Verdict<V>>,
        asked: K,
        asks: Asks,
        review: impl AsyncFnOnce() -> Result<Verdict<V>, Status>,
    ) -> Result<V, Status>
    where
        K: Eq + std::hash::Hash + Clone,
        V: Clone,
    {
        let is_known = answers.was_accepted(&asked);
        // Only the caller that creates the review needs a turn, not those that wait for the same result.
        let turn = async || match asks {
            Asks::Reauthorization => {
                let _turn = self.reauthorizations.acquire().await;
                review().await
            }
            Asks::Call(_) if is_known => {
                let busy =
                    |_| Status::resource_exhausted("too many callers wait to be authenticated; try again");
                let _waits = self.waiting.try_acquire().map_err(busy)?;
                let _turn = self.known.acquire().await;
                review().await
            }
            Asks::Call(address) => {
                let _counted = self.uncached_caller(address)?;
                let _turn = self.unknown.acquire().await;
                review().await
            }
        };
        let place = answers.place(asked.clone());
        match place.get_or_try_init(turn).await?.clone() {
            Verdict::Accepted(said) => {
                answers.accepted(asked);
                Ok(said)
            }
            Verdict::Refused(refusal) => {
                answers.refused(&asked);
                Err(refused(&refusal))
            }
        }
    }

    /// Starts a review of an uncached caller at this address.
    fn uncached_caller(&self, address: IpAddr) -> Result<UncachedReview<'_>, Status> {
        let begun = lock(&self.uncached_callers).begin(address, Instant::now().into_std());
        let counted_as = begun.map_err(|many| Status::resource_exhausted(many.to_string()))?;
        Ok(UncachedReview {
            of: &self.uncached_callers,
            counted_as,
        })
    }

    async fn review<K: Review>(&self, review: &K) -> Result<K, Status> {
        let kind = K::kind(&());
        let unavailable = |why: String| {
            Status::unavailable(format!(
                "the management API server did not respond to a {kind}: {why}"
            ))
        };
        let (api, params) = (Api::<K>::all(self.client.clone()), PostParams::default());
        let answer = timeout(REVIEW, api.create(&params, review)).await;
        let answer = answer.map_err(|_| unavailable(format!("no answer within {REVIEW:?}")))?;
        answer.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 403 => Status::unavailable(format!(
                "Sluice may not create a {kind}; apply the roles of manifests/base"
            )),
            error => unavailable(error_chain(&error)),
        })
    }
}

/// Review of an uncached caller. Dropping it ends it.
struct UncachedReview<'a> {
    of: &'a Mutex<UncachedCallers>,
    counted_as: IpAddr,
}

impl Drop for UncachedReview<'_> {
    fn drop(&mut self) {
        lock(self.of).end(self.counted_as);
    }
}

/// Kind of object that is created as a request and never stored.
trait Review: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug {}

impl Review for TokenReview {}
impl Review for SubjectAccessReview {}

fn refused(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Unknown => Status::unauthenticated(refusal.to_string()),
        Refusal::Denied { .. } => Status::permission_denied(refusal.to_string()),
    }
}
