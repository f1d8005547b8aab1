//! Errors as texts of the log.

use std::fmt::{self, Write};

/// An error with its sources on one line.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut beginning = Beginning(String::new());
    for (index, error) in std::iter::successors(Some(error), |error| error.source()).enumerate() {
        let before = if index == 0 { "" } else { ": " };
        // An error means that the limit is reached.
        if write!(beginning, "{before}{error}").is_err() {
            break;
        }
    }
    beginning.0
}

/// Truncated text. An API server chooses the length of its message, and errors of kube-rs repeat it.
struct Beginning(String);

impl Beginning {
    /// Maximum length in bytes.
    const LONGEST: usize = 4 * 1024;
}

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = Self::LONGEST - self.0.len();
        let end = text.floor_char_boundary(room);
        self.0.push_str(&text[..end]);
        if end == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error with a message and a source.
    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Because(String, #[source] Option<std::io::Error>);

    #[test]
    fn a_chain_names_every_source() {
        let source = std::io::Error::other("the source");
        let error = Because("the error".to_owned(), Some(source));
        assert_eq!(error_chain(&error), "the error: the source");
    }

    #[test]
    fn server_messages_are_truncated() {
        let text = error_chain(&Because("ä".repeat(1 << 20), None));
        assert!(
            (4000..=Beginning::LONGEST).contains(&text.len()),
            "{}",
            text.len()
        );
    }
}
