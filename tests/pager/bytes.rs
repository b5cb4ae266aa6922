//! What comes back is what was stored for the key, whatever is evicted, shared or refused.

use crate::engine::{Engine, PATIENT, THREADS, Worker, keys};
use crate::support::scatter;
use kvtide::core::{Failure, Stage};
use kvtide::device::cpu::CpuConfig;
use kvtide::device::{DeviceError, Ready};
use kvtide::key::Key;
use kvtide::pager::{Health, RequestError, StoreChunks, Ticket};
use kvtide::units::{GroupIndex, TenantId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Without faults a chunk is done, or there was no room for it or those before it.
fn is_expected(stage: Stage) -> bool {
    matches!(
        stage,
        Stage::Done | Stage::Failed(Failure::Full | Failure::ParentMissing | Failure::Busy)
    )
}

#[test]
fn what_comes_back_is_what_was_stored_for_the_key() {
    for (host_chunks, pieces) in [(6, 1), (20, 3), (200, 16)] {
        let config = CpuConfig { out_pieces: pieces, in_pieces: pieces };
        let engine = Engine::open(host_chunks, config, PATIENT);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let worker = Worker::new(&engine, number);
                std::thread::spawn(move || {
                    for round in 0..150_u64 {
                        let chance = scatter(u64::from(number) << 32 | round);
                        let chunk_count = 1 + u32::try_from(chance >> 40).expect("24 bits") % 12;
                        for stage in worker.request(chance % 9, chunk_count) {
                            assert!(is_expected(stage), "{stage:?}");
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no wrong byte");
        }
        engine.pager.audit().expect("all invariants hold");
        let counters = engine.pager.counters();
        assert!(engine.compared.load(Ordering::Relaxed) > 100, "{counters:?}");
        assert_eq!(counters.loaded, engine.hits.load(Ordering::Relaxed));
        assert_eq!(counters.lost, 0);
        if host_chunks < 100 {
            assert!(counters.evicted > 0, "the sizes force eviction: {counters:?}");
        }
        let engine = Arc::into_inner(engine).expect("all threads are done");
        assert!(engine.pager.close().is_drained);
    }
}

/// Stores one chunk behind an event that the returned sender holds back.
fn store_behind_an_event(worker: &Worker, keys: &[Key]) -> (Sender<()>, Ticket) {
    let (hold, until) = channel::<()>();
    worker.stream.launch(move || {
        let _ended = until.recv();
    });
    worker.stream.record(worker.event).expect("the device's own event");
    let ticket = worker.engine.pager.store(StoreChunks {
        group: GroupIndex::new(0),
        parent: None,
        keys,
        blocks: worker.blocks_of(0),
        tenant: TenantId::new(0),
        ready: Ready::After(worker.event),
        timeout: None,
    });
    (hold, ticket.expect("a good request"))
}

#[test]
fn a_store_reads_its_blocks_only_after_the_engines_event() {
    let engine = Engine::open(8, CpuConfig { out_pieces: 2, in_pieces: 2 }, PATIENT);
    let worker = Worker::new(&engine, 0);
    let (group, keys) = (GroupIndex::new(0), keys(0, 5, 1));
    worker.engine.spoil(group, worker.blocks_of(0));
    let (hold, ticket) = store_behind_an_event(&worker, &keys);
    // Until the event the blocks are the engine's: what it writes last is what is stored.
    engine.write(group, keys[0], worker.blocks_of(0));
    assert!(!ticket.is_released());
    drop(hold);
    assert!(ticket.wait().is_done());
    let no_tokens = engine.pager.lookup(&[&keys, &[]]).expect("a plan is free");
    assert_eq!(no_tokens.tokens().get(), 0, "the window group has nothing");
    worker.load(&no_tokens, group, &keys, 0);
}

#[test]
fn a_clear_under_a_pack_costs_no_staging() {
    let engine = Engine::open(8, CpuConfig { out_pieces: 1, in_pieces: 1 }, PATIENT);
    let worker = Worker::new(&engine, 0);
    let (group, keys) = (GroupIndex::new(0), keys(0, 5, 1));
    worker.engine.spoil(group, worker.blocks_of(0));
    for _ in 0..3 {
        let (hold, ticket) = store_behind_an_event(&worker, &keys);
        engine.pager.clear(PATIENT).expect("there is no disk to be waited for");
        drop(hold);
        assert_eq!(ticket.wait().stages, [Stage::Failed(Failure::Cleared)]);
    }
    assert!(worker.store(group, &keys, 0).is_done(), "the only piece is free again");
}

#[test]
fn an_event_that_never_comes_is_a_lost_device() {
    let config = CpuConfig { out_pieces: 2, in_pieces: 2 };
    let engine = Engine::open(8, config, Duration::from_millis(50));
    let worker = Worker::new(&engine, 0);
    let (hold, ticket) = store_behind_an_event(&worker, &keys(0, 5, 1));
    assert_eq!(ticket.wait().stages, [Stage::Failed(Failure::Device)]);
    assert_eq!(engine.pager.health(), Health::DeviceLost);
    // The engine writes its blocks again: nothing reads them any more.
    engine.spoil(GroupIndex::new(0), worker.blocks_of(0));
    drop(hold);
    engine.pager.audit().expect("all invariants hold");
}

#[test]
fn an_event_recorded_again_or_destroyed_still_means_what_it_meant_at_the_store() {
    let engine = Engine::open(8, CpuConfig { out_pieces: 1, in_pieces: 1 }, PATIENT);
    let (worker, other) = (Worker::new(&engine, 0), Worker::new(&engine, 1));
    let (group, keys) = (GroupIndex::new(0), keys(0, 5, 2));
    worker.engine.spoil(group, worker.blocks_of(0));
    // The only piece is taken, so the second chunk is given to the device only later.
    let (hold, first) = store_behind_an_event(&other, &keys[..1]);
    let (hold_second, second) = store_behind_an_event(&worker, &keys[1..]);
    other.stream.record(worker.event).expect("the device's own event");
    drop(hold);
    other.stream.synchronize().expect("nothing panics");
    first.wait();
    engine.device.destroy_event(worker.event).expect("the device's own event");
    assert!(!second.wait_released(Duration::from_millis(50)), "its blocks are not written yet");
    // Only now does the stream that the store waits for get this far.
    engine.write(group, keys[1], worker.blocks_of(0));
    drop(hold_second);
    assert!(second.wait().is_done());
    let plan = engine.pager.lookup(&[&keys[1..], &[]]).expect("a plan is free");
    assert!(worker.load(&plan, group, &keys[1..], 0).is_done(), "and compared");
}

#[test]
fn an_unknown_event_is_an_error_of_the_call() {
    let engine = Engine::open(8, CpuConfig { out_pieces: 1, in_pieces: 1 }, PATIENT);
    let worker = Worker::new(&engine, 0);
    engine.device.destroy_event(worker.event).expect("the device's own event");
    let refused = engine.pager.store(StoreChunks {
        group: GroupIndex::new(0),
        parent: None,
        keys: &keys(0, 5, 1),
        blocks: worker.blocks_of(0),
        tenant: TenantId::new(0),
        ready: Ready::After(worker.event),
        timeout: None,
    });
    assert!(matches!(refused, Err(RequestError::Device(DeviceError::UnknownEvent { .. }))));
}
