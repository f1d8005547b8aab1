//! Generates the tables of reasons in `docs/failure-modes.md` from the declarations of the reasons.

use std::fmt::{self, Write as _};

use super::{CallReason, CheckReason, GateReason, Overridable, PackageReason};

/// Path of the page with the tables, relative to the root of the repository.
pub const PAGE: &str = "docs/failure-modes.md";

/// What an operator does about a reason.
#[derive(Clone, Copy, Debug)]
pub(super) enum Remedy {
    /// The operator acts at once.
    Act(&'static str),
    /// The reason ends without an operator.
    Wait {
        /// How long it normally lasts.
        normally: &'static str,
        /// What to check if it lasts longer.
        then: &'static str,
    },
}

/// Declares what an operator does at once.
pub(super) const fn act(what: &'static str) -> Remedy {
    assert!(!what.is_empty(), "a reason without remedy");
    Remedy::Act(what)
}

/// Declares how long a reason lasts that ends without an operator, and what to check after that time.
pub(super) const fn wait(normally: &'static str, then: &'static str) -> Remedy {
    assert!(
        !normally.is_empty() && !then.is_empty(),
        "a reason without normal duration, or without a check after it"
    );
    Remedy::Wait { normally, then }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Act(what) => f.write_str(what),
            Self::Wait { normally, then } => write!(f, "nothing for {normally}; after that {then}"),
        }
    }
}

/// Declares a short text for a column of kubectl.
pub(super) const fn short(text: &'static str) -> &'static str {
    assert!(!text.is_empty(), "a reason without short text");
    text
}

/// Table row of one reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) reason: &'static str,
    /// From its doc comment.
    pub(super) meaning: &'static str,
    /// Places where operators find the reason.
    pub(super) carried_by: &'static str,
    /// Short text for a column of kubectl.
    pub(super) text: &'static str,
    pub(super) overridable: Overridable,
    pub(super) what_to_do: Remedy,
}

/// Table below one heading of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) heading: &'static str,
    pub(super) rows: &'static [Row],
}

/// Declares reasons by heading: meaning, carriers, short text, class, overrides that pass it, and remedy of each.
macro_rules! held {
    ($(#[$of:meta])* $Reason:ident: $($heading:literal {
        $($(#[doc = $meaning:literal])+ $name:ident($carried_by:literal): $text:literal, $class:ident, $overridable:ident, $what_to_do:expr,)+
    })+) => {
        $crate::reasons::reasons! {
            $(#[$of])* $Reason: $($($(#[doc = $meaning])+ $name,)+)+
        }

        impl $Reason {
            pub(super) const TABLES: &'static [super::table::Table] = &[
                $(super::table::Table {
                    heading: $heading,
                    rows: &[$(super::table::Row {
                        reason: stringify!($name),
                        meaning: concat!($($meaning),+),
                        carried_by: $carried_by,
                        text: $text,
                        overridable: $crate::reasons::Overridable::$overridable,
                        what_to_do: $what_to_do,
                    }),+],
                }),+
            ];

            /// Returns the short text for kubectl. No other reason has it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $($(Self::$name => const { super::table::short($text) }),+),+
                }
            }

            /// Returns the class.
            #[must_use]
            pub const fn class(self) -> $crate::reasons::Class {
                match self {
                    $($(Self::$name => $crate::reasons::Class::$class),+),+
                }
            }

            /// Returns which overrides pass the reason.
            #[must_use]
            pub const fn overridable(self) -> $crate::reasons::Overridable {
                match self {
                    $($(Self::$name => $crate::reasons::Overridable::$overridable),+),+
                }
            }
        }
    };
}

pub(super) use held;

/// Returns `page` with its tables regenerated.
///
/// # Errors
/// Returns an error if the page lacks the heading of a table, or a table below it.
pub fn with_tables(page: &str) -> Result<String, String> {
    let tables = tables();
    tables
        .iter()
        .try_fold(page.to_owned(), |page, table| table.put_into(&page))
}

