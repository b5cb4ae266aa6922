//! Each fault, by a kernel that commits it; messages name instruction and line.

use crate::harness::{INPUT, OUTPUT, Run, STORE_R9, module_text};
use kvtide_simcuda::ptx::{
    Cause, Launch, LaunchError, MapError, Memory, Module, Space, Unsupported,
};

#[test]
fn accesses_outside_all_memory() {
    let cause =
        Run::new("ld.global.u64 %rd1, [%rd0+64];").cause_at("ld.global.u64 %rd1, [%rd0+64];");
    assert_eq!(cause, Cause::OutOfBounds { address: INPUT + 64, bytes: 8 });
    // An access may not begin in a region and end outside.
    let mut run = Run::new("ld.global.v2.u64 {%rd1, %rd2}, [%rd0+48];");
    run.input = vec![0; 60];
    let cause = run.cause_at("ld.global.v2.u64 {%rd1, %rd2}, [%rd0+48];");
    assert_eq!(cause, Cause::OutOfBounds { address: INPUT + 48, bytes: 16 });
    let cause =
        Run::new("mov.u64 %rd1, 0; st.global.u32 [%rd1], 1;").cause_at("st.global.u32 [%rd1], 1;");
    assert_eq!(cause, Cause::OutOfBounds { address: 0, bytes: 4 });
    let cause =
        Run::new("red.global.add.u32 [%rd0+-4], 1;").cause_at("red.global.add.u32 [%rd0+-4], 1;");
    assert_eq!(cause, Cause::OutOfBounds { address: INPUT - 4, bytes: 4 });
    let body = ".shared .u32 words[2]; ld.shared.u32 %r1, [words+8];";
    let address = 0x3000_0008;
    let cause = Run::new(body).cause_at("ld.shared.u32 %r1, [words+8];");
    assert_eq!(cause, Cause::OutOfBounds { address, bytes: 4 });
    let cause =
        Run::new("ld.param.u64 %rd1, [output+8];").cause_at("ld.param.u64 %rd1, [output+8];");
    assert_eq!(cause, Cause::OutOfBounds { address: 0x1000_0010, bytes: 8 });
}

#[test]
fn misaligned_accesses() {
    let cause = Run::new("ld.global.u32 %r1, [%rd0+2];").cause_at("ld.global.u32 %r1, [%rd0+2];");
    assert_eq!(cause, Cause::Misaligned { address: INPUT + 2, bytes: 4 });
    let cause = Run::new("st.global.v2.u64 [%rd10+8], {%rd0, %rd0};")
        .cause_at("st.global.v2.u64 [%rd10+8], {%rd0, %rd0};");
    assert_eq!(cause, Cause::Misaligned { address: OUTPUT + 8, bytes: 16 });
}

#[test]
fn addresses_of_another_state_space() {
    let cause = Run::new("ld.shared.u32 %r1, [%rd0];").cause_at("ld.shared.u32 %r1, [%rd0];");
    let (named, actual) = (Space::Shared, Space::Global);
    assert_eq!(cause, Cause::WrongSpace { address: INPUT, named, actual });
    let body = ".shared .u32 words[2]; mov.u64 %rd1, words; st.global.u32 [%rd1], 1;";
    let cause = Run::new(body).cause_at("st.global.u32 [%rd1], 1;");
    let (named, actual) = (Space::Global, Space::Shared);
    assert_eq!(cause, Cause::WrongSpace { address: 0x3000_0000, named, actual });
}

#[test]
fn registers_that_were_never_written() {
    let cause = Run::new("add.u32 %r1, %r0, %r7;").cause_at("add.u32 %r1, %r0, %r7;");
    assert_eq!(cause, Cause::UninitialisedRegister { register: "%r7".to_owned() });
    // Written, but not in the lane that reads it.
    let body = "setp.eq.u32 %p1, %r0, 4; @!%p1 mov.u32 %r7, 1; mov.u32 %r8, %r7;";
    let error = Run::new(body).threads(1, 8).bytes().expect_err("it must fail");
    let LaunchError::Thread { place, cause } = error else { panic!("{error}") };
    assert_eq!((place.lane, place.warp, place.thread_block), (4, 0, [0; 3]));
    assert_eq!(cause, Cause::UninitialisedRegister { register: "%r7".to_owned() });
}

#[test]
fn memory_that_was_never_written() {
    let body = "mov.u16 %h1, 1; st.global.u16 [%rd10], %h1; ld.global.u32 %r1, [%rd10];";
    let cause = Run::new(body).cause_at("ld.global.u32 %r1, [%rd10];");
    assert_eq!(cause, Cause::UninitialisedMemory { address: OUTPUT + 2 });
    let cause =
        Run::new("red.global.add.u32 [%rd10], 1;").cause_at("red.global.add.u32 [%rd10], 1;");
    assert_eq!(cause, Cause::UninitialisedMemory { address: OUTPUT });
    // Shared memory does not outlive its thread block.
    let body = ".shared .u32 word; setp.eq.u32 %p1, %r20, 0; @%p1 st.shared.u32 [word], 1;
        ld.shared.u32 %r9, [word];";
    let run = Run::new(&format!("{body}{STORE_R9}")).threads(2, 1);
    let cause = run.cause_at("ld.shared.u32 %r9, [word];");
    assert_eq!(cause, Cause::UninitialisedMemory { address: 0x3000_0000 });
}

