//! Rules for the texts of an UpgradeGate.

use std::fmt;
use std::time::Duration;

use sluice_crds::lifecycle::UpgradeGateSpec;

use super::{CLUSTER, HOP};
use crate::fault::Fault;
use crate::names::{LONGEST_LABEL, LONGEST_NAME};
use crate::text::one_line;

/// Longest value in a message, in characters.
const LONGEST_VALUE: usize = 64;

/// Longest version, in characters.
const LONGEST_VERSION: usize = 256;

/// Longest message, in characters.
const LONGEST_MESSAGE: usize = 16 * LONGEST_VALUE;

/// Invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    field: String,
    /// `None` for an absent field.
    value: Option<String>,
    remedy: String,
}

impl Invalid {
    /// Creates the error of a field with a value.
    pub(super) fn new(field: impl fmt::Display, value: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self {
            field: field.to_string(),
            value: Some(one_line(&value.to_string(), LONGEST_VALUE)),
            remedy: remedy.to_string(),
        }
    }

    /// Creates the error of an absent field.
    pub(super) fn missing(field: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self {
            field: field.to_string(),
            value: None,
            remedy: remedy.to_string(),
        }
    }
}

/// One line: field, value and remedy.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, remedy } = self;
        let line = match value {
            Some(value) => format!("{field} is {value:?}: {remedy}"),
            None => format!("{field} is missing: {remedy}"),
        };
        f.write_str(&one_line(&line, LONGEST_MESSAGE))
    }
}

impl From<Invalid> for Fault {
    fn from(Invalid { field, value, remedy }: Invalid) -> Self {
        let value = value.unwrap_or_else(|| "null".to_owned());
        Self::new(
            one_line(&field, LONGEST_MESSAGE),
            value,
            one_line(&remedy, LONGEST_MESSAGE),
        )
    }
}

/// Returns the deadline.
pub(super) fn deadline_of(spec: &UpgradeGateSpec) -> Result<Option<Duration>, Invalid> {
    match (&spec.deadline, spec.deadline()) {
        (Some(text), None) => {
            let remedy = "write hours, minutes and seconds, such as 45m or 1h30m";
            Err(Invalid::new("spec.deadline", text, remedy))
        }
        (_, deadline) => Ok(deadline),
    }
}

/// Whether this is a Kubernetes minor version, `1.35`.
pub(super) fn is_minor(text: &str) -> bool {
    let is_number = |part: &str| {
        part == "0" || !part.starts_with('0') && part.parse::<u32>().is_ok_and(|_| is_digits(part))
    };
    text.split_once('.')
        .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether this is a key of a version.
pub(super) fn is_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= LONGEST_LABEL && bytes.iter().all(good) && ends(bytes.first()) && ends(bytes.last())
}

/// Returns the remedy of a version that is none. Versions are compared byte for byte.
pub(super) fn refused_version(text: &str) -> Option<&'static str> {
    let is_range_sign = |letter: char| "*^~<>|!,".contains(letter) || letter.is_whitespace();
    if text.is_empty() || text.chars().count() > LONGEST_VERSION {
        return Some("write a version of 1 to 256 characters");
    }
    if text == "latest" {
        return Some("latest names no version, write the exact one");
    }
    let has_wildcard = text.contains(".x") || text.contains(".X");
    (has_wildcard || text.contains(is_range_sign) || text.contains(char::is_control))
        .then_some("a range names no version, write the exact one")
}

/// Whether this is a name of lower case letters, digits and dashes, as containers and namespaces have.
pub(super) fn is_container(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= LONGEST_LABEL
        && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
        && bytes.first().is_some_and(is_alphanumeric)
        && bytes.last().is_some_and(is_alphanumeric)
}

/// Whether this is an object name, with placeholders of Cluster and hop only.
pub(super) fn is_template(text: &str) -> bool {
    let name = text.replace(CLUSTER, "c").replace(HOP, "v");
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
    text.len() <= LONGEST_NAME
        && name.bytes().all(good)
        && name
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
}
