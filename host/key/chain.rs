//! The chain of keys that an engine keeps with a sequence.
//!
//! Tokens, or the engine's hashes, are pushed as they come; each is hashed once, when its chunk is
//! full. The chain holds 16 bytes a chunk and the tokens of the open chunk, no others.
//!
//! Invariants: the keys are those of a fresh chain given the same tokens and extras at once, in
//! whatever pieces they came and whatever was truncated between; a call that fails changes nothing.

use std::fmt;

use super::engine::HashLink;
use super::extra::Extras;
use super::link::{TokenLink, root_encoding};
use super::{EngineHashDomain, Extra, Key, KeyError, Persistence, TenantSalt};
use crate::fingerprint::{ContentFingerprint, KeyMode};
use crate::units::{BlockCount, GroupIndex, TokenCount};

/// Derives and keeps the keys of one sequence in one group.
///
/// A fork of a sequence is a `clone` of its chain.
///
/// ```
/// use kvtide::fingerprint::{ContentFingerprint, KeyMode, KvScales, RopeSettings};
/// use kvtide::key::{KeyChain, TenantSalt};
/// use kvtide::units::{GroupIndex, TokenCount};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let content = ContentFingerprint::builder()
///     .model_id("meta-llama/Llama-3.1-8B")
///     .revision("d04e592bb4f6aa9cfee91e2e20afa771667e1d4b")
///     .rope(RopeSettings::AsInCheckpoint)
///     .element_type("bf16")
///     .kv_scales(KvScales::None)
///     .key_mode(KeyMode::Tokens)
///     .build()?;
/// let salt = TenantSalt::none();
/// let mut chain = KeyChain::tokens(&content, &salt, GroupIndex::new(0), TokenCount::new(256))?;
///
/// let prompt: Vec<u32> = (0..600).collect();
/// assert_eq!(chain.push(&prompt)?.len(), 2);
/// assert_eq!(chain.token_count().get(), 600);
///
/// // The third chunk has 88 tokens: five full blocks of 16 make a tail chunk.
/// let tail = chain.tail_key(TokenCount::new(16))?.expect("at least one block is full");
/// assert_eq!(tail.blocks.get(), 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct KeyChain {
    root: Key,
    /// Tokens of a full chunk; at least 1.
    chunk_tokens: u32,
    /// Keys of the full chunks. Times `chunk_tokens`, they fit 32 bits.
    keys: Vec<Key>,
    persistence: Persistence,
    open: OpenChunk,
}

/// What the chain holds of the chunk that is not full yet.
#[derive(Clone)]
enum OpenChunk {
    Tokens { link: TokenLink, extras: Extras },
    Hashes(HashLink),
}

/// Key of a tail chunk: the first blocks of a chunk that is not, or need not be, full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailKey {
    /// The tail chunk's key.
    pub key: Key,
    /// How many full blocks the tail chunk has: at least 1.
    pub blocks: BlockCount,
}

impl KeyChain {
    /// Starts a chain that makes its keys from token ids, `chunk_tokens` a key.
    ///
    /// The content fingerprint is one of [`KeyMode::Tokens`]. Keys of this mode are persistent.
    ///
    /// # Errors
    ///
    /// [`KeyError::ChunkTokensZero`].
    pub fn tokens(
        content: &ContentFingerprint,
        salt: &TenantSalt,
        group: GroupIndex,
        chunk_tokens: TokenCount,
    ) -> Result<Self, KeyError> {
        if chunk_tokens.get() == 0 {
            return Err(KeyError::ChunkTokensZero);
        }
        let root = root_encoding(content, salt, group).key();
        Ok(Self {
            root,
            chunk_tokens: chunk_tokens.get(),
            keys: Vec::new(),
            persistence: Persistence::Persistent,
            open: OpenChunk::Tokens { link: TokenLink::new(root), extras: Extras::default() },
        })
    }

