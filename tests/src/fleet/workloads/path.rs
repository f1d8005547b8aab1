//! The path of an object or of a collection at an API server.

/// A path, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fleet) struct Path {
    /// Path of the collection.
    pub(in crate::fleet) collection: String,
    /// Name of the object; none of a collection. A subresource is the object.
    pub(in crate::fleet) name: Option<String>,
}

impl Path {
    /// Takes apart `/api/v1/…` or `/apis/<group>/<version>/…`.
    pub(in crate::fleet) fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let group = if parts.first() == Some(&"apis") { 3 } else { 2 };
        // A namespace is an object, too.
        let namespaced = parts.get(group) == Some(&"namespaces") && parts.len() > group + 2;
        let kind = group + if namespaced { 2 } else { 0 } + 1;
        Self {
            collection: format!("/{}", parts[..kind.min(parts.len())].join("/")),
            name: parts.get(kind).map(|name| (*name).to_owned()),
        }
    }

    /// Path of the object.
    pub(in crate::fleet) fn object(&self) -> String {
        format!("{}/{}", self.collection, self.name.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_objects_and_subresources_are_told_apart() {
        let of = |path: &str| {
            let path = Path::of(path);
            (path.collection, path.name)
        };
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(of("/api/v1/namespaces"), ("/api/v1/namespaces".into(), None));
        assert_eq!(
            of("/api/v1/namespaces/kube-system"),
            ("/api/v1/namespaces".into(), some("kube-system"))
        );
        assert_eq!(
            of("/api/v1/namespaces/a/secrets"),
            ("/api/v1/namespaces/a/secrets".into(), None)
        );
        assert_eq!(
            of("/apis/g/v1/namespaces/a/apps/b/status"),
            ("/apis/g/v1/namespaces/a/apps".into(), some("b"))
        );
        assert_eq!(
            of("/apis/g/v1/clusterroles/c"),
            ("/apis/g/v1/clusterroles".into(), some("c"))
        );
    }
}
