//! Memory as guarded regions at chosen addresses, with what is known of each byte.
//!
//! Each byte knows whether it was ever written and who touched it in this launch ([`Order`]). An
//! access must lie in one region, aligned to its size. Global regions are the caller's; those of
//! other state spaces lie in windows of their own below 2^32, one space each, so that an address
//! tells its space. Real windows lie elsewhere: nothing but this file depends on where.

use super::error::{Access, Cause, MapError, Space};
use super::order::Order;
use std::ops::Range;

/// Bytes between two regions at least: the widest access, so that none reaches from one to another.
const GUARD_BYTES: u64 = 16;

/// First address of global memory.
const GLOBAL_START: u64 = 1 << 32;

/// Bytes of a window.
const WINDOW_BYTES: u64 = 1 << 28;

impl Space {
    /// Returns the first address of the space's window.
    pub(super) const fn window(self) -> u64 {
        match self {
            Self::Param => WINDOW_BYTES,
            Self::Const => 2 * WINDOW_BYTES,
            Self::Shared => 3 * WINDOW_BYTES,
            Self::Local => 4 * WINDOW_BYTES,
            Self::Global => GLOBAL_START,
        }
    }

    /// Returns the space that an address belongs to; none stands for global.
    pub(super) fn of(address: u64) -> Option<Self> {
        match address / WINDOW_BYTES {
            1 => Some(Self::Param),
            2 => Some(Self::Const),
            3 => Some(Self::Shared),
            4 => Some(Self::Local),
            _ => None,
        }
    }
}

/// A device's global memory: regions that the caller maps.
///
/// It lives on from launch to launch, as a device's does. Everything outside the regions faults.
///
/// ```
/// use kvtide_simcuda::ptx::Memory;
///
/// let mut memory = Memory::new();
/// memory.map(0x7000_0000_0000, &[1, 2, 3])?;
/// assert_eq!(memory.read(0x7000_0000_0001, 2), Some(&[2, 3][..]));
/// assert_eq!(memory.read(0x7000_0000_0001, 3), None);
/// # Ok::<(), kvtide_simcuda::ptx::MapError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// In the order of their addresses.
    regions: Vec<Region>,
    /// The region that was touched last: the next access is likely there too.
    last: usize,
    /// The last tag used up by launches.
    tags_end: u32,
}

impl Memory {
    /// Returns a memory without a region.
    pub fn new() -> Self {
        Self::default()
    }

    /// Maps a region that holds `bytes`.
    ///
    /// # Errors
    ///
    /// [`MapError`] if the addresses are not global memory or less than 16 bytes from a region.
    pub fn map(&mut self, address: u64, bytes: &[u8]) -> Result<(), MapError> {
        self.insert(Region::new(address, bytes.to_vec(), true))
    }

    /// Maps a region that holds `bytes`, of which nobody wrote any: a thread that reads one before
    /// one has written it faults.
    ///
    /// # Errors
    ///
    /// As [`Memory::map`].
    pub fn map_uninitialised(&mut self, address: u64, bytes: &[u8]) -> Result<(), MapError> {
        self.insert(Region::new(address, bytes.to_vec(), false))
    }

    fn insert(&mut self, region: Region) -> Result<(), MapError> {
        let (address, bytes) = (region.start, region.bytes.len() as u64);
        let end = address.checked_add(bytes).and_then(|end| end.checked_add(GUARD_BYTES));
        let Some(end) = end.filter(|_| address >= GLOBAL_START) else {
            return Err(MapError::NotGlobal { address, bytes });
        };
        let index = self.regions.partition_point(|other| other.start < address);
        let before = index.checked_sub(1).map(|before| &self.regions[before]);
        let is_near = |other: &&Region| {
            let other_end = other.start + other.bytes.len() as u64;
            other.start < end && address < other_end + GUARD_BYTES
        };
        let neighbour = before.into_iter().chain(self.regions.get(index)).find(is_near);
        if let Some(neighbour) = neighbour {
            return Err(MapError::TooNear { address, bytes, neighbour: neighbour.start });
        }
        self.regions.insert(index, region);
        Ok(())
    }

