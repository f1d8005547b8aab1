//! Write fence: blocks writes of a process that may have lost the lease.
//!
//! A process that was stopped for a while continues in the middle of a reconcile, and another replica may lead by then. Each write request
//! is therefore checked against the end of the lease by this process's own monotonic clock. A request that was sent earlier and arrives
//! late is refused by its precondition: writes of Clusters, ClusterBootstraps, PackageInstalls and Secrets of configurations carry one.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use crate::{
    kube_client::middleware::{Transport, middleware},
    lock::lock,
};

/// Reason for not sending a request.
#[derive(Debug, thiserror::Error)]
#[error("the lease was not renewed in time, another replica may lead")]
pub struct NotLeading;

/// Time until which this process may write. Clones share it.
#[derive(Debug, Clone)]
pub struct Fence(Arc<Mutex<Open>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// No other replica exists.
    Always,
    /// Writes are allowed until then; none before the lease was held.
    Until(Option<Instant>),
}

impl Fence {
    /// Creates a fence for a single replica.
    #[must_use]
    pub fn open() -> Self {
        Self(Arc::new(Mutex::new(Open::Always)))
    }

    /// Creates a fence for a replica that has to acquire the lease first.
    #[must_use]
    pub fn closed() -> Self {
        Self(Arc::new(Mutex::new(Open::Until(None))))
    }

    /// Allows writes until `then`, the end of the lease.
    pub fn open_until(&self, then: Instant) {
        self.set(Open::Until(Some(then)));
    }

    /// Blocks writes after the loss of the lease.
    pub fn close(&self) {
        self.set(Open::Until(None));
    }

    fn set(&self, open: Open) {
        *lock(&self.0) = open;
    }

    /// Returns whether a write may be sent at `now`.
    #[must_use]
    pub fn lets_write(&self, now: Instant) -> bool {
        match *lock(&self.0) {
            Open::Always => true,
            Open::Until(then) => then.is_some_and(|then| now < then),
        }
    }

    /// Returns a transport that refuses to send writes while the fence is closed. It sends reads and watches.
    #[must_use]
    pub fn guard(&self, inner: impl Into<Transport>) -> Transport {
        let fence = self.clone();
        middleware(inner, move |inner, request| {
            let writes = !request.method().is_safe();
            let held = writes && !fence.lets_write(Instant::now());
            async move {
                if held {
                    return Err(NotLeading.into());
                }
                inner.send(request).await
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client,
        api::{DeleteParams, Patch, PatchParams, PostParams},
        client::Body,
    };

    use super::*;

    /// Client that receives an empty ConfigMap for each request.
    fn answered() -> Client {
        let answer =
            |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec()))) };
        Client::new(tower::service_fn(answer), "default")
    }

    fn is_refused<T>(result: kube::Result<T>) -> bool {
        match result {
            Err(kube::Error::Service(error)) => error.is::<NotLeading>(),
            _ => false,
        }
    }

    /// Returns whether each kind of write is refused.
    async fn refused(fence: &Fence) -> [bool; 4] {
        let api = Api::<ConfigMap>::default_namespaced(fence.guard(answered()).into_client());
        let object = ConfigMap::default();
        [
            is_refused(api.create(&PostParams::default(), &object).await),
            is_refused(api.replace("one", &PostParams::default(), &object).await),
            is_refused(
                api.patch("one", &PatchParams::default(), &Patch::Merge(&object))
                    .await,
            ),
            is_refused(api.delete("one", &DeleteParams::default()).await),
        ]
    }

    #[tokio::test]
    async fn only_what_holds_the_lease_writes() {
        let fence = Fence::closed();
        assert_eq!(refused(&fence).await, [true; 4], "before it was held");
        fence.open_until(Instant::now() + Duration::from_mins(1));
        assert_eq!(refused(&fence).await, [false; 4], "while it is held");
        fence.open_until(Instant::now());
        assert_eq!(refused(&fence).await, [true; 4], "once its time is over");
        fence.open_until(Instant::now() + Duration::from_mins(1));
        fence.close();
        assert_eq!(refused(&fence).await, [true; 4], "once it is lost");
        assert_eq!(
            refused(&Fence::open()).await,
            [false; 4],
            "without any other replica"
        );
    }

    #[tokio::test]
    async fn reading_needs_no_lease() {
        let client = Fence::closed().guard(answered()).into_client();
        let api = Api::<ConfigMap>::default_namespaced(client);
        assert!(api.get("one").await.is_ok());
    }
}
