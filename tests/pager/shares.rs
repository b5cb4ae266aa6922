//! Several engines below one root, each with a share of its capacity: all of them find room, none
//! takes another's, and each comes back warm.

use crate::disk::{close, open_disk, run, settings, wait_for};
use crate::engine::Engine;
use kvtide::core::WritePolicy;
use kvtide::io::sim::SimDrive;
use kvtide::pager::{DiskConfig, DiskHealth, DiskStripe, OpenError};
use kvtide::store::{Reclaim, StoreError, find_stores};
use kvtide::units::ByteCount;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

/// What all engines may take up together.
const CAPACITY: ByteCount = ByteCount::new(3 << 20);

/// A third of it.
const SHARE: ByteCount = ByteCount::new(1 << 20);

/// Less than three of them take up.
const LOWERED: ByteCount = ByteCount::new(3 << 19);

const ENGINE_COUNT: usize = 3;

fn settings_of(share: Option<ByteCount>) -> DiskConfig {
    let mut settings = settings(WritePolicy::Through);
    settings.stripes[0].capacity = CAPACITY;
    settings.stripes[0].share = share;
    settings
}

fn open_with(drive: &SimDrive, share: Option<ByteCount>) -> Arc<Engine> {
    let engine = open_disk(drive, 20, settings_of(share)).expect("it has room");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    engine
}

fn open_all(drive: &SimDrive) -> Vec<Arc<Engine>> {
    (0..ENGINE_COUNT).map(|_| open_with(drive, Some(SHARE))).collect()
}

/// Bytes that the stores of each instance take up.
fn bytes(drive: &SimDrive) -> HashMap<u32, u64> {
    let stores = find_stores(&mut drive.disk(99), Path::new("root")).expect("it can be listed");
    let mut bytes = HashMap::new();
    for store in stores {
        *bytes.entry(store.instance).or_default() += store.bytes.get();
    }
    bytes
}

fn check_bytes(drive: &SimDrive) {
    let bytes = bytes(drive);
    assert!(bytes.values().all(|bytes| *bytes <= SHARE.get()), "{bytes:?}");
    assert!(bytes.values().sum::<u64>() <= CAPACITY.get(), "{bytes:?}");
}

#[test]
fn engines_below_one_root_keep_to_their_shares_and_all_come_back_warm() {
    let drive = SimDrive::new(3);
    let engines = open_all(&drive);
    for round in 0..6 {
        for (number, engine) in (0..).zip(&engines) {
            run(engine, 10 * round + number, 8);
            check_bytes(&drive);
        }
    }
    assert_eq!(bytes(&drive).len(), ENGINE_COUNT);
    let evicted = |engine: &Arc<Engine>| engine.pager.counters().disk_copies_evicted;
    assert!(engines.iter().any(|engine| evicted(engine) > 0), "no share was ever full");
    for engine in engines {
        assert!(close(engine));
    }
    let engines = open_all(&drive);
    for (number, engine) in (0..).zip(&engines) {
        assert!(engine.pager.counters().adopted > 0, "engine {number} found nothing");
        run(engine, 100 + number, 8);
        check_bytes(&drive);
    }
    assert_eq!(bytes(&drive).len(), ENGINE_COUNT);
    for engine in engines {
        assert!(close(engine));
    }
}

#[test]
fn an_engine_has_the_same_instance_in_every_stripe() {
    let drive = SimDrive::new(7);
    let over = |roots: &[&str]| {
        let mut settings = settings_of(None);
        let stripe = |root: &&str| DiskStripe::new(root, CAPACITY).with_share(SHARE);
        settings.stripes = roots.iter().map(stripe).collect();
        open_disk(&drive, 20, settings).expect("it has room")
    };
    let instances = |root: &str| {
        let stores = find_stores(&mut drive.disk(99), Path::new(root)).expect("it can be listed");
        stores.into_iter().map(|store| store.instance).collect::<BTreeSet<u32>>()
    };
    let first = over(&["one"]);
    let second = over(&["one", "two"]);
    assert_eq!(instances("one"), BTreeSet::from([0, 1]));
    assert_eq!(instances("two"), BTreeSet::from([1]), "as in the other stripe");
    run(&second, 1, 20);
    assert!(close(first) && close(second));
    // Whoever comes first now has the first instance in both, and finds nothing of the second's.
    let first = over(&["one", "two"]);
    let second = over(&["one", "two"]);
    assert_eq!(instances("two"), BTreeSet::from([0, 1]));
    let adopted = [&first, &second].map(|engine| engine.pager.counters().adopted);
    assert!(adopted[0] == 0 && adopted[1] > 0, "{adopted:?}");
    assert!(close(first) && close(second));
}

