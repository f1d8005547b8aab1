//! Asks the management API server who may see what, and remembers the answers for a short time.

use std::{net::IpAddr, sync::Mutex, time::Duration};

use k8s_openapi::{api::authentication::v1::TokenReview, api::authorization::v1::SubjectAccessReview};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use sluice_core::{
    error_chain::error_chain,
    status::{Refusal, UncachedCallers, User, access_review, allowed, token_review, user},
};
use tokio::{sync::Semaphore, time::timeout};
use tonic::Status;

use super::answers::Answers;
use crate::{
    clock::now,
    kube_client::bounded::{Bounds, REQUEST, bounded},
    lock::lock,
};

/// Reviews at once of what was accepted before, of what was not, and for streams that are open. Each has its own, so that none waits
/// for the others.
const KNOWN: usize = 4;
const UNKNOWN: usize = 4;
const LOOKS: usize = 4;

/// Callers with a token that was accepted before, and wait for a review.
const WAITING: usize = 256;

/// What one review may take.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(5),
    answer: 1024 * 1024,
    ..REQUEST
};

/// What a look may take at whether a stream may go on, with all waiting.
const LOOK: Duration = Duration::from_secs(10);

/// What a token is remembered by.
type Token = [u8; 32];

/// Who may see what.
pub(super) struct Access {
    client: Client,
    users: Answers<Token, Verdict<User>>,
    rights: Answers<(Token, String), Verdict<()>>,
    known: Semaphore,
    waiting: Semaphore,
    unknown: Semaphore,
    strangers: Mutex<UncachedCallers>,
    looks: Semaphore,
}

/// What the API server says.
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

/// Why it is asked who may see what.
#[derive(Clone, Copy)]
enum Asks {
    /// A call from this address.
    Call(IpAddr),
    /// A look at a stream that is open.
    Look,
}

impl Access {
    /// Asks by `client`, which nothing else uses.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client: bounded(client, BOUNDS),
            users: Answers::default(),
            rights: Answers::default(),
            known: Semaphore::new(KNOWN),
            waiting: Semaphore::new(WAITING),
            unknown: Semaphore::new(UNKNOWN),
            strangers: Mutex::default(),
            looks: Semaphore::new(LOOKS),
        }
    }

    /// The user with this token, who calls from this address and may see a namespace, or all of them where it is empty.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED, or that the API server does not say, or is not asked now.
    pub(super) async fn may_see(&self, token: &str, namespace: &str, peer: IpAddr) -> Result<User, Status> {
        self.user(token, namespace, Asks::Call(peer)).await
    }

    /// Whether the user with this token may still see what a stream of it shows.
    ///
    /// # Errors
    /// As those of [`Self::may_see`].
    pub(super) async fn still_may_see(&self, token: &str, namespace: &str) -> Result<(), Status> {
        let late = |_| Status::unavailable("the management API server does not say who may see what");
        let looked = timeout(LOOK, self.user(token, namespace, Asks::Look));
        looked.await.map_err(late)?.map(drop)
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

    /// The answer to what is asked, from memory, or by a review that has its turn.
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
        // Only the one who asks has to have a turn; those who wait for the same answer have not.
        let turn = async || match asks {
            Asks::Look => {
                let _turn = self.looks.acquire().await;
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

    /// One more review of what was never accepted, asked for from this address.
    fn uncached_caller(&self, address: IpAddr) -> Result<Stranger<'_>, Status> {
        let begun = lock(&self.strangers).begin(address, now());
        let counted_as = begun.map_err(|many| Status::resource_exhausted(many.to_string()))?;
        Ok(Stranger {
            of: &self.strangers,
            counted_as,
        })
    }

    async fn review<K: Review>(&self, review: &K) -> Result<K, Status> {
        let answer = Api::<K>::all(self.client.clone())
            .create(&PostParams::default(), review)
            .await;
        answer.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 403 => Status::unavailable(format!(
                "Sluice may not create a {}; apply the roles of manifests/base",
                K::kind(&())
            )),
            error => Status::unavailable(format!(
                "the management API server does not answer a {}: {}",
                K::kind(&()),
                error_chain(&error)
            )),
        })
    }
}

/// A review of what was never accepted. Dropping it ends it.
struct Stranger<'a> {
    of: &'a Mutex<UncachedCallers>,
    counted_as: IpAddr,
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        lock(self.of).end(self.counted_as);
    }
}

/// What is created to ask something, and kept nowhere.
trait Review: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug {}

impl Review for TokenReview {}
impl Review for SubjectAccessReview {}

fn refused(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Unknown => Status::unauthenticated(refusal.to_string()),
        Refusal::Denied { .. } => Status::permission_denied(refusal.to_string()),
    }
}
