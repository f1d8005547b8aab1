//! Documents as JSON and YAML.

use serde::Serialize;
use serde_saphyr::ser_options;

use super::connection::Trouble;

/// Returns a document as JSON.
///
/// # Errors
/// It cannot be encoded.
pub(super) fn json(document: &impl Serialize) -> Result<String, Trouble> {
    serde_json::to_string_pretty(document).map_err(|error| not_encoded(&error))
}

/// Returns a document as YAML.
///
/// # Errors
/// It cannot be encoded.
pub(super) fn yaml(document: &impl Serialize) -> Result<String, Trouble> {
    // Long messages are not folded.
    let options = ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(document, options).map_err(|error| not_encoded(&error))
}

fn not_encoded(error: &dyn std::fmt::Display) -> Trouble {
    Trouble::NotAnswered(format!("encode the output: {error}"))
}
