//! The path of a fault.

use std::{cell::RefCell, fmt};

use super::brief::{LONGEST, brief};

thread_local! {
    /// Parts of the path of the current error, the innermost first.
    static PATH: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Why a text does not decode as a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field, for example `spec.packages[0].name`, or `.` for the whole object; at most 1 KiB. The creator of the object chooses names
    /// of fields.
    pub path: String,
    /// Its fault. It may repeat a part of the value.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path != "." {
            write!(f, "field {}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for Fault {}

impl Fault {
    /// Returns the fault that `error` and the recorded path describe.
    pub(super) fn of(error: serde_json::Error) -> Self {
        let mut path = String::new();
        for part in PATH.take().iter().rev() {
            if !path.is_empty() && !part.starts_with('[') {
                path.push('.');
            }
            path.push_str(part);
        }
        if path.is_empty() {
            ".".clone_into(&mut path);
        }
        path.truncate(path.floor_char_boundary(LONGEST));
        let text = brief(error);
        let what = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(what, _position)| what);
        Self {
            path,
            what: what.to_owned(),
        }
    }
}

/// Records that the error of a value is in this part of the object around it: a field, or an index in brackets.
pub(crate) fn is_in(part: impl fmt::Display) {
    PATH.with_borrow_mut(|path| path.push(brief(part)));
}

/// Returns the number of recorded parts.
pub(super) fn depth() -> usize {
    PATH.with_borrow(Vec::len)
}

/// Drops the parts that were recorded since then, because their error is ignored.
pub(super) fn forget_since(depth: usize) {
    PATH.with_borrow_mut(|path| path.truncate(depth));
}
