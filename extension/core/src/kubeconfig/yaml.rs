use serde_json::Value;
use serde_saphyr::{Error, budget::BudgetBreach};

use super::{MAX_BYTES, Refused};
use crate::strict_yaml;

/// Nesting limit, above that of any kubeconfig with extensions.
const MAX_DEPTH: usize = 32;

/// Reads the only document of a file, without anchors, aliases, merge keys, custom tags or repeated keys.
pub(super) fn read(bytes: &[u8]) -> Result<Value, Refused> {
    if bytes.len() > MAX_BYTES {
        return Err(Refused::TooLarge);
    }
    let text = str::from_utf8(bytes).map_err(|_| Refused::NotText)?;
    // The reader's own message may quote the file, so only its kind and line are kept.
    serde_saphyr::from_str_with_options(text, strict_yaml::options(MAX_DEPTH)).map_err(|error| {
        let line = error.location().map_or(0, |location| location.line());
        match error.without_snippet() {
            Error::Budget {
                breach: BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. },
                ..
            }
            | Error::MergeKeyNotAllowed { .. }
            | Error::UnknownAnchor { .. } => Refused::Alias { line },
            Error::DuplicateMappingKey { .. } => Refused::DuplicateKey { line },
            _ => Refused::Malformed { line },
        }
    })
}
