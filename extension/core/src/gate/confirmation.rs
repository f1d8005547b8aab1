//! Confirmation of a release: the objects that it depends on are read from the API server after the call arrived, and the call is
//! decided again on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use kube::{
    Resource,
    core::{ApiResource, Status},
};
use serde::Deserialize;
use sluice_crds::{
    foreign::{Cluster, ClusterClass, MachineDeployment, MachinePool, Package},
    lifecycle::{ClusterUpgrade, UpgradeGate, UpgradeOverride},
    run::{ClusterBootstrap, ClusterBootstrapTemplate, TanzuKubernetesRelease},
};

use crate::{
    cache::{
        stored_kind::StoredKind,
        stores::{Found, FoundGate, GateKinds, Images, Releases, Stored, Stores},
    },
    decode::{Decode, Item, Undecodable},
    gate::{
        decision::{Decision, needs_no_knowledge, override_of},
        hook_call::{Hook, HookCall},
        index::{Index, Pace},
        retry::{RetryAfter, RetryPolicy},
    },
    packages::{bootstrap::Catalogue, requirements::ManagementPackages},
    protocol::{Key, Server},
    reasons::{CallReason, Hold, HoldReason},
    resolver::{asks, class_in_cache, class_of, requires_resolution},
};

/// Object that a release depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseObject {
    kind: ReadKind,
    /// Empty for a cluster-scoped kind.
    namespace: String,
    name: String,
}

impl ReleaseObject {
    /// Returns the ClusterBootstrap of this name.
    #[must_use]
    pub fn cluster_bootstrap(namespace: &str, name: &str) -> Self {
        Self::new(ReadKind::ClusterBootstrap, namespace, name)
    }

    /// Returns the Cluster of this name.
    #[must_use]
    pub fn cluster(namespace: &str, name: &str) -> Self {
        Self::new(ReadKind::Cluster, namespace, name)
    }

    fn new(kind: ReadKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the request of a read without resourceVersion: etcd answers it, not a cache of the API server.
    ///
    /// # Errors
    /// The name cannot be that of an object.
    pub fn request(&self) -> Result<http::Request<Vec<u8>>, NotConfirmed> {
        let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        if !is_name(&self.name) || !namespace.is_none_or(is_name) {
            return Err(NotConfirmed::Invalid);
        }
        let key = self.kind.key(namespace, &self.name);
        key.request().map_err(|_| NotConfirmed::Invalid)
    }

    /// Reads the object from a successful response.
    ///
    /// # Errors
    /// The text is not this object, not even an undecodable one.
    pub fn found(&self, text: &str) -> Result<ObjectRead, NotConfirmed> {
        let resource = self.kind.resource();
        let Ok(head) = serde_json::from_str::<Head>(text) else {
            return Err(NotConfirmed::Invalid);
        };
        let is_this = head.api_version == resource.api_version
            && head.kind == resource.kind
            && head.metadata.name == self.name
            && head.metadata.namespace.as_deref().unwrap_or_default() == self.namespace;
        if !is_this {
            return Err(NotConfirmed::Invalid);
        }
        self.kind.decode(text).ok_or(NotConfirmed::Invalid)
    }

    /// Reads the absence of the object from an error response. The path may not be served, as while an API server starts; so only a
    /// status that names the object counts.
    ///
    /// # Errors
    /// The response does not say that the object does not exist.
    pub fn absent(&self, status: &Status) -> Result<ObjectRead, NotConfirmed> {
        let resource = self.kind.resource();
        let names_it = status.details.as_ref().is_some_and(|details| {
            details.name == self.name && details.group == resource.group && details.kind == resource.plural
        });
        if status.code == 404 && status.reason == "NotFound" && names_it {
            Ok(self.kind.absent())
        } else {
            Err(NotConfirmed::Failed)
        }
    }

    /// Returns the hold of a call whose release depends on this object, which could not be read.
    #[must_use]
    pub fn not_confirmed(&self) -> Decision {
        let hold = Hold::new(
            HoldReason::Call(CallReason::ReleaseNotConfirmed),
            format!("waiting for a read of {self} from the API server"),
        );
        Decision::Hold {
            // The next attempt may be answered by another replica.
            retry_after: RetryAfter::SHORTEST,
            reason: hold.reason,
            message: hold.to_string(),
        }
    }
}

impl fmt::Display for ReleaseObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, .. } = self;
        write!(f, "{} ", self.kind.resource().kind)?;
        if !namespace.is_empty() {
            write!(f, "{namespace}/")?;
        }
        f.write_str(name)
    }
}