    /// Starts a chain that makes its keys from the engine's hashes of `domain`.
    ///
    /// The content fingerprint is one of [`KeyMode::EngineHashes`]. A chunk is named by its last
    /// hash, which the engine has chained over all tokens and extras before.
    ///
    /// # Errors
    ///
    /// [`KeyError::SeedPerProcess`] if `persistence` is [`Persistence::Persistent`] and the
    /// domain's hashes are not; [`KeyError::ChunkTokensZero`]; [`KeyError::TokensPerHash`] unless a
    /// chunk is a whole number of hashes.
    pub fn engine_hashes(
        content: &ContentFingerprint,
        salt: &TenantSalt,
        domain: &EngineHashDomain,
        group: GroupIndex,
        chunk_tokens: TokenCount,
        persistence: Persistence,
    ) -> Result<Self, KeyError> {
        if persistence == Persistence::Persistent && !domain.is_persistent() {
            return Err(KeyError::SeedPerProcess { algorithm: domain.algorithm.clone() });
        }
        let (chunk_tokens, tokens_per_hash) = (chunk_tokens.get(), domain.tokens_per_hash.get());
        if chunk_tokens == 0 {
            return Err(KeyError::ChunkTokensZero);
        }
        if tokens_per_hash == 0 || !chunk_tokens.is_multiple_of(tokens_per_hash) {
            return Err(KeyError::TokensPerHash { tokens_per_hash, chunk_tokens });
        }
        Ok(Self {
            root: root_encoding(content, salt, group).key(),
            chunk_tokens,
            keys: Vec::new(),
            persistence,
            open: OpenChunk::Hashes(HashLink::new(content, salt, domain, group)),
        })
    }

    /// Adds token ids and returns the keys of the chunks that they completed.
    ///
    /// Costs one hash a completed chunk; tokens of the open chunk are only copied.
    ///
    /// # Errors
    ///
    /// [`KeyError::Mode`] on a chain of engine hashes; [`KeyError::SequenceLong`].
    pub fn push(&mut self, token_ids: &[u32]) -> Result<&[Key], KeyError> {
        self.check_room(token_ids.len(), 1)?;
        let OpenChunk::Tokens { link, extras } = &mut self.open else {
            return Err(self.wrong_mode());
        };
        let chunk_tokens = self.chunk_tokens as usize;
        let known = self.keys.len();
        let mut first = hashed_tokens(&self.keys, self.chunk_tokens);
        let mut rest = token_ids;
        while let Some((completing, after)) = rest.split_at_checked(chunk_tokens - link.len()) {
            link.append(completing);
            self.keys.push(link.complete(extras, first));
            first += self.chunk_tokens;
            extras.pass(first);
            rest = after;
        }
        link.append(rest);
        Ok(&self.keys[known..])
    }

    /// Adds one hash per full block and returns the keys of the chunks that they completed.
    ///
    /// # Errors
    ///
    /// [`KeyError::Mode`] on a chain of tokens; [`KeyError::HashEmpty`] and
    /// [`KeyError::HashLength`] for hashes that are not of one algorithm;
    /// [`KeyError::SequenceLong`].
    pub fn push_hashes<H: AsRef<[u8]>>(&mut self, hashes: &[H]) -> Result<&[Key], KeyError> {
        self.check_room(hashes.len(), self.unit_tokens())?;
        let OpenChunk::Hashes(link) = &mut self.open else {
            return Err(self.wrong_mode());
        };
        link.check(hashes)?;
        let hashes_per_chunk = (self.chunk_tokens / link.tokens_per_hash()) as usize;
        let known = self.keys.len();
        for hash in hashes {
            if link.len() + 1 == hashes_per_chunk {
                self.keys.push(link.complete(hash.as_ref()));
            } else {
                link.append(hash.as_ref());
            }
        }
        Ok(&self.keys[known..])
    }

