//! Generates the tables of reasons in `docs/failure-modes.md` from the declarations of the reasons.

use std::fmt::Write as _;

use super::{CallReason, GateReason, PackageReason};

/// Path of the page with the tables, relative to the root of the repository.
pub const PAGE: &str = "docs/failure-modes.md";

/// Table row of one reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) reason: &'static str,
    /// From its doc comment.
    pub(super) meaning: &'static str,
    /// Places where operators find the reason.
    pub(super) carried_by: &'static str,
    pub(super) what_to_do: &'static str,
}

/// Table below one heading of the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) heading: &'static str,
    pub(super) rows: &'static [Row],
}

/// Declares reasons by heading: meaning, carriers and remedy of each.
macro_rules! held {
    ($(#[$of:meta])* $Reason:ident: $($heading:literal {
        $($(#[doc = $meaning:literal])+ $name:ident($carried_by:literal): $what_to_do:literal,)+
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
                        what_to_do: $what_to_do,
                    }),+],
                }),+
            ];
        }
    };
}

pub(super) use held;

/// Returns `page` with its tables regenerated.
///
/// # Errors
/// Returns an error if the page lacks the heading of a table, or a table below it.
pub fn with_tables(page: &str) -> Result<String, String> {
    let tables = [CallReason::TABLES, GateReason::TABLES, PackageReason::TABLES].concat();
    tables
        .iter()
        .try_fold(page.to_owned(), |page, table| table.put_into(&page))
}

impl Table {
    fn put_into(&self, page: &str) -> Result<String, String> {
        let missing = || format!("{PAGE} has no table below heading {:?}", self.heading);
        let heading = format!("# {}\n", self.heading);
        let below = page.find(&heading).ok_or_else(missing)? + heading.len();
        let begin = below + page[below..].find("\n|").ok_or_else(missing)? + 1;
        let length = page[begin..].find("\n\n").ok_or_else(missing)? + 1;
        Ok(format!(
            "{}{}{}",
            &page[..begin],
            self.markdown(),
            &page[begin + length..]
        ))
    }

    fn markdown(&self) -> String {
        let mut text = "| reason | meaning | carried by | what to do |\n|---|---|---|---|\n".to_owned();
        for row in self.rows {
            let (meaning, carried_by) = (row.meaning.trim(), row.carried_by);
            let written = writeln!(
                text,
                "| `{}` | {meaning} | {carried_by} | {} |",
                row.reason, row.what_to_do
            );
            debug_assert!(written.is_ok(), "a String takes every line");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_put_below_its_heading_and_nothing_else_changes() {
        let tables = [CallReason::TABLES, GateReason::TABLES, PackageReason::TABLES].concat();
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