/// Identity of an object in a response.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
    metadata: HeadMetadata,
}

#[derive(Deserialize)]
struct HeadMetadata {
    name: String,
    namespace: Option<String>,
}

/// Whether a text of a call may be a name in a path.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.bytes().all(is_part) && text.bytes().any(|byte| byte != b'.')
}

/// Result of a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationResult {
    /// The call was released.
    Released,
    /// The call was held on the objects that were read.
    Held,
    /// The call was held because an object could not be read.
    NotConfirmed(NotConfirmed),
}

impl ConfirmationResult {
    /// All results.
    pub const ALL: [Self; 6] = [
        Self::Released,
        Self::Held,
        Self::NotConfirmed(NotConfirmed::Late),
        Self::NotConfirmed(NotConfirmed::Failed),
        Self::NotConfirmed(NotConfirmed::Invalid),
        Self::NotConfirmed(NotConfirmed::Limited),
    ];

    /// Returns the result of a decision on the objects that were read.
    #[must_use]
    pub const fn of(decision: &Decision) -> Self {
        match decision {
            Decision::Release => Self::Released,
            Decision::Hold { .. } => Self::Held,
        }
    }

    /// Returns the spelling in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "Released",
            Self::Held => "Held",
            Self::NotConfirmed(why) => why.as_str(),
        }
    }
}

/// Reason why an object could not be read for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotConfirmed {
    /// No complete response arrived in time.
    Late,
    /// The API server refused the read, or did not respond.
    Failed,
    /// The response is not an object of the kind.
    Invalid,
    /// Too many other reads were in flight.
    Limited,
}

impl NotConfirmed {
    /// Returns the spelling in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Late => "Late",
            Self::Failed => "Failed",
            Self::Invalid => "Invalid",
            Self::Limited => "Limited",
        }
    }
}

/// Defines the kinds that are read, and overrides their lookups.
macro_rules! read {
    ($($Kind:ident),+ $(,)?) => {
        /// Kind of an object that a release depends on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        enum ReadKind {
            $($Kind),+
        }

        /// State of an object as the API server has returned it.
        #[derive(Clone, Debug)]
        pub enum ObjectRead {
            $(
                #[doc = concat!("State of a ", stringify!($Kind), ".")]
                $Kind(Found<$Kind>)
            ),+
        }

        impl ReadKind {
            fn resource(self) -> ApiResource {
                match self {
                    $(Self::$Kind => ApiResource::erase::<$Kind>(&())),+
                }
            }

            fn key(self, namespace: Option<&str>, name: &str) -> Key {
                match self {
                    $(Self::$Kind => Key::of::<$Kind>(Server::Management, namespace, name)),+
                }
            }

            fn absent(self) -> ObjectRead {
                match self {
                    $(Self::$Kind => ObjectRead::$Kind(Ok(None))),+
                }
            }

            fn decode(self, text: &str) -> Option<ObjectRead> {
                Some(match self {
                    $(Self::$Kind => ObjectRead::$Kind(decode(text)?)),+
                })
            }
        }

        impl ObjectRead {
            /// Returns the resourceVersion of the object, if it exists.
            #[must_use]
            pub fn resource_version(&self) -> Option<&str> {
                match self {
                    $(Self::$Kind(found) => resource_version(found)),+
                }
            }
        }

        impl ReleaseObject {
            /// Returns the resourceVersion of the object in a cache, if it exists.
            #[must_use]
            pub fn cached_version(&self, stores: &impl Stores) -> Option<String> {
                let namespace = Some(self.namespace.as_str()).filter(|namespace| !namespace.is_empty());
                match self.kind {
                    $(ReadKind::$Kind => {
                        let found: Found<$Kind> = stores.found(namespace, &self.name);
                        resource_version(&found).map(str::to_owned)
                    }),+
                }
            }
        }

        $(impl<S: Stores> Stored<$Kind> for Confirmed<'_, S> {
            fn found(&self, namespace: Option<&str>, name: &str) -> Found<$Kind> {
                if self.reads.0.is_empty() {
                    return self.stores.found(namespace, name);
                }
                let object = ReleaseObject::new(ReadKind::$Kind, namespace.unwrap_or_default(), name);
                match self.reads.0.get(&object) {
                    Some(ObjectRead::$Kind(found)) => found.clone(),
                    _ => self.stores.found(namespace, name),
                }
            }

            fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<$Kind>> {
                self.stores.of_cluster(namespace, cluster)
            }

            fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
                Stored::<$Kind>::found(self, namespace, name).err()
            }

            fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
                Stored::<$Kind>::undecodable_of(self.stores, namespace, cluster)
            }
        })+
    };
}
read!(
    ClusterBootstrap,
    Cluster,
    ClusterClass,
    TanzuKubernetesRelease,
    ClusterUpgrade,
    UpgradeOverride
);

