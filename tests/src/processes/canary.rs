//! Words in credentials that tests search for wherever they must not appear.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Among the values of packages.
pub const VALUES: &str = "canary-of-values-3f1c";

/// In kubeconfigs that are refused.
pub const KUBECONFIG: &str = "canary-of-a-kubeconfig";

/// Forms of `canary` in a text: plain, and in base64 at each offset.
///
/// The characters that also depend on what stands before and after it are left out.
#[must_use]
pub fn spellings(canary: &str) -> Vec<String> {
    let mut spellings = vec![canary.to_owned()];
    // Three bytes become four characters, so a word begins in one of three ways.
    for before in 0..3 {
        let encoded = BASE64_STANDARD.encode(format!("{}{canary}", "\0".repeat(before)));
        let bits = |bytes: usize| bytes * 8;
        let from = bits(before).div_ceil(6);
        let to = bits(before + canary.len()) / 6;
        spellings.push(encoded[from..to].to_owned());
    }
    spellings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_is_found_in_whatever_was_encoded() {
        for before in ["", "a", "ab", "abc", "user: x\npassword: "] {
            for after in ["", "-", "-1", "-123\n"] {
                let text = BASE64_STANDARD.encode(format!("{before}canary{after}"));
                assert!(
                    spellings("canary").iter().any(|spelling| text.contains(spelling)),
                    "{before:?} {after:?}: {text}"
                );
            }
        }
        let other = BASE64_STANDARD.encode("password: another");
        assert!(
            !spellings("canary")
                .iter()
                .any(|spelling| other.contains(spelling))
        );
        assert!(spellings("canary").iter().all(|spelling| spelling.len() > 5));
    }
}
