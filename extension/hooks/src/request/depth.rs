//! Nesting limit of a body.

/// Nesting limit: deeper than any Cluster, and harmless.
pub(super) const MAX_DEPTH: usize = 512;

/// Whether arrays and objects are nested deeper than [`MAX_DEPTH`].
///
/// The decoder skips unneeded fields without recursion, so no other check refuses such a body.
pub(super) fn is_too_deep(body: &[u8]) -> bool {
    // The number of brackets, even in strings, is an upper bound of the depth and far cheaper to compute.
    count_openings(body) > MAX_DEPTH && depth_exceeds(body)
}

/// Counts in chunks whose count fits into a byte, so that the compiler vectorizes the loop.
fn count_openings(body: &[u8]) -> usize {
    let count = |piece: &[u8]| {
        let openings = piece.iter().map(|byte| u8::from(is_opening(*byte)));
        openings.fold(0_u8, u8::wrapping_add)
    };
    body.chunks(usize::from(u8::MAX))
        .map(|piece| usize::from(count(piece)))
        .sum()
}

const fn is_opening(byte: u8) -> bool {
    // `[` and `{` differ in this bit only.
    byte | 0x20 == b'{'
}

fn depth_exceeds(body: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_measured_outside_of_strings() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!is_too_deep(nested(MAX_DEPTH).as_bytes()));
        assert!(is_too_deep(nested(MAX_DEPTH + 1).as_bytes()));
        assert!(is_too_deep(&b"{\"a\":".repeat(10_000)));

        assert_eq!(count_openings("[{a".repeat(1_000).as_bytes()), 2_000);
        assert_eq!(count_openings(&[b'['; 255 * 3]), 255 * 3);

        let flat = format!("[{}0]", "[],".repeat(10_000));
        assert!(!is_too_deep(flat.as_bytes()));
        let quoted = format!(r#"["\"{}", "\\"]"#, "{".repeat(10_000));
        assert!(!is_too_deep(quoted.as_bytes()));
    }
}