fn decode<K: Decode>(text: &str) -> Option<Found<K>> {
    Some(match Item::<K>::of(text)? {
        Item::Decoded(object) => Ok(Some(Arc::new(object))),
        Item::Undecodable(object) => Err(object.into()),
    })
}

fn resource_version<K: Resource>(found: &Found<K>) -> Option<&str> {
    match found {
        Ok(object) => object.as_deref()?.meta().resource_version.as_deref(),
        Err(undecodable) => undecodable.metadata.resource_version.as_deref(),
    }
}

impl ObjectRead {
    /// Returns the class of a Cluster that exists.
    #[must_use]
    pub fn class(&self) -> Option<ReleaseObject> {
        let (namespace, name) = class_of(self.cluster()?)?;
        Some(ReleaseObject::new(ReadKind::ClusterClass, &namespace, name))
    }

    /// Whether a Cluster, or this class of it, requests a resolution, or the class is not known.
    #[must_use]
    pub fn is_resolved(&self, class: &Self) -> bool {
        match (self.cluster(), class) {
            (Some(cluster), Self::ClusterClass(Ok(Some(class)))) => {
                asks(&cluster.metadata, Some(class)).is_some()
            }
            _ => true,
        }
    }

    /// Returns a ClusterBootstrap that exists.
    #[must_use]
    pub fn cluster_bootstrap(&self) -> Option<&ClusterBootstrap> {
        match self {
            Self::ClusterBootstrap(Ok(found)) => found.as_deref(),
            _ => None,
        }
    }

    fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Cluster(Ok(found)) => found.as_deref(),
            _ => None,
        }
    }
}

/// Objects that were read for one call.
#[derive(Clone, Debug, Default)]
pub struct Reads(BTreeMap<ReleaseObject, ObjectRead>);

impl Reads {
    /// Adds an object.
    pub fn add(&mut self, object: ReleaseObject, read: ObjectRead) {
        self.0.insert(object, read);
    }
}

/// Stores in which the objects that were read replace their cached states.
struct Confirmed<'a, S> {
    stores: &'a S,
    reads: &'a Reads,
}

/// Passes the lookups of kinds that are not read to the cache.
macro_rules! cached {
    ($($Kind:ty),+ $(,)?) => {
        $(impl<S: Stores> Stored<$Kind> for Confirmed<'_, S> {
            fn found(&self, namespace: Option<&str>, name: &str) -> Found<$Kind> {
                self.stores.found(namespace, name)
            }

            fn of_cluster(&self, namespace: &str, cluster: &str) -> Vec<Arc<$Kind>> {
                self.stores.of_cluster(namespace, cluster)
            }

            fn undecodable(&self, namespace: Option<&str>, name: &str) -> Option<Arc<Undecodable>> {
                Stored::<$Kind>::undecodable(self.stores, namespace, name)
            }

            fn undecodable_of(&self, namespace: &str, cluster: &str) -> Option<Arc<Undecodable>> {
                Stored::<$Kind>::undecodable_of(self.stores, namespace, cluster)
            }
        })+
    };
}
cached!(
    ClusterBootstrapTemplate,
    MachineDeployment,
    MachinePool,
    Package,
    UpgradeGate
);

impl<S: Stores> Stores for Confirmed<'_, S> {
    fn releases(&self) -> Arc<Releases> {
        self.stores.releases()
    }

    fn images(&self) -> Option<Arc<Images>> {
        self.stores.images()
    }

    fn undecodable_release(&self) -> Option<Arc<Undecodable>> {
        self.stores.undecodable_release()
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        self.stores.catalogue()
    }

    fn management_packages(&self) -> Arc<ManagementPackages> {
        self.stores.management_packages()
    }

    fn is_listed(&self, kind: StoredKind) -> bool {
        self.stores.is_listed(kind)
    }

    fn gates_of(&self, namespace: &str) -> Vec<FoundGate> {
        self.stores.gates_of(namespace)
    }

    fn gate_kinds(&self) -> GateKinds {
        self.stores.gate_kinds()
    }

    fn overrides_of(&self, namespace: &str, cluster: &str) -> Option<Vec<Arc<UpgradeOverride>>> {
        self.stores.overrides_of(namespace, cluster)
    }

    fn packages_enabled(&self) -> bool {
        self.stores.packages_enabled()
    }

    fn unlisted(&self) -> Option<StoredKind> {
        self.stores.unlisted()
    }
}

