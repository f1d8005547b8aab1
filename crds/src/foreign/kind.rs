//! Declaration of foreign kinds for a Kubernetes client.

/// Declares a foreign kind: the root object, read leniently and written with `apiVersion` and `kind`.
///
/// kube's derive is for own kinds: it requires a spec and a status of the right shape.
macro_rules! foreign_kind {
    (
        $(#[$doc:meta])*
        $kind:ident in $group:literal / $version:literal, $name:literal, $plural:literal,
        spec: $spec:ty $(, status: $status:ty)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $kind {
            /// Name, namespace, labels, annotations, owners, generation and the rest.
            #[serde(default)]
            pub metadata: kube::core::ObjectMeta,
            /// The spec.
            #[serde(default, deserialize_with = "crate::foreign::lenient::or_default")]
            pub spec: $spec,
            $(
                /// The status.
                #[serde(default, deserialize_with = "crate::foreign::lenient::or_default")]
                pub status: Option<$status>,
            )?
        }

        impl kube::Resource for $kind {
            type DynamicType = ();
            type Scope = kube::core::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $name.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;

                let mut object = serializer.serialize_struct($name, 5)?;
                object.serialize_field("apiVersion", concat!($group, "/", $version))?;
                object.serialize_field("kind", $name)?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                $(
                    let status: &Option<$status> = &self.status;
                    if let Some(status) = status {
                        object.serialize_field("status", status)?;
                    }
                )?
                object.end()
            }
        }
    };
}

pub(crate) use foreign_kind;
