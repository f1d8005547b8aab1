//! Errors with shortened values.

use std::fmt::{self, Write as _};

use serde::de::{Error, Expected, Unexpected};

/// Longest message, in bytes.
pub(super) const LONGEST: usize = 1024;

/// Longest value in a message, in bytes. Even with all its escapes it is shorter than the message.
const LONGEST_VALUE: usize = 64;

/// An error with a short message for any value: serde repeats a text of a wrong type with all its escapes.
#[derive(Debug)]
pub(super) struct Brief<E>(E);

impl<E> Brief<E> {
    pub(super) fn into_inner(self) -> E {
        self.0
    }
}

impl<E: fmt::Display> fmt::Display for Brief<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: std::error::Error> std::error::Error for Brief<E> {}

impl<E: Error> Error for Brief<E> {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(E::custom(brief(message)))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(E::invalid_type(beginning(found), expected))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self(E::invalid_value(beginning(found), expected))
    }
}

fn beginning(found: Unexpected<'_>) -> Unexpected<'_> {
    match found {
        Unexpected::Str(text) => Unexpected::Str(&text[..text.floor_char_boundary(LONGEST_VALUE)]),
        Unexpected::Bytes(bytes) => Unexpected::Bytes(&bytes[..bytes.len().min(LONGEST_VALUE)]),
        other => other,
    }
}

/// The beginning of a message.
pub(super) fn brief(message: impl fmt::Display) -> String {
    /// Accepts text up to the limit.
    struct Beginning(String);
    impl fmt::Write for Beginning {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = LONGEST - self.0.len();
            self.0.push_str(&text[..text.floor_char_boundary(room)]);
            if text.len() <= room {
                Ok(())
            } else {
                Err(fmt::Error)
            }
        }
    }
    let mut beginning = Beginning(String::new());
    // Fails if the message is longer.
    let _longer = write!(beginning, "{message}");
    beginning.0
}
