//! Regular expressions of `matches()`.

use regex_lite::{Regex, RegexBuilder};

use crate::text::one_line;

/// Longest pattern, in bytes.
const LONGEST: usize = 256;

/// Largest programs of a pattern, in bytes. The time to match a text is that of its bytes times that of the program.
const SIZES: [usize; 4] = [1024, 2048, 4096, 8192];

/// Deepest groups of a pattern.
const NESTING: u32 = 16;

/// Longest problem in a message, in characters.
const LONGEST_PROBLEM: usize = 128;

/// Regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    regex: Regex,
    /// Upper bound of the size of the program, in bytes.
    size: usize,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The problem, as one line.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!(
                "has a pattern of {} bytes; write at most {LONGEST}",
                text.len()
            ));
        }
        let mut problem = String::new();
        for size in SIZES {
            match RegexBuilder::new(text)
                .size_limit(size)
                .nest_limit(NESTING)
                .build()
            {
                Ok(regex) => {
                    return Ok(Self {
                        text: text.to_owned(),
                        regex,
                        size,
                    });
                }
                Err(error) => problem = error.to_string(),
            }
        }
        let problem = one_line(&problem, LONGEST_PROBLEM);
        Err(format!(
            "has a pattern that does not compile: {problem}; correct it, or shorten its repetitions"
        ))
    }

    /// Text of the pattern.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the cost of a match per byte of the text, in bytes that are compared in the same time.
    pub(super) fn cost(&self) -> u64 {
        u64::try_from(self.size / 2).unwrap_or(u64::MAX)
    }

    /// Returns about the memory of the pattern, with what a match needs.
    pub(super) const fn memory(&self) -> usize {
        4 * self.size
    }

    /// Whether a part of the text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}
