//! Texts of kapp and kapp-controller. Their wording is that of kapp `pkg/kapp/{clusterapply,resources,resourcesmisc}` and of
//! kapp-controller `pkg/packageinstall`; most of it is also in recorded runs.

use sluice_crds::run::HeldCause;

use super::cause::{Cause, LONGEST_EVIDENCE, held_cause};
use crate::text::one_line;

/// Longest kept text, in characters.
const LONGEST: usize = 4096;

/// Characters before the decisive words of a long text that the evidence keeps.
const BEFORE: usize = 128;

/// Errors of the PackageInstall and of the App of a package, each on one line: kapp breaks long errors anywhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts(Vec<(String, String)>);

impl Texts {
    /// Adds the error of an object, `App tkg-system/antrea`.
    pub fn add(&mut self, object: &str, error: &str) {
        // The App and its PackageInstall mostly have the same error.
        let text = one_line(error, LONGEST);
        if !text.is_empty() && !self.0.iter().any(|(_, known)| *known == text) {
            self.0.push((object.to_owned(), text));
        }
    }

    /// Returns the cause that a text names.
    pub(super) fn specific(&self) -> Option<HeldCause> {
        use Cause::{AdmissionDenied, DowngradeRefused, OwnershipConflict, RemovedAPI};
        let of_each: [(Cause, Find); 4] = [
            (AdmissionDenied, denied),
            (OwnershipConflict, owned),
            (RemovedAPI, removed),
            (DowngradeRefused, downgraded),
        ];
        of_each
            .into_iter()
            .find_map(|(cause, find)| self.cause(cause, find))
    }

    /// Returns the cause if kapp waited for too long.
    pub(super) fn timeout(&self) -> Option<HeldCause> {
        self.cause(Cause::KappTimeout, timed_out)
    }

    /// Whether there is no error but timeouts of kapp.
    pub(super) fn only_time_out(&self) -> bool {
        self.0.iter().all(|(_, text)| timed_out(text).is_some())
    }

    /// Returns the first text with its object.
    pub(super) fn first(&self) -> Option<(&str, &str)> {
        self.0
            .first()
            .map(|(object, text)| (object.as_str(), text.as_str()))
    }

    /// Returns the cause if a text has its words.
    fn cause(&self, cause: Cause, find: Find) -> Option<HeldCause> {
        self.0.iter().find_map(|(object, text)| {
            let (at, named) = find(text)?;
            let object = named.as_deref().unwrap_or(object);
            Some(held_cause(cause, object, &around(text, at)))
        })
    }
}

/// Finds the words of a cause: where they begin, and the object that the text names.
type Find = fn(&str) -> Option<(usize, Option<String>)>;

/// A webhook, a ValidatingAdmissionPolicy, or an admission plugin such as Pod Security or ResourceQuota.
fn denied(text: &str) -> Option<(usize, Option<String>)> {
    const FORBIDDEN: &str = " is forbidden: ";
    // An authorizer uses the same word: `is forbidden: User "…" cannot get …`.
    let by_plugin = text
        .match_indices(FORBIDDEN)
        .find(|(at, found)| !text[at + found.len()..].starts_with("User "));
    let at = text
        .find("denied the request")
        .or_else(|| text.find("denied request: "))
        .or_else(|| text.find("violates PodSecurity"))
        .or_else(|| by_plugin.map(|(at, _)| at))?;
    Some((at, applied(text)))
}

/// `- Resource 'configmap/a (v1) namespace: b' is already associated with a different app 'c' namespace: d (label 'e')`
fn owned(text: &str) -> Option<(usize, Option<String>)> {
    let at = text.find("is already associated with a different ")?;
    let before = text[..at].trim_end().strip_suffix('\'');
    let object = before.and_then(|before| before.rsplit_once('\''));
    Some((at, object.map(|(_, object)| object.to_owned())))
}

/// `Expected to find kind 'example.com/v1/Foo', but did not`, or `no matches for kind "Foo" in version "example.com/v1"`
fn removed(text: &str) -> Option<(usize, Option<String>)> {
    const EXPECTED: &str = "Expected to find kind '";
    const UNMATCHED: &str = "no matches for kind \"";
    if let Some(at) = text.find(EXPECTED) {
        let kind = text[at + EXPECTED.len()..].split('\'').next();
        return Some((at, kind.map(str::to_owned)));
    }
    let at = text.find(UNMATCHED)?;
    let mut parts = text[at + UNMATCHED.len()..].split('"');
    let (kind, version) = (parts.next().unwrap_or_default(), parts.nth(1));
    let named = version.map(|version| format!("{version}/{kind}"));
    Some((at, Some(named.unwrap_or_else(|| kind.to_owned()))))
}

/// `Stopped installing matched version '1.0.0' since last attempted version '2.0.0' is higher.`
fn downgraded(text: &str) -> Option<(usize, Option<String>)> {
    let at = text.find("Stopped installing matched version '")?;
    text[at..]
        .contains("last attempted version")
        .then_some((at, None))
}

/// `Timed out waiting after 15m0s for resources: [daemonset/a (apps/v1) namespace: b, …]`, or
/// `waiting on reconcile deployment/a (apps/v1) namespace: b: Errored: Resource timed out waiting after 5m0s`
fn timed_out(text: &str) -> Option<(usize, Option<String>)> {
    let at = text
        .find("Timed out waiting after ")
        .or_else(|| text.find("timed out waiting after "))?;
    let listed = text[at..]
        .split_once("for resources: [")
        .map(|(_, listed)| listed);
    let listed = listed.and_then(|listed| listed.split([',', ']']).next());
    let awaited = || {
        let (_, awaited) = text[..at].rsplit_once("waiting on reconcile ")?;
        awaited.split(": Errored").next()
    };
    Some((at, listed.or_else(awaited).map(str::to_owned)))
}

/// Returns the object that kapp was applying: `configmap/a (v1) namespace: b` of
/// `kapp: Error: update configmap/a (v1) namespace: b: Updating resource …`.
fn applied(text: &str) -> Option<String> {
    const NAMESPACE: &str = " namespace: ";
    const CLUSTER: &str = ") cluster";
    let (_, rest) = text.split_once("kapp: Error: ")?;
    let rest = ["create ", "update ", "delete "]
        .iter()
        .find_map(|verb| rest.strip_prefix(verb))?;
    let namespaced = rest.split_once(NAMESPACE).map(|(object, after)| {
        let namespace = after.split([':', ' ']).next().unwrap_or_default();
        (object, format!("{object}{NAMESPACE}{namespace}"))
    });
    let clustered = rest
        .split_once(CLUSTER)
        .map(|(object, _)| (object, format!("{object}{CLUSTER}")));
    let (_, named) = [namespaced, clustered]
        .into_iter()
        .flatten()
        .min_by_key(|(object, _)| object.len())?;
    Some(named)
}

/// Returns a text from a little before a place, so that the place is within the longest evidence.
fn around(text: &str, at: usize) -> String {
    if text.chars().count() <= LONGEST_EVIDENCE || at <= BEFORE {
        return text.to_owned();
    }
    let begin = text.ceil_char_boundary(at - BEFORE);
    format!("…{}", &text[begin..])
}
