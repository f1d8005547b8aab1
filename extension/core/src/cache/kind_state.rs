//! How far the watch of a kind is that an object names.

use kube::core::ApiResource;

use super::{FINDING, Standing};

/// How far the watch of a kind is, whose objects are in an `S`.
#[derive(Debug, Clone)]
pub enum KindState<S> {
    /// Nothing is known yet, for some seconds at most.
    Reading,
    /// The store holds every object of the server.
    Readable {
        /// How the kind is served.
        resource: ApiResource,
        /// Its objects.
        store: S,
    },
    /// The API server does not serve the kind.
    Unserved,
    /// The kind cannot be read, and why: one line without any content of objects.
    Unreadable(String),
}

impl<S> KindState<S> {
    /// That of a kind whose watch panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self::Unreadable("its watch ended in a bug of Sluice; the log of Sluice says where".to_owned())
    }

    /// That of a kind of which the API server does not say how it is served.
    #[must_use]
    pub fn not_found_in_time() -> Self {
        Self::Unreadable(format!(
            "the API server did not say within {} s how it is served",
            FINDING.as_secs()
        ))
    }

    /// It is `next` from now on. Whether that is news: a failure that repeats itself is none.
    pub fn becomes(&mut self, next: Self) -> bool {
        let is_news = match (&*self, &next) {
            (Self::Unserved, Self::Unserved) => false,
            (Self::Unreadable(one), Self::Unreadable(other)) => one != other,
            _ => true,
        };
        *self = next;
        is_news
    }

    /// How far the kind is.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self {
            Self::Readable { .. } => Standing::Readable,
            Self::Reading => Standing::Reading,
            Self::Unserved | Self::Unreadable(_) => Standing::Unreadable,
        }
    }

    /// What is readable; `None` if the API server does not serve the kind.
    ///
    /// # Errors
    /// The kind cannot be read, or was not read in time, and why: one line without any content of objects.
    pub fn settled(self) -> Result<Option<(ApiResource, S)>, String> {
        match self {
            Self::Readable { resource, store } => Ok(Some((resource, store))),
            Self::Unserved => Ok(None),
            Self::Unreadable(why) => Err(why),
            Self::Reading => Err("nothing was listed in time".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_repeats_itself_is_no_news() {
        let unreadable = |why: &str| KindState::<()>::Unreadable(why.to_owned());
        let mut state = KindState::Reading;
        assert!(state.becomes(unreadable("a")));
        assert!(!state.becomes(unreadable("a")));
        assert!(state.becomes(unreadable("b")));
        assert!(state.becomes(KindState::Unserved));
        assert!(!state.becomes(KindState::Unserved));
        assert_eq!(state.standing(), Standing::Unreadable);
        assert!(state.settled().is_ok_and(|found| found.is_none()));
    }
}
