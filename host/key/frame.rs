//! The byte framing of everything that is hashed, and the hash.
//!
//! A hash input is one 8-byte context followed by fields; a field is a tag byte, its length as
//! eight little-endian bytes and its value. Contexts have one length and differ, and a field says
//! where it ends, so an input can be decoded in one way only: two inputs that differ never share
//! their bytes. A value that is absent has no field; a value that is empty has a field of length
//! 0. docs/keys.md states the same for other languages. Called by `key` and `fingerprint`.

use super::Key;

/// Bytes of a context.
pub(super) const CONTEXT_BYTES: usize = 8;

/// Bytes before a field's value: tag and length.
pub(super) const FIELD_HEAD_BYTES: usize = 1 + size_of::<u64>();

/// What a hash input is for. Its last digit is the version of that input's framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// The content fingerprint.
    Content,
    /// The id of a store.
    Store,
    /// The root of a sequence's keys, before its first chunk.
    Root,
    /// The key of a chunk in token mode.
    Link,
    /// The key of a chunk in engine-hash mode.
    EngineHash,
}

impl Context {
    /// Returns the eight bytes that open the hash input.
    pub(super) const fn bytes(self) -> &'static [u8; CONTEXT_BYTES] {
        match self {
            Self::Content => b"kvtcont1",
            Self::Store => b"kvtstor1",
            Self::Root => b"kvtroot1",
            Self::Link => b"kvtlink1",
            Self::EngineHash => b"kvthash1",
        }
    }
}

/// The meaning of a field; the numbers are part of the format and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    ContentFingerprint = 0x01,
    TenantSalt = 0x02,
    Group = 0x03,

    PreviousKey = 0x10,
    Tokens = 0x11,
    Lora = 0x12,
    LoraName = 0x13,
    LoraDigest = 0x14,
    Multimodal = 0x15,
    MultimodalDigest = 0x16,
    MultimodalOffset = 0x17,
    MultimodalTokens = 0x18,

    EngineAlgorithm = 0x20,
    EngineSeed = 0x21,
    EngineTokensPerHash = 0x22,
    EngineHash = 0x23,

    ModelId = 0x30,
    Revision = 0x31,
    WeightsDigest = 0x32,
    RopeOverride = 0x33,
    ElementType = 0x34,
    KvScales = 0x35,
    KvScalesDigest = 0x36,
    KeyMode = 0x37,

    Layout = 0x40,
    Codec = 0x41,
    BlocksPerChunk = 0x42,
    FormatVersion = 0x43,
}

/// A hash input under construction.
#[derive(Clone)]
pub(crate) struct Encoding {
    bytes: Vec<u8>,
}

impl Encoding {
    /// Starts an input with its context.
    pub(crate) fn new(context: Context) -> Self {
        Self { bytes: context.bytes().to_vec() }
    }

    /// Appends a field.
    pub(crate) fn field(&mut self, tag: Tag, value: &[u8]) {
        self.nested(tag, |encoding| encoding.bytes.extend_from_slice(value));
    }

    /// Appends a field whose value is what `fill` appends.
    pub(crate) fn nested(&mut self, tag: Tag, fill: impl FnOnce(&mut Self)) {
        let value_at = self.open_field(tag);
        fill(self);
        self.close_field(value_at);
    }

    /// Appends the head of a field that stays open, and returns where its value starts.
    pub(super) fn open_field(&mut self, tag: Tag) -> usize {
        self.bytes.push(tag as u8);
        self.bytes.extend_from_slice(&[0; size_of::<u64>()]);
        self.bytes.len()
    }

    /// Ends the field whose value starts at `value_at`: all bytes since are its value.
    pub(super) fn close_field(&mut self, value_at: usize) {
        let value_bytes = u64::try_from(self.bytes.len() - value_at)
            .expect("a length in memory fits 64 bits on every Rust target");
        self.overwrite(value_at - size_of::<u64>(), &value_bytes.to_le_bytes());
    }

    /// Replaces bytes that are already there.
    pub(super) fn overwrite(&mut self, at: usize, with: &[u8]) {
        self.bytes[at..at + with.len()].copy_from_slice(with);
    }

    /// Appends `words` in little-endian order to the field that is open.
    pub(super) fn extend_words(&mut self, words: &[u32]) {
        let at = self.bytes.len();
        self.bytes.resize(at + size_of_val(words), 0);
        let (targets, _) = self.bytes[at..].as_chunks_mut();
        for (target, word) in targets.iter_mut().zip(words) {
            *target = word.to_le_bytes();
        }
    }

    /// Drops all bytes from `length` on.
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }

    /// Returns the input so far.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Hashes the input to 256 bits.
    pub(crate) fn digest(&self) -> [u8; 32] {
        *blake3::hash(&self.bytes).as_bytes()
    }

    /// Hashes the input and keeps the first 128 bits: `H` of the key formats.
    pub(crate) fn key(&self) -> Key {
        let mut half = [0; Key::BYTES];
        half.copy_from_slice(&self.digest()[..Key::BYTES]);
        Key::from_bytes(half)
    }
}