#[test]
fn barriers_that_some_threads_never_reach() {
    let body = "setp.ge.u32 %p1, %r0, 60; @%p1 exit; bar.sync 0;";
    let cause = Run::new(body).threads(1, 64).cause_at("bar.sync 0;");
    let expected =
        Cause::BarrierDeadlock { barrier: 0, threads: 64, waiting: 60, elsewhere: 0, exited: 4 };
    assert_eq!(cause, expected);
    let body = "setp.ge.u32 %p1, %r0, 32; @%p1 bra other; bar.sync 1; bra done;
        other: bar.sync 2; done:";
    let cause = Run::new(body).threads(1, 64).cause_at("bar.sync 1;");
    let expected =
        Cause::BarrierDeadlock { barrier: 1, threads: 64, waiting: 32, elsewhere: 32, exited: 0 };
    assert_eq!(cause, expected);
}

#[test]
fn members_that_never_come() {
    let body = "setp.ge.u32 %p1, %r0, 30; @%p1 bra other;
        shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xffffffff; bra done; other: bar.sync 0; done:";
    let instruction = "shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xffffffff;";
    let cause = Run::new(body).threads(1, 32).cause_at(instruction);
    assert_eq!(cause, Cause::WarpDeadlock { members: u32::MAX, missing: 0xc000_0000 });
}

#[test]
fn lanes_that_are_none_of_the_members() {
    let instruction = "vote.sync.ballot.b32 %r9, %p1, 0x7fffffff;";
    let body = format!("setp.eq.u32 %p1, %r0, 0; {instruction}");
    let cause = Run::new(&body).threads(1, 32).cause_at(instruction);
    assert_eq!(cause, Cause::NotAMember { members: 0x7fff_ffff });
}

#[test]
fn shuffles_from_lanes_that_take_no_part() {
    let instruction = "shfl.sync.down.b32 %r9, %r0, 1, 31, 0x0000ffff;";
    let body = format!("setp.ge.u32 %p1, %r0, 16; @%p1 bra done; {instruction} done:");
    let cause = Run::new(&body).threads(1, 32).cause_at(instruction);
    assert_eq!(cause, Cause::ShuffleFromAbsent { source_lane: 16 });
    let instruction = "shfl.sync.bfly.b32 %r9, %r0, 1, 31, -1;";
    let body = format!("setp.eq.u32 %p1, %r0, 7; @%p1 exit; {instruction}");
    let cause = Run::new(&body).threads(1, 32).cause_at(instruction);
    assert_eq!(cause, Cause::ShuffleFromAbsent { source_lane: 7 });
}

#[test]
fn divisions_by_zero() {
    for instruction in ["div.u32 %r1, %r0, %r2;", "rem.s32 %r1, %r0, %r2;"] {
        let cause = Run::new(&format!("mov.u32 %r2, 0; {instruction}")).cause_at(instruction);
        assert_eq!(cause, Cause::DivisionByZero);
    }
    // A lane that does not take part may hold a zero.
    let body = "setp.ne.u32 %p1, %r0, 0; mov.u32 %r9, 0; @%p1 div.u32 %r9, 8, %r0;";
    assert_eq!(Run::new(&format!("{body}{STORE_R9}")).threads(1, 4).words(), [0, 8, 4, 2]);
}

#[test]
fn instructions_that_are_not_known_when_they_are_reached() {
    let name = |text: &str| Unsupported::Instruction(text.to_owned());
    let modifier = |text: &str| Unsupported::Modifier(text.to_owned());
    let operand = |text: &str| Unsupported::Operand(text.to_owned());
    let count = |expected, actual| Unsupported::OperandCount { expected, actual };
    let rows = [
        ("tanh.approx.f32 %r1, %r2;", name("tanh")),
        ("add.f32 %r1, %r2, %r3;", modifier("f32")),
        ("add.sat.s32 %r1, %r0, %r0;", modifier("sat")),
        ("add.s32.wide %r1, %r0, %r0;", modifier("wide")),
        ("ld.global.weak.u32 %r1, [%rd0];", modifier("weak")),
        ("ld.global.v8.u32 %r1, [%rd0];", modifier("v8")),
        ("st.const.u32 [%rd0], %r0;", modifier("const")),
        ("ld.global %r1, [%rd0];", Unsupported::ModifierMissing),
        ("add.u32 %r1, %r0, %rd0;", operand("%rd0")),
        ("add.u32 %r1, %r0, %r77;", operand("%r77")),
        ("mov.u32 %r1, %clock;", operand("%clock")),
        ("add.u32 %r1, %r0;", count(3, 2)),
        ("bar.sync 0, 32;", count(1, 2)),
        ("bra nowhere;", operand("nowhere")),
        ("mov.f32 %r1, 0f3F800000;", operand("of a form that is not known")),
        ("call (%r1), f, (%r2);", operand("of a form that is not known")),
        ("@%r1 bra done;", operand("%r1")),
    ];
    for (instruction, unsupported) in rows {
        let cause = Run::new(&format!("{instruction} done:")).cause_at(instruction);
        assert_eq!(cause, Cause::Unsupported(unsupported), "{instruction}");
        // One that is jumped over does no harm.
        let jump = Run::new(&format!("bra done; {instruction} done:"));
        assert!(jump.bytes().is_ok(), "{instruction}");
    }
}

