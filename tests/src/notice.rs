//! Lines that a person must see, whatever the test runner captures and whether or not anyone listens to
//! traces.

use std::fmt::Display;
use std::io::Write;

/// Writes one line to standard error.
pub fn notice(text: impl Display) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "stack: {text}");
}
