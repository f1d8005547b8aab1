//! Answers hook calls as the product does, without the network: decode, decide, encode.

use bytes::Bytes;
use sluice_core::gate::decision::{CachedCluster, Knowledge, decide};
use sluice_core::gate::retry::RetryPolicy;
use sluice_crds::run::{Gate, SCHEMA, UpgradeRecord};
use sluice_hooks::{Hook, Reply, Request};

use crate::body;

/// A replica with one cluster in its cache.
#[derive(Debug)]
pub struct Answerer {
    record: UpgradeRecord,
    open: bool,
}

impl Answerer {
    /// Its gate is open.
    #[must_use]
    pub fn releasing() -> Self {
        Self::with_gate(true)
    }

    /// Its gate waits for a package.
    #[must_use]
    pub fn holding() -> Self {
        Self::with_gate(false)
    }

    fn with_gate(open: bool) -> Self {
        let gate = Gate {
            hook: Hook::BeforeClusterUpgrade,
            version: "v1.36.3".to_owned(),
            open,
            reason: if open { "" } else { "PackagesNotReady" }.to_owned(),
            message: if open { "" } else { "waiting for antrea 1.9.0" }.to_owned(),
        };
        let record = UpgradeRecord {
            schema: SCHEMA,
            cluster_uid: "115fb021-cf2d-4565-ba94-3899fae34981".to_owned(),
            observed_cluster_generation: 4,
            observed_bootstrap_generation: 1,
            label: body::LABEL.to_owned(),
            to: "v1.36.3".to_owned(),
            gates: vec![gate],
            ..UpgradeRecord::default()
        };
        Self { record, open }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        if self.open { "release" } else { "hold" }
    }

    /// The body of the answer; absent when the request cannot be understood.
    #[must_use]
    pub fn answer(&self, request: &[u8]) -> Option<Bytes> {
        let known = CachedCluster {
            record: Some(&self.record),
            bootstrap_generation: Some(1),
            ..CachedCluster::default()
        };
        let request = Request::parse(Hook::BeforeClusterUpgrade, request).ok()?;
        let call = request.call();
        let decision = decide(&call, &Knowledge::Managed(known), &RetryPolicy::default());
        Some(Reply::decided(call.hook, &decision).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_a_release_and_a_hold() {
        let body = body::of(Hook::BeforeClusterUpgrade, 14_000);
        let answer = |answerer: Answerer| answerer.answer(body.as_bytes()).unwrap();
        assert_eq!(
            answer(Answerer::releasing()),
            r#"{"status":"Success","message":"","retryAfterSeconds":0}"#
        );
        assert_eq!(
            answer(Answerer::holding()),
            r#"{"status":"Success","message":"PackagesNotReady: waiting for antrea 1.9.0","retryAfterSeconds":1}"#
        );
    }
}
