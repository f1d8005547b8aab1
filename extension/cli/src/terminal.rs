//! Terminal output: width, colours, and escaping of control characters.

use std::{
    borrow::Cow,
    env,
    fmt::Write as _,
    io::{self, Write as _},
};

use console::{Style, Term, truncate_str};

/// Standard output.
#[derive(Debug)]
pub(super) struct Terminal {
    /// Characters of a line; `None` for unlimited lines, as in a file.
    width: Option<usize>,
    colours: bool,
}

impl Terminal {
    /// Returns the terminal of this process. Honours `NO_COLOR`, `CLICOLOR_FORCE`, `CLICOLOR` and `TERM=dumb`, in this order.
    pub(super) fn of_process() -> Self {
        let term = Term::stdout();
        Self {
            width: term.is_term().then(|| usize::from(term.size().1)),
            // `console` ranks CLICOLOR_FORCE higher. An empty NO_COLOR has no effect, see https://no-color.org.
            colours: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                && console::colors_enabled(),
        }
    }

    #[cfg(test)]
    pub(super) const fn of(width: Option<usize>, colours: bool) -> Self {
        Self { width, colours }
    }

    /// Renders a text in a style, on terminals with colours.
    pub(super) fn styled(&self, style: Style, text: &str) -> String {
        style.force_styling(self.colours).apply_to(text).to_string()
    }

    /// Shortens a line to the width.
    pub(super) fn fit<'a>(&self, line: &'a str) -> Cow<'a, str> {
        match self.width {
            Some(width) if width > 0 => truncate_str(line, width, "…"),
            _ => line.into(),
        }
    }

    /// Prints a line, shortened to the width.
    pub(super) fn line(&self, line: &str) -> io::Result<()> {
        print(&self.fit(line))
    }
}

/// Prints a line unchanged.
pub(super) fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Whether a terminal interprets the character: control characters, and those that change the text direction.
fn directs(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes terminal control in a JSON or YAML document, as strings of JSON and YAML escape it.
pub(super) fn escaped(document: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c != '\n' && directs(c);
    if !document.contains(is_escaped) {
        return document.into();
    }
    let mut escaped = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if is_escaped(c) {
            let _never = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped.into()
}

/// Escapes terminal control in a text of a Cluster.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if !text.contains(directs) {
        return text.into();
    }
    let mut cleaned = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if directs(c) {
            let _never = write!(cleaned, "{}", c.escape_default());
        } else {
            cleaned.push(c);
        }
    }
    cleaned.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_directs_a_terminal_is_written_out() {
        assert_eq!(clean("waiting for antrea – 1.0"), "waiting for antrea – 1.0");
        assert_eq!(
            clean("\u{1b}[2Ja\r\nb\u{9b}c\u{202e}d\0"),
            "\\u{1b}[2Ja\\r\\nb\\u{9b}c\\u{202e}d\\u{0}"
        );
    }

    #[test]
    fn a_line_fits_whatever_colours_it_has() {
        let narrow = Terminal::of(Some(6), true);
        let line = format!("{} and more", narrow.styled(Style::new().red(), "open"));
        let fitted = narrow.fit(&line).into_owned();
        assert_eq!(console::strip_ansi_codes(&fitted), "open …");
        assert!(fitted.contains("\u{1b}[31m"), "{fitted:?}");
        assert_eq!(Terminal::of(None, false).fit(&line), line.as_str());
        assert_eq!(
            Terminal::of(None, false).styled(Style::new().red(), "open"),
            "open"
        );
    }
}
