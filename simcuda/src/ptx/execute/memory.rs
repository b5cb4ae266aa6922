//! Loads, stores and atomics, lane by lane in the order of the lanes.

use super::super::error::{Cause, Space};
use super::super::instruction::{Address, AtomicFunction, MemoryType, Operation, Register, Source};
use super::super::integer::{Integer, truncate};
use super::super::memory::Region;
use super::super::warp::{Fault, LANES, Lanes, Warp, lanes};
use super::{Machine, Spaces};

/// Elements of the widest access.
const ELEMENTS_MAX: usize = 4;

impl Spaces<'_> {
    /// Returns the region that holds an access, and where in it.
    #[inline]
    fn region<'region>(
        &'region mut self,
        space: Option<Space>,
        local: Option<&'region mut Region>,
        address: u64,
        bytes: u64,
    ) -> Result<(&'region mut Region, usize), Cause> {
        if !address.is_multiple_of(bytes) {
            return Err(Cause::Misaligned { address, bytes });
        }
        let actual = Space::of(address).unwrap_or(Space::Global);
        let named = space.unwrap_or(actual);
        if named != actual {
            // An address of no memory at all is out of bounds rather than of another space.
            if actual == Space::Global && self.global.region(address, bytes).is_err() {
                return Err(Cause::OutOfBounds { address, bytes });
            }
            return Err(Cause::WrongSpace { address, named, actual });
        }
        match named {
            Space::Global => self.global.region(address, bytes),
            Space::Shared => self.shared.locate(address, bytes),
            Space::Const => self.constants.locate(address, bytes),
            Space::Param => self.parameters.locate(address, bytes),
            Space::Local => match local {
                Some(local) => local.locate(address, bytes),
                None => Err(Cause::OutOfBounds { address, bytes }),
            },
        }
    }
}

impl Warp {
    fn addresses(
        &self,
        address: Address,
        mask: u32,
        machine: &Machine<'_>,
    ) -> Result<Lanes, Fault> {
        let base = self.fetch(address.base, mask, machine)?;
        Ok(base.map(|base| base.wrapping_add(address.offset)))
    }

    /// Loads `targets.len()` elements into each lane.
    #[inline]
    pub(super) fn load(
        &mut self,
        memory: MemoryType,
        targets: &[Option<Register>],
        address: Address,
        mask: u32,
        machine: &mut Machine<'_>,
    ) -> Result<(), Fault> {
        let addresses = self.addresses(address, mask, machine)?;
        let mut loaded = [[0; LANES as usize]; ELEMENTS_MAX];
        for lane in lanes(mask) {
            let values = load_lane(self, memory, targets.len(), addresses[lane], lane, machine);
            let values = values.map_err(|cause| Fault { lane, cause })?;
            for (loaded, value) in loaded.iter_mut().zip(values) {
                loaded[lane] = value;
            }
        }
        for (target, loaded) in targets.iter().zip(&loaded) {
            let Some(target) = target else { continue };
            let extend = |value| truncate(memory.kind.extend(value), target.bits);
            self.write(*target, mask, &loaded.map(extend));
        }
        Ok(())
    }

    /// Stores `sources.len()` elements from each lane.
    #[inline]
    pub(super) fn store(
        &mut self,
        memory: MemoryType,
        sources: &[Source],
        address: Address,
        mask: u32,
        machine: &mut Machine<'_>,
    ) -> Result<(), Fault> {
        let addresses = self.addresses(address, mask, machine)?;
        let mut stored = [[0; LANES as usize]; ELEMENTS_MAX];
        for (stored, source) in stored.iter_mut().zip(sources) {
            *stored = self.fetch(*source, mask, machine)?;
        }
        for lane in lanes(mask) {
            let values = stored.map(|stored| stored[lane]);
            let values = &values[..sources.len()];
            store_lane(self, memory, values, addresses[lane], lane, machine)
                .map_err(|cause| Fault { lane, cause })?;
        }
        Ok(())
    }

    /// Runs an `atom` or `red`, which `operation` is.
    pub(super) fn atomic(
        &mut self,
        operation: &Operation,
        mask: u32,
        machine: &mut Machine<'_>,
    ) -> Result<(), Fault> {
        let Operation::Atomic { memory, function, target, address, operands } = operation else {
            return Ok(());
        };
        let addresses = self.addresses(*address, mask, machine)?;
        let first = self.fetch(operands[0], mask, machine)?;
        let second = self.fetch(*operands.last().unwrap_or(&operands[0]), mask, machine)?;
        let mut old = [0; LANES as usize];
        for lane in lanes(mask) {
            let operands = [first[lane], second[lane]];
            let value = update_lane(*memory, *function, operands, addresses[lane], machine);
            old[lane] = value.map_err(|cause| Fault { lane, cause })?;
        }
        if let Some(target) = target {
            self.write(*target, mask, &old);
        }
        Ok(())
    }
}

#[inline]
fn load_lane(
    warp: &mut Warp,
    memory: MemoryType,
    count: usize,
    address: u64,
    lane: usize,
    machine: &mut Machine<'_>,
) -> Result<[u64; ELEMENTS_MAX], Cause> {
    let bytes = memory.kind.bytes();
    let local = warp.local.get_mut(lane);
    let (region, offset) =
        machine.spaces.region(memory.space, local, address, (bytes * count) as u64)?;
    let mut values = [0; ELEMENTS_MAX];
    for (index, value) in values.iter_mut().enumerate().take(count) {
        *value = region.load(offset + index * bytes, bytes, &machine.order)?;
    }
    Ok(values)
}

#[inline]
fn store_lane(
    warp: &mut Warp,
    memory: MemoryType,
    values: &[u64],
    address: u64,
    lane: usize,
    machine: &mut Machine<'_>,
) -> Result<(), Cause> {
    let bytes = memory.kind.bytes();
    let local = warp.local.get_mut(lane);
    let all_bytes = (bytes * values.len()) as u64;
    let (region, offset) = machine.spaces.region(memory.space, local, address, all_bytes)?;
    for (index, value) in values.iter().enumerate() {
        region.store(offset + index * bytes, bytes, *value, &machine.order)?;
    }
    Ok(())
}

/// Updates memory for one lane, and returns what was there.
fn update_lane(
    memory: MemoryType,
    function: AtomicFunction,
    operands: [u64; 2],
    address: u64,
    machine: &mut Machine<'_>,
) -> Result<u64, Cause> {
    let kind = memory.kind;
    let bytes = kind.bytes();
    let (region, offset) = machine.spaces.region(memory.space, None, address, bytes as u64)?;
    let update = |old| updated(function, kind, old, operands);
    region.update(offset, bytes, update, &machine.order)
}

/// Returns what an atomic function makes of the old value.
fn updated(function: AtomicFunction, kind: Integer, old: u64, operands: [u64; 2]) -> u64 {
    let [first, second] = operands;
    match function {
        AtomicFunction::Apply(function) => {
            let values = [kind.extend(old), kind.extend(first), 0, 0];
            function.evaluate(values).map_or(old, |result| truncate(result, kind.bits))
        }
        AtomicFunction::Exchange => first,
        AtomicFunction::CompareAndSwap => {
            if old == first {
                second
            } else {
                old
            }
        }
        AtomicFunction::Increment => {
            if old >= first {
                0
            } else {
                old + 1
            }
        }
        AtomicFunction::Decrement => {
            if old == 0 || old > first {
                first
            } else {
                old - 1
            }
        }
    }
}
