//! Sweeps: one run of everything, again and again, with the first, the second, the third operation
//! of the drive or the device going wrong in each way.
//!
//! After each: no wrong byte, nothing hangs, every slot comes back, the oracle's promises hold, and
//! health, counters or an answer tell of what nobody could overlook.

use crate::counted::counted;
use crate::system::{DEVICE_FAULTS, DRIVE_FAULTS, DeviceFault, HOPS, Run, World};
use kvtide::io::sim::{SimFault, SimRule};

/// Two conversations stored, flushed, loaded, partly erased; everything cleared; a restart between,
/// and more than the tiers can hold.
const SCRIPT: &str = include_str!("sweep.run");

/// Operations of the script at most.
const OPERATION_COUNT_MAX: u64 = 1_500;

/// Faults that whoever asked for the operation is told of. The others show when what they spoilt is
/// read, if it ever is and there is no second copy.
const OPEN_FAULTS: [SimFault; 6] = [
    SimFault::Error,
    SimFault::NoSpace,
    SimFault::Stall,
    SimFault::Hang,
    SimFault::Vanish,
    SimFault::ReadOnly,
];

/// Plays the script in `world`; `None` when `has_befallen` says that what was planned has not.
fn play(mut world: World, script: &Run, has_befallen: impl Fn(&mut World) -> bool) -> Option<bool> {
    for step in &script.steps {
        world.step(*step);
    }
    world.settle();
    has_befallen(&mut world).then(|| {
        let has_told = world.has_told();
        world.end();
        has_told
    })
}

/// Every one of the first operations, when stores are made and runs begun; then some.
fn numbers(dense_count: u64) -> impl Iterator<Item = u64> {
    (0..dense_count).chain((dense_count..OPERATION_COUNT_MAX).step_by(7))
}

#[test]
fn whichever_operation_of_the_drive_fails_in_whatever_way_every_promise_holds() {
    let script = Run::parse(SCRIPT);
    for fault in DRIVE_FAULTS {
        let (mut count, mut told) = (0, 0);
        for number in numbers(60) {
            let mut world = World::new(script.setup);
            world.plan_drive_fault(fault, SimRule::new(fault).at(number));
            let played = play(world, &script, |world| world.has_drive_been_faulted());
            let Some(has_told) = played else { break };
            let is_open = OPEN_FAULTS.contains(&fault);
            assert!(has_told || !is_open, "nobody tells of {fault:?} of operation {number}");
            count += 1;
            told += u32::from(has_told);
        }
        println!("{fault:?}: {count} runs, {told} told of it");
        counted("swept runs of the drive", count);
        assert!(count > 20, "{fault:?} befell only {count} operations");
    }
}

#[test]
fn whichever_operation_of_the_device_fails_in_whatever_way_every_promise_holds() {
    let script = Run::parse(SCRIPT);
    for hop in HOPS {
        for fault in DEVICE_FAULTS {
            let (mut count, mut told) = (0, 0);
            for number in numbers(20) {
                let mut world = World::new(script.setup);
                world.plan_device_fault(fault, hop, number);
                let played = play(world, &script, World::has_device_been_faulted);
                let Some(has_told) = played else { break };
                let is_open = fault != DeviceFault::Corrupt;
                assert!(has_told || !is_open, "nobody tells of {fault:?} of {hop:?} {number}");
                count += 1;
                told += u32::from(has_told);
            }
            println!("{hop:?} {fault:?}: {count} runs, {told} told of it");
            counted("swept runs of the device", count);
            assert!(count > 10, "{fault:?} befell only {count} operations of {hop:?}");
        }
    }
}

#[test]
fn nobody_tells_of_anything_when_nothing_fails() {
    let script = Run::parse(SCRIPT);
    let has_told = play(World::new(script.setup), &script, |_| true);
    assert_eq!(has_told, Some(false));
}
