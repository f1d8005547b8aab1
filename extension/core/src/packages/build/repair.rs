//! What an object that exists lacks of what it is needed for.

/// What has to be done with an object that exists, so that it is as it is needed.
#[derive(Debug, Clone, PartialEq)]
pub enum Repair<K> {
    /// Nothing.
    NotNeeded,
    /// This one has to replace it. It carries the uid and the resourceVersion of the one that was found.
    Replace(Box<K>),
    /// It cannot be changed: it has to be deleted and created again.
    Recreate,
}

/// For objects that only have to exist.
#[must_use]
pub fn exists<K>(_wanted: &K, _found: &K) -> Repair<K> {
    Repair::NotNeeded
}
