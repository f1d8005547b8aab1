//! Asks the management API server who may see what, and remembers the answers for a short time.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{api::authentication::v1::TokenReview, api::authorization::v1::SubjectAccessReview};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use sluice_core::{
    chain::chain,
    status::{Refusal, User, access_review, allowed, token_review, user},
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::Instant,
};
use tonic::Status;

use crate::{
    bounded::{Bounds, bounded},
    lock::lock,
    run::REQUEST,
};

/// How long an answer counts.
const KEPT: Duration = Duration::from_secs(10);

/// So many answers are kept.
const ANSWERS: usize = 4096;

/// Reviews at once.
const ASKED: usize = 8;

/// Callers that wait for one.
const WAITING: usize = 256;

/// What one review may take.
const BOUNDS: Bounds = Bounds {
    time: Duration::from_secs(5),
    answer: 1024 * 1024,
    ..REQUEST
};

/// What a token is remembered by.
type Token = [u8; 32];

/// Who may see what.
pub(super) struct Access {
    client: Client,
    users: Answers<Token, Result<User, Refusal>>,
    rights: Answers<(Token, String), Result<(), Refusal>>,
    asking: Semaphore,
    waiting: Semaphore,
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client: bounded(client, BOUNDS),
            users: Answers::default(),
            rights: Answers::default(),
            asking: Semaphore::new(ASKED),
            waiting: Semaphore::new(WAITING),
        }
    }

    /// The user with this token, who may see a namespace, or all of them where it is empty.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED, or that the API server does not say.
    pub(super) async fn may_see(&self, token: &str, namespace: &str) -> Result<User, Status> {
        let digest: Token = Sha256::digest(token).into();
        let known = self.users.answer(digest);
        let answer = known
            .get_or_try_init(async || Ok::<_, Status>(user(self.ask(&token_review(token)).await?)))
            .await?;
        let user = answer.as_ref().map_err(refused)?;
        let known = self.rights.answer((digest, namespace.to_owned()));
        let review = async || {
            let review: SubjectAccessReview = self.ask(&access_review(user, namespace)).await?;
            Ok::<_, Status>(allowed(&review, user, namespace))
        };
        known.get_or_try_init(review).await?.as_ref().map_err(refused)?;
        Ok(user.clone())
    }

    async fn ask<K>(&self, review: &K) -> Result<K, Status>
    where
        K: Review,
    {
        let busy = |_| Status::resource_exhausted("too many callers wait to be authenticated; try again");
        let _waits = self.waiting.try_acquire().map_err(busy)?;
        let _asks = self.asking.acquire().await;
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
                chain(&error)
            )),
        })
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

/// Answers by what was asked. Those who ask the same at once wait for one answer.
struct Answers<K, V>(Mutex<HashMap<K, Asked<V>>>);

/// When it was asked, and the answer once it is there.
type Asked<V> = (Instant, Arc<OnceCell<V>>);

impl<K, V> Default for Answers<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Answers<K, V> {
    /// The answer, which may have to be asked for.
    fn answer(&self, asked: K) -> Arc<OnceCell<V>> {
        let now = Instant::now();
        let counts = |at: &Instant| now.duration_since(*at) < KEPT;
        let mut answers = lock(&self.0);
        if let Some((at, answer)) = answers.get(&asked)
            && counts(at)
        {
            return Arc::clone(answer);
        }
        if answers.len() >= ANSWERS {
            answers.retain(|_, (at, _)| counts(at));
        }
        if answers.len() >= ANSWERS {
            answers.clear();
        }
        let answer = Arc::<OnceCell<V>>::default();
        answers.insert(asked, (now, Arc::clone(&answer)));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_ten_seconds() {
        let answers = Answers::<&str, u8>::default();
        assert_eq!(answers.answer("a").set(1), Ok(()));
        assert_eq!(answers.answer("b").get(), None);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(answers.answer("a").get(), Some(&1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(answers.answer("a").get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_so_many_answers_are_kept() {
        let answers = Answers::<usize, u8>::default();
        for number in 0..3 * ANSWERS {
            answers.answer(number);
        }
        assert!(lock(&answers.0).len() <= ANSWERS);
    }
}
