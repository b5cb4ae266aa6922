//! Single promises of clearing, each with the shortest run that would break it.

use crate::disk_bench::{DiskBench, GROUP, NOW, key, keys};
use kvtide::core::{Failure, MissReason, Stage, StorePoint};
use kvtide::key::Key;

#[test]
fn nothing_stored_before_a_clear_is_a_hit_or_loaded_after_it() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1, 2]));
    bench.empty_host();
    bench.store(None, &keys([3]));
    let plan = bench.plan(&keys([1]));
    bench.core.clear();
    for number in 1..=3 {
        assert_eq!(bench.core.peek(key(number)), Some(MissReason::Cleared));
        assert_eq!(bench.core.point(key(number)), None);
    }
    let probe = bench.core.extend_plan(plan, GROUP, &keys([2])).expect("the plan is open");
    assert_eq!((probe.hit_count, probe.miss), (0, Some(MissReason::Cleared)));
    assert_eq!(bench.load(&keys([1])), [Stage::Failed(Failure::Missing)]);
    bench.core.drop_plan(plan);
    bench.finish();
    assert_eq!(bench.core.slots(GROUP).map(|slots| slots.used), Some(0));
    assert_eq!(bench.core.disk_slots(GROUP).map(|slots| slots.used), Some(0));
    assert_eq!(bench.core.counters().cleared, 3);
}

#[test]
fn the_same_keys_can_be_stored_again_before_the_sweep_is_done() {
    const COUNT: u128 = 512;
    let mut bench = DiskBench::new(512, 512);
    let path: Vec<Key> = (0..COUNT).map(key).collect();
    for start in (0..512_usize).step_by(64) {
        bench.store(start.checked_sub(1).map(|above| path[above]), &path[start..start + 64]);
    }
    bench.core.clear();
    assert!(bench.core.has_backlog(), "one call clears a part");
    for start in (0..512_usize).step_by(64) {
        let parent = start.checked_sub(1).map(|above| path[above]);
        let transfer = bench.start_store(parent, &path[start..start + 64]);
        bench.finish_hops();
        assert_eq!(bench.stages(transfer), [Stage::Done; 64]);
    }
    bench.finish();
    assert!(path.iter().all(|key| bench.core.point(*key) == Some(StorePoint::Written)));
    assert_eq!(bench.core.counters().cleared, 512);
}

#[test]
fn transfers_under_way_end_cleared() {
    let mut bench = DiskBench::with(8, 8, |config| {
        config.staging_out_pieces = 1;
        config.staging_in_pieces = 1;
    });
    bench.store(None, &keys([1, 2, 3]));
    bench.empty_host();
    let reading = bench.start_load(&keys([1]));
    let joined = bench.start_load(&keys([1]));
    let storing = bench.start_store(Some(key(3)), &keys([4, 5]));
    bench.core.clear();
    // The same key, stored again, has nothing to do with the store under way.
    let again = bench.start_store(None, &keys([4]));
    bench.finish();
    let cleared = Stage::Failed(Failure::Cleared);
    assert_eq!(bench.stages(reading), [cleared]);
    assert_eq!(bench.stages(joined), [cleared]);
    assert_eq!(bench.stages(storing), [cleared; 2]);
    assert_eq!(bench.stages(again), [Stage::Done]);
    assert_eq!(bench.core.slots(GROUP).map(|slots| slots.used), Some(1));
}

#[test]
fn a_write_under_way_does_not_bring_a_cleared_chunk_back() {
    let mut bench = DiskBench::new(4, 8);
    let transfer = bench.start_store(None, &keys([1]));
    bench.finish_hops();
    bench.core.detach(transfer);
    bench.core.clear();
    bench.finish();
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::Cleared));
    assert_eq!(bench.core.disk_slots(GROUP).map(|slots| slots.used), Some(0));
    assert_eq!(bench.core.counters().written, 0);
    assert_eq!(bench.core.counters().write_failures, 0);
}

#[test]
fn clears_without_end_keep_old_chunks_out() {
    let mut bench = DiskBench::new(1024, 1024);
    let path: Vec<Key> = (0..512).map(key).collect();
    for part in path.chunks(64) {
        for one in part {
            bench.store(None, &[*one]);
        }
    }
    // As many as the epochs have numbers: the first ones must not look new again.
    for _ in 0..256 {
        bench.core.clear();
    }
    assert!(path.iter().all(|key| bench.core.peek(*key).is_some()));
    bench.core.tick(NOW).expect("the core is sound");
    bench.finish();
    assert_eq!(bench.core.slots(GROUP).map(|slots| slots.used), Some(0));
}