    /// Returns `bytes` bytes of one region, written or not.
    pub fn read(&self, address: u64, bytes: usize) -> Option<&[u8]> {
        let region = &self.regions[self.index_of(address)?];
        let start = usize::try_from(address - region.start).ok()?;
        region.bytes.get(start..start.checked_add(bytes)?)
    }

    /// Returns whether `bytes` bytes lie in one region and were all written.
    pub fn is_initialised(&self, address: u64, bytes: usize) -> bool {
        let Some(index) = self.index_of(address) else { return false };
        let region = &self.regions[index];
        let written = usize::try_from(address - region.start)
            .ok()
            .and_then(|start| region.is_initialised.get(start..start.checked_add(bytes)?));
        written.is_some_and(|written| written.iter().all(|written| *written))
    }

    /// Returns the region that starts at `address` or before it.
    fn index_of(&self, address: u64) -> Option<usize> {
        self.regions.partition_point(|region| region.start <= address).checked_sub(1)
    }

    /// Returns the region that holds an access, and where in it.
    #[inline]
    pub(super) fn region(
        &mut self,
        address: u64,
        bytes: u64,
    ) -> Result<(&mut Region, usize), Cause> {
        let is_there = self.regions.get(self.last).is_some_and(|last| last.holds(address, bytes));
        if !is_there {
            self.last = self.index_of(address).ok_or(Cause::OutOfBounds { address, bytes })?;
        }
        self.regions[self.last].locate(address, bytes)
    }

    /// Begins a launch of thread blocks of `warp_count` warps.
    pub(super) fn begin_launch(&mut self, warp_count: u32) -> Order {
        Order::new(self.tags_end, warp_count)
    }

    /// Takes note of the tags that a launch used up.
    pub(super) fn end_launch(&mut self, order: &Order) {
        // Half of all tags are left for the longest launch.
        self.tags_end = order.end().filter(|end| *end < u32::MAX / 2).unwrap_or_else(|| {
            self.regions.iter_mut().for_each(Region::forget_order);
            0
        });
    }
}

/// Contiguous memory.
#[derive(Clone, Debug)]
pub(super) struct Region {
    start: u64,
    bytes: Vec<u8>,
    is_initialised: Vec<bool>,
    /// Tags of who touched each byte last.
    readers: Vec<u32>,
    writers: Vec<u32>,
    atomics: Vec<u32>,
}

impl Region {
    pub(super) fn new(start: u64, bytes: Vec<u8>, is_initialised: bool) -> Self {
        let length = bytes.len();
        Self {
            start,
            bytes,
            is_initialised: vec![is_initialised; length],
            readers: vec![0; length],
            writers: vec![0; length],
            atomics: vec![0; length],
        }
    }

    fn forget_order(&mut self) {
        for tags in [&mut self.readers, &mut self.writers, &mut self.atomics] {
            tags.fill(0);
        }
    }

    #[inline]
    fn holds(&self, address: u64, bytes: u64) -> bool {
        let length = self.bytes.len() as u64;
        address
            .checked_sub(self.start)
            .is_some_and(|offset| offset <= length && bytes <= length - offset)
    }

    /// Returns the region, and where in it an access lies.
    #[inline]
    pub(super) fn locate(&mut self, address: u64, bytes: u64) -> Result<(&mut Self, usize), Cause> {
        if !self.holds(address, bytes) {
            return Err(Cause::OutOfBounds { address, bytes });
        }
        // A region lies in this process's memory, so that its offsets fit.
        let offset = usize::try_from(address - self.start).unwrap_or(usize::MAX);
        Ok((self, offset))
    }

    /// Reads `bytes` bytes at `offset`, at most 8.
    #[inline]
    pub(super) fn load(
        &mut self,
        offset: usize,
        bytes: usize,
        order: &Order,
    ) -> Result<u64, Cause> {
        self.check_initialised(offset, bytes)?;
        let range = offset..offset + bytes;
        self.check_order(&[&self.writers, &self.atomics], &range, Access::Read, order)?;
        for reader in &mut self.readers[range] {
            *reader = order.join(*reader);
        }
        Ok(self.value(offset, bytes))
    }

