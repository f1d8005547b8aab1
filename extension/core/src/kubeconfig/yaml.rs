use serde_json::Value;
use serde_saphyr::{
    Error, Options,
    budget::BudgetBreach,
    options::{DuplicateKeyPolicy, MergeKeyPolicy},
};

use super::{MAX_BYTES, Refused};

/// Deeper than a kubeconfig with extensions gets.
const MAX_DEPTH: usize = 32;

/// The one document of a file, without anchors, aliases, merge keys, own tags or repeated keys.
pub(super) fn read(bytes: &[u8]) -> Result<Value, Refused> {
    if bytes.len() > MAX_BYTES {
        return Err(Refused::TooLarge);
    }
    let text = str::from_utf8(bytes).map_err(|_| Refused::NotText)?;
    // The reader's own message may quote the file; only its kind and line are kept.
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
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

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}