/// Returns the text of the page at `path` with another table below a heading.
///
/// # Errors
/// Returns an error if the page lacks the heading, or a table below it.
pub(crate) fn put_table(page: &str, (path, heading): (&str, &str), table: &str) -> Result<String, String> {
    let missing = || format!("{path} has no table below heading {heading:?}");
    let heading = format!("# {heading}\n");
    let below = page.find(&heading).ok_or_else(missing)? + heading.len();
    let begin = below + page[below..].find("\n|").ok_or_else(missing)? + 1;
    let end = page[begin..]
        .find("\n\n")
        .map_or(page.len(), |length| begin + length + 1);
    Ok(format!("{}{table}{}", &page[..begin], &page[end..]))
}

/// All tables of the page.
fn tables() -> Vec<Table> {
    [
        CallReason::TABLES,
        GateReason::TABLES,
        PackageReason::TABLES,
        CheckReason::TABLES,
    ]
    .concat()
}

impl Table {
    fn put_into(&self, page: &str) -> Result<String, String> {
        put_table(page, (PAGE, self.heading), &self.markdown())
    }

    fn markdown(&self) -> String {
        let mut text =
            "| reason | meaning | carried by | short text | override | what to do |\n|---|---|---|---|---|---|\n".to_owned();
        for row in self.rows {
            let (meaning, carried_by) = (row.meaning.trim(), row.carried_by);
            let written = writeln!(
                text,
                "| `{}` | {meaning} | {carried_by} | {} | {} | {} |",
                row.reason, row.text, row.overridable, row.what_to_do
            );
            debug_assert!(written.is_ok(), "a String takes every line");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both reasons of each pair of texts of which one contains the other: a search for the text then finds both.
    fn shared(texts: &[(String, &'static str)]) -> Vec<String> {
        let pairs = texts
            .iter()
            .enumerate()
            .flat_map(|(at, one)| texts[at + 1..].iter().map(move |other| (one, other)));
        pairs
            .filter(|((_, one), (_, other))| one.contains(other) || other.contains(one))
            .map(|((one, text), (other, _))| format!("{one} and {other}: {text:?}"))
            .collect()
    }

    #[test]
    fn no_two_reasons_have_the_same_text() {
        let calls = CallReason::ALL
            .iter()
            .map(|r| (format!("CallReason::{r}"), r.text()));
        let gates = GateReason::ALL
            .iter()
            .map(|r| (format!("GateReason::{r}"), r.text()));
        let packages = PackageReason::ALL
            .iter()
            .map(|r| (format!("PackageReason::{r}"), r.text()));
        let checks = CheckReason::ALL
            .iter()
            .map(|r| (format!("CheckReason::{r}"), r.text()));
        let mut texts: Vec<_> = calls.chain(gates).chain(packages).chain(checks).collect();
        assert_eq!(shared(&texts), [""; 0]);

        texts.push(("PackageReason::New".to_owned(), PackageReason::AppNotFound.text()));
        assert_eq!(
            shared(&texts),
            [format!(
                "PackageReason::AppNotFound and PackageReason::New: {:?}",
                PackageReason::AppNotFound.text()
            )]
        );
    }

    #[test]
    fn a_remedy_is_an_action_or_a_wait_with_a_check_after_it() {
        assert_eq!(act("create it").to_string(), "create it");
        assert_eq!(
            wait("10 s", "check the log").to_string(),
            "nothing for 10 s; after that check the log"
        );
    }

    #[test]
    fn each_table_is_put_below_its_heading_and_nothing_else_changes() {
        let tables = tables();
        let below = tables.iter().map(|table| {
            let heading = table.heading;
            format!("## {heading}\n\nIntroduction.\n\n| stale |\n\nMore.\n\n")
        });
        let page = format!("# Page\n\n| other |\n|---|\n\n{}", below.collect::<String>());
        let written = with_tables(&page).unwrap();
        assert!(
            written.starts_with("# Page\n\n| other |\n|---|\n\n## "),
            "{written}"
        );
        assert!(!written.contains("stale"), "{written}");
        assert_eq!(
            written.matches("Introduction.\n\n| reason |").count(),
            tables.len()
        );
        assert_eq!(written.matches("|\n\nMore.").count(), tables.len());
        assert_eq!(with_tables(&written).as_deref(), Ok(written.as_str()));
        assert!(with_tables("# Page\n").unwrap_err().contains(PAGE));
    }
}
