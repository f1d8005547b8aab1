//! Repair of existing objects that differ from the desired ones.

/// Action that turns an existing object into the desired one.
#[derive(Debug, Clone, PartialEq)]
pub enum Repair<K> {
    /// No action.
    NotNeeded,
    /// Replace the object with this one, which carries uid and resourceVersion of the existing object.
    Replace(Box<K>),
    /// Delete and recreate the object, because it is immutable.
    Recreate,
}

/// Repair of objects that only have to exist: none.
#[must_use]
pub fn exists<K>(_wanted: &K, _found: &K) -> Repair<K> {
    Repair::NotNeeded
}
