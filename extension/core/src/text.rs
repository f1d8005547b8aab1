//! Sanitizes text of other components: bounded length, without terminal control characters.

/// Returns `text` as one line of at most `longest` characters. Each run of white space becomes one blank, control characters
/// are escaped.
#[must_use]
pub fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::new();
    // Each word has at least one character, so later words are cut off anyway.
    let words = text.split_whitespace().take(longest + 1);
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        escape(&mut line, word.chars().take(longest + 1), |_| false);
        if line.chars().count() > longest {
            break;
        }
    }
    bounded(line, longest)
}

/// Returns `text` with its line breaks, at most `longest` characters long. Control characters are escaped.
#[must_use]
pub fn lines(text: &str, longest: usize) -> String {
    let mut kept = String::new();
    escape(&mut kept, text.chars().take(longest + 1), |letter| {
        matches!(letter, '\n' | '\t')
    });
    bounded(kept, longest)
}

/// Whether a terminal interprets the character: control characters, and those that change the direction of text.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escape(into: &mut String, letters: impl Iterator<Item = char>, stays: impl Fn(char) -> bool) {
    for letter in letters {
        if acts(letter) && !stays(letter) {
            into.extend(letter.escape_default());
        } else {
            into.push(letter);
        }
    }
}

fn bounded(mut text: String, longest: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(longest) {
        let shorter = text.char_indices().nth(longest.saturating_sub(1));
        text.truncate(shorter.map_or(end, |(end, _)| end));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        let said = "ytt: \u{1b}[31mError\u{7}:\r\n  - no\tkey\u{0}\u{202e}";
        assert_eq!(
            one_line(said, 100),
            "ytt: \\u{1b}[31mError\\u{7}: - no key\\u{0}\\u{202e}"
        );
        assert_eq!(
            lines(said, 100),
            "ytt: \\u{1b}[31mError\\u{7}:\\r\n  - no\tkey\\u{0}\\u{202e}"
        );
    }

    #[test]
    fn text_is_bounded_in_characters() {
        for text in ["é".repeat(65_536), "é ".repeat(32_768), "\u{1b}".repeat(65_536)] {
            for longest in [1, 2, 160, 4096] {
                for kept in [one_line(&text, longest), lines(&text, longest)] {
                    assert_eq!(kept.chars().count(), longest, "{kept:?}");
                    assert!(kept.ends_with('…'), "{kept:?}");
                }
            }
        }
        assert_eq!(one_line("as it is", 8), "as it is");
        assert_eq!(lines("as it\nis", 8), "as it\nis");
        assert_eq!(one_line("", 8), "");
    }
}
