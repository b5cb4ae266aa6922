//! The emulated engine against the dry run, and against devices that do what they must not.

use super::{
    ByteReplayError, ByteReport, EngineConfig, EngineDisk, Geometry, WrongByte, replay_bytes,
};
use crate::core::WritePolicy;
use crate::device::{Device, DeviceError, EventHandle, Finished, Operation, Staging, Work};
use crate::layout::{PlaneContent, PlaneName};
use crate::pager::DiskStripe;
use crate::replay::bytes::pattern::{POISON, Pattern};
use crate::replay::cache::key_of;
use crate::replay::request::{BlockNumber, BlockRun, Request, Scope};
use crate::replay::{CoreCache, Generator, Trace, Workload, dry_run};
use crate::units::{BlockCount, BlockId, ByteCount, ChunkCount, TokenCount};
use std::sync::Arc;
use std::time::Duration;

fn config(trace: &Trace, geometry: Geometry, host_chunks: u32, concurrency: u32) -> EngineConfig {
    EngineConfig {
        geometry,
        block_tokens: TokenCount::new(4),
        host_chunks: ChunkCount::new(host_chunks),
        device_blocks: BlockCount::new(trace.longest_request().get() * concurrency),
        concurrency,
        disk: None,
    }
}

/// The geometry with its planes, but only 4 bytes a row.
fn thin(geometry: Geometry) -> Geometry {
    geometry.scaled_to(ByteCount::new(4 * u64::from(geometry.plane_count()))).unwrap()
}

fn generated(workload: Workload, seed: u64, requests: u64) -> Trace {
    let workload = Workload { live_sessions: 8, ..workload };
    Trace::from_requests(Generator::new(workload, seed, requests).unwrap().collect()).unwrap()
}

fn trace_of(requests: &[&[u64]]) -> Trace {
    let request = |blocks: &[u64]| {
        let runs = blocks.iter().map(|block| BlockRun::new(BlockNumber::new(*block), 1).unwrap());
        let tokens = TokenCount::new(10 * u32::try_from(blocks.len()).unwrap());
        let request = Request::new(Scope::GLOBAL, runs).unwrap();
        request.with_tokens(tokens, TokenCount::new(0))
    };
    Trace::from_requests(requests.iter().map(|blocks| request(blocks)).collect()).unwrap()
}

fn replay(trace: &Trace, config: &EngineConfig) -> ByteReport {
    let report = replay_bytes(trace, config, |device| device, |_| ()).unwrap();
    assert_eq!(report.first_wrong, None);
    assert_eq!(report.wrong_count, 0);
    assert_eq!(report.load_failures.total(), 0, "{:?}", report.load_failures);
    assert_eq!(report.compared_count, report.hit_count);
    assert_eq!(report.computed_count, report.block_use_count - report.compared_count);
    report
}

fn dry_hits(trace: &Trace, host_chunks: u32) -> u64 {
    dry_run(trace, ChunkCount::new(host_chunks), CoreCache::new, |_| ()).unwrap().hit_count
}

/// A percent of all block uses.
fn point(trace: &Trace) -> u64 {
    trace.block_use_count() / 100
}

#[test]
fn one_request_at_a_time_hits_what_the_dry_run_hits_also_where_requests_outgrow_the_tier() {
    for (workload, seed) in [(Workload::CHAT, 1), (Workload::CHAT, 2), (Workload::AGENT, 1)] {
        let trace = generated(workload, seed, 150);
        let longest = trace.longest_request().get();
        let unique = u32::try_from(trace.unique_blocks().count()).unwrap();
        for host_chunks in [longest / 3, longest, unique / 4, unique / 2, unique] {
            let config = config(&trace, thin(Geometry::LLAMA_3_8B), host_chunks, 1);
            let report = replay(&trace, &config);
            let dry = dry_hits(&trace, host_chunks);
            let apart = report.hit_count.abs_diff(dry);
            assert!(apart <= point(&trace), "{host_chunks} chunks: {} {dry}", report.hit_count);
            assert!(host_chunks == unique || report.eviction_count > 0);
        }
    }
}

#[test]
fn every_geometry_comes_back_byte_for_byte() {
    let trace = generated(Workload::CHAT, 5, 40);
    for geometry in Geometry::ALL {
        // Rows of 4 and 12 bytes: fragments of whole and of half 16-byte steps.
        for row in [4, 12] {
            let bytes = ByteCount::new(row * u64::from(geometry.plane_count()));
            let report = replay(&trace, &config(&trace, geometry.scaled_to(bytes).unwrap(), 60, 1));
            assert!(report.compared_count > 0 && report.eviction_count > 0);
            assert_eq!(report.compared_bytes(), report.compared_count * 4 * bytes.get());
            for hop in [&report.hops.in_link, &report.hops.unpack] {
                assert_eq!(hop.operations, report.compared_count);
            }
            for hop in [&report.hops.pack, &report.hops.out_link] {
                assert_eq!(hop.operations, report.stored_count);
            }
        }
    }
}

