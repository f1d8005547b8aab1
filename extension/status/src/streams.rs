//! Limits of open streams, in total and per user.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use sluice_core::lock::lock;

use super::metrics::StatusMetrics;

/// Maximum number of open streams, which take some kilobytes each.
const ALL: usize = 2048;

/// Maximum number of open streams of one user.
const OF_ONE: usize = 1024;

/// Counter of open streams.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    open: Arc<Mutex<Open>>,
    metrics: StatusMetrics,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_user: HashMap<Arc<str>, usize>,
}

/// Open stream. Dropping it returns its slot.
#[derive(Debug)]
pub(super) struct Permit {
    streams: Streams,
    user: Arc<str>,
}

/// The limit of open streams is reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error(
        "{ALL} streams are open at this replica; try another replica, or watch a whole namespace with one stream"
    )]
    All,
    #[error("user {0:?} has {OF_ONE} streams open at this replica; watch a whole namespace with one stream")]
    OfOne(String),
}

impl Streams {
    pub(super) fn new(metrics: StatusMetrics) -> Self {
        Self {
            open: Arc::default(),
            metrics,
        }
    }

    /// Takes one more stream of a user.
    ///
    /// # Errors
    /// The limit of open streams is reached.
    pub(super) fn take(&self, user: &str) -> Result<Permit, Full> {
        let mut open = lock(&self.open);
        if open.all >= ALL {
            return Err(Full::All);
        }
        let own = open
            .by_user
            .get_key_value(user)
            .map(|(user, own)| (Arc::clone(user), *own));
        let (user, own) = own.unwrap_or_else(|| (user.into(), 0));
        if own >= OF_ONE {
            return Err(Full::OfOne(user.to_string()));
        }
        open.by_user.insert(Arc::clone(&user), own + 1);
        open.all += 1;
        self.metrics.streams.inc();
        drop(open);
        Ok(Permit {
            streams: self.clone(),
            user,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = lock(&self.streams.open);
        open.all -= 1;
        if let Some(own) = open.by_user.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                open.by_user.remove(&self.user);
            }
        }
        drop(open);
        self.streams.metrics.streams.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_streams_to_others() {
        let streams = Streams::new(StatusMetrics::default());
        let take = |user: &str| (0..).map_while(|_| streams.take(user).ok()).collect::<Vec<_>>();
        let mut ada = take("ada");
        assert_eq!(ada.len(), OF_ONE);
        assert_eq!(streams.take("ada").unwrap_err(), Full::OfOne("ada".to_owned()));
        let bob = take("bob");
        assert_eq!(bob.len(), ALL - OF_ONE);
        assert_eq!(streams.take("eve").unwrap_err(), Full::All);
        ada.pop();
        assert!(streams.take("ada").is_ok(), "one came back");
        drop((ada, bob));
        let open = lock(&streams.open);
        assert_eq!((open.all, open.by_user.len()), (0, 0), "nothing is kept");
        assert_eq!(streams.metrics.streams.get(), 0);
    }
}
