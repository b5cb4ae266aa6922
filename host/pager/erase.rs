//! Erasing: what a tenant or a list of keys stands for is dropped from every tier.
//!
//! Without a disk tier that is a matter of the core. With one, the disk thread drops it from the
//! core and tells the stores in the same breath, between two slot writes, so that what is stored
//! anew from then on is neither dropped nor erased.
//!
//! Called by engines.

use super::Pager;
use super::disk::{DiskCommand, DiskCommandError};
use super::shared::{Effects, Shared};
use crate::core::{KEY_COUNT_MAX, Refused};
use crate::key::Key;
use crate::units::TenantId;
use std::time::Duration;

/// What is to be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Erasure {
    /// Every chunk that the tenant was the first to store.
    Tenant(TenantId),
    /// The chunks of these keys, any number, of any groups. A sequence is its keys.
    Keys(Vec<Key>),
}

impl Erasure {
    /// Drops it from the core, at most 64 chunks a hold of the lock.
    pub(super) fn drop_in_core(
        &self,
        shared: &Shared,
        effects: &mut Effects,
    ) -> Result<(), Refused> {
        match self {
            Self::Tenant(tenant) => {
                while !shared.collect(effects, |core| core.erase_tenant(*tenant))? {}
                Ok(())
            }
            Self::Keys(keys) => keys
                .chunks(KEY_COUNT_MAX)
                .try_for_each(|keys| shared.collect(effects, |core| core.erase_keys(keys))),
        }
    }
}

impl Pager {
    /// Erases chunks: once this returns, nothing that was stored of them before the call is found,
    /// loaded or written any more, in no tier, nor after a restart, a kill or a power cut.
    ///
    /// The same keys can be stored again at once. What is stored once the erasure has taken hold
    /// stays: with a disk tier that is when its thread takes the call up, in its next round.
    /// Chunks below an erased one can be reached again once it is stored again, and are the first
    /// to be evicted until then. Each chunk of a ticket under way that is erased ends as
    /// [`Failure::Cleared`](crate::core::Failure::Cleared), once what moves it has ended; the
    /// others of the ticket go on.
    ///
    /// On disk an erasure may take a few chunks more: records there keep 32 bits of a key, and of a
    /// tenant's number, which is exact below 2^32. And what earlier engines left of the same
    /// content and layout in other instances below the same roots goes whole. All of that is a
    /// miss. What another process, or another pager, has open there is left alone: erase with every
    /// engine. [`Pager::uncleared`] names what was left.
    ///
    /// # Errors
    ///
    /// [`DiskCommandError::ErasurePending`] when it is not durable in time: while a store is still
    /// being scanned, or holds a write that does not end, or another process has the root. It goes
    /// on by itself.
    /// [`DiskCommandError::NotErased`] when a drive fails it, or another process has had a root for
    /// longer than `io_timeout`: nothing of it is served any more, but it may be found by a later
    /// open. [`DiskCommandError::Refused`] and
    /// [`DiskCommandError::Gone`].
    ///
    /// # Examples
    ///
    /// Erasing a sequence: all chunks of its prefix, in each group.
    ///
    /// ```
    /// # use kvtide::device::cpu::{CpuConfig, CpuDevice, DeviceMemory};
    /// # use kvtide::layout::engines::{LatentCache, LayerBase};
    /// # use kvtide::layout::{Attention, ElementType, Layout, Paging};
    /// # use kvtide::units::{BlockCount, ByteCount};
    /// use kvtide::fingerprint::{ContentFingerprint, KeyMode, KvScales, RopeSettings};
    /// use kvtide::key::{KeyChain, TenantSalt};
    /// use kvtide::pager::{Erasure, Pager, PagerConfig};
    /// use kvtide::units::{GroupIndex, TenantId, TokenCount};
    /// use std::time::Duration;
    ///
    /// # fn open() -> Result<Pager, Box<dyn std::error::Error>> {
    /// #     let paging = Paging {
    /// #         block_tokens: TokenCount::new(16),
    /// #         blocks_per_chunk: BlockCount::new(2),
    /// #         block_count: BlockCount::new(8),
    /// #         attention: Attention::Full,
    /// #     };
    /// #     let memory = DeviceMemory::allocate(ByteCount::new(8 * 16 * 32))?;
    /// #     let row = ByteCount::new(32);
    /// #     let cache = LatentCache { paging, element_type: ElementType::U8, row };
    /// #     let layers = [LayerBase { layer: 0, base_address: memory.address() }];
    /// #     let layout = Layout::builder().group(cache.rows(&layers)).build()?;
    /// #     let config = CpuConfig { out_pieces: 2, in_pieces: 2 };
    /// #     let device = CpuDevice::open(&layout, vec![memory], config)?;
    /// #     Ok(Pager::open(&PagerConfig::new(layout, ByteCount::new(1 << 20)), device)?)
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pager = open()?;
    /// let content = ContentFingerprint::builder()
    ///     .model_id("example/model")
    ///     .revision("1")
    ///     .rope(RopeSettings::AsInCheckpoint)
    ///     .element_type("u8")
    ///     .kv_scales(KvScales::None)
    ///     .key_mode(KeyMode::Tokens)
    ///     .build()?;
    /// let salt = TenantSalt::new(b"per-tenant secret");
    /// let mut chain = KeyChain::tokens(&content, &salt, GroupIndex::new(0), TokenCount::new(32))?;
    /// chain.push(&[7; 100])?;
    ///
    /// let sequence = Erasure::Keys(chain.keys().to_vec());
    /// pager.erase(&sequence, Duration::from_secs(10))?;
    /// let everything_of_his = Erasure::Tenant(TenantId::new(17));
    /// pager.erase(&everything_of_his, Duration::from_secs(10))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn erase(&self, what: &Erasure, timeout: Duration) -> Result<(), DiskCommandError> {
        if self.shared.disk().is_none() {
            return self.erase_in_core(what);
        }
        let asked = self.ask_disk(timeout, |answer| DiskCommand::Erase(what.clone(), answer));
        match asked {
            Err(DiskCommandError::TimedOut) => Err(DiskCommandError::ErasurePending),
            answered => answered,
        }
    }

    fn erase_in_core(&self, what: &Erasure) -> Result<(), DiskCommandError> {
        // A forked child has the core's lock, and none of the threads.
        if !self.shared.is_own_process() {
            return Err(DiskCommandError::Gone);
        }
        let mut effects = Effects::new();
        let dropped = what.drop_in_core(&self.shared, &mut effects);
        self.shared.settle(&mut effects);
        self.shared.hand_over(effects.hops, effects.disk);
        Ok(dropped?)
    }
}
