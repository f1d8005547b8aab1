//! Errors as texts of the log.

use std::fmt::{self, Write};

/// An error with its sources on one line.
#[must_use]
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut beginning = Beginning(String::new());
    for (index, error) in std::iter::successors(Some(error), |error| error.source()).enumerate() {
        let before = if index == 0 { "" } else { ": " };
        // An error says that there is no more room.
        if write!(beginning, "{before}{error}").is_err() {
            break;
        }
    }
    beginning.0
}

/// The beginning of a text. An API server chooses how long its message is, and kube's errors repeat it.
struct Beginning(String);

impl Beginning {
    /// Bytes that it has at most.
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

    /// An error with this message, because of another one.
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
    fn the_message_of_a_server_has_a_longest_length() {
        let text = error_chain(&Because("ä".repeat(1 << 20), None));
        assert!(
            (4000..=Beginning::LONGEST).contains(&text.len()),
            "{}",
            text.len()
        );
    }
}
