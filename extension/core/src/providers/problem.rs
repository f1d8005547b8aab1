//! Problems that prevent the computation of values: one vocabulary for conditions, events and metric labels.

use std::fmt;

use crate::reasons::reasons;

reasons! {
    /// Why a configuration is not ready.
    Reason:
    /// The configuration has no owner of kind Cluster.
    OwnerMissing,
    /// The Cluster that owns the configuration does not exist.
    ClusterNotFound,
    /// A user has paused the Cluster, and the configuration has no values for its present generation.
    ClusterPaused,
    /// The configuration cannot be read.
    ConfigUnreadable,
    /// The configuration sets no mode.
    ModeMissing,
    /// The label with the name of the package is missing or contains no version.
    PackageLabelMissing,
    /// The Cluster has no infrastructure object yet, or names one that does not exist.
    InfrastructureNotFound,
    /// The package does not support the kind of the infrastructure.
    InfrastructureUnknown,
    /// The control plane object or its machine template does not exist.
    ControlPlaneNotFound,
    /// The kind of the control plane is none of a control plane provider, or cannot be read.
    ControlPlaneKindUnreadable,
    /// The Cluster has no range of addresses.
    CIDRMissing,
    /// The Cluster has more than two ranges of addresses.
    CIDRTooMany,
    /// A range of addresses cannot be read, or is too small.
    CIDRInvalid,
    /// The Secret with credentials does not exist.
    CredentialsNotFound,
    /// The Secret with credentials lacks a key.
    CredentialsIncomplete,
    /// The Secret is a credential of Kubernetes or Cluster API, or its annotation does not list the namespace of the Cluster.
    CredentialsNotAllowed,
    /// An object that values are computed from cannot be decoded.
    ObjectUndecodable,
    /// The identity is of a kind that gives no credentials.
    IdentityUnknown,
    /// The identity does not exist, or is not ready.
    IdentityNotReady,
    /// The identity does not allow the namespace of the Cluster.
    IdentityNotAllowed,
    /// The verification of certificates is on, but there is no thumbprint.
    ThumbprintMissing,
    /// The address of the Supervisor is neither at its Service nor in cluster-info.
    SupervisorNotFound,
    /// A feature gate is not a boolean.
    FeatureGateInvalid,
    /// The reference to an NSX account is to something else.
    NsxProviderInvalid,
    /// The identity towards NSX is given twice.
    NsxSourcesAmbiguous,
    /// A name that is derived from the Cluster's is too long.
    NameTooLong,
}

/// Problem that prevents the computation of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Reason for conditions, events and metrics.
    pub reason: Reason,
    /// One line that names the object, the field, the value and the remedy, but never a credential.
    pub message: String,
}

impl Problem {
    /// Creates a problem with its message.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
