//! Races: two warps touch one byte, not both by reads or both by atomics, and no barrier between.

use crate::harness::{INPUT, OUTPUT, Run};
use kvtide_simcuda::ptx::{Access, Cause, Launch, Memory, Module};

/// Runs a body in two thread blocks of two warps.
fn run(body: &str) -> Run {
    Run::new(body).threads(2, 64)
}

#[test]
fn two_thread_blocks_write_one_byte() {
    let body = "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 exit; mov.u32 %r1, 5;
        st.global.u8 [%rd10+3], %r1;";
    let cause = run(body).cause_at("st.global.u8 [%rd10+3], %r1;");
    let expected = Cause::Race {
        address: OUTPUT + 3,
        access: Access::Write,
        other: Access::Write,
        other_thread_block: Some(0),
    };
    assert_eq!(cause, expected);
}

#[test]
fn two_warps_of_a_thread_block_write_one_byte() {
    let body = "mov.u32 %r1, %laneid; setp.ne.u32 %p1, %r1, 0; @%p1 exit;
        st.global.u32 [%rd10], %r1;";
    let cause = Run::new(body).threads(1, 64).cause_at("st.global.u32 [%rd10], %r1;");
    let expected = Cause::Race {
        address: OUTPUT,
        access: Access::Write,
        other: Access::Write,
        other_thread_block: Some(0),
    };
    assert_eq!(cause, expected);
    assert!(Run::new(body).threads(1, 32).bytes().is_ok());
}

/// Returns a body whose thread 0 of block `n` runs the `n`th of two instructions.
fn one_each(first: &str, second: &str) -> String {
    format!(
        "setp.ne.u32 %p3, %r22, 0; @%p3 exit; setp.eq.u32 %p1, %r20, 0; mov.u32 %r1, 5;
         @%p1 {first}\n @!%p1 {second}\n"
    )
}

#[test]
fn accesses_of_thread_blocks_to_one_byte_race_unless_alike() {
    let read = "ld.global.u32 %r2, [%rd0];";
    let write = "st.global.u32 [%rd0], %r1;";
    let atomic = "red.global.add.u32 [%rd0], %r1;";
    let kinds = [(Access::Read, read), (Access::Write, write), (Access::Atomic, atomic)];
    for (other, first) in kinds {
        for (access, second) in kinds {
            let run = run(&one_each(first, second));
            if other == access && access != Access::Write {
                assert!(run.bytes().is_ok(), "{first} {second}");
                continue;
            }
            let expected =
                Cause::Race { address: INPUT, access, other, other_thread_block: Some(0) };
            assert_eq!(run.cause_at(&format!("@!%p1 {second}")), expected);
        }
    }
    // Beside each other is not on each other.
    let beside = one_each("st.global.u8 [%rd0+1], %r1;", "ld.global.u8 %r2, [%rd0];");
    assert!(run(&beside).bytes().is_ok());
}

#[test]
fn a_write_races_with_any_of_several_readers() {
    // Two warps of block 0 read before warp 1 of it writes; the last reader is the writer itself.
    let body = "ld.global.u32 %r2, [%rd0]; setp.ne.u32 %p1, %r0, 32;
        @!%p1 st.global.u32 [%rd0], %r2;";
    let cause = Run::new(body).threads(1, 64).cause_at("@!%p1 st.global.u32 [%rd0], %r2;");
    let (access, other) = (Access::Write, Access::Read);
    let expected = Cause::Race { address: INPUT, access, other, other_thread_block: Some(0) };
    assert_eq!(cause, expected);
    let body = "ld.global.u32 %r2, [%rd0]; setp.ne.u32 %p1, %r0, 64;
        @!%p1 st.global.u32 [%rd0], %r2;";
    let cause = Run::new(body).threads(2, 64).cause_at("@!%p1 st.global.u32 [%rd0], %r2;");
    let expected = Cause::Race { address: INPUT, access, other, other_thread_block: None };
    assert_eq!(cause, expected);
}

#[test]
fn a_barrier_orders_a_thread_block_and_no_other() {
    let body = "ld.global.u32 %r2, [%rd0]; bar.sync 0; setp.ne.u32 %p1, %r22, 40;
        @!%p1 st.global.u32 [%rd0], %r2; bar.sync 0; ld.global.u32 %r2, [%rd0];";
    assert!(Run::new(body).threads(1, 64).bytes().is_ok());
    let cause = Run::new(body).threads(2, 64).cause_at("ld.global.u32 %r2, [%rd0];");
    let (access, other) = (Access::Read, Access::Write);
    let expected = Cause::Race { address: INPUT, access, other, other_thread_block: Some(0) };
    assert_eq!(cause, expected);
    // Shared memory is watched too.
    let body = ".shared .u32 word; setp.ne.u32 %p1, %r22, 40; @!%p1 st.shared.u32 [word], 1;
        bar.sync 0; ld.shared.u32 %r2, [word]; setp.eq.u32 %p2, %r22, 1;
        @%p2 st.shared.u32 [word], 2;";
    let cause = Run::new(body).threads(1, 64).cause_at("ld.shared.u32 %r2, [word];");
    let address = 0x3000_0000;
    assert!(
        matches!(cause, Cause::Race { address: at, access: Access::Read, .. } if at == address)
    );
}

#[test]
fn launches_are_ordered() {
    let run = Run::new("st.global.u32 [%rd0], %r22;");
    let module = Module::parse(&run.text).expect("it is good PTX");
    let kernel = module.kernel("test").expect("the text has it");
    let mut memory = Memory::new();
    memory.map(INPUT, &[0; 16]).expect("nothing else is there");
    let arguments = [INPUT.to_le_bytes(), OUTPUT.to_le_bytes()].concat();
    for _ in 0..3 {
        assert!(kernel.launch(&Launch::new(1, 32, &arguments), &mut memory).is_ok());
    }
    assert!(kernel.launch(&Launch::new(2, 32, &arguments), &mut memory).is_err());
    assert!(kernel.launch(&Launch::new(1, 32, &arguments), &mut memory).is_ok());
}
