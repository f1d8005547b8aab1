//! Namespace and name of one Cluster.

use std::{fmt, sync::Arc};

use kube::{ResourceExt, core::ObjectMeta};

/// Reference to one Cluster, or to an object with its namespace and name. Caches keep many of them, so it is one pointer to one text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterRef(Arc<str>);

impl ClusterRef {
    /// Returns the reference with this namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// Returns the reference of an object.
    #[must_use]
    pub fn of(object: &impl ResourceExt) -> Self {
        Self::in_meta(object.meta())
    }

    /// Returns the reference in the metadata of an object.
    #[must_use]
    pub fn in_meta(meta: &ObjectMeta) -> Self {
        Self::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        )
    }

    /// Namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or_default()
    }
}

impl fmt::Display for ClusterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClusterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_namespace_and_name() {
        let one = ClusterRef::new("team-a", "one");
        assert_eq!((one.namespace(), one.name()), ("team-a", "one"));
        assert_eq!(one.to_string(), "team-a/one");
        assert_eq!(ClusterRef::new("", "one").namespace(), "");
    }
}