#[test]
fn bodies_that_do_not_return() {
    let text = module_text("", "").replace("ret;", "");
    let cause = Run::with(text).cause_at("}");
    assert_eq!(cause, Cause::Unsupported(Unsupported::EndOfBody));
}

#[test]
fn traps_and_branches_to_nowhere() {
    assert_eq!(Run::new("trap;").cause_at("trap;"), Cause::Trap);
    let body = "targets: .branchtargets a, b; mov.u32 %r1, 2; brx.idx %r1, targets; a: b:";
    let cause = Run::new(body).cause_at("brx.idx %r1, targets;");
    assert_eq!(cause, Cause::BranchIndex { index: 2, count: 2 });
}

#[test]
fn loops_that_never_end() {
    let mut run = Run::new("again: bra again;").threads(1, 32);
    run.step_limit = 1_000;
    assert_eq!(run.cause_at("bra again;"), Cause::StepLimit { limit: 1_000 });
    // A limit that is just enough is no fault: 6 instructions of the harness, and `ret`.
    let mut run = Run::new("").threads(1, 32);
    run.step_limit = 7 * 32;
    assert!(run.bytes().is_ok());
    run.step_limit -= 1;
    assert_eq!(run.cause_at("ret;"), Cause::StepLimit { limit: 7 * 32 - 1 });
}

#[test]
fn arguments_and_geometry_that_do_not_fit() {
    let text = module_text("", "").replace("output\n)\n{", "output\n)\n.maxntid 64, 2, 1\n{");
    let module = Module::parse(&text).expect("it is good PTX");
    let kernel = module.kernel("test").expect("the text has it");
    let mut memory = Memory::new();
    let error = kernel.launch(&Launch::new(1, 1, &[0; 15]), &mut memory);
    let expected =
        LaunchError::ArgumentBytes { kernel: "test".to_owned(), expected: 16, actual: 15 };
    assert_eq!(error, Err(expected));
    let bad = [
        ([0, 1, 1], [1; 3]),
        ([u32::MAX; 3], [1; 3]),
        ([1; 3], [0, 1, 1]),
        ([1; 3], [129, 1, 1]),
        ([1; 3], [u32::MAX; 3]),
    ];
    for (grid, thread_block) in bad {
        let launch = Launch { grid, thread_block, ..Launch::new(1, 1, &[0; 16]) };
        let error = kernel.launch(&launch, &mut memory);
        let kernel = "test".to_owned();
        let expected = LaunchError::Geometry { kernel, grid, thread_block, threads_max: 128 };
        assert_eq!(error, Err(expected));
    }
    let launch = Launch::new(1, 128, &[0; 16]);
    let statistics = kernel.launch(&launch, &mut memory).expect("it fits");
    assert_eq!(statistics.lane_instructions(), 7 * 128);
}

#[test]
fn regions_that_leave_no_guard() {
    let mut memory = Memory::new();
    memory.map(INPUT, &[0; 32]).expect("nothing else is there");
    let too_near = |address| MapError::TooNear { address, bytes: 16, neighbour: INPUT };
    for address in [INPUT - 31, INPUT - 16, INPUT, INPUT + 16, INPUT + 47] {
        assert_eq!(memory.map(address, &[0; 16]), Err(too_near(address)));
    }
    memory.map(INPUT + 48, &[0; 16]).expect("16 bytes are between");
    memory.map(INPUT - 32, &[0; 16]).expect("16 bytes are between");
    for address in [0x3000_0000, 0xffff_ffff, u64::MAX - 20] {
        let refused = MapError::NotGlobal { address, bytes: 16 };
        assert_eq!(memory.map(address, &[0; 16]), Err(refused));
    }
    assert!(memory.map(u64::MAX - 32, &[0; 16]).is_ok());
    assert!(memory.is_initialised(INPUT, 32));
    assert!(!memory.is_initialised(INPUT, 33));
}
