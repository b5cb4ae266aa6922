//! Fingerprints: what the bytes of a chunk mean, and which store may hold them.
//!
//! A [`ContentFingerprint`] covers everything that changes the value of KV for the same tokens; it
//! enters every key, so KV of one model never answers for another. A [`StoreId`] adds how the
//! bytes lie in a slot; it names the directory of a disk store, so a store of another layout is
//! never opened by mistake.
//!
//! Invariant: fields are framed by tag and length (docs/keys.md), so no two assignments of values
//! to fields share a hash input. Called by engines at open, by `key` and by the disk store.

use std::fmt;
use std::str::FromStr;

use crate::key::frame::{Context, Encoding, Tag};
use crate::key::{HexError, hex};
use crate::layout::Group;
use crate::units::{BlockCount, GroupIndex};

/// Why a fingerprint was not made, or a text is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FingerprintError {
    /// A field that changes what the bytes mean was not stated.
    #[error("{field} is not stated; {remedy}", remedy = field.remedy())]
    Missing {
        /// The field.
        field: FingerprintField,
    },
    /// A field was stated as nothing.
    #[error("{field} is empty; {remedy}", remedy = field.remedy())]
    Empty {
        /// The field.
        field: FingerprintField,
    },
    /// A text is not a content fingerprint or a store id.
    #[error("not a fingerprint: {0}")]
    Hex(#[from] HexError),
}

/// A field of the content fingerprint, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FingerprintField {
    /// Which model.
    ModelId,
    /// Which revision of it.
    Revision,
    /// Digest of its weights.
    WeightsDigest,
    /// Position encoding.
    Rope,
    /// Type of one KV element.
    ElementType,
    /// Scales of quantized KV.
    KvScales,
    /// What keys are made from.
    KeyMode,
}

impl FingerprintField {
    const fn remedy(self) -> &'static str {
        match self {
            Self::ModelId => "call model_id with the name or path that the engine loads",
            Self::Revision | Self::WeightsDigest => {
                "call revision with a commit that never moves, or weights_digest, or both"
            }
            Self::Rope => {
                "call rope with RopeSettings::AsInCheckpoint, or with the override as text"
            }
            Self::ElementType => "call element_type with the KV cache's type, such as \"bf16\"",
            Self::KvScales => "call kv_scales; KvScales::None if KV is stored unscaled",
            Self::KeyMode => "call key_mode with KeyMode::Tokens or KeyMode::EngineHashes",
        }
    }
}

impl fmt::Display for FingerprintField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ModelId => "model_id",
            Self::Revision => "revision (or weights_digest)",
            Self::WeightsDigest => "weights_digest",
            Self::Rope => "rope",
            Self::ElementType => "element_type",
            Self::KvScales => "kv_scales",
            Self::KeyMode => "key_mode",
        })
    }
}

/// How positions are encoded into K.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RopeSettings {
    /// As the checkpoint's own configuration says, or not at all if it has none.
    AsInCheckpoint,
    /// Changed by the engine: its settings as one text, compared byte for byte, such as
    /// `theta=1000000 scaling=yarn factor=4`.
    Override(String),
}

/// Where the scales of quantized KV come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvScales {
    /// KV is stored unscaled.
    None,
    /// As the checkpoint holds them.
    AsInCheckpoint,
    /// Stored in each fragment beside its elements.
    InFragments,
    /// Calibrated apart from the checkpoint: a digest of them.
    Digest(Vec<u8>),
}

/// What keys are made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyMode {
    /// Token ids and extras.
    Tokens,
    /// Hashes that the engine has made of its blocks.
    EngineHashes,
}

impl fmt::Display for KeyMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tokens => "tokens",
            Self::EngineHashes => "engine hashes",
        })
    }
}

/// How fragments are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Codec {
    /// Byte for byte as the engine holds them.
    Raw,
}

impl Codec {
    /// Returns the number that store ids and slot headers use; never reused.
    pub const fn code(self) -> u16 {
        match self {
            Self::Raw => 0,
        }
    }

    /// Returns the codec's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
        }
    }
}

/// Defines a digest of `$bytes` bytes with its text form.
macro_rules! digest_newtype {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Bytes of the digest.
            pub const BYTES: usize = $bytes;

            /// Takes a digest that was made before.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// Returns the digest's bytes.
            pub const fn to_bytes(self) -> [u8; $bytes] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex::write(&self.0, formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = FingerprintError;

            fn from_str(text: &str) -> Result<Self, FingerprintError> {
                Ok(Self(hex::parse(text)?))
            }
        }
    };
}

digest_newtype!(
    /// Digest of what KV bytes mean: model, revision or weights, RoPE settings, element type, KV
    /// scales and key mode. The text form is 64 lowercase hexadecimal digits.
    ContentFingerprint,
    32
);

