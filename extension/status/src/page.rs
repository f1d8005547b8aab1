//! Pages of a list.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sluice_core::cluster::ClusterRef;

use super::snapshot_store::Selection;

/// Maximum and default number of Clusters on a page.
const CLUSTERS: usize = 500;

/// Maximum bytes of the Clusters on a page, unless a single one is larger: gRPC clients accept 4 MiB by default.
pub(super) const BYTES: usize = 2 * 1024 * 1024;

/// Returns the maximum number of Clusters on a page.
///
/// # Errors
/// The number is negative.
pub(super) fn size(asked: i32) -> Result<usize, String> {
    match usize::try_from(asked) {
        Ok(0) => Ok(CLUSTERS),
        Ok(size) => Ok(size.min(CLUSTERS)),
        Err(_) => Err(format!("page_size {asked} is negative; 0 lets the server choose")),
    }
}

/// Returns the token of the page after a Cluster.
pub(super) fn token(last: &ClusterRef) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(last.to_string())
}

/// Returns the Cluster after which a page begins; `None` for the first page.
///
/// # Errors
/// The token belongs to no page of this selection.
pub(super) fn behind(token: &str, selection: &Selection) -> Result<Option<ClusterRef>, String> {
    if token.is_empty() {
        return Ok(None);
    }
    let wrong =
        || "page_token is not a next_page_token of the same request; start again without one".to_owned();
    let text = BASE64_URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(wrong)?;
    let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
    let last = ClusterRef::new(namespace, name);
    if namespace.is_empty() || name.is_empty() || !selection.has(&last) {
        return Err(wrong());
    }
    Ok(Some(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_the_selection_that_it_was_given_for() {
        let (one, all) = (ClusterRef::new("a", "one"), Selection::All);
        let of_a = Selection::Namespace("a".to_owned());
        for selection in [&all, &of_a] {
            assert_eq!(behind(&token(&one), selection), Ok(Some(one.clone())));
            assert_eq!(behind("", selection), Ok(None));
        }
        let other = token(&ClusterRef::new("b", "one"));
        assert!(behind(&other, &of_a).is_err());
        for wrong in [
            "x",
            "%%%",
            "YQ",
            &BASE64_URL_SAFE_NO_PAD.encode("/one"),
            &BASE64_URL_SAFE_NO_PAD.encode("a/"),
        ] {
            assert!(behind(wrong, &all).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_is_neither_endless_nor_negative() {
        assert_eq!(size(0), Ok(CLUSTERS));
        assert_eq!(size(7), Ok(7));
        assert_eq!(size(i32::MAX), Ok(CLUSTERS));
        assert!(size(-1).is_err_and(|line| line.contains("-1")));
    }
}
