//! Calls of a run: hooks, bodies, and their order.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use serde::Deserialize;
use sluice_hooks::Hook;

use super::arguments::Arguments;
use super::target::Target;
use super::wire;
use crate::body;

/// A call that can be made any number of times.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) hook: Hook,
    uri: Uri,
    body: Bytes,
}

impl Call {
    pub(super) fn request(&self) -> Request<Full<Bytes>> {
        wire::request(&self.uri, self.body.clone())
    }
}

/// All calls, in turn.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    calls: Vec<Call>,
    timeout: Duration,
}

impl Calls {
    /// Makes the bodies, and asks the extension for its handlers.
    pub(super) async fn of(arguments: &Arguments, target: &Target) -> Result<Self> {
        let bodies = bodies(arguments)?;
        let mut hooks: Vec<Hook> = bodies.iter().map(|(hook, _)| *hook).collect();
        hooks.sort_unstable_by_key(|hook| hook.as_str());
        hooks.dedup();
        let handlers = target.handlers(&hooks).await?;
        let waits = handlers
            .iter()
            .map(|found| found.timeout)
            .max()
            .unwrap_or_default();
        let timeout = arguments.timeout.unwrap_or(waits);
        let call = |(hook, body): (Hook, Bytes)| {
            let handler = handlers.iter().find(|found| found.hook == hook);
            let path = handler.map(|found| found.path.as_str()).unwrap_or_default();
            let uri = target.uri(path, timeout)?;
            Ok(Call { hook, uri, body })
        };
        let calls: Vec<Call> = bodies.into_iter().map(call).collect::<Result<_>>()?;
        ensure!(!calls.is_empty(), "nothing to ask");
        Ok(Self { calls, timeout })
    }

    /// How long an answer is waited for: the longest time of all handlers that are called.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The call with a number.
    pub(super) fn nth(&self, number: u64) -> &Call {
        let turn = number % self.calls.len() as u64;
        &self.calls[usize::try_from(turn).unwrap_or_default()]
    }

    /// The sizes of bodies in bytes, from small to large.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<_> = self.calls.iter().map(|call| call.body.len()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The hooks that are called, each once.
    pub(super) fn hooks(&self) -> Vec<&'static str> {
        let mut hooks: Vec<_> = self.calls.iter().map(|call| call.hook.as_str()).collect();
        hooks.sort_unstable();
        hooks.dedup();
        hooks
    }
}

/// The bodies in the order of their turns. Shares are mixed: two of one hook do not follow each other while there are others.
fn bodies(arguments: &Arguments) -> Result<Vec<(Hook, Bytes)>> {
    if !arguments.bodies.is_empty() {
        return arguments.bodies.iter().map(|path| given(path)).collect();
    }
    let most = arguments.hooks.iter().map(|share| share.times).max().unwrap_or(1);
    let mut turns = Vec::new();
    for turn in 0..most {
        for size in &arguments.sizes {
            let due = arguments.hooks.iter().filter(|share| turn < share.times);
            turns.extend(due.map(|share| (share.hook, *size)));
        }
    }
    let mut made: Vec<(Hook, usize, Bytes)> = Vec::new();
    let mut bodies = Vec::new();
    for (hook, size) in turns {
        let before = made
            .iter()
            .find(|(of, of_size, _)| (*of, *of_size) == (hook, size));
        let body = if let Some((_, _, body)) = before {
            body.clone()
        } else {
            let body = Bytes::from(body::of(hook, size));
            made.push((hook, size, body.clone()));
            body
        };
        bodies.push((hook, body));
    }
    Ok(bodies)
}

/// A request from a file.
fn given(path: &std::path::Path) -> Result<(Hook, Bytes)> {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
    }
    let body = Arguments::read("--body", path)?;
    let head: Head = serde_json::from_slice(&body)
        .with_context(|| format!("--body {} is no request of a hook", path.display()))?;
    let is_named = |hook: &Hook| head.kind.strip_suffix("Request") == Some(hook.as_str());
    let hook = Hook::ALL.into_iter().find(is_named);
    let hook = hook.with_context(|| {
        format!(
            "--body {}: kind {:?} is no request of a lifecycle hook",
            path.display(),
            head.kind
        )
    })?;
    Ok((hook, body.into()))
}
