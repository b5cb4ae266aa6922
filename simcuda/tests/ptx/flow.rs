//! Branches: lanes part and meet again.

use crate::harness::{Run, STORE_R9};

/// Runs a body in 2 thread blocks of 40 threads, each of which leaves a word in `%r9`.
fn words(body: &str) -> Vec<u32> {
    Run::new(&format!("{body}{STORE_R9}")).threads(2, 40).words()
}

fn of_each_thread(word: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..80).map(word).collect()
}

#[test]
fn lanes_leave_a_loop_one_by_one() {
    let body = "
        mov.u32 %r9, 0;
        mov.u32 %r1, %r0;
    again:
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra done;
        add.u32 %r9, %r9, %r1;
        sub.u32 %r1, %r1, 1;
        bra.uni again;
    done:";
    assert_eq!(words(body), of_each_thread(|thread| thread * (thread + 1) / 2));
}

#[test]
fn branches_nest() {
    let body = "
        and.b32 %r1, %r0, 1;
        setp.ne.u32 %p1, %r1, 0;
        and.b32 %r2, %r0, 2;
        setp.ne.u32 %p2, %r2, 0;
        @%p1 bra odd;
        mov.u32 %r9, 10;
        @!%p2 bra join;
        mov.u32 %r9, 12;
        bra join;
    odd:
        mov.u32 %r9, 11;
        @!%p2 bra join;
        mov.u32 %r9, 13;
    join:
        mad.lo.u32 %r9, %r0, 100, %r9;";
    assert_eq!(words(body), of_each_thread(|thread| thread * 100 + 10 + thread % 4));
}

#[test]
fn an_indexed_branch_takes_each_lane_to_its_target() {
    let body = "
        and.b32 %r1, %r0, 3;
    targets: .branchtargets zero, one, two, one;
        brx.idx %r1, targets;
    zero:
        mov.u32 %r9, 100;
        bra join;
    one:
        mov.u32 %r9, 101;
        bra join;
    two:
        mov.u32 %r9, 102;
    join:";
    assert_eq!(words(body), of_each_thread(|thread| [100, 101, 102, 101][thread as usize % 4]));
}

#[test]
fn a_label_belongs_to_its_block() {
    let body = "
        mov.u32 %r9, 0;
        { bra skip; mov.u32 %r9, 1; skip: }
        { .reg .b32 %r1; bra skip; mov.u32 %r9, 2; skip: mov.u32 %r1, 5; add.u32 %r9, %r9, %r1; }";
    assert_eq!(words(body), of_each_thread(|_| 5));
}

#[test]
fn lanes_that_return_early_take_no_other_along() {
    let body = "
        mov.u32 %r9, 1;
        mul.wide.u32 %rd11, %r0, 4;
        add.u64 %rd11, %rd11, %rd10;
        st.global.u32 [%rd11], %r9;
        and.b32 %r1, %r0, 1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 exit;
        mov.u32 %r9, 2;
        st.global.u32 [%rd11], %r9;
        setp.gt.u32 %p2, %r0, 20;
        @%p2 ret;
        mov.u32 %r9, 3;";
    let expected = |thread: u32| match thread {
        thread if !thread.is_multiple_of(2) => 1,
        thread if thread > 20 => 2,
        _ => 3,
    };
    assert_eq!(words(body), of_each_thread(expected));
}

#[test]
fn a_seed_changes_the_order_of_thread_blocks_and_nothing_else() {
    let body = "
        setp.ne.u32 %p1, %r22, 0;
        @%p1 exit;
        atom.global.add.u32 %r9, [%rd0], 1;
        mul.wide.u32 %rd11, %r20, 4;
        add.u64 %rd11, %rd11, %rd10;
        st.global.u32 [%rd11], %r9;";
    let turns = |order_seed| {
        let mut run = Run::new(body).threads(8, 64);
        (run.order_seed, run.output_bytes) = (order_seed, 32);
        run.words()
    };
    assert_eq!(turns(None), (0..8).collect::<Vec<u32>>());
    assert_ne!(turns(Some(3)), turns(None));
    assert_eq!(turns(Some(3)), turns(Some(3)));
    let mut sorted = turns(Some(3));
    sorted.sort_unstable();
    assert_eq!(sorted, turns(None));
}

#[test]
fn a_seed_changes_the_order_of_warps_and_nothing_else() {
    let body = "
        mov.u32 %r1, %laneid;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 exit;
        atom.global.add.u32 %r9, [%rd0], 1;
        mov.u32 %r2, %warpid;
        mul.wide.u32 %rd11, %r2, 4;
        add.u64 %rd11, %rd11, %rd10;
        st.global.u32 [%rd11], %r9;";
    let turns = |order_seed| {
        let mut run = Run::new(body).threads(1, 256);
        (run.order_seed, run.output_bytes) = (order_seed, 32);
        run.words()
    };
    assert_eq!(turns(None), (0..8).collect::<Vec<u32>>());
    assert_ne!(turns(Some(3)), turns(None));
}
