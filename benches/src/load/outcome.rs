//! Outcome of one call.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use sluice_hooks::Hook;

/// Characters that are kept of what an extension says.
const LONGEST: usize = 200;

/// A call that was answered as the Runtime SDK says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answered<'a> {
    /// Cluster API may go on.
    Released,
    /// Cluster API has to retry later: with this message.
    Held(Cow<'a, str>),
}

/// Why a call has no such answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// No connection could be made.
    Unreachable,
    /// The handshake failed, for one because of the certificate.
    Handshake,
    /// No answer in time.
    Timeout,
    /// The connection ended before the answer.
    Closed,
    /// The answer has another code than 200.
    Status,
    /// The answer is none that the hook has.
    WrongAnswer,
    /// The answer is a Failure.
    Failure,
    /// The call was due and never made, because all streams waited for answers.
    Unsent,
}

impl Kind {
    /// The name in reports.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "Unreachable",
            Self::Handshake => "Handshake",
            Self::Timeout => "Timeout",
            Self::Closed => "Closed",
            Self::Status => "Status",
            Self::WrongAnswer => "WrongAnswer",
            Self::Failure => "Failure",
            Self::Unsent => "Unsent",
        }
    }
}

/// Why a call has no answer, with what was seen.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    pub(super) kind: Kind,
    pub(super) what: String,
}

impl Unanswered {
    pub(super) fn new(kind: Kind, what: impl fmt::Display) -> Self {
        // One line, whatever an extension says.
        let shown = |character: char| if character.is_control() { ' ' } else { character };
        let what: String = what.to_string().trim().chars().map(shown).take(LONGEST).collect();
        Self { kind, what }
    }
}

impl fmt::Display for Unanswered {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.kind.as_str(), self.what)
    }
}

/// Fields of a response that Cluster API reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
    #[serde(default)]
    retry_after_seconds: Option<i32>,
}

/// Reads an answer as Cluster API does.
pub(super) fn read(hook: Hook, body: &[u8]) -> Result<Answered<'_>, Unanswered> {
    let wrong = |what: &dyn fmt::Display| Unanswered::new(Kind::WrongAnswer, what);
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(|error| wrong(&error))?;
    if let Some(kind) = answer.kind
        && !kind.is_empty()
        && kind.strip_suffix("Response") != Some(hook.as_str())
    {
        return Err(wrong(&format_args!(
            "kind {kind:?} in an answer to {hook}",
            hook = hook.as_str()
        )));
    }
    match (
        answer.status.as_ref(),
        answer.retry_after_seconds.unwrap_or_default(),
    ) {
        ("Success", 0) => Ok(Answered::Released),
        ("Success", 1..) => Ok(Answered::Held(answer.message.unwrap_or_default())),
        ("Success", seconds) => Err(wrong(&format_args!("retryAfterSeconds {seconds}"))),
        ("Failure", _) => Err(Unanswered::new(Kind::Failure, answer.message.unwrap_or_default())),
        (status, _) => Err(wrong(&format_args!("status {status:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_cluster_api_does() {
        fn kind(body: &str) -> Result<Answered<'_>, Kind> {
            read(Hook::BeforeClusterUpgrade, body.as_bytes()).map_err(|error| error.kind)
        }
        for (body, expected) in [
            (r#"{"status":"Success"}"#, Ok(Answered::Released)),
            (
                r#"{"kind":"","status":"Success","message":"a \"b\"","retryAfterSeconds":0}"#,
                Ok(Answered::Released),
            ),
            (
                r#"{"kind":"BeforeClusterUpgradeResponse","status":"Success","retryAfterSeconds":5}"#,
                Ok(Answered::Held(Cow::Borrowed(""))),
            ),
            (r#"{"status":"Failure","message":"no"}"#, Err(Kind::Failure)),
            (r#"{"status":"success"}"#, Err(Kind::WrongAnswer)),
            (r#"{"message":"ok"}"#, Err(Kind::WrongAnswer)),
            (
                r#"{"status":"Success","retryAfterSeconds":"5"}"#,
                Err(Kind::WrongAnswer),
            ),
            (
                r#"{"status":"Success","retryAfterSeconds":-5}"#,
                Err(Kind::WrongAnswer),
            ),
            (
                r#"{"kind":"DiscoveryResponse","status":"Success"}"#,
                Err(Kind::WrongAnswer),
            ),
            ("<html>", Err(Kind::WrongAnswer)),
        ] {
            assert_eq!(kind(body), expected, "{body}");
        }
    }
}