digest_newtype!(
    /// Identity of a disk store: content fingerprint, layout, group, codec, blocks per chunk and
    /// format version. The text form, 32 lowercase hexadecimal digits, names its directory.
    StoreId,
    16
);

impl ContentFingerprint {
    /// Starts a fingerprint; every field but one of revision and weights digest must be stated.
    ///
    /// ```
    /// use kvtide::fingerprint::{ContentFingerprint, KeyMode, KvScales, RopeSettings};
    /// use kvtide::layout::ElementType;
    ///
    /// let content = ContentFingerprint::builder()
    ///     .model_id("deepseek-ai/DeepSeek-V3")
    ///     .revision("e815299b0bcbac849fa540c768ef21845365c9eb")
    ///     .rope(RopeSettings::AsInCheckpoint)
    ///     .element_type(ElementType::F8E4m3.to_string())
    ///     .kv_scales(KvScales::InFragments)
    ///     .key_mode(KeyMode::Tokens)
    ///     .build()?;
    /// assert_eq!(content.to_string().len(), 64);
    /// # Ok::<(), kvtide::fingerprint::FingerprintError>(())
    /// ```
    pub fn builder() -> ContentFingerprintBuilder {
        ContentFingerprintBuilder::default()
    }
}

/// Collects the fields of a [`ContentFingerprint`].
#[derive(Clone, Debug, Default)]
#[must_use = "a builder makes no fingerprint until `build` is called"]
pub struct ContentFingerprintBuilder {
    model_id: Option<String>,
    revision: Option<String>,
    weights_digest: Option<Vec<u8>>,
    rope: Option<RopeSettings>,
    element_type: Option<String>,
    kv_scales: Option<KvScales>,
    key_mode: Option<KeyMode>,
}

impl ContentFingerprintBuilder {
    /// States the model: the name or path that the engine loads.
    pub fn model_id(mut self, model_id: impl Into<String>) -> Self {
        self.model_id = Some(model_id.into());
        self
    }

    /// States the model's revision: a commit or version that never moves, not a branch.
    pub fn revision(mut self, revision: impl Into<String>) -> Self {
        self.revision = Some(revision.into());
        self
    }

    /// States a digest of the weights as loaded, by any algorithm.
    pub fn weights_digest(mut self, digest: impl Into<Vec<u8>>) -> Self {
        self.weights_digest = Some(digest.into());
        self
    }

    /// States how positions are encoded.
    pub fn rope(mut self, rope: RopeSettings) -> Self {
        self.rope = Some(rope);
        self
    }

    /// States the type of one KV element: the name of an
    /// [`ElementType`](crate::layout::ElementType), such as `bf16` or `f8_e4m3`, or the engine's
    /// own name for a format that has none.
    pub fn element_type(mut self, element_type: impl Into<String>) -> Self {
        self.element_type = Some(element_type.into());
        self
    }

    /// States where the scales of quantized KV come from.
    pub fn kv_scales(mut self, kv_scales: KvScales) -> Self {
        self.kv_scales = Some(kv_scales);
        self
    }

    /// States what keys are made from.
    pub fn key_mode(mut self, key_mode: KeyMode) -> Self {
        self.key_mode = Some(key_mode);
        self
    }

    /// Makes the fingerprint.
    ///
    /// # Errors
    ///
    /// [`FingerprintError::Missing`] for a field that was not stated, where revision and weights
    /// digest count as one; [`FingerprintError::Empty`] for one that was stated as nothing.
    pub fn build(&self) -> Result<ContentFingerprint, FingerprintError> {
        Ok(ContentFingerprint(self.encode()?.digest()))
    }

    fn encode(&self) -> Result<Encoding, FingerprintError> {
        use FingerprintField as Field;

        let mut encoding = Encoding::new(Context::Content);
        let model_id = stated(self.model_id.as_ref(), Field::ModelId)?;
        encoding.field(Tag::ModelId, filled(model_id.as_bytes(), Field::ModelId)?);
        self.encode_version(&mut encoding)?;
        match stated(self.rope.as_ref(), Field::Rope)? {
            RopeSettings::AsInCheckpoint => {}
            RopeSettings::Override(text) => {
                encoding.field(Tag::RopeOverride, filled(text.as_bytes(), Field::Rope)?);
            }
        }
        let element_type = stated(self.element_type.as_ref(), Field::ElementType)?;
        let element_type = filled(element_type.as_bytes(), Field::ElementType)?;
        encoding.field(Tag::ElementType, element_type);
        match stated(self.kv_scales.as_ref(), Field::KvScales)? {
            KvScales::None => encoding.field(Tag::KvScales, &[0]),
            KvScales::AsInCheckpoint => encoding.field(Tag::KvScales, &[1]),
            KvScales::InFragments => encoding.field(Tag::KvScales, &[2]),
            KvScales::Digest(digest) => {
                encoding.field(Tag::KvScalesDigest, filled(digest, Field::KvScales)?);
            }
        }
        let mode = match stated(self.key_mode.as_ref(), Field::KeyMode)? {
            KeyMode::Tokens => 0,
            KeyMode::EngineHashes => 1,
        };
        encoding.field(Tag::KeyMode, &[mode]);
        Ok(encoding)
    }