#[test]
fn four_requests_at_a_time_share_a_pool_for_two_and_no_byte_is_wrong() {
    let trace = generated(Workload::CHAT, 3, 200);
    let mut config = config(&trace, thin(Geometry::QWEN_3_8B), 200, 4);
    config.device_blocks = BlockCount::new(2 * trace.longest_request().get());
    let report = replay(&trace, &config);
    assert_eq!(report.request_count, 200);
    assert!(report.compared_count > 0 && report.eviction_count > 0);
}

#[test]
fn hits_saved_tokens_and_failures_are_counted_per_request() {
    let trace = trace_of(&[&[1, 2, 3], &[], &[1, 2, 4, 5], &[1, 2, 3]]);
    let report = replay(&trace, &config(&trace, thin(Geometry::LLAMA_3_8B), 5, 1));
    assert_eq!(report.request_count, 4);
    assert_eq!((report.hit_count, report.computed_count), (2 + 3, 3 + 2));
    assert_eq!(report.saved_token_count, 20 + 30);
    assert_eq!(report.stored_count, 5);
    assert_eq!((report.lookup.count, report.load.count, report.store.count), (3, 2, 2));
    // A tier of two chunks has no room for the third of a request.
    let report = replay(&trace, &config(&trace, thin(Geometry::LLAMA_3_8B), 2, 1));
    assert_eq!(report.hit_count, 4);
    let failures: Vec<_> = report.store_failures.by_name().collect();
    assert_eq!(failures, [("full", 4)]);
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_allocated() {
    let trace = trace_of(&[&[1, 2, 3]]);
    let good = config(&trace, thin(Geometry::LLAMA_3_8B), 3, 1);
    let refused = |config: EngineConfig| config.check(&trace).unwrap_err();
    assert_eq!(good.check(&trace), Ok(()));
    let zero = refused(EngineConfig { concurrency: 0, ..good.clone() });
    assert_eq!(zero, ByteReplayError::Zero { field: "concurrency" });
    let small = refused(EngineConfig { device_blocks: BlockCount::new(2), ..good.clone() });
    assert_eq!(
        small.to_string(),
        "the device pool of 2 blocks (2.0 KiB) does not hold the longest request of 3 blocks \
         (3.0 KiB); give it that much at least"
    );
    let block_tokens = TokenCount::new(1 << 31);
    let long = refused(EngineConfig { block_tokens, ..good.clone() });
    assert!(matches!(long, ByteReplayError::Layout(_)), "{long:?}");
    let device_blocks = BlockCount::new(1 << 30);
    let whole = EngineConfig { geometry: Geometry::LLAMA_3_70B, device_blocks, ..good.clone() };
    assert!(matches!(refused(whole), ByteReplayError::TooMuchMemory { .. }));
}

/// A device that alters operations on their way to another.
struct Altered<F> {
    inner: Arc<dyn Device>,
    alter: F,
}

impl<F> std::fmt::Debug for Altered<F> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Altered").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<F: Fn(&mut [Operation]) + Send + Sync> Device for Altered<F> {
    fn name(&self) -> &'static str {
        "altered"
    }

    fn staging(&self) -> Staging {
        self.inner.staging()
    }

    fn claim(&self) -> bool {
        self.inner.claim()
    }

    fn release(&self) {
        self.inner.release();
    }

    fn capture(&self, event: EventHandle) -> Result<EventHandle, DeviceError> {
        self.inner.capture(event)
    }

    fn forget(&self, captured: EventHandle) {
        self.inner.forget(captured);
    }

    fn submit(&self, mut operations: Vec<Operation>) -> Result<(), DeviceError> {
        (self.alter)(&mut operations);
        self.inner.submit(operations)
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.inner.poll(finished);
    }

    fn wait(&self, timeout: Duration) {
        self.inner.wait(timeout);
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn abandon(&self) {
        self.inner.abandon();
    }
}

/// Replays two equal requests of two chunks; the second loads what the first stored.
fn replay_altered(alter: impl Fn(&mut [Operation]) + Send + Sync + 'static) -> ByteReport {
    let trace = trace_of(&[&[1, 2], &[1, 2]]);
    let config = config(&trace, thin(Geometry::LLAMA_3_8B), 2, 1);
    let wrap = |inner| -> Arc<dyn Device> { Arc::new(Altered { inner, alter }) };
    let report = replay_bytes(&trace, &config, wrap, |_| ()).unwrap();
    assert_eq!(report.hit_count, 2);
    report
}

/// The byte of a chunk of that trace at the start of its first plane.
fn first_byte(block: u64) -> u8 {
    let request = Request::new(Scope::GLOBAL, []).unwrap();
    let mut fragment = [0; 16];
    Pattern::new(key_of(&request, BlockNumber::new(block)), 0).write(&mut fragment);
    fragment[0]
}

fn wrong_at_the_start(chunk: u32, expected: u8, found: u8) -> WrongByte {
    let request = Request::new(Scope::GLOBAL, []).unwrap();
    WrongByte {
        request: 1,
        chunk,
        key: key_of(&request, BlockNumber::new(u64::from(chunk) + 1)),
        plane: PlaneName { layer: 0, content: PlaneContent::Key },
        offset: 0,
        expected,
        found,
    }
}

