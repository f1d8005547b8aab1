//! Decoding within a memory limit.
//!
//! The creator of an object chooses its content, and `{"a":0}` takes seven bytes as text and more than 600 as a
//! [`Value`](serde_json::Value). So decoding counts the memory of the decoded value, by the sizes of its elements, and fails
//! at a limit. Skipped fields cost nothing.

mod brief;
mod counted;
mod fault;
mod rest;
mod text;

use std::{cell::Cell, collections::BTreeMap};

use serde::{Deserialize, Deserializer};

use self::{brief::brief, counted::Counted};
pub(crate) use self::{counted::ELEMENT, fault::is_in};
pub use self::{fault::Fault, rest::rest, text::Text};
use crate::{foreign, free_form};

/// Remaining budget of one decoding.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// The limit, in bytes.
    limit: usize,
    /// The remaining bytes.
    left: usize,
    /// Whether any part of the object is undecodable.
    has_failed: bool,
    /// Whether only the fields that Sluice reads are kept.
    is_projected: bool,
    /// Remaining bytes for free-form values.
    free_form: usize,
}

thread_local! {
    /// Budget of the current decoding: nested parts of an object are read from their text by their own deserializer.
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// Prefix of the error about an exceeded limit.
pub const EXCEEDED: &str = "it takes more than ";

/// Limits of a decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Memory limit, in bytes.
    pub memory: usize,
    /// Whether to drop unread labels and annotations beyond [`UNREAD`], and to keep only the digest of free-form values beyond
    /// [`free_form::LONGEST`].
    pub is_projected: bool,
}

/// The labels or annotations that Sluice [reads](crate::labels::is_read), of any object.
#[derive(Debug, Default)]
pub struct ReadEntries(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for ReadEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        foreign::lenient::read(deserializer).map(Self)
    }
}

/// Limit of unread labels, and of unread annotations, of an object: keys and the JSON of their values, in bytes.
pub const UNREAD: usize = 4 * 1024;

impl Limit {
    /// Limit for a stored object: keeps only the fields that Sluice reads.
    #[must_use]
    pub const fn projected(memory: usize) -> Self {
        Self {
            memory,
            is_projected: true,
        }
    }

    /// Limit for a whole object.
    #[must_use]
    pub const fn whole(memory: usize) -> Self {
        Self {
            memory,
            is_projected: false,
        }
    }
}

/// Decodes `json` and returns the memory of the value in bytes.
///
/// # Errors
/// `json` is not a `T`, or exceeds `limit`.
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str, limit: Limit) -> Result<(T, usize), Fault> {
    fault::forget_since(0);
    let mut reading = serde_json::Deserializer::from_str(json);
    let (decoded, left) = within(limit, || T::deserialize(Counted::new(&mut reading)));
    let decoded = decoded.map_err(Fault::of)?;
    reading.end().map_err(Fault::of)?;
    Ok((decoded, limit.memory - left))
}

/// Calls `decode` with this budget. Also returns the remaining budget.
fn within<R>(limit: Limit, decode: impl FnOnce() -> R) -> (R, usize) {
    /// Restores the budget, even after a panic.
    struct Restore(Option<Budget>);
    impl Drop for Restore {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }
    let _restore = Restore(BUDGET.replace(Some(Budget {
        limit: limit.memory,
        left: limit.memory,
        has_failed: false,
        is_projected: limit.is_projected,
        free_form: if limit.is_projected {
            free_form::LONGEST
        } else {
            usize::MAX
        },
    })));
    let decoded = decode();
    let left = BUDGET.get().map_or(0, |budget| budget.left);
    (decoded, left)
}

/// Decodes a part of an object with its own limit, which is less than that of the object. Without a limit on the object there is
/// none on the part.
pub(crate) fn part<R, E: serde::de::Error>(
    limit: usize,
    decode: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let Some(whole) = BUDGET.get() else {
        return decode();
    };
    let limit = limit.min(whole.limit);
    let granted = limit.min(whole.left);
    BUDGET.set(Some(Budget {
        limit,
        left: granted,
        ..whole
    }));
    let decoded = decode();
    if let Some(part) = BUDGET.get() {
        BUDGET.set(Some(Budget {
            limit: whole.limit,
            left: whole.left - (granted - part.left),
            ..part
        }));
    }
    decoded
}

/// Whether only the fields that Sluice reads are kept.
pub(crate) fn is_projected() -> bool {
    BUDGET.get().is_some_and(|budget| budget.is_projected)
}

/// Remaining bytes for free-form values of the object.
pub(crate) fn free_form_left() -> usize {
    BUDGET.get().map_or(usize::MAX, |budget| budget.free_form)
}

/// Takes this many bytes for a free-form value.
pub(crate) fn keep_free_form(bytes: usize) {
    if let Some(budget) = BUDGET.get() {
        BUDGET.set(Some(Budget {
            free_form: budget.free_form.saturating_sub(bytes),
            ..budget
        }));
    }
}

/// Reads a part of an object from its text, within the budget of the object.
///
/// # Errors
/// The text is not a `T`, or the budget is exceeded.
pub fn nested<'de, T: Deserialize<'de>>(json: &'de str) -> serde_json::Result<T> {
    let mut reading = serde_json::Deserializer::from_str(json);
    T::deserialize(Counted::new(&mut reading)).inspect_err(fails_all)
}

/// Marks the object as undecodable on a syntax error: unlike a value of another shape, such text cannot be ignored.
fn fails_all(error: &serde_json::Error) {
    if !error.is_data() {
        mark_failed();
    }
}

/// Returns an error that makes the object undecodable, also if it is in a part that may be left out.
fn fails<E: serde::de::Error>(message: &str) -> E {
    mark_failed();
    E::custom(message)
}

fn mark_failed() {
    BUDGET.set(BUDGET.get().map(|budget| Budget {
        has_failed: true,
        ..budget
    }));
}

/// Decodes a part of an object, or leaves it out if it has another shape or nothing reads it. Then the budget gets its bytes back.
///
/// # Errors
/// The budget is exceeded, or the text is not JSON: both fail the whole object.
pub(crate) fn lenient<T, E: serde::de::Error>(
    read: impl FnOnce() -> serde_json::Result<Option<T>>,
) -> Result<Option<T>, E> {
    let (before, depth) = (BUDGET.get(), fault::depth());
    let read = read();
    if let Err(error) = &read {
        fails_all(error);
    }
    match read {
        Ok(Some(read)) => Ok(Some(read)),
        Err(error) if BUDGET.get().is_some_and(|budget| budget.has_failed) => Err(E::custom(brief(error))),
        Ok(None) | Err(_) => {
            BUDGET.set(before);
            fault::forget_since(depth);
            Ok(None)
        }
    }
}

/// Takes this many bytes from the budget.
///
/// # Errors
/// The budget is exceeded.
pub(crate) fn take<E: serde::de::Error>(bytes: usize) -> Result<(), E> {
    let Some(budget) = BUDGET.get() else {
        return Ok(());
    };
    let left = budget.left.checked_sub(bytes);
    BUDGET.set(Some(Budget {
        left: left.unwrap_or_default(),
        has_failed: budget.has_failed || left.is_none(),
        ..budget
    }));
    match left {
        Some(_) => Ok(()),
        None => Err(E::custom(format_args!(
            "{EXCEEDED}{} KiB of memory",
            budget.limit / 1024
        ))),
    }
}

/// Returns bytes that were taken for a missing element.
fn give_back(bytes: usize) {
    if let Some(budget) = BUDGET.get() {
        BUDGET.set(Some(Budget {
            left: budget.left + bytes,
            ..budget
        }));
    }
}
