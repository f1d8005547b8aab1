//! An error as one line of the log.

use std::fmt::{self, Write};

/// An error with its sources on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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

    /// What kube makes of an answer with this message.
    fn answer(message: &str) -> kube::Error {
        let status = kube::core::Status {
            message: message.to_owned(),
            ..kube::core::Status::default()
        };
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn a_chain_names_every_source() {
        let io = std::io::Error::other("the source");
        let error = anyhow::Error::new(io).context("the error");
        assert_eq!(chain(error.as_ref()), "the error: the source");
    }

    #[test]
    fn the_message_of_a_server_has_a_longest_length() {
        let text = chain(&answer(&"ä".repeat(1 << 20)));
        assert!(
            (4000..=Beginning::LONGEST).contains(&text.len()),
            "{}",
            text.len()
        );
    }
}