#[test]
fn a_share_that_changes_changes_the_stores_at_the_next_open() {
    let drive = SimDrive::new(4);
    for share in [SHARE, ByteCount::new(SHARE.get() / 2), CAPACITY, SHARE] {
        let engine = open_with(&drive, Some(share));
        let used: u64 = bytes(&drive).values().sum();
        assert!(used <= share.get() && used > share.get() / 4, "{used} bytes of {share}");
        run(&engine, share.get(), 20);
        assert_eq!(bytes(&drive).values().sum::<u64>(), used);
        assert!(close(engine));
    }
}

#[test]
fn a_capacity_that_was_lowered_holds_from_the_next_open_on() {
    let drive = SimDrive::new(8);
    for engine in open_all(&drive) {
        run(&engine, 1, 10);
        assert!(close(engine));
    }
    let used = || bytes(&drive).values().sum::<u64>();
    assert!(used() > LOWERED.get());
    let lowered = |reclaim| {
        let mut settings = settings_of(Some(SHARE));
        settings.stripes[0].capacity = LOWERED;
        settings.reclaim = reclaim;
        open_disk(&drive, 20, settings).expect("its own store is there")
    };
    let tells = |engine: &Engine| {
        let downgrades = engine.pager.capabilities().downgrades;
        downgrades.iter().any(|one| one.what == "capacity of the disk tier")
    };
    // What is to stay stays, and that is told.
    let engine = lowered(Reclaim::Off);
    assert!(tells(&engine) && used() > LOWERED.get());
    assert!(close(engine));
    let engine = lowered(Reclaim::OldestFirst);
    assert!(!tells(&engine) && used() <= LOWERED.get());
    assert!(engine.pager.counters().adopted > 0, "its own is not what goes");
    assert!(close(engine));
}

#[test]
fn an_engine_without_room_is_told_what_the_others_take_up() {
    let drive = SimDrive::new(5);
    let first = open_with(&drive, None);
    let taken: u64 = bytes(&drive).values().sum();
    let refused = open_disk(&drive, 20, settings_of(Some(SHARE))).err();
    let Some(OpenError::Store(StoreError::NoRoom { needed, available, kept, .. })) = &refused
    else {
        panic!("{refused:?}");
    };
    assert!(needed.get() <= SHARE.get() && available < needed, "{refused:?}");
    // What it has made by then of its own is in use, too.
    assert!((taken..taken + SHARE.get()).contains(&kept.get()), "{refused:?}, {taken} taken");
    let text = refused.map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("root") && text.contains("share of the capacity"), "{text}");
    assert!(close(first));
    // Nobody has them now: the store of the first engine is the second's, made smaller.
    assert!(close(open_with(&drive, Some(SHARE))));
    check_bytes(&drive);
    // Nor is anything taken from stores that are to stay.
    let mut settings = settings_of(Some(CAPACITY));
    settings.reclaim = Reclaim::Off;
    settings.instance = Some(7);
    let refused = open_disk(&drive, 20, settings).err();
    let kept: u64 = bytes(&drive).values().sum();
    let is_told = matches!(
        &refused,
        Some(OpenError::Store(StoreError::NoRoom { kept: found, holders, .. }))
            if found.get() == kept && holders.is_empty()
    );
    assert!(is_told, "{refused:?} and not {kept} bytes kept");
}

#[test]
fn a_share_that_is_none_or_more_than_all_there_is_is_refused_by_name() {
    let drive = SimDrive::new(6);
    let more = ByteCount::new(CAPACITY.get() + 1);
    let refused = open_disk(&drive, 20, settings_of(Some(more))).err();
    let expected = OpenError::ShareTooLarge { stripe: 0, share: more, capacity: CAPACITY };
    assert_eq!(refused, Some(expected));
    for share in [0, 4096] {
        let refused = open_disk(&drive, 20, settings_of(Some(ByteCount::new(share)))).err();
        let Some(OpenError::CapacityTooSmall { field, capacity, needed, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((field.as_str(), capacity.get()), ("disk.stripes[0].share", share));
        let engine = open_with(&drive, Some(needed));
        assert!(close(engine));
    }
}
