//! Responses to reviews, in the wire format of `admission.k8s.io/v1`.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};
use sluice_core::{
    admission::{Kind, Verdict},
    fault::Fault,
};

/// Object of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReviewedObject<'a> {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    pub(super) name: &'a str,
}

impl<'a> ReviewedObject<'a> {
    /// Creates the object for a kind of the addons-manager.
    pub(super) const fn kind(kind: Kind, name: &'a str) -> Self {
        Self {
            group: "run.tanzu.vmware.com",
            kind: kind.as_str(),
            name,
        }
    }

    pub(super) const fn cluster(name: &'a str) -> Self {
        Self {
            group: "cluster.x-k8s.io",
            kind: "Cluster",
            name,
        }
    }

    pub(super) const fn gate(name: &'a str) -> Self {
        Self {
            group: "lifecycle.sluice.dev",
            kind: "UpgradeGate",
            name,
        }
    }

    pub(super) const fn upgrade_override(name: &'a str) -> Self {
        Self {
            group: "lifecycle.sluice.dev",
            kind: "UpgradeOverride",
            name,
        }
    }
}

/// Maximum length of a warning that API servers show in full.
const LONGEST_WARNING: usize = 250;

/// Maximum number of warnings; API servers show 4 KiB of them.
const MOST_WARNINGS: usize = 15;

/// Builds a plain-text response, for a caller that is no API server or has to retry.
pub(super) fn plain(status: StatusCode, text: &str) -> Response {
    (status, text.to_owned()).into_response()
}

/// Builds the response to the review `uid` of an object, with an RFC 6902 patch where the object changes.
pub(super) fn reviewed(
    uid: &str,
    of: ReviewedObject<'_>,
    verdict: &Verdict,
    patch: Option<&str>,
) -> Response {
    let mut response = json!({"uid": uid, "allowed": verdict.faults.is_empty()});
    if !verdict.warnings.is_empty() {
        response["warnings"] = warnings(&verdict.warnings).into();
    }
    if let Some(patch) = patch {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(patch).into();
    }
    if !verdict.faults.is_empty() {
        response["status"] = status(of, &verdict.faults);
    }
    wrapped(&response)
}

/// Builds the response to the review `uid` of an object that is refused now, and may be admitted later.
pub(super) fn undecided(uid: &str, of: ReviewedObject<'_>, why: &str) -> Response {
    let ReviewedObject { group, kind, name } = of;
    let status = json!({
        "status": "Failure",
        "code": 503,
        "reason": "ServiceUnavailable",
        "message": format!("{kind}.{group} {name:?} is not reviewed: {why}"),
        "details": {"group": group, "kind": kind, "name": name},
    });
    wrapped(&json!({"uid": uid, "allowed": false, "status": status}))
}

fn wrapped(response: &Value) -> Response {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    });
    let mut answer = Response::new(Body::from(review.to_string()));
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

/// Builds the status of an invalid object like an API server: one line, and each field by itself.
fn status(ReviewedObject { group, kind, name }: ReviewedObject<'_>, faults: &[Fault]) -> Value {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let all = match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let causes: Vec<Value> = faults
        .iter()
        .map(|fault| {
            let message = format!("Invalid value: {:?}: {}", fault.value, fault.text);
            json!({"reason": "FieldValueInvalid", "field": fault.field, "message": message})
        })
        .collect();
    json!({
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": format!("{kind}.{group} {name:?} is invalid: {all}"),
        "details": {"group": group, "kind": kind, "name": name, "causes": causes},
    })
}

fn warnings(all: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = all.iter().take(MOST_WARNINGS).map(|each| cut(each)).collect();
    if all.len() > MOST_WARNINGS {
        shown.push(format!(
            "{} more warnings are left out",
            all.len() - MOST_WARNINGS
        ));
    }
    shown
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_WARNING) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
