//! Content in the gzip format, stored rather than compressed: a chart has a few hundred bytes.

use anyhow::{Context as _, Result};

/// Magic number, method deflate, no flags, no time, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// Longest block that is stored.
const BLOCK: usize = 0xffff;

/// A file in the gzip format (RFC 1952).
pub(super) fn compress(content: &[u8]) -> Result<Vec<u8>> {
    let mut file = HEADER.to_vec();
    let blocks = content.len().div_ceil(BLOCK).max(1);
    for block in 0..blocks {
        let rest = &content[block * BLOCK..];
        let stored = &rest[..rest.len().min(BLOCK)];
        let length = u16::try_from(stored.len()).context("a block is too long")?;
        // The last block has a mark; type 0 is stored.
        file.push(u8::from(block + 1 == blocks));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(stored);
    }
    file.extend(crc32(content).to_le_bytes());
    let length = u32::try_from(content.len()).context("content of more than 4 GiB")?;
    file.extend(length.to_le_bytes());
    Ok(file)
}

/// The check of gzip.
fn crc32(content: &[u8]) -> u32 {
    let remainder = content.iter().fold(u32::MAX, |remainder, byte| {
        (0..8).fold(remainder ^ u32::from(*byte), |bits, _| {
            let is_set = bits & 1 == 1;
            (bits >> 1) ^ if is_set { 0xedb8_8320 } else { 0 }
        })
    });
    !remainder
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The content of a file with stored blocks.
    pub(crate) fn decompress(file: &[u8]) -> Vec<u8> {
        let mut rest = file.strip_prefix(HEADER.as_slice()).unwrap();
        let mut content = Vec::new();
        loop {
            let length = usize::from(u16::from_le_bytes([rest[1], rest[2]]));
            content.extend(&rest[5..5 + length]);
            let is_last = rest[0] == 1;
            rest = &rest[5 + length..];
            if is_last {
                break;
            }
        }
        assert_eq!(rest[..4], crc32(&content).to_le_bytes());
        content
    }

    #[test]
    fn the_check_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn long_content_has_several_blocks() {
        for length in [0, 1, BLOCK, BLOCK + 1, 2 * BLOCK] {
            let content = vec![7; length];
            assert_eq!(decompress(&compress(&content).unwrap()), content, "{length}");
        }
    }
}