    /// Adds what else decides the KV from some token on: a LoRA adapter, a multimodal item.
    ///
    /// Must come before the tokens that complete the first chunk it reaches into; it may come
    /// before the chunk has any token. The order of calls does not matter.
    ///
    /// # Errors
    ///
    /// [`KeyError::ExtraLate`]; [`KeyError::ExtraDigestEmpty`]; [`KeyError::ItemEmpty`];
    /// [`KeyError::LoraTwice`]; [`KeyError::Mode`] on a chain of engine hashes.
    pub fn add_extra(&mut self, extra: impl Into<Extra>) -> Result<(), KeyError> {
        let hashed = hashed_tokens(&self.keys, self.chunk_tokens);
        match &mut self.open {
            OpenChunk::Tokens { extras, .. } => extras.add(extra.into(), hashed),
            OpenChunk::Hashes(_) => Err(self.wrong_mode()),
        }
    }

    /// Cuts the chain to its first `tokens` tokens, as after a rejected speculation.
    ///
    /// Possible inside the open chunk and at every chunk boundary: tokens of earlier chunks are
    /// not kept. Multimodal items that begin at or past the cut are dropped and returned, since
    /// they go with their tokens; add those again whose tokens are pushed again. A LoRA adapter
    /// and items that begin before the cut stay.
    ///
    /// # Errors
    ///
    /// [`KeyError::TruncatePastEnd`]; [`KeyError::TruncateInsideChunk`], which names the boundary
    /// to truncate to; [`KeyError::TruncateInsideHash`].
    pub fn truncate(&mut self, tokens: TokenCount) -> Result<Vec<Extra>, KeyError> {
        let to = tokens.get();
        let end = self.token_count().get();
        if to > end {
            return Err(KeyError::TruncatePastEnd { to, tokens: end });
        }
        let unit_tokens = self.unit_tokens();
        if !to.is_multiple_of(unit_tokens) {
            return Err(KeyError::TruncateInsideHash { to, tokens_per_hash: unit_tokens });
        }
        let (chunks, open_tokens) = (to / self.chunk_tokens, to % self.chunk_tokens);
        let reopens = (chunks as usize) < self.keys.len();
        if reopens && open_tokens != 0 {
            return Err(KeyError::TruncateInsideChunk { to, boundary: to - open_tokens });
        }
        self.keys.truncate(chunks as usize);
        let previous = self.previous();
        Ok(match &mut self.open {
            OpenChunk::Tokens { link, extras } => {
                if reopens {
                    link.restart(previous);
                }
                link.truncate(open_tokens as usize);
                extras.truncate(to).into_iter().map(Extra::from).collect()
            }
            OpenChunk::Hashes(link) => {
                link.truncate((open_tokens / unit_tokens) as usize);
                Vec::new()
            }
        })
    }

    /// Returns the key of the longest tail chunk: all full blocks of the open chunk.
    ///
    /// `None` while no block of `block_tokens` tokens is full. The tail's tokens are hashed anew.
    /// It is not the key of the full chunk that starts with the same tokens: the number of tokens
    /// is part of what is hashed, and so is, with engine hashes, another block's hash.
    ///
    /// # Errors
    ///
    /// [`KeyError::BlockTokens`] unless a chunk is a whole number of blocks and a block a whole
    /// number of the engine's hashes.
    pub fn tail_key(&self, block_tokens: TokenCount) -> Result<Option<TailKey>, KeyError> {
        Ok(self.tails(block_tokens)?.next())
    }

    /// Returns the keys of all tail chunks that the open chunk's full blocks make, longest first:
    /// what the end of a lookup probes.
    ///
    /// To probe where the hits ended in an earlier chunk, clone the chain, truncate it to that
    /// boundary and push the chunk's tokens but the last.
    ///
    /// # Errors
    ///
    /// As [`KeyChain::tail_key`].
    pub fn tail_keys(&self, block_tokens: TokenCount) -> Result<Vec<TailKey>, KeyError> {
        Ok(self.tails(block_tokens)?.collect())
    }

    /// Returns the key that the first chunk follows. It names no chunk.
    pub const fn root(&self) -> Key {
        self.root
    }

