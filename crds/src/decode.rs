//! Decoding within a limit of memory.
//!
//! Who may create an object chooses its content, and `{"a":0}` takes seven bytes as text and more than 600 as a
//! [`Value`](serde_json::Value). So what a type builds is counted while it is decoded, by the sizes of its elements, and decoding ends
//! where that exceeds a limit. What a type skips costs nothing.

mod brief;
mod counted;
mod metadata;
mod rest;
mod text;

use std::{cell::Cell, collections::BTreeMap};

use serde::{Deserialize, Deserializer, de::Error as _};

pub(crate) use self::counted::ELEMENT;
use self::{brief::brief, counted::Counted};
pub use self::{rest::rest, text::Text};
use crate::{foreign, free_form};

/// What one decoding may still build.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// Bytes.
    limit: usize,
    /// Bytes of it that are left.
    left: usize,
    /// Whether the object cannot be decoded, whatever part of it that is in.
    has_failed: bool,
    /// Whether only the part of an object is kept that Sluice reads.
    is_projected: bool,
    /// Bytes of free-form values that may still be kept.
    free_form: usize,
    /// Whether errors of parts that are read from their text name the field in it.
    names_fields: bool,
}

thread_local! {
    /// That of the decoding that is under way: parts of an object are read from their text, by a deserializer of their own.
    static BUDGET: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// How an error begins that says that a limit is exceeded.
pub const EXCEEDED: &str = "it takes more than ";

/// Within what an object is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes of memory that may be built.
    pub memory: usize,
    /// Whether labels and annotations that nothing reads are dropped beyond [`UNREAD`], and of free-form values the digest alone is kept
    /// beyond [`free_form::LONGEST`].
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

/// Bytes of labels, and of annotations, that are kept of an object although nothing reads them.
pub const UNREAD: usize = 4 * 1024;

impl Limit {
    /// An object that is kept: only what is read of it.
    #[must_use]
    pub const fn projected(memory: usize) -> Self {
        Self {
            memory,
            is_projected: true,
        }
    }

    /// An object as it is.
    #[must_use]
    pub const fn whole(memory: usize) -> Self {
        Self {
            memory,
            is_projected: false,
        }
    }
}

/// Decodes `json`, and says how many bytes of memory that took.
///
/// # Errors
/// It is none of `T`, or takes more than `limit`.
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str, limit: Limit) -> serde_json::Result<(T, usize)> {
    let mut reading = serde_json::Deserializer::from_str(json);
    let (decoded, left) = within(limit, false, || T::deserialize(Counted::new(&mut reading)));
    let decoded = decoded?;
    reading.end()?;
    Ok((decoded, limit.memory - left))
}

/// Why `json` is none of `T`: the path of the field, and what is wrong with it; none where it is one.
#[must_use]
pub fn why<T: for<'de> Deserialize<'de>>(json: &str, limit: Limit) -> Option<(String, String)> {
    let mut reading = serde_json::Deserializer::from_str(json);
    let counted = Counted::new(&mut reading);
    let (decoded, _) = within(limit, true, || serde_path_to_error::deserialize::<_, T>(counted));
    let error = decoded.err()?;
    let outer = brief(error.path());
    let text = brief(error.into_inner());
    let mut parts: Vec<&str> = text.split(IN).collect();
    let what = parts.pop().unwrap_or_default().to_owned();
    let mut path = outer;
    for part in parts {
        if !part.starts_with('[') {
            path.push('.');
        }
        path.push_str(part);
    }
    Some((path, what))
}

/// Calls `decode` with this budget. Returns as well what is left of it.
fn within<R>(limit: Limit, names_fields: bool, decode: impl FnOnce() -> R) -> (R, usize) {
    /// Puts the budget back, also after a panic.
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
        names_fields,
    })));
    let decoded = decode();
    let left = BUDGET.get().map_or(0, |budget| budget.left);
    (decoded, left)
}

/// Decodes a part of an object with a limit of its own, which is less than that of the object. Without a limit on the object there is
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

/// Whether only what is read of an object is kept.
pub(crate) fn is_projected() -> bool {
    BUDGET.get().is_some_and(|budget| budget.is_projected)
}

/// Bytes of free-form values that may still be kept of the object.
pub(crate) fn free_form_left() -> usize {
    BUDGET.get().map_or(usize::MAX, |budget| budget.free_form)
}

/// Keeps so many bytes of free-form values.
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
/// The text is none of `T`, or the budget is exceeded.
pub fn nested<'de, T: Deserialize<'de>>(json: &'de str) -> serde_json::Result<T> {
    let mut reading = serde_json::Deserializer::from_str(json);
    let counted = Counted::new(&mut reading);
    if !BUDGET.get().is_some_and(|budget| budget.names_fields) {
        return T::deserialize(counted).inspect_err(fails_all);
    }
    serde_path_to_error::deserialize(counted).map_err(|error| {
        let path = brief(error.path());
        let error = error.into_inner();
        fails_all(&error);
        if path == "." {
            error
        } else {
            in_field(&path, &error)
        }
    })
}

/// Text that serde_json does not read is no value of another shape: then the object cannot be decoded.
fn fails_all(error: &serde_json::Error) {
    if !error.is_data() {
        BUDGET.set(BUDGET.get().map(|budget| Budget {
            has_failed: true,
            ..budget
        }));
    }
}

/// Between the path of a part of an object, and of a field in this part or what is wrong with it.
const IN: char = '\u{1f}';

/// The same error, which is in this field of a part of an object: a name, or an index in brackets.
pub(crate) fn in_field(field: &str, error: &serde_json::Error) -> serde_json::Error {
    let text = brief(error);
    let text = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(text, _position)| text);
    serde_json::Error::custom(format_args!("{}{IN}{text}", brief(field)))
}

/// A part of an object that is left out where it has another shape, or where nothing reads it: what it has taken is given back.
///
/// # Errors
/// The budget is exceeded, or the text cannot be read: that is the matter of the whole object.
pub(crate) fn lenient<T, E: serde::de::Error>(
    read: impl FnOnce() -> serde_json::Result<Option<T>>,
) -> Result<Option<T>, E> {
    let before = BUDGET.get();
    let read = read();
    if let Err(error) = &read {
        fails_all(error);
    }
    match read {
        Ok(Some(read)) => Ok(Some(read)),
        Err(error) if BUDGET.get().is_some_and(|budget| budget.has_failed) => Err(E::custom(brief(error))),
        Ok(None) | Err(_) => {
            BUDGET.set(before);
            Ok(None)
        }
    }
}

/// Takes so many bytes.
///
/// # Errors
/// There are not so many left.
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

/// Gives back what was taken for something that did not come.
fn give_back(bytes: usize) {
    if let Some(budget) = BUDGET.get() {
        BUDGET.set(Some(Budget {
            left: budget.left + bytes,
            ..budget
        }));
    }
}
