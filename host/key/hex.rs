//! Lowercase hexadecimal text of fixed-size digests.
//!
//! Strict on purpose: one value has one text, so a text that parses is also the directory name
//! that was written. Called by the `Display` and `FromStr` of keys, fingerprints and store ids.

use std::fmt;

/// Why a text is not the hexadecimal form of a key, a fingerprint or a store id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HexError {
    /// The text has another length than the value's two digits a byte.
    #[error("{found} bytes of text where {expected} hexadecimal digits are needed; give them all")]
    Length {
        /// Digits that the value has.
        expected: usize,
        /// Length of the text in bytes.
        found: usize,
    },
    /// A byte of the text is no lowercase hexadecimal digit.
    #[error("byte {position} of the text is not one of 0-9 and a-f; write lowercase digits only")]
    Digit {
        /// Where the byte stands in the text, from 0.
        position: usize,
    },
}

/// Writes two lowercase digits a byte, first byte first.
pub(crate) fn write(bytes: &[u8], formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
}

/// Parses what [`write`] prints for `N` bytes, and nothing else.
pub(crate) fn parse<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    if text.len() != 2 * N {
        return Err(HexError::Length { expected: 2 * N, found: text.len() });
    }
    let mut bytes = [0; N];
    for (position, &digit) in text.as_bytes().iter().enumerate() {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(HexError::Digit { position }),
        };
        bytes[position / 2] = bytes[position / 2] << 4 | value;
    }
    Ok(bytes)
}
