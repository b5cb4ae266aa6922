//! Loads, stores and atomics in all state spaces.

use crate::harness::{Run, STORE_R9, module_text};

/// Runs a body on 16 bytes of input, and returns the output's first bytes.
fn output(declarations: &str, body: &str, count: usize) -> Vec<u8> {
    let mut run = Run::with(module_text(declarations, body));
    run.input = (0xf1..=0xff).chain([0x80]).collect();
    run.output_bytes = count;
    run.bytes().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn loads_extend_and_stores_truncate() {
    let body = "
        ld.global.u8 %r1, [%rd0+15];
        ld.global.s8 %r2, [%rd0+15];
        ld.global.s16 %rd1, [%rd0+14];
        ld.global.b32 %rd2, [%rd0+12];
        ld.global.s32 %rd3, [%rd0+12];
        st.global.u32 [%rd10], %r1;
        st.global.u32 [%rd10+4], %r2;
        st.global.u64 [%rd10+8], %rd1;
        st.global.u64 [%rd10+16], %rd2;
        st.global.u64 [%rd10+24], %rd3;
        st.global.u8 [%rd10+32], %rd3;
        st.global.u8 [%rd10+33], %r2;
        st.global.u16 [%rd10+34], %r2;";
    let expected: [&[u8]; 8] = [
        &[0x80, 0, 0, 0],
        &[0x80, 0xff, 0xff, 0xff],
        &[0xff, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0xfd, 0xfe, 0xff, 0x80, 0, 0, 0, 0],
        &[0xfd, 0xfe, 0xff, 0x80, 0xff, 0xff, 0xff, 0xff],
        &[0xfd],
        &[0x80],
        &[0x80, 0xff],
    ];
    assert_eq!(output("", body, 36), expected.concat());
}

#[test]
fn vectors_move_their_elements_in_order() {
    let body = "
        ld.global.L1::no_allocate.v2.u64 {%rd1, %rd2}, [%rd0+0];
        st.global.v2.u64 [%rd10], {%rd2, %rd1};
        ld.global.v4.b32 {%r1, %r2, _, %r4}, [%rd0];
        st.global.v4.u32 [%rd10+16], {%r4, %r2, %r1, %r1};
        ld.global.nc.v4.u8 {%h1, %h2, %h3, %h4}, [%rd0];
        st.global.v4.u8 [%rd10+32], {%h4, %h3, %h2, %h1};
        ld.global.cg.v2.u16 {%h1, %h2}, [%rd0];
        st.global.wb.v2.u16 [%rd10+36], {%h2, %h1};";
    let input: Vec<u8> = (0xf1..=0xff).chain([0x80]).collect();
    let word = |index: usize| &input[index * 4..index * 4 + 4];
    let expected = [
        &input[8..],
        &input[..8],
        word(3),
        word(1),
        word(0),
        word(0),
        &[0xf4, 0xf3, 0xf2, 0xf1],
        &[0xf3, 0xf4, 0xf1, 0xf2],
    ];
    assert_eq!(output("", body, 40), expected.concat());
}

#[test]
fn constants_are_zeros_behind_their_initialiser() {
    let body = "
        mov.u64 %rd1, table;
        ld.const.u32 %r1, [%rd1+4];
        ld.const.u32 %r2, [table+8];
        ld.const.u8 %r3, [byte];
        st.global.u32 [%rd10], %r1;
        st.global.u32 [%rd10+4], %r2;
        st.global.u8 [%rd10+8], %r3;";
    let declarations = ".const .align 4 .u32 table[4] = {5, 0x12345678};\n.const .u8 byte = 7;";
    assert_eq!(output(declarations, body, 9), [0x78, 0x56, 0x34, 0x12, 0, 0, 0, 0, 7]);
}

#[test]
fn local_memory_is_each_threads_own() {
    let body = "
        .local .align 4 .b8 stack[16];
        mov.u64 %rd1, stack;
        and.b32 %r1, %r0, 3;
        mul.wide.u32 %rd2, %r1, 4;
        add.u64 %rd1, %rd1, %rd2;
        st.local.u32 [%rd1], %r0;
        bar.sync 0;
        ld.u32 %r9, [%rd1];";
    let run = Run::new(&format!("{body}{STORE_R9}")).threads(2, 40);
    assert_eq!(run.words(), (0..80).collect::<Vec<u32>>());
}

#[test]
fn parameters_are_found_at_their_places() {
    let text = ".version 7.4
        .target sm_75
        .address_size 64
        .visible .entry test(.param .u64 input, .param .align 8 .b8 output[8])
        {
            .reg .b16 %h<2>;
            .reg .b32 %r<4>;
            .reg .b64 %rd<4>;
            mov.b64 %rd1, output;
            ld.param.b64 %rd2, [%rd1];
            ld.param.u16 %h1, [input+4];
            st.global.u16 [%rd2], %h1;
            ld.param.v2.b32 {%r1, %r2}, [output];
            st.global.u32 [%rd2+4], %r2;
            ret;
        }";
    let mut run = Run::with(text.to_owned());
    run.output_bytes = 8;
    assert_eq!(run.bytes().expect("it runs"), [0, 0x70, 0xee, 0xee, 0, 0x71, 0, 0]);
}

#[test]
fn shared_memory_is_each_thread_blocks_own() {
    let declarations = ".shared .align 4 .b8 outer[4];";
    let body = "
        .shared .align 4 .u32 words[64];
        mov.u32 %r1, words;
        mov.u32 %r2, %tid.x;
        mad.lo.u32 %r3, %r2, 4, %r1;
        st.shared.u32 [%r3], %r0;
        bar.sync 0;
        sub.u32 %r4, 63, %r2;
        mad.lo.u32 %r4, %r4, 4, %r1;
        ld.shared.u32 %r9, [%r4];";
    let body = format!("{body}{STORE_R9}");
    let run = Run::with(module_text(declarations, &body)).threads(3, 64);
    let reversed = (0..3).flat_map(|block| (0..64).rev().map(move |thread| block * 64 + thread));
    assert_eq!(run.words(), reversed.collect::<Vec<u32>>());
}

#[test]
fn each_atomic_returns_the_old_value_and_leaves_the_new_one() {
    let rows = [
        ("add.u32", "5", 3, 8),
        ("add.s32", "-5", 3, 0xffff_fffe),
        ("min.s32", "-5", 3, 0xffff_fffb),
        ("min.u32", "5", 3, 3),
        ("max.s32", "-5", 3, 3),
        ("max.u32", "5", 3, 5),
        ("and.b32", "6", 3, 2),
        ("or.b32", "6", 3, 7),
        ("xor.b32", "6", 3, 5),
        ("exch.b32", "6", 3, 6),
        ("inc.u32", "3", 3, 0),
        ("inc.u32", "4", 3, 4),
        ("dec.u32", "3", 0, 3),
        ("dec.u32", "3", 2, 1),
        ("dec.u32", "3", 9, 3),
        ("cas.b32", "3, 7", 3, 7),
        ("cas.b32", "4, 7", 3, 3),
    ];
    for (operation, operands, old, new) in rows {
        let body = format!(
            "mov.u32 %r1, {old}; st.global.u32 [%rd10], %r1;
             atom.global.{operation} %r2, [%rd10], {operands};
             st.global.u32 [%rd10+4], %r2;"
        );
        let mut run = Run::new(&body);
        run.output_bytes = 8;
        assert_eq!(run.words(), [new, old], "{operation} {operands} on {old}");
        if operation.starts_with("exch") || operation.starts_with("cas") {
            continue;
        }
        run.text =
            run.text.replace("atom.global", "red.global").replace("%r2, [%rd10],", "[%rd10],");
        run.text = run.text.replace("[%rd10+4], %r2", "[%rd10+4], %r1");
        assert_eq!(run.words(), [new, old], "red.{operation} {operands} on {old}");
    }
}

#[test]
fn atomics_of_all_threads_add_up() {
    let body = "
        atom.relaxed.gpu.global.add.u64 %rd1, [%rd0], 3;
        red.global.add.u64 [%rd0+8], %rd0;
        .shared .u32 counter;
        setp.eq.u32 %p1, %r22, 0;
        mov.u32 %r1, 0;
        @%p1 st.shared.u32 [counter], %r1;
        bar.sync 0;
        red.shared.add.u32 [counter], 1;
        membar.gl;
        fence.acq_rel.gpu;
        bar.sync 0;
        ld.shared.u32 %r9, [counter];";
    let mut run = Run::new(&format!("{body}{STORE_R9}")).threads(3, 70).input_u64s(&[0, 0]);
    run.order_seed = Some(1);
    assert_eq!(run.words(), vec![70; 210]);
}