    /// Returns the keys of all full chunks, first chunk first.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Returns the tokens of a full chunk.
    pub const fn chunk_tokens(&self) -> TokenCount {
        TokenCount::new(self.chunk_tokens)
    }

    /// Returns how many tokens the chain covers, those of the open chunk included.
    pub fn token_count(&self) -> TokenCount {
        TokenCount::new(hashed_tokens(&self.keys, self.chunk_tokens) + self.open_tokens())
    }

    /// Tells whether the keys may go to tiers that outlive the process.
    pub const fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// Derives the tails lazily, longest first.
    fn tails(
        &self,
        block_tokens: TokenCount,
    ) -> Result<impl Iterator<Item = TailKey> + '_, KeyError> {
        let (block_tokens, unit_tokens) = (block_tokens.get(), self.unit_tokens());
        let divides = block_tokens != 0
            && self.chunk_tokens.is_multiple_of(block_tokens)
            && block_tokens.is_multiple_of(unit_tokens);
        if !divides {
            return Err(KeyError::BlockTokens {
                block_tokens,
                chunk_tokens: self.chunk_tokens,
                unit_tokens,
            });
        }
        let blocks = self.open_tokens() / block_tokens;
        Ok((1..=blocks).rev().map(move |blocks| TailKey {
            key: self.tail(blocks * block_tokens),
            blocks: BlockCount::new(blocks),
        }))
    }

    /// Returns the key of the open chunk's first `tokens` tokens: a multiple of a unit, not 0.
    fn tail(&self, tokens: u32) -> Key {
        match &self.open {
            OpenChunk::Tokens { link, extras } => {
                let first = hashed_tokens(&self.keys, self.chunk_tokens);
                link.tail(extras, first, tokens as usize)
            }
            OpenChunk::Hashes(link) => link.tail((tokens / link.tokens_per_hash()) as usize),
        }
    }

    /// Returns the key that the open chunk follows.
    fn previous(&self) -> Key {
        self.keys.last().copied().unwrap_or(self.root)
    }

    /// Returns the tokens that one pushed item covers.
    const fn unit_tokens(&self) -> u32 {
        match &self.open {
            OpenChunk::Tokens { .. } => 1,
            OpenChunk::Hashes(link) => link.tokens_per_hash(),
        }
    }

    fn open_tokens(&self) -> u32 {
        let units = match &self.open {
            OpenChunk::Tokens { link, .. } => link.len(),
            OpenChunk::Hashes(link) => link.len(),
        };
        let units = u32::try_from(units).expect("the open chunk is shorter than chunk_tokens");
        units * self.unit_tokens()
    }

    /// Checks that positions still fit after `count` more items of `unit_tokens` tokens.
    fn check_room(&self, count: usize, unit_tokens: u32) -> Result<(), KeyError> {
        let tokens = self.token_count().get();
        u32::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(unit_tokens))
            .and_then(|added| tokens.checked_add(added))
            .map(|_| ())
            .ok_or(KeyError::SequenceLong {
                tokens,
                pushed: count.saturating_mul(unit_tokens as usize),
            })
    }

    const fn wrong_mode(&self) -> KeyError {
        let chain = match self.open {
            OpenChunk::Tokens { .. } => KeyMode::Tokens,
            OpenChunk::Hashes(_) => KeyMode::EngineHashes,
        };
        KeyError::Mode { chain }
    }
}

/// Returns the tokens that are under `keys`.
fn hashed_tokens(keys: &[Key], chunk_tokens: u32) -> u32 {
    let chunks = u32::try_from(keys.len()).expect("a chain has at most 2^32 - 1 tokens");
    chunks * chunk_tokens
}

impl fmt::Debug for KeyChain {
    /// Prints counts and keys; never tokens, salt or hashes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("KeyChain")
            .field("root", &self.root)
            .field("chunk_tokens", &self.chunk_tokens)
            .field("tokens", &self.token_count().get())
            .field("last_key", &self.keys.last())
            .finish_non_exhaustive()
    }
}
