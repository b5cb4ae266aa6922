//! Why a page is not what it should be: one variant a kind of damage, the field and value named.

use std::fmt;
use thiserror::Error;

/// The kind of page, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Structure {
    /// A slot's header page.
    SlotHeader,
    /// A copy of the superblock.
    Superblock,
    /// The first page of an index snapshot.
    SnapshotHeader,
    /// A page of index entries.
    SnapshotPage,
}

impl fmt::Display for Structure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::SlotHeader => "slot header",
            Self::Superblock => "superblock",
            Self::SnapshotHeader => "snapshot header",
            Self::SnapshotPage => "snapshot page",
        })
    }
}

/// A field whose value has a range, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FormatField {
    /// Flag bits; unknown ones are refused.
    Flags,
    /// The parent's key: zeros where the flags say that there is none. Errors show its low half.
    Parent,
    /// Bytes of the payload: whole pages, at least one, at most what a slot of 1 GiB holds.
    PayloadBytes,
    /// Number of tokens: at least 1.
    Tokens,
    /// The KV group: 0 to 7.
    Group,
    /// Number of blocks: 1 to 65,535.
    Blocks,
    /// Number of the codec.
    Codec,
    /// Number of parts: 1 to 256.
    PartCount,
    /// The store's uuid: not all zeros. Errors show its low half.
    StoreUuid,
    /// A slot write's number: of a run from 1 on.
    Generation,
    /// Number of a slot: below the number of slots.
    Slot,
    /// A superblock's number: at least 1.
    Sequence,
    /// A run's number: at most 2^24 - 1.
    Epoch,
    /// The least generation that counts: of a run that was, or of the next.
    MinGeneration,
    /// Number of slots: at least 1.
    SlotCount,
    /// Bytes of a slot: the header page and the parts of a whole chunk.
    SlotBytes,
    /// Tokens of a block: at least 1.
    BlockTokens,
    /// Blocks of a whole chunk: 1 to 65,535.
    BlocksPerChunk,
    /// Bytes that one block has in a part: multiples of 16, at least one.
    PartBlockBytes,
    /// Number of entries of a snapshot: at most the number of slots.
    EntryCount,
    /// Number of a snapshot's page, from 1, which is its place in the file.
    PageNumber,
}

impl FormatField {
    /// Returns the field's name in `docs/disk-format.md`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flags => "flags",
            Self::Parent => "parent",
            Self::PayloadBytes => "payload_bytes",
            Self::Tokens => "tokens",
            Self::Group => "group",
            Self::Blocks => "blocks",
            Self::Codec => "codec",
            Self::PartCount => "part_count",
            Self::StoreUuid => "store_uuid",
            Self::Generation => "generation",
            Self::Slot => "slot",
            Self::Sequence => "sequence",
            Self::Epoch => "epoch",
            Self::MinGeneration => "min_generation",
            Self::SlotCount => "slot_count",
            Self::SlotBytes => "slot_bytes",
            Self::BlockTokens => "block_tokens",
            Self::BlocksPerChunk => "blocks_per_chunk",
            Self::PartBlockBytes => "part_block_bytes",
            Self::EntryCount => "entry_count",
            Self::PageNumber => "page_number",
        }
    }
}

impl fmt::Display for FormatField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Why bytes are not the page that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The page does not begin as its kind does: something else, or nothing, was written there.
    #[error("{structure}: begins with {found:#018x}, which is not its magic number")]
    Magic {
        /// The kind of page.
        structure: Structure,
        /// Bytes 0 to 7, little-endian.
        found: u64,
    },
    /// The page's bytes changed since they were written, or were never written whole.
    #[error("{structure}: its bytes sum to {computed:#018x}, its last 8 say {stored:#018x}")]
    Sum {
        /// The kind of page.
        structure: Structure,
        /// What the last 8 bytes say.
        stored: u64,
        /// What the bytes before them sum to.
        computed: u64,
    },
    /// Another version of kvtide wrote it.
    #[error(
        "{structure}: version is {found}; this build reads {}, so open it with the kvtide that \
         wrote it, or remove the store",
        super::FORMAT_VERSION
    )]
    Version {
        /// The kind of page.
        structure: Structure,
        /// Its version.
        found: u32,
    },
    /// A byte that version 1 leaves zero is not.
    #[error("{structure}: reserved byte {offset} is not 0")]
    Reserved {
        /// The kind of page.
        structure: Structure,
        /// The first such byte.
        offset: usize,
    },
    /// A field's value is none that it can have.
    #[error("{field} is {value} ({value:#x}), which it cannot be")]
    Value {
        /// The field.
        field: FormatField,
        /// Its value; the low half of one of 16 bytes.
        value: u64,
    },
}
