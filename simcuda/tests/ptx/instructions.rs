//! Each instruction that computes, once at least, on values that tell it from its neighbours.
//!
//! What a function computes is held by properties beside it; here it is that text finds the right
//! function, type and operands.

use crate::harness::{Run, module_text};

/// Loads input `n` to `%rd`n, and its low bits to `%r`n and `%h`n; `%p`n says whether `%r`n is
/// not 0.
const LOADS: &str = "
    ld.global.v2.u64 {%rd1, %rd2}, [%rd0];
    ld.global.v2.u64 {%rd3, %rd4}, [%rd0+16];
    cvt.u32.u64 %r1, %rd1;
    cvt.u32.u64 %r2, %rd2;
    cvt.u32.u64 %r3, %rd3;
    cvt.u32.u64 %r4, %rd4;
    cvt.u16.u64 %h1, %rd1;
    cvt.u16.u64 %h2, %rd2;
    cvt.u16.u64 %h3, %rd3;
    cvt.u16.u64 %h4, %rd4;
    setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %p2, %r2, 0;
    setp.ne.u32 %p3, %r3, 0;
";

/// Runs instructions whose result is the ninth register of a kind.
fn result(instructions: &str, inputs: [u64; 4]) -> u64 {
    let store = if instructions.contains("%rd9") {
        "st.global.u64 [%rd10], %rd9;"
    } else if instructions.contains("%h9") {
        "cvt.u64.u16 %rd9, %h9; st.global.u64 [%rd10], %rd9;"
    } else if instructions.contains("%p9") {
        "selp.u64 %rd9, 1, 0, %p9; st.global.u64 [%rd10], %rd9;"
    } else {
        "cvt.u64.u32 %rd9, %r9; st.global.u64 [%rd10], %rd9;"
    };
    let body = format!("{LOADS}    {instructions}\n    {store}");
    let bytes = Run::with(module_text("", &body)).input_u64s(&inputs).bytes();
    let bytes = bytes.unwrap_or_else(|error| panic!("{error}"));
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

/// Checks rows of instructions, inputs and the result.
fn check(rows: &[(&str, [u64; 4], u64)]) {
    for (instructions, inputs, expected) in rows {
        let actual = result(instructions, *inputs);
        assert_eq!(actual, *expected, "{instructions} of {inputs:#x?} is {actual:#x}");
    }
}

const MINUS_2: u64 = u64::MAX - 1;

#[test]
fn arithmetic() {
    check(&[
        ("add.u32 %r9, %r1, %r2;", [0xffff_ffff, 3, 0, 0], 2),
        ("add.s64 %rd9, %rd1, %rd2;", [0xffff_ffff, 3, 0, 0], 0x1_0000_0002),
        ("add.u16 %h9, %h1, %h2;", [0xffff, 3, 0, 0], 2),
        ("add.s32 %r9, %r1, -96;", [100, 0, 0, 0], 4),
        ("sub.s32 %r9, %r1, %r2;", [3, 5, 0, 0], 0xffff_fffe),
        ("sub.u64 %rd9, %rd1, %rd2;", [3, 5, 0, 0], MINUS_2),
        ("mul.lo.u32 %r9, %r1, %r2;", [0x8000_0001, 6, 0, 0], 6),
        ("mul.lo.s64 %rd9, %rd1, %rd2;", [MINUS_2, 3, 0, 0], MINUS_2 - 4),
        ("mul.hi.u32 %r9, %r1, %r2;", [0xffff_ffff, 0xffff_ffff, 0, 0], 0xffff_fffe),
        ("mul.hi.s32 %r9, %r1, %r2;", [0xffff_ffff, 0xffff_ffff, 0, 0], 0),
        ("mul.hi.u64 %rd9, %rd1, %rd2;", [u64::MAX, u64::MAX, 0, 0], MINUS_2),
        ("mul.wide.u16 %r9, %h1, %h2;", [0xffff, 0xffff, 0, 0], 0xfffe_0001),
        ("mul.wide.s16 %r9, %h1, %h2;", [0xffff, 2, 0, 0], 0xffff_fffe),
        ("mul.wide.u32 %rd9, %r1, %r2;", [0xffff_ffff, 2, 0, 0], 0x1_ffff_fffe),
        ("mul.wide.s32 %rd9, %r1, %r2;", [0xffff_ffff, 2, 0, 0], MINUS_2),
        ("mad.lo.s32 %r9, %r1, %r2, %r3;", [0x4000_0000, 4, 7, 0], 7),
        ("mad.hi.u32 %r9, %r1, %r2, %r3;", [0x4000_0000, 8, 7, 0], 9),
        ("mad.lo.s64 %rd9, %rd1, %rd2, %rd3;", [1 << 32, 3, 9, 0], 0x3_0000_0009),
        ("mad.wide.u32 %rd9, %r1, %r2, %rd3;", [0xffff_ffff, 2, 1 << 40, 0], 0x101_ffff_fffe),
        ("mad.wide.s32 %rd9, %r1, %r2, %rd3;", [0xffff_ffff, 2, 1, 0], u64::MAX),
        ("div.u32 %r9, %r1, %r2;", [0xffff_fff9, 2, 0, 0], 0x7fff_fffc),
        ("div.s32 %r9, %r1, %r2;", [0xffff_fff9, 2, 0, 0], 0xffff_fffd),
        ("rem.u64 %rd9, %rd1, %rd2;", [u64::MAX - 6, 4, 0, 0], 1),
        ("rem.s64 %rd9, %rd1, %rd2;", [u64::MAX - 6, 4, 0, 0], MINUS_2 - 1),
        ("min.u32 %r9, %r1, %r2;", [0xffff_ffff, 1, 0, 0], 1),
        ("min.s32 %r9, %r1, %r2;", [0xffff_ffff, 1, 0, 0], 0xffff_ffff),
        ("max.u64 %rd9, %rd1, %rd2;", [u64::MAX, 1, 0, 0], u64::MAX),
        ("max.s64 %rd9, %rd1, %rd2;", [u64::MAX, 1, 0, 0], 1),
        ("abs.s32 %r9, %r1;", [0xffff_fffe, 0, 0, 0], 2),
        ("neg.s64 %rd9, %rd1;", [2, 0, 0, 0], MINUS_2),
    ]);
}

#[test]
fn logic_and_shifts() {
    check(&[
        ("and.b32 %r9, %r1, %r2;", [0b1100, 0b1010, 0, 0], 0b1000),
        ("or.b64 %rd9, %rd1, %rd2;", [0b1100, 0b1010 << 40, 0, 0], 0b1010 << 40 | 0b1100),
        ("xor.b16 %h9, %h1, %h2;", [0b1100, 0b1010, 0, 0], 0b0110),
        ("and.pred %p9, %p1, %p2;", [1, 0, 0, 0], 0),
        ("or.pred %p9, %p1, %p2;", [1, 0, 0, 0], 1),
        ("xor.pred %p9, %p1, %p2;", [1, 1, 0, 0], 0),
        ("not.pred %p9, %p1;", [0, 0, 0, 0], 1),
        ("not.b32 %r9, %r1;", [0, 0, 0, 0], 0xffff_ffff),
        ("not.b64 %rd9, %rd1;", [1, 0, 0, 0], MINUS_2),
        ("shl.b32 %r9, %r1, 31;", [3, 0, 0, 0], 0x8000_0000),
        ("shl.b32 %r9, %r1, %r2;", [3, 40, 0, 0], 0),
        ("shl.b64 %rd9, %rd1, %r2;", [3, 40, 0, 0], 3 << 40),
        ("shl.b64 %rd9, %rd1, %r2;", [3, 64, 0, 0], 0),
        ("shr.u32 %r9, %r1, %r2;", [0x8000_0000, 30, 0, 0], 2),
        ("shr.s32 %r9, %r1, %r2;", [0x8000_0000, 30, 0, 0], MINUS_2 & 0xffff_ffff),
        ("shr.s32 %r9, %r1, %r2;", [0x8000_0000, 300, 0, 0], 0xffff_ffff),
        ("shr.b64 %rd9, %rd1, %r2;", [u64::MAX, 63, 0, 0], 1),
        ("shf.l.wrap.b32 %r9, %r1, %r2, %r3;", [0x8000_0000, 1, 33, 0], 3),
        ("shf.l.clamp.b32 %r9, %r1, %r2, %r3;", [0x8000_0000, 1, 33, 0], 0x8000_0000),
        ("shf.r.wrap.b32 %r9, %r1, %r2, %r3;", [0x8000_0000, 1, 33, 0], 0xc000_0000),
        ("shf.r.clamp.b32 %r9, %r1, %r2, %r3;", [0x8000_0000, 1, 33, 0], 1),
    ]);
}

#[test]
fn bits_and_bytes() {
    check(&[
        ("bfe.u32 %r9, %r1, 4, 8;", [0xf_edcb, 0, 0, 0], 0xdc),
        ("bfe.s32 %r9, %r1, %r2, %r3;", [0xf_edcb, 4, 8, 0], 0xffff_ffdc),
        ("bfe.u64 %rd9, %rd1, %r2, %r3;", [0xfedc << 40, 44, 8, 0], 0xed),
        ("bfi.b32 %r9, %r1, %r2, %r3, %r4;", [0xab, 0xffff_ffff, 8, 8], 0xffff_abff),
        ("bfi.b64 %rd9, %rd1, %rd2, %r3, %r4;", [0xab, 0, 40, 4], 0xb << 40),
        ("popc.b32 %r9, %r1;", [0x1_0000_0007, 0, 0, 0], 3),
        ("popc.b64 %r9, %rd1;", [0x1_0000_0007, 0, 0, 0], 4),
        ("clz.b32 %r9, %r1;", [1, 0, 0, 0], 31),
        ("clz.b64 %r9, %rd1;", [1, 0, 0, 0], 63),
        ("brev.b32 %r9, %r1;", [1, 0, 0, 0], 1 << 31),
        ("brev.b64 %rd9, %rd1;", [1, 0, 0, 0], 1 << 63),
        ("prmt.b32 %r9, %r1, %r2, 0x3715U;", [0x8322_1100, 0x7766_5544, 0, 0], 0x8377_1155),
        ("prmt.b32 %r9, %r1, %r2, %r3;", [0x8322_1100, 0x7766_5544, 0xb0b7, 0], 0xff00_ff77),
    ]);
}

#[test]
fn comparisons_and_selections() {
    check(&[
        ("setp.eq.b32 %p9, %r1, %r2;", [5, 5, 0, 0], 1),
        ("setp.ne.b64 %p9, %rd1, %rd2;", [5, 5 | 1 << 40, 0, 0], 1),
        ("setp.ne.b32 %p9, %r1, %r2;", [5, 5 | 1 << 40, 0, 0], 0),
        ("setp.lt.u32 %p9, %r1, %r2;", [0xffff_ffff, 1, 0, 0], 0),
        ("setp.lt.s32 %p9, %r1, %r2;", [0xffff_ffff, 1, 0, 0], 1),
        ("setp.le.s64 %p9, %rd1, %rd2;", [7, 7, 0, 0], 1),
        ("setp.gt.s16 %p9, %h1, %h2;", [1, 0xffff, 0, 0], 1),
        ("setp.ge.u16 %p9, %h1, %h2;", [1, 0xffff, 0, 0], 0),
        ("setp.lo.u32 %p9, %r1, %r2;", [1, 2, 0, 0], 1),
        ("setp.ls.u32 %p9, %r1, %r2;", [3, 2, 0, 0], 0),
        ("setp.hi.u32 %p9, %r1, %r2;", [3, 2, 0, 0], 1),
        ("setp.hs.u32 %p9, %r1, %r2;", [1, 2, 0, 0], 0),
        ("setp.lt.and.u32 %p9, %r1, %r2, %p3;", [1, 2, 0, 0], 0),
        ("setp.lt.and.u32 %p9, %r1, %r2, !%p3;", [1, 2, 0, 0], 1),
        ("setp.lt.or.u32 %p9, %r1, %r2, %p3;", [2, 1, 1, 0], 1),
        ("setp.lt.xor.u32 %p9, %r1, %r2, %p3;", [1, 2, 1, 0], 0),
        ("set.lt.u32.s32 %r9, %r1, %r2;", [0xffff_ffff, 1, 0, 0], 0xffff_ffff),
        ("set.lt.or.u32.u32 %r9, %r1, %r2, %p3;", [0xffff_ffff, 1, 0, 0], 0),
        ("selp.b32 %r9, %r1, %r2, %p3;", [5, 6, 1, 0], 5),
        ("selp.u64 %rd9, %rd1, %rd2, %p3;", [5, 6, 0, 0], 6),
        ("selp.b32 %r9, 0, %r2, %p3;", [5, 6, 1, 0], 0),
    ]);
}

#[test]
fn conversions() {
    check(&[
        ("cvt.u32.u64 %r9, %rd1;", [0x1_2345_6789, 0, 0, 0], 0x2345_6789),
        ("cvt.u64.u32 %rd9, %r1;", [0xffff_ffff, 0, 0, 0], 0xffff_ffff),
        ("cvt.s64.s32 %rd9, %r1;", [0xffff_fffe, 0, 0, 0], MINUS_2),
        ("cvt.s32.s8 %r9, %r1;", [0x17f, 0, 0, 0], 0x7f),
        ("cvt.s32.s8 %r9, %r1;", [0x1fe, 0, 0, 0], 0xffff_fffe),
        ("cvt.u32.u8 %r9, %r1;", [0x1fe, 0, 0, 0], 0xfe),
        ("cvt.u8.u32 %h9, %r1;", [0x1fe, 0, 0, 0], 0xfe),
        ("cvt.sat.u8.s32 %r9, %r1;", [0xffff_fffe, 0, 0, 0], 0),
        ("cvt.sat.u8.s32 %r9, %r1;", [300, 0, 0, 0], 255),
        ("cvt.sat.s16.s64 %h9, %rd1;", [1 << 40, 0, 0, 0], 0x7fff),
        ("cvta.to.global.u64 %rd9, %rd1;", [1 << 40, 0, 0, 0], 1 << 40),
        ("cvta.global.u64 %rd9, %rd1;", [1 << 40, 0, 0, 0], 1 << 40),
    ]);
}

#[test]
fn moves() {
    check(&[
        ("mov.b32 %r9, %r1;", [7, 0, 0, 0], 7),
        ("mov.u64 %rd9, %rd1;", [7 << 40, 0, 0, 0], 7 << 40),
        ("mov.pred %p9, %p1;", [7, 0, 0, 0], 1),
        ("mov.b32 %r9, -1;", [0; 4], 0xffff_ffff),
        ("mov.b32 %r9, 0x12U;", [0; 4], 0x12),
        ("mov.b32 %r9, 017;", [0; 4], 0o17),
        ("mov.b32 %r9, 0b101;", [0; 4], 0b101),
        ("mov.u64 %rd9, 0xffffffffffffffff;", [0; 4], u64::MAX),
        ("mov.b64 %rd9, {%r1, %r2};", [0x1111_1111, 0x2222_2222, 0, 0], 0x2222_2222_1111_1111),
        ("mov.b32 %r9, {%h1, %h2};", [0x1111, 0x2222, 0, 0], 0x2222_1111),
        ("mov.b64 %rd9, {%h1, %h2, %h3, %h4};", [1, 2, 3, 4], 0x4_0003_0002_0001),
        ("mov.b64 {_, %r9}, %rd1;", [0x2222_2222_1111_1111, 0, 0, 0], 0x2222_2222),
        ("mov.b64 {%r9, _}, %rd1;", [0x2222_2222_1111_1111, 0, 0, 0], 0x1111_1111),
        ("mov.b32 {%h8, %h9}, %r1;", [0x2222_1111, 0, 0, 0], 0x2222),
        ("mov.b64 {_, _, %h9, _}, %rd1;", [0x4_0003_0002_0001, 0, 0, 0], 3),
        ("mov.u32 %r9, WARP_SZ;", [0; 4], 32),
    ]);
}

#[test]
fn guards_choose_whether_an_instruction_runs() {
    check(&[
        ("mov.u32 %r9, 1; @%p1 mov.u32 %r9, 2;", [1, 0, 0, 0], 2),
        ("mov.u32 %r9, 1; @%p1 mov.u32 %r9, 2;", [0, 0, 0, 0], 1),
        ("mov.u32 %r9, 1; @!%p1 mov.u32 %r9, 2;", [1, 0, 0, 0], 1),
        ("mov.u32 %r9, 1; @!%p1 mov.u32 %r9, 2;", [0, 0, 0, 0], 2),
        (
            "mov.u32 %r9, 1; { .reg .pred on; setp.ne.u32 on, %r1, 0; @on mov.u32 %r9, 2; }",
            [1; 4],
            2,
        ),
    ]);
}

#[test]
fn every_thread_knows_its_place() {
    let body = "
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
        mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y; mov.u32 %r6, %ctaid.z;
        mov.u32 %r7, %ntid.x; mov.u32 %r8, %ntid.y; mov.u32 %r9, %ntid.z;
        mov.u32 %r10, %nctaid.x; mov.u32 %r11, %nctaid.y; mov.u32 %r12, %nctaid.z;
        mad.lo.u32 %r13, %r3, %r8, %r2;
        mad.lo.u32 %r13, %r13, %r7, %r1;
        mad.lo.u32 %r14, %r6, %r11, %r5;
        mad.lo.u32 %r14, %r14, %r10, %r4;
        mul.lo.u32 %r15, %r7, %r8;
        mul.lo.u32 %r15, %r15, %r9;
        mad.lo.u32 %r14, %r14, %r15, %r13;
        mov.u32 %r16, %laneid; mov.u32 %r17, %warpid; mov.u32 %r18, %nwarpid;
        mad.lo.u32 %r17, %r17, 32, %r16;
        sub.u32 %r17, %r17, %r13;
        mad.lo.u32 %r17, %r12, 10, %r17;
        mad.lo.u32 %r17, %r18, 100, %r17;
        mul.wide.u32 %rd1, %r14, 4;
        add.u64 %rd1, %rd1, %rd10;
        st.global.u32 [%rd1], %r17;";
    let mut run = Run::new(body);
    (run.grid, run.thread_block) = ([2, 3, 4], [3, 5, 4]);
    run.output_bytes = 24 * 60 * 4;
    run.order_seed = Some(5);
    // Every thread of the launch wrote a place of its own: its lane and warp are its number in the
    // block, of 2 warps, in a grid of 4 layers.
    assert_eq!(run.words(), vec![240; 24 * 60]);
}
