//! Parser options for untrusted YAML.

use serde_saphyr::{
    Options,
    options::{DuplicateKeyPolicy, MergeKeyPolicy},
};

/// Accepts one document of at most `max_depth` levels, without anchors, aliases, merge keys, custom tags or duplicate keys.
/// Errors quote nothing of the document.
pub(crate) fn options(max_depth: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_documents: 1,
            max_depth: max_depth,
            flow_nesting_limit: max_depth,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}
