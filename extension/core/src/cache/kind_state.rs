//! State of the watch of a kind that an object names.

use kube::core::ApiResource;

use super::{FINDING, Standing};

/// State of the watch of a kind, with store `S`.
#[derive(Debug, Clone)]
pub enum KindState<S> {
    /// First list in progress, for some seconds at most.
    Reading,
    /// The store contains all objects of the API server.
    Readable {
        /// API resource of the kind.
        resource: ApiResource,
        /// Objects of the kind.
        store: S,
    },
    /// The API server does not serve the kind.
    Unserved,
    /// The kind cannot be read, for this reason: one line without object content.
    Unreadable(String),
}

impl<S> KindState<S> {
    /// Returns the state of a kind whose watch panicked.
    #[must_use]
    pub fn panicked() -> Self {
        Self::Unreadable("its watch panicked; see the log of Sluice".to_owned())
    }

    /// Returns the state of a kind whose API discovery timed out.
    #[must_use]
    pub fn not_found_in_time() -> Self {
        Self::Unreadable(format!(
            "the API server did not complete its API discovery within {} s",
            FINDING.as_secs()
        ))
    }

    /// Sets the state to `next`. Returns whether it changed; a repeated failure is no change.
    pub fn becomes(&mut self, next: Self) -> bool {
        let is_news = match (&*self, &next) {
            (Self::Unserved, Self::Unserved) => false,
            (Self::Unreadable(one), Self::Unreadable(other)) => one != other,
            _ => true,
        };
        *self = next;
        is_news
    }

    /// Returns the state without its content.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self {
            Self::Readable { .. } => Standing::Readable,
            Self::Reading => Standing::Reading,
            Self::Unserved | Self::Unreadable(_) => Standing::Unreadable,
        }
    }

    /// Returns the resource and store of a readable kind; `None` if the API server does not serve the kind.
    ///
    /// # Errors
    /// The reason why the kind cannot be read or was not read in time: one line without object content.
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
    fn a_repeated_failure_is_no_change() {
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