    /// Appends revision and weights digest: at least one.
    fn encode_version(&self, encoding: &mut Encoding) -> Result<(), FingerprintError> {
        if self.weights_digest.is_none() {
            stated(self.revision.as_ref(), FingerprintField::Revision)?;
        }
        if let Some(revision) = &self.revision {
            let revision = filled(revision.as_bytes(), FingerprintField::Revision)?;
            encoding.field(Tag::Revision, revision);
        }
        if let Some(digest) = &self.weights_digest {
            let digest = filled(digest, FingerprintField::WeightsDigest)?;
            encoding.field(Tag::WeightsDigest, digest);
        }
        Ok(())
    }
}

fn stated<T>(value: Option<T>, field: FingerprintField) -> Result<T, FingerprintError> {
    value.ok_or(FingerprintError::Missing { field })
}

fn filled(value: &[u8], field: FingerprintField) -> Result<&[u8], FingerprintError> {
    if value.is_empty() {
        return Err(FingerprintError::Empty { field });
    }
    Ok(value)
}

/// What a [`StoreId`] is made of.
#[derive(Clone, Copy, Debug)]
pub struct StoreIdentity<'a> {
    /// What the bytes mean.
    pub content: &'a ContentFingerprint,
    /// The group's digest input from its layout: inner order, fragments, shard.
    pub layout: &'a [u8],
    /// The group.
    pub group: GroupIndex,
    /// How fragments are stored.
    pub codec: Codec,
    /// Blocks of a full chunk.
    pub blocks_per_chunk: BlockCount,
    /// Version of the disk format.
    pub format_version: u32,
}

impl StoreId {
    /// Derives the id of the store that holds chunks of this identity.
    pub fn new(identity: &StoreIdentity<'_>) -> Self {
        Self(identity.encode().key().to_bytes())
    }
}

impl StoreId {
    /// Derives the id of the store for chunks of `group`, whose layout says the rest.
    ///
    /// ```
    /// # use kvtide::fingerprint::{Codec, ContentFingerprint, KeyMode, KvScales};
    /// # use kvtide::fingerprint::{RopeSettings, StoreId};
    /// # use kvtide::layout::engines::{LatentCache, LayerBase};
    /// # use kvtide::layout::{Attention, ElementType, Layout, Paging};
    /// # use kvtide::units::{BlockCount, ByteCount, TokenCount};
    /// # let paging = Paging {
    /// #     block_tokens: TokenCount::new(64),
    /// #     blocks_per_chunk: BlockCount::new(4),
    /// #     block_count: BlockCount::new(100),
    /// #     attention: Attention::Full,
    /// # };
    /// # let row = ByteCount::new(1152);
    /// # let cache = LatentCache { paging, element_type: ElementType::Bf16, row };
    /// # let layers = [LayerBase { layer: 0, base_address: 4096 }];
    /// # let layout = Layout::builder().group(cache.rows(&layers)).build()?;
    /// # let content = ContentFingerprint::builder()
    /// #     .model_id("deepseek-ai/DeepSeek-V3")
    /// #     .revision("e815299b")
    /// #     .rope(RopeSettings::AsInCheckpoint)
    /// #     .element_type("bf16")
    /// #     .kv_scales(KvScales::None)
    /// #     .key_mode(KeyMode::Tokens)
    /// #     .build()?;
    /// let id = StoreId::of_group(&content, &layout.groups()[0], Codec::Raw, 1);
    /// assert_eq!(id.to_string().len(), 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_group(
        content: &ContentFingerprint,
        group: &Group,
        codec: Codec,
        format_version: u32,
    ) -> Self {
        Self::new(&StoreIdentity {
            content,
            layout: &group.digest_input(),
            group: group.index(),
            codec,
            blocks_per_chunk: group.blocks_per_chunk(),
            format_version,
        })
    }
}

impl StoreIdentity<'_> {
    fn encode(&self) -> Encoding {
        let mut encoding = Encoding::new(Context::Store);
        encoding.field(Tag::ContentFingerprint, &self.content.to_bytes());
        encoding.field(Tag::Layout, self.layout);
        encoding.field(Tag::Group, &[self.group.get()]);
        encoding.field(Tag::Codec, &self.codec.code().to_le_bytes());
        let blocks_per_chunk = self.blocks_per_chunk.get().to_le_bytes();
        encoding.field(Tag::BlocksPerChunk, &blocks_per_chunk);
        encoding.field(Tag::FormatVersion, &self.format_version.to_le_bytes());
        encoding
    }
}

#[cfg(test)]
mod tests;