#[test]
fn a_chunk_that_rots_in_its_slot_is_lost_and_never_written_into_a_block() {
    let report = replay_altered(|operations| {
        for operation in operations {
            if let Work::InLink { slot } = &operation.work {
                slot.write().expect("nobody else uses the slot").payload()[777] ^= 0x10;
            }
        }
    });
    assert_eq!((report.compared_count, report.wrong_count), (0, 0));
    assert_eq!(report.load_failures.by_name().collect::<Vec<_>>(), [("checksum", 2)]);
    assert_eq!(report.computed_count, 4);
    assert_eq!(report.stored_count, 4, "lost chunks are stored again");
}

#[test]
fn slots_that_are_mixed_up_are_lost_by_their_keys() {
    let report = replay_altered(|operations| {
        let mut slots: Vec<_> = operations
            .iter_mut()
            .filter_map(|operation| match &mut operation.work {
                Work::InLink { slot } => Some(slot),
                _ => None,
            })
            .collect();
        if let [one, other] = &mut slots[..] {
            std::mem::swap(*one, *other);
        }
    });
    assert_eq!((report.compared_count, report.wrong_count), (0, 0));
    assert_eq!(report.load_failures.by_name().collect::<Vec<_>>(), [("checksum", 2)]);
}

#[test]
fn a_chunk_that_lands_in_the_wrong_blocks_is_wrong_from_its_first_byte() {
    let report = replay_altered(|operations| {
        let unpacks = operations.iter_mut().filter_map(|operation| match &mut operation.work {
            Work::Unpack(chunk) => Some(chunk),
            _ => None,
        });
        for chunk in unpacks {
            // The pool hands out blocks 0 and 1.
            chunk.blocks[0] = BlockId::new(1 - chunk.blocks[0].get());
        }
    });
    assert_eq!((report.compared_count, report.wrong_count), (2, 2));
    let expected = wrong_at_the_start(0, first_byte(1), first_byte(2));
    assert_eq!(report.first_wrong, Some(expected));
    assert_eq!(
        expected.to_string(),
        format!(
            "request 1, chunk 0 (key 01000000000000000000000000000000), key of layer 0, offset 0: \
             {:#04x} instead of {:#04x}",
            first_byte(2),
            first_byte(1)
        )
    );
}

#[test]
fn a_chunk_that_never_comes_is_seen_by_what_its_block_was_filled_with() {
    let report = replay_altered(|operations| {
        for operation in operations {
            if let Work::Unpack(chunk) = &mut operation.work {
                chunk.blocks[0] = BlockId::SKIP;
            }
        }
    });
    assert_eq!((report.compared_count, report.wrong_count), (2, 2));
    assert_eq!(report.first_wrong, Some(wrong_at_the_start(0, first_byte(1), POISON)));
}

#[test]
fn a_pack_of_the_wrong_block_is_wrong_although_its_checksum_holds() {
    let report = replay_altered(|operations| {
        for operation in operations {
            if let Work::Pack(chunk) = &mut operation.work {
                chunk.blocks[0] = BlockId::new(0);
            }
        }
    });
    assert_eq!((report.compared_count, report.wrong_count), (2, 1));
    assert_eq!(report.load_failures.total(), 0);
    assert_eq!(report.first_wrong, Some(wrong_at_the_start(1, first_byte(2), first_byte(1))));
}

/// A directory that is removed at the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kvtide-{name}-{}", std::process::id()));
        let _absent = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_leaves_the_host_tier_comes_back_from_disk_and_a_second_run_is_warm() {
    let scratch = Scratch::new("warm");
    let trace = generated(Workload::CHAT, 1, 150);
    let unique = u32::try_from(trace.unique_blocks().count()).unwrap();
    let mut config = config(&trace, thin(Geometry::LLAMA_3_8B), unique / 50, 1);
    let slot = config.sizes().unwrap().slot.get();
    config.disk = Some(EngineDisk {
        stripes: vec![DiskStripe::new(
            &scratch.0,
            ByteCount::new((slot + 70) * u64::from(unique / 2) + (300 << 10)),
        )],
        write_policy: WritePolicy::Through,
        label: "warm".to_owned(),
    });
    let cold = replay(&trace, &config);
    let disk = cold.disk.clone().expect("a disk tier");
    // How much is written before it leaves the small host tier is the machine's pace, but what is
    // in it at the end is flushed, the beginning of every prompt with it.
    assert_eq!((disk.warm_count, disk.read_failure_count, disk.write_failure_count), (0, 0, 0));
    assert!(disk.is_clean && disk.directory_max <= disk.capacity, "{disk:?}");
    let warm = replay(&trace, &config);
    let disk = warm.disk.clone().expect("a disk tier");
    assert!(disk.warm_count > 0 && disk.hit_count > 0 && disk.read_count > 0, "{disk:?}");
    assert!(warm.hit_count > 0, "{disk:?}");
    assert_eq!((disk.read_failure_count, disk.write_failure_count), (0, 0));
    assert!(disk.directory_max <= disk.capacity, "{disk:?}");
}
