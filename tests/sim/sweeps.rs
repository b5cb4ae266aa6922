//! Sweeps: one run of everything, again and again, with the first, the second, the third operation
//! of the drive or the device going wrong in each way.
//!
//! After each: no wrong byte, nothing hangs, every slot comes back, and the oracle's promises hold.

use crate::system::{DRIVE_FAULTS, Run, World};
use kvtide::io::sim::SimRule;

/// Two conversations stored, flushed, loaded, partly erased; everything cleared; a restart between,
/// and more than the tiers can hold.
const SCRIPT: &str = include_str!("sweep.run");

/// Operations of the script at most.
const OPERATION_COUNT_MAX: u64 = 1_500;

#[test]
fn whichever_operation_of_the_drive_fails_in_whatever_way_every_promise_holds() {
    let script = Run::parse(SCRIPT);
    for fault in DRIVE_FAULTS {
        let mut count = 0;
        // Every one of the first, when stores are made and runs begun; then some.
        for number in (0..60).chain((60..OPERATION_COUNT_MAX).step_by(7)) {
            let mut world = World::new(script.setup);
            world.plan_fault(fault, SimRule::new(fault).at(number));
            for step in &script.steps {
                world.step(*step);
            }
            if !world.has_been_faulted() {
                break;
            }
            world.end();
            count += 1;
        }
        println!("{fault:?}: {count} runs");
        assert!(count > 20, "{fault:?} befell only {count} operations");
    }
}
