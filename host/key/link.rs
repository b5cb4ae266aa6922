//! Token mode: the open chunk of a chain, kept as the hash input it will become.
//!
//! Tokens go straight into the input, behind the previous key, so that completing a chunk copies
//! nothing and the whole input meets BLAKE3 in one call, which is where its wide lanes pay.
//!
//! ```text
//! context | previous key | tokens of the open chunk ... | extras, appended when it is full
//! ```
//!
//! Called by `KeyChain`.

use super::extra::Extras;
use super::frame::{CONTEXT_BYTES, Context, Encoding, FIELD_HEAD_BYTES, Tag};
use super::{Key, TenantSalt};
use crate::fingerprint::ContentFingerprint;
use crate::units::GroupIndex;

/// Where the previous key's bytes start in the input.
const PREVIOUS_KEY_AT: usize = CONTEXT_BYTES + FIELD_HEAD_BYTES;

/// Where the tokens' bytes start in the input.
const TOKENS_AT: usize = PREVIOUS_KEY_AT + Key::BYTES + FIELD_HEAD_BYTES;

/// Bytes of a token id in the input.
const TOKEN_BYTES: usize = size_of::<u32>();

/// Returns the input of a sequence's root.
pub(super) fn root_encoding(
    content: &ContentFingerprint,
    salt: &TenantSalt,
    group: GroupIndex,
) -> Encoding {
    let mut encoding = Encoding::new(Context::Root);
    encoding.field(Tag::ContentFingerprint, &content.to_bytes());
    salt.encode(&mut encoding);
    encoding.field(Tag::Group, &[group.get()]);
    encoding
}

/// The open chunk of a chain in token mode.
#[derive(Clone)]
pub(super) struct TokenLink {
    /// The input up to the last token; the tokens' field is open.
    encoding: Encoding,
}

impl TokenLink {
    /// Opens the chunk that follows `previous`.
    pub(super) fn new(previous: Key) -> Self {
        let mut encoding = Encoding::new(Context::Link);
        encoding.field(Tag::PreviousKey, &previous.to_bytes());
        let tokens_at = encoding.open_field(Tag::Tokens);
        debug_assert_eq!(tokens_at, TOKENS_AT, "the offsets above follow the framing");
        Self { encoding }
    }

    /// Returns how many tokens the open chunk has.
    pub(super) fn len(&self) -> usize {
        (self.encoding.as_bytes().len() - TOKENS_AT) / TOKEN_BYTES
    }

    /// Adds tokens; those beyond the chunk are the caller's to hold back.
    pub(super) fn append(&mut self, tokens: &[u32]) {
        self.encoding.extend_words(tokens);
    }

    /// Returns the key of the open chunk, whose first token is at `first`, and opens the next.
    pub(super) fn complete(&mut self, extras: &Extras, first: u32) -> Key {
        let tokens = self.len();
        close(&mut self.encoding, extras, first, tokens);
        let key = self.encoding.key();
        self.restart(key);
        key
    }

    /// Returns the key of a shorter tail chunk: the open chunk's first `tokens` tokens.
    pub(super) fn tail(&self, extras: &Extras, first: u32, tokens: usize) -> Key {
        self.tail_encoding(extras, first, tokens).key()
    }

    /// Returns the input of the open chunk's first `tokens` tokens.
    pub(super) fn tail_encoding(&self, extras: &Extras, first: u32, tokens: usize) -> Encoding {
        let mut encoding = self.encoding.clone();
        encoding.truncate(TOKENS_AT + tokens * TOKEN_BYTES);
        close(&mut encoding, extras, first, tokens);
        encoding
    }

    /// Keeps the open chunk's first `tokens` tokens.
    pub(super) fn truncate(&mut self, tokens: usize) {
        self.encoding.truncate(TOKENS_AT + tokens * TOKEN_BYTES);
    }

    /// Drops the open chunk and opens the one that follows `previous`.
    pub(super) fn restart(&mut self, previous: Key) {
        self.truncate(0);
        self.encoding.overwrite(PREVIOUS_KEY_AT, &previous.to_bytes());
    }
}

/// Ends the tokens' field and appends the extras that reach into it.
fn close(encoding: &mut Encoding, extras: &Extras, first: u32, tokens: usize) {
    encoding.close_field(TOKENS_AT);
    extras.encode(encoding, first, tokens);
}