/// Progress of a confirmation.
#[derive(Debug)]
pub enum Confirmation {
    /// The call is decided.
    Decided(Decision),
    /// These objects must be read before the call can be released.
    Needs(BTreeSet<ReleaseObject>),
}

impl<S: Stores, N: Fn(&str) -> Option<Hold>> Index<'_, S, N> {
    /// Decides a call on the objects that were read after it arrived. It is released only if each object that the release depends on is
    /// among them. Without reads, this is the decision from the cache.
    #[must_use]
    pub fn confirm(&self, call: &HookCall<'_>, pace: &Pace, leaderless: bool, reads: &Reads) -> Confirmation {
        let stores = &Confirmed {
            stores: self.stores,
            reads,
        };
        let confirmed = Index {
            stores,
            system_namespace: self.system_namespace,
            hold_unresolved: self.hold_unresolved,
            note: &self.note,
        };
        let decision = confirmed.decide(call, pace, leaderless);
        if decision != Decision::Release {
            return Confirmation::Decided(decision);
        }
        let mut needs = confirmed.objects_of_release(call, &pace.policy);
        needs.retain(|object| !reads.0.contains_key(object));
        if needs.is_empty() {
            Confirmation::Decided(decision)
        } else {
            Confirmation::Needs(needs)
        }
    }

    /// Returns the objects that a release of the call depends on. All others can only hold it.
    fn objects_of_release(&self, call: &HookCall<'_>, policy: &RetryPolicy) -> BTreeSet<ReleaseObject> {
        let mut objects = if self.stores.packages_enabled() {
            self.objects_of_packages(call, policy)
        } else {
            BTreeSet::new()
        };
        // Also if the cache shows no gate: a gate that is in force is in the ClusterUpgrade.
        if self.needs_upgrade(call) {
            let upgrade = ReleaseObject::new(ReadKind::ClusterUpgrade, call.namespace, call.name);
            objects.insert(upgrade);
        }
        objects
    }

    /// Returns the override that has opened the gate of a call.
    fn override_of(&self, call: &HookCall<'_>) -> Option<ReleaseObject> {
        let bootstrap: Found<ClusterBootstrap> = self.stores.found(Some(call.namespace), call.name);
        let bootstrap = bootstrap.ok().flatten()?;
        let by = override_of(bootstrap.status.as_ref()?.upgrade.as_ref()?, call)?;
        Some(ReleaseObject::new(
            ReadKind::UpgradeOverride,
            call.namespace,
            &by.name,
        ))
    }

    /// Returns the objects that a release by the packages of the Cluster depends on.
    fn objects_of_packages(&self, call: &HookCall<'_>, policy: &RetryPolicy) -> BTreeSet<ReleaseObject> {
        if needs_no_knowledge(call, policy) {
            return BTreeSet::new();
        }
        let bootstrap = ReleaseObject::cluster_bootstrap(call.namespace, call.name);
        let cluster = ReleaseObject::new(ReadKind::Cluster, call.namespace, call.name);
        if self.manages(call) {
            let waits_for_nothing = call.hook == Hook::BeforeClusterCreate && self.is_custom(call);
            let mut objects = BTreeSet::from([if waits_for_nothing { cluster } else { bootstrap }]);
            objects.extend(self.override_of(call));
            return objects;
        }
        let mut objects = BTreeSet::from([bootstrap]);
        match call.label.filter(|label| !label.is_empty()) {
            // A deletion without a ClusterBootstrap is released whatever its release is.
            Some(_) if call.hook == Hook::BeforeClusterDelete => {}
            Some(label) => {
                objects.insert(ReleaseObject::new(ReadKind::TanzuKubernetesRelease, "", label));
            }
            None if self.hold_unresolved && requires_resolution(call.hook) => {
                let found = self.cluster(call.namespace, call.name);
                if let Some((namespace, name)) = class_in_cache(&found) {
                    objects.insert(ReleaseObject::new(ReadKind::ClusterClass, &namespace, name));
                }
                objects.insert(cluster);
            }
            None => {}
        }
        objects
    }
}
