//! Every failure path of the CPU device, injected: every ticket ends, what failed is a miss later
//! on, nothing of it reaches the engine's blocks, and the rest goes on.

use crate::counted::counted;
use crate::engine::{Engine, PATIENT, THREADS, Worker, keys};
use crate::support::scatter;
use kvtide::core::{Failure, Hop, MissReason, Stage};
use kvtide::device::cpu::{CpuConfig, Fault};
use kvtide::pager::Health;
use kvtide::units::GroupIndex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FULL: GroupIndex = GroupIndex::new(0);
const PIECES: CpuConfig = CpuConfig { out_pieces: 4, in_pieces: 4 };

/// Stores a chunk, loads it with the fault on one hop, and returns how both ended.
fn store_and_load(hop: Hop, fault: Fault) -> (Arc<Engine>, [Stage; 2]) {
    let engine = Engine::open(8, PIECES, PATIENT);
    let worker = Worker::new(&engine, 0);
    let keys = keys(0, 5, 1);
    engine.device.inject(hop, 0, fault);
    let stored = worker.store(FULL, &keys, 0).stages[0];
    let plan = engine.pager.lookup(&[&keys, &[]]).expect("a plan is free");
    let loaded = worker.load(&plan, FULL, &keys, 0).stages[0];
    drop(plan);
    engine.pager.audit().expect("all invariants hold");
    (engine, [stored, loaded])
}

fn miss(engine: &Engine) -> Option<MissReason> {
    // The window group's key was never stored: of the two groups, the full one is looked at first.
    let plan = engine.pager.lookup(&[&keys(0, 5, 1), &keys(1, 5, 2)]).expect("a plan is free");
    plan.groups()[0].miss
}

#[test]
fn a_failed_gather_or_copy_fails_its_chunk_and_frees_its_slot() {
    for hop in [Hop::Pack, Hop::OutLink] {
        let (engine, ends) = store_and_load(hop, Fault::Fail);
        let device = Stage::Failed(Failure::Device);
        assert_eq!(ends, [device, Stage::Failed(Failure::Missing)], "{hop:?}");
        assert_eq!(engine.pager.slots(FULL).map(|slots| slots.used), Some(0));
        assert_eq!(miss(&engine), Some(MissReason::Lost));
        assert_eq!(engine.pager.health(), Health::Serving);
    }
}

#[test]
fn a_failed_copy_or_scatter_of_a_load_leaves_the_chunk_stored() {
    for hop in [Hop::InLink, Hop::Unpack] {
        let (engine, ends) = store_and_load(hop, Fault::Fail);
        assert_eq!(ends, [Stage::Done, Stage::Failed(Failure::Device)], "{hop:?}");
        assert_eq!(miss(&engine), None);
        assert_eq!(engine.pager.slots(FULL).map(|slots| slots.used), Some(1));
    }
}

#[test]
fn bytes_that_rot_on_any_hop_are_lost_and_never_written() {
    for hop in [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack] {
        let (engine, ends) = store_and_load(hop, Fault::Corrupt { payload_byte: 77 });
        // The worker has checked that the blocks are as they were.
        assert_eq!(ends, [Stage::Done, Stage::Failed(Failure::Checksum)], "{hop:?}");
        assert_eq!(miss(&engine), Some(MissReason::Lost));
        assert_eq!(engine.pager.slots(FULL).map(|slots| slots.used), Some(0));
        assert_eq!(engine.pager.counters().lost, 1);
    }
}

#[test]
fn a_slow_operation_delays_its_ticket_and_nothing_else() {
    for hop in [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack] {
        let (engine, ends) = store_and_load(hop, Fault::Slow(Duration::from_millis(30)));
        assert_eq!(ends, [Stage::Done; 2], "{hop:?}");
        assert_eq!(engine.pager.health(), Health::Serving);
    }
}

#[test]
fn an_operation_that_never_ends_loses_the_device_and_ends_every_ticket() {
    for hop in [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack] {
        let engine = Engine::open(8, PIECES, Duration::from_millis(50));
        let worker = Worker::new(&engine, 0);
        engine.device.inject(hop, 0, Fault::Hang);
        let keys = keys(0, 5, 3);
        let stored = worker.store(FULL, &keys, 0);
        let plan = engine.pager.lookup(&[&keys, &[]]).expect("a plan is free");
        let loaded = worker.load(&plan, FULL, &keys, 0);
        let device = Stage::Failed(Failure::Device);
        let fails_storing = matches!(hop, Hop::Pack | Hop::OutLink);
        assert_eq!(stored.stages[0] == device, fails_storing, "{hop:?}: {stored:?}");
        assert!(!loaded.is_done(), "{hop:?}: {loaded:?}");
        assert_eq!(engine.pager.health(), Health::DeviceLost);
        engine.pager.audit().expect("all invariants hold");
        drop((plan, worker));
        let engine = Arc::into_inner(engine).expect("nobody else holds it");
        assert!(engine.pager.close().is_drained, "nothing is under way any more");
    }
}

/// Plans a fault for about one operation in ten of each hop.
fn inject_at_random(engine: &Engine, seed: u64) {
    for (number, hop) in [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack].into_iter().enumerate()
    {
        for operation in 0..3_000 {
            let chance = scatter(seed ^ scatter((number as u64) << 32 | operation));
            let fault = match chance % 30 {
                0 => Fault::Fail,
                1 => Fault::Corrupt { payload_byte: chance >> 20 },
                2 => Fault::Slow(Duration::from_micros(chance >> 8 & 0x3ff)),
                _ => continue,
            };
            engine.device.inject(hop, operation, fault);
        }
    }
}

/// Says what the device did, and how much of it failed.
fn count_operations(engine: &Engine) {
    let hops = engine.pager.hops();
    for hop in [hops.pack, hops.out_link, hops.in_link, hops.unpack] {
        counted("operations of the device under faults", hop.operations + hop.failed_operations);
        counted("failed operations of the device", hop.failed_operations);
    }
}

#[test]
fn under_random_faults_no_wrong_byte_comes_back_and_every_ticket_ends() {
    for (seed, host_chunks) in [(1, 6), (2, 20), (3, 200)] {
        let engine = Engine::open(host_chunks, PIECES, PATIENT);
        inject_at_random(&engine, seed);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let worker = Worker::new(&engine, number);
                std::thread::spawn(move || {
                    let requests = (0..120_u64).flat_map(|round| {
                        let chance = scatter(seed << 48 | u64::from(number) << 32 | round);
                        let chunk_count = 1 + u32::try_from(chance >> 40).expect("24 bits") % 12;
                        worker.request(chance % 9, chunk_count)
                    });
                    requests.filter(|stage| *stage == Stage::Failed(Failure::Checksum)).count()
                })
            })
            .collect();
        let rotten: usize =
            threads.into_iter().map(|thread| thread.join().expect("no wrong byte")).sum();
        engine.pager.audit().expect("all invariants hold");
        let counters = engine.pager.counters();
        assert!(engine.compared.load(Ordering::Relaxed) > 50, "{counters:?}");
        assert!(counters.lost > 0 && rotten > 0, "faults were met: {counters:?}");
        assert_eq!(counters.hits + counters.misses, counters.probes);
        count_operations(&engine);
        let engine = Arc::into_inner(engine).expect("all threads are done");
        assert!(engine.pager.close().is_drained);
    }
}
