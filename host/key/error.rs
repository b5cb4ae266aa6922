//! What can be wrong with a key's inputs. Every variant is the caller's to fix; none loses a key.

use super::HexError;
use crate::fingerprint::KeyMode;

/// Why a key was not derived, or a text is no key. The chain is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A text is not a key.
    #[error("not a key: {0}")]
    Hex(#[from] HexError),

    /// A chunk without tokens was asked for.
    #[error("chunk_tokens is 0; give blocks_per_chunk times block_tokens of the group")]
    ChunkTokensZero,

    /// A chunk does not end where a hash of the engine ends.
    #[error(
        "tokens_per_hash {tokens_per_hash} does not divide chunk_tokens {chunk_tokens}; \
         choose chunks that are a whole number of the engine's hashes"
    )]
    TokensPerHash {
        /// Tokens that one hash covers.
        tokens_per_hash: u32,
        /// Tokens of one chunk.
        chunk_tokens: u32,
    },

    /// The engine's hashes die with its process, but the keys must not.
    #[error(
        "the engine's {algorithm} hashes are seeded per process, so no other process could use \
         persistent keys made of them; fix the seed in the engine (vLLM: PYTHONHASHSEED or a \
         sha256 algorithm), or ask for process-local keys"
    )]
    SeedPerProcess {
        /// The engine's name of the algorithm.
        algorithm: String,
    },

    /// The chain was made for the other kind of input.
    #[error(
        "this chain makes its keys from {chain}; push that, or make a chain of the other mode \
         (extras go to chains of tokens: the engine's hashes cover them already)"
    )]
    Mode {
        /// What the chain makes keys from.
        chain: KeyMode,
    },

    /// The sequence would have more tokens than a position can count.
    #[error(
        "{pushed} more tokens after {tokens} pass the {limit} that a sequence may have; \
         end the sequence",
        limit = u32::MAX
    )]
    SequenceLong {
        /// Tokens that the chain has.
        tokens: u32,
        /// Tokens that were to be added.
        pushed: usize,
    },

    /// An extra belongs to a chunk that already has its key.
    #[error(
        "the extra at token {first_token} comes too late: tokens up to {hashed_tokens} have their \
         keys; add extras before the tokens that complete their chunk"
    )]
    ExtraLate {
        /// Position from which the extra counts.
        first_token: u32,
        /// Tokens that are under a key.
        hashed_tokens: u32,
    },

    /// An extra does not say which content it stands for.
    #[error("the extra at token {first_token} has an empty digest; give a digest of its content")]
    ExtraDigestEmpty {
        /// Position from which the extra counts.
        first_token: u32,
    },

    /// A multimodal item stands for no token.
    #[error("the multimodal item at token {first_token} has 0 tokens; give how many it stands for")]
    ItemEmpty {
        /// Position of the item.
        first_token: u32,
    },

    /// A sequence has one LoRA adapter.
    #[error(
        "LoRA adapter {given:?} given, but the sequence runs under {held:?}; \
         name a stack of adapters as one, with one digest over all"
    )]
    LoraTwice {
        /// Name of the adapter that the chain has.
        held: String,
        /// Name of the adapter that was to be added.
        given: String,
    },

    /// A hash of the engine has no bytes.
    #[error("hash {position} of those pushed has no bytes; push the hashes of full blocks only")]
    HashEmpty {
        /// Index among the hashes pushed.
        position: usize,
    },

    /// A hash of the engine has another length than those before.
    #[error(
        "hash {position} of those pushed has {found} bytes, those before have {expected}; \
         hashes of one domain have one length"
    )]
    HashLength {
        /// Index among the hashes pushed.
        position: usize,
        /// Bytes of the hashes before.
        expected: usize,
        /// Bytes of this one.
        found: usize,
    },

    /// The blocks of a tail chunk do not fit the chain's chunks and hashes.
    #[error(
        "block_tokens {block_tokens} must divide chunk_tokens {chunk_tokens} and be a multiple of \
         the {unit_tokens} tokens that one hash or token id covers; give the group's block_tokens"
    )]
    BlockTokens {
        /// Tokens of one block as given.
        block_tokens: u32,
        /// Tokens of one chunk.
        chunk_tokens: u32,
        /// Tokens that one pushed item covers.
        unit_tokens: u32,
    },

    /// The chain is shorter than the length it was to be cut to.
    #[error("cannot truncate to {to} tokens: the chain has {tokens}; give at most that")]
    TruncatePastEnd {
        /// Length asked for.
        to: u32,
        /// Tokens that the chain has.
        tokens: u32,
    },

    /// The cut is inside a chunk whose tokens the chain no longer holds.
    #[error(
        "cannot truncate to {to} tokens, inside a chunk that already has its key; \
         truncate to {boundary} and push what follows again"
    )]
    TruncateInsideChunk {
        /// Length asked for.
        to: u32,
        /// The chunk boundary before it.
        boundary: u32,
    },

    /// The cut is inside what one hash of the engine covers.
    #[error(
        "cannot truncate to {to} tokens, between multiples of tokens_per_hash {tokens_per_hash}; \
         truncate to the multiple below"
    )]
    TruncateInsideHash {
        /// Length asked for.
        to: u32,
        /// Tokens that one hash covers.
        tokens_per_hash: u32,
    },
}
