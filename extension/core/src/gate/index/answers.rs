//! Last decision per hook and Cluster, for log lines on change only.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

use crate::gate::{decision::Decision, hook_call::HookCall};

/// Maximum number of cached decisions. Beyond it all are dropped, which costs one log line each.
const LIMIT: usize = 32 * 1024;

/// Last decisions as hashes: 16 bytes per hook, Cluster and version.
#[derive(Debug, Default)]
pub struct Answers {
    hasher: RandomState,
    last: HashMap<u64, u64>,
}

impl Answers {
    /// Whether the decision differs from the previous one in reason or message.
    pub fn is_new(&mut self, call: &HookCall<'_>, decision: &Decision) -> bool {
        let question = self.hasher.hash_one((call.uid, call.hook.as_str(), call.version));
        let answer = match decision {
            Decision::Release => self.hash(&"release"),
            Decision::Hold { message, .. } => self.hash(message),
        };
        if self.last.len() >= LIMIT && !self.last.contains_key(&question) {
            self.last.clear();
        }
        self.last.insert(question, answer) != Some(answer)
    }

    fn hash(&self, what: &impl Hash) -> u64 {
        self.hasher.hash_one(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gate::{hook_call::Hook, retry::RetryPolicy},
        reasons::{GateReason, HoldReason},
    };

    fn call(uid: &str) -> HookCall<'_> {
        HookCall {
            hook: Hook::BeforeClusterUpgrade,
            namespace: "team-a",
            name: "one",
            uid,
            generation: 1,
            label: None,
            labels: None,
            version: "v1.36.3",
            first_step: None,
            deleted_at: None,
            now: None,
            clock: None,
        }
    }

    fn hold(message: &str) -> Decision {
        Decision::Hold {
            retry_after: RetryPolicy::default().retry_after("uid", std::time::Duration::ZERO),
            reason: HoldReason::Gate(GateReason::PackagesNotReady),
            message: message.to_owned(),
        }
    }

    #[test]
    fn a_decision_is_new_once() {
        let mut answers = Answers::default();
        assert!(answers.is_new(&call("a"), &hold("antrea")));
        assert!(!answers.is_new(&call("a"), &hold("antrea")));
        assert!(answers.is_new(&call("b"), &hold("antrea")), "of another Cluster");
        assert!(answers.is_new(&call("a"), &hold("metrics")), "another package");
        assert!(answers.is_new(&call("a"), &Decision::Release));
        assert!(!answers.is_new(&call("a"), &Decision::Release));
    }

    #[test]
    fn cached_decisions_are_bounded() {
        let mut answers = Answers::default();
        for number in 0..=LIMIT {
            answers.is_new(&call(&number.to_string()), &Decision::Release);
        }
        assert!(answers.last.len() <= LIMIT);
    }
}