    /// Writes the low `bytes` bytes of `value` at `offset`.
    #[inline]
    pub(super) fn store(
        &mut self,
        offset: usize,
        bytes: usize,
        value: u64,
        order: &Order,
    ) -> Result<(), Cause> {
        let range = offset..offset + bytes;
        let earlier = [&self.writers, &self.readers, &self.atomics];
        self.check_order(&earlier, &range, Access::Write, order)?;
        self.writers[range].fill(order.tag());
        self.set_value(offset, bytes, value);
        Ok(())
    }

    /// Replaces the value at `offset` by what `function` makes of it, and returns the old one.
    pub(super) fn update(
        &mut self,
        offset: usize,
        bytes: usize,
        function: impl Fn(u64) -> u64,
        order: &Order,
    ) -> Result<u64, Cause> {
        self.check_initialised(offset, bytes)?;
        let range = offset..offset + bytes;
        self.check_order(&[&self.writers, &self.readers], &range, Access::Atomic, order)?;
        for atomic in &mut self.atomics[range] {
            *atomic = order.join(*atomic);
        }
        let old = self.value(offset, bytes);
        self.set_value(offset, bytes, function(old));
        Ok(old)
    }

    #[inline]
    fn check_initialised(&self, offset: usize, bytes: usize) -> Result<(), Cause> {
        let unwritten = self.is_initialised[offset..offset + bytes].iter().position(|is| !is);
        unwritten.map_or(Ok(()), |index| {
            Err(Cause::UninitialisedMemory { address: self.start + (offset + index) as u64 })
        })
    }

    fn value(&self, offset: usize, bytes: usize) -> u64 {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&self.bytes[offset..offset + bytes]);
        u64::from_le_bytes(value)
    }

    fn set_value(&mut self, offset: usize, bytes: usize, value: u64) {
        let range = offset..offset + bytes;
        self.bytes[range.clone()].copy_from_slice(&value.to_le_bytes()[..bytes]);
        self.is_initialised[range].fill(true);
    }

    /// Checks that all earlier accesses of these kinds are ordered before this one.
    #[inline]
    fn check_order(
        &self,
        earlier: &[&Vec<u32>],
        range: &Range<usize>,
        access: Access,
        order: &Order,
    ) -> Result<(), Cause> {
        for tags in earlier {
            let unordered = tags[range.clone()].iter().position(|tag| !order.is_before(*tag));
            if let Some(index) = unordered {
                return Err(self.race(range.start + index, access, order));
            }
        }
        Ok(())
    }

    /// Says with which earlier access this one races.
    fn race(&self, at: usize, access: Access, order: &Order) -> Cause {
        let earlier = [
            (Access::Write, self.writers[at]),
            (Access::Atomic, self.atomics[at]),
            (Access::Read, self.readers[at]),
        ];
        // Two reads do not race, nor do two atomic accesses.
        let unordered = |&(other, tag): &(Access, u32)| {
            (other != access || access == Access::Write) && !order.is_before(tag)
        };
        let (other, tag) = earlier.into_iter().find(unordered).unwrap_or(earlier[0]);
        let other_thread_block = order.thread_block_of(tag);
        Cause::Race { address: self.start + at as u64, access, other, other_thread_block }
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, Cause, Memory};

    #[test]
    fn a_memory_whose_tags_are_used_up_starts_them_anew() {
        let address = 1 << 40;
        let mut memory = Memory::new();
        memory.map(address, &[0; 8]).expect("nothing else is there");
        memory.tags_end = u32::MAX / 2 - 5;
        for _ in 0..4 {
            let mut order = memory.begin_launch(2);
            order.begin_thread_block(0);
            let mut write = |warp| {
                order.run_warp(warp);
                let (region, offset) = memory.region(address, 8)?;
                region.store(offset, 8, 7, &order)
            };
            assert_eq!(write(0), Ok(()));
            let (access, other_thread_block) = (Access::Write, Some(0));
            let race = Cause::Race { address, access, other: Access::Write, other_thread_block };
            assert_eq!(write(1), Err(race));
            memory.end_launch(&order);
        }
        assert!(memory.tags_end < 100);
    }
}
