//! Rules for the texts of an UpgradeGate.

use std::fmt;
use std::time::Duration;

use sluice_crds::lifecycle::UpgradeGateSpec;

use super::{CLUSTER, HOP};
use crate::names::{LONGEST_LABEL, LONGEST_NAME};
use crate::text::one_line;

/// Longest value in a message, in characters.
const LONGEST_VALUE: usize = 64;

/// Longest version, in characters.
const LONGEST_VERSION: usize = 256;

/// Invalid field, as one line: field, value and remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Invalid(String);

impl Invalid {
    /// Creates the error of a field with a value.
    pub(super) fn new(field: impl fmt::Display, value: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        let value = one_line(&value.to_string(), LONGEST_VALUE);
        Self(one_line(
            &format!("{field} is {value:?}: {remedy}"),
            16 * LONGEST_VALUE,
        ))
    }

    /// Creates the error of an absent field.
    pub(super) fn missing(field: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self(one_line(
            &format!("{field} is missing: {remedy}"),
            16 * LONGEST_VALUE,
        ))
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
