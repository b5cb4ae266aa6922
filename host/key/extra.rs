//! Extras: what else than token ids decides the KV of a chunk.
//!
//! A LoRA adapter changes every layer from the first token on, so it enters the first link; keys
//! chain, so once is enough. A multimodal item stands in place of tokens, so it enters each link
//! whose tokens it reaches into, with its offset relative to that link's first token.
//!
//! Invariant: items are kept in their canonical order (first token, tokens, digest), so the order
//! in which an engine names them does not matter. Called by `KeyChain`.

use super::KeyError;
use super::frame::{Encoding, Tag};
use crate::units::TokenCount;

/// What else than token ids decides the KV of a chunk, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extra {
    /// A LoRA adapter over the whole sequence.
    Lora(Lora),
    /// An item of another mode in place of a run of tokens.
    Multimodal(MultimodalItem),
}

/// A LoRA adapter that is active from the sequence's first token to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lora {
    /// The engine's name of the adapter.
    pub name: String,
    /// Digest of the adapter's weights, so that a new version under an old name misses.
    pub digest: Vec<u8>,
}

/// An image, a piece of audio or any other embedding in place of a run of tokens.
///
/// Fields order as keys need them: by first token, then tokens, then digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MultimodalItem {
    /// Position in the sequence of the first token that the item stands for, from 0.
    pub first_token: TokenCount,
    /// How many tokens it stands for.
    pub tokens: TokenCount,
    /// Digest of the item and of whatever preprocessing changes its embedding.
    pub digest: Vec<u8>,
}

impl From<Lora> for Extra {
    fn from(lora: Lora) -> Self {
        Self::Lora(lora)
    }
}

impl From<MultimodalItem> for Extra {
    fn from(item: MultimodalItem) -> Self {
        Self::Multimodal(item)
    }
}

impl MultimodalItem {
    /// One past the last position that the item stands for.
    fn end(&self) -> u64 {
        u64::from(self.first_token.get()) + u64::from(self.tokens.get())
    }

    /// Appends the item as the link whose first token is at `link_first` sees it.
    fn encode(&self, encoding: &mut Encoding, link_first: u32) {
        let offset = i64::from(self.first_token.get()) - i64::from(link_first);
        encoding.nested(Tag::Multimodal, |item| {
            item.field(Tag::MultimodalDigest, &self.digest);
            item.field(Tag::MultimodalOffset, &offset.to_le_bytes());
            item.field(Tag::MultimodalTokens, &self.tokens.get().to_le_bytes());
        });
    }
}

/// The extras of one sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    lora: Option<Lora>,
    /// In canonical order.
    items: Vec<MultimodalItem>,
    /// Length of the prefix of `items` that ends at or before the open chunk, so that a long
    /// sequence does not look at all its items for each chunk.
    items_passed: usize,
}

impl Extras {
    /// Adds an extra to a sequence of which `hashed_tokens` are already under a key.
    pub(super) fn add(&mut self, extra: Extra, hashed_tokens: u32) -> Result<(), KeyError> {
        let (digest, first_token) = match &extra {
            Extra::Lora(lora) => (&lora.digest, 0),
            Extra::Multimodal(item) => (&item.digest, item.first_token.get()),
        };
        if digest.is_empty() {
            return Err(KeyError::ExtraDigestEmpty { first_token });
        }
        if first_token < hashed_tokens {
            return Err(KeyError::ExtraLate { first_token, hashed_tokens });
        }
        match extra {
            Extra::Lora(lora) => self.set_lora(lora),
            Extra::Multimodal(item) => self.insert_item(item),
        }
    }

    fn set_lora(&mut self, lora: Lora) -> Result<(), KeyError> {
        if let Some(held) = &self.lora {
            return Err(KeyError::LoraTwice { held: held.name.clone(), given: lora.name });
        }
        self.lora = Some(lora);
        Ok(())
    }

    fn insert_item(&mut self, item: MultimodalItem) -> Result<(), KeyError> {
        let first_token = item.first_token.get();
        if item.tokens.get() == 0 {
            return Err(KeyError::ItemEmpty { first_token });
        }
        let at = self.items.partition_point(|held| *held <= item);
        self.items.insert(at, item);
        Ok(())
    }

    /// Drops the items that begin at or past `tokens` and returns them.
    pub(super) fn truncate(&mut self, tokens: u32) -> Vec<MultimodalItem> {
        let kept = self.items.partition_point(|item| item.first_token.get() < tokens);
        self.items_passed = 0;
        self.items.split_off(kept)
    }

    /// Notes that no chunk before `hashed_tokens` will be encoded again.
    pub(super) fn pass(&mut self, hashed_tokens: u32) {
        let ended = |item: &MultimodalItem| item.end() <= u64::from(hashed_tokens);
        while self.items.get(self.items_passed).is_some_and(ended) {
            self.items_passed += 1;
        }
    }

    /// Appends what reaches into the `tokens` tokens from position `link_first` on.
    pub(super) fn encode(&self, encoding: &mut Encoding, link_first: u32, tokens: usize) {
        if let (0, Some(lora)) = (link_first, &self.lora) {
            encoding.nested(Tag::Lora, |extra| {
                extra.field(Tag::LoraName, lora.name.as_bytes());
                extra.field(Tag::LoraDigest, &lora.digest);
            });
        }
        let link_end = u64::from(link_first) + tokens as u64;
        self.items[self.items_passed..]
            .iter()
            .take_while(|item| u64::from(item.first_token.get()) < link_end)
            .filter(|item| item.end() > u64::from(link_first))
            .for_each(|item| item.encode(encoding, link_first));
    }
}
