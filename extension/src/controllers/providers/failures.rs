//! Configurations whose passes fail: they are tried again after growing delays.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::{core::DynamicObject, runtime::reflector::ObjectRef};

use crate::backoff::Backoff;

/// The first delay before a pass that failed is repeated.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// The longest one. What changes meanwhile wakes the configuration.
const MAX_DELAY: Duration = Duration::from_mins(1);

/// The configurations of which the last pass failed.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<HashMap<ObjectRef<DynamicObject>, Backoff>>);

impl Failures {
    /// A pass failed. Says when to look again.
    pub(super) fn failed(&self, config: ObjectRef<DynamicObject>) -> Duration {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let backoff = failures
            .entry(config)
            .or_insert_with(|| Backoff::new(MIN_DELAY, MAX_DELAY));
        backoff.failed()
    }

    /// A pass came to its end, or the configuration is gone.
    pub(super) fn forget(&self, config: &ObjectRef<DynamicObject>) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(config);
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;

    #[test]
    fn a_configuration_has_growing_delays_of_its_own() {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "FooConfig"));
        let config = |name: &str| ObjectRef::new_with(name, resource.clone()).within("team-a");
        let failures = Failures::default();
        let last = (0..40).map(|_| failures.failed(config("a"))).last();
        assert!(last >= Some(MAX_DELAY / 2));
        assert!(failures.failed(config("b")) <= MIN_DELAY * 2);

        failures.forget(&config("a"));
        assert!(failures.failed(config("a")) <= MIN_DELAY * 2, "begins again");
    }
}
