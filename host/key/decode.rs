//! The inverse of the framing, for tests only: an encoding that decodes to what went in cannot be
//! the encoding of anything else.

use super::frame::{CONTEXT_BYTES, Context, Encoding, Tag};

/// Reads the fields of an input or of a nested value, one after another.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads an input, whose context must be `context`.
    pub(crate) fn of(encoding: &'a Encoding, context: Context) -> Self {
        let (head, rest) = encoding.as_bytes().split_at(CONTEXT_BYTES);
        assert_eq!(head, context.bytes(), "the context comes first");
        Self { rest }
    }

    /// Takes the next field if it has this tag.
    pub(crate) fn optional(&mut self, tag: Tag) -> Option<&'a [u8]> {
        let (&found, after_tag) = self.rest.split_first()?;
        if found != tag as u8 {
            return None;
        }
        let (length, after_length) = after_tag.split_first_chunk().expect("a length follows");
        let length = usize::try_from(u64::from_le_bytes(*length)).expect("it fits in memory");
        let (value, rest) = after_length.split_at(length);
        self.rest = rest;
        Some(value)
    }

    /// Takes the next field, which has this tag.
    pub(crate) fn required(&mut self, tag: Tag) -> &'a [u8] {
        self.optional(tag).unwrap_or_else(|| panic!("{tag:?} is not next: {:x?}", self.rest))
    }

    /// Takes the next field, which has this tag and as many bytes as the integer or array.
    pub(crate) fn array<const N: usize>(&mut self, tag: Tag) -> [u8; N] {
        self.required(tag).try_into().expect("the value has its full width")
    }

    /// Takes the next field, whose value is fields, if it has this tag.
    pub(crate) fn nested(&mut self, tag: Tag) -> Option<Self> {
        self.optional(tag).map(|rest| Self { rest })
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) {
        assert!(self.rest.is_empty(), "undecoded: {:x?}", self.rest);
    }
}
