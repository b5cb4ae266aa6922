//! What lanes of a warp and threads of a thread block do together.

use crate::harness::{Run, STORE_R9};

/// Runs a body in one warp, each lane of which leaves a word in `%r9`.
fn words(body: &str) -> Vec<u32> {
    Run::new(&format!("{body}{STORE_R9}")).threads(1, 32).words()
}

fn of_each_lane(word: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(word).collect()
}

#[test]
fn shuffles_read_other_lanes() {
    let shuffled = |operation: &str, lane: &str, clamp: &str| {
        words(&format!(
            "xor.b32 %r1, %r0, 5; mul.lo.u32 %r2, %r0, 100;
             shfl.sync.{operation}.b32 %r9|%p1, %r2, {lane}, {clamp}, 0xffffffff;
             @%p1 add.u32 %r9, %r9, 1;"
        ))
    };
    // A lane in range reads 100 times the source's number plus 1, else 100 times its own.
    let from = |lane: u32, source: u32, in_range: bool| {
        if in_range { source * 100 + 1 } else { lane * 100 }
    };
    let up = |lane: u32| from(lane, lane.wrapping_sub(3), lane >= 3);
    assert_eq!(shuffled("up", "3", "0"), of_each_lane(up));
    let down = |lane: u32| from(lane, lane + 3, lane + 3 <= 31);
    assert_eq!(shuffled("down", "3", "31"), of_each_lane(down));
    assert_eq!(shuffled("bfly", "16", "31"), of_each_lane(|lane| from(lane, lane ^ 16, true)));
    assert_eq!(shuffled("idx", "%r1", "31"), of_each_lane(|lane| from(lane, lane ^ 5, true)));
    // Segments of 8 lanes: 0x18 in bits 8 to 12.
    let up = |lane: u32| from(lane, lane.wrapping_sub(3), lane % 8 >= 3);
    assert_eq!(shuffled("up", "3", "0x1800"), of_each_lane(up));
    let down = |lane: u32| from(lane, lane + 3, lane % 8 + 3 < 8);
    assert_eq!(shuffled("down", "3", "0x181f"), of_each_lane(down));
    let first = |lane: u32| from(lane, lane / 8 * 8 + 2, true);
    assert_eq!(shuffled("idx", "10", "0x181f"), of_each_lane(first));
    let clamped = |lane: u32| from(lane, lane ^ 4, (lane % 8) ^ 4 <= 5);
    assert_eq!(shuffled("bfly", "4", "0x1805"), of_each_lane(clamped));
}

#[test]
fn parted_lanes_shuffle_with_the_members_they_name() {
    // Halves take different ways and shuffle there, then meet for one shuffle of all.
    let body = "
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra low;
        shfl.sync.idx.b32 %r9, %r0, 20, 31, 0xffff0000;
        bra join;
    low:
        shfl.sync.idx.b32 %r9, %r0, 4, 31, 0x0000ffff;
    join:
        shfl.sync.bfly.b32 %r9, %r9, 16, 31, 0xffffffff;";
    assert_eq!(words(body), of_each_lane(|lane| if lane < 16 { 20 } else { 4 }));
}

#[test]
fn lanes_that_come_late_are_waited_for() {
    // Every lane has another number of rounds before the shuffle, which stands behind the loop.
    let body = "
        mov.u32 %r1, %r0;
    again:
        setp.eq.u32 %p1, %r1, 0;
        @%p1 bra meet;
        sub.u32 %r1, %r1, 1;
        bra again;
    meet:
        shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xffffffff;";
    assert_eq!(words(body), of_each_lane(|lane| lane ^ 1));
    // Here the shuffle stands before what late lanes still run.
    let body = "
        setp.ge.u32 %p1, %r0, 8;
        @%p1 bra late;
    meet:
        shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xffffffff;
        bra done;
    late:
        bar.warp.sync 0xffffff00;
        bra meet;
    done:";
    assert_eq!(words(body), of_each_lane(|lane| lane ^ 1));
}

#[test]
fn members_that_have_exited_are_not_waited_for() {
    let body = "
        mul.wide.u32 %rd11, %r0, 4;
        add.u64 %rd11, %rd11, %rd10;
        st.global.u32 [%rd11], %r0;
        setp.ge.u32 %p1, %r0, 30;
        @%p1 bra leave;
        shfl.sync.bfly.b32 %r9, %r0, 1, 31, 0xffffffff;
        bra done;
    leave:
        ret;
    done:";
    assert_eq!(words(body), of_each_lane(|lane| if lane < 30 { lane ^ 1 } else { lane }));
}

#[test]
fn votes_ask_all_members() {
    let vote = |mode: &str, predicate: &str, condition: &str| {
        words(&format!(
            "setp.{condition} %p1, %r0, 3; vote.sync.{mode}.pred %p2, {predicate}, 0xffffffff;
             selp.u32 %r9, 1, 0, %p2;"
        ))
    };
    assert_eq!(vote("all", "%p1", "ge.u32"), [0; 32]);
    assert_eq!(vote("all", "%p1", "ne.u32"), [0; 32]);
    assert_eq!(vote("any", "%p1", "eq.u32"), [1; 32]);
    assert_eq!(vote("any", "!%p1", "eq.u32"), [1; 32]);
    assert_eq!(vote("uni", "%p1", "eq.u32"), [0; 32]);
    let never = "setp.gt.u32 %p1, %r0, 31;";
    let all = format!("{never} vote.sync.all.pred %p2, !%p1, -1; selp.u32 %r9, 1, 0, %p2;");
    assert_eq!(words(&all), [1; 32]);
    let uniform = format!("{never} vote.sync.uni.pred %p2, %p1, -1; selp.u32 %r9, 1, 0, %p2;");
    assert_eq!(words(&uniform), [1; 32]);
    let ballot = "setp.lt.u32 %p1, %r0, 3; vote.sync.ballot.b32 %r9, !%p1, 0xffffffff;";
    assert_eq!(words(ballot), [0xffff_fff8; 32]);
}

#[test]
fn matches_find_the_lanes_of_the_same_value() {
    let any = "and.b32 %r1, %r0, 3; match.any.sync.b32 %r9, %r1, 0xffffffff;";
    assert_eq!(words(any), of_each_lane(|lane| 0x1111_1111 << (lane % 4)));
    let all = |value: &str| {
        format!("{value} match.all.sync.b64 %r9|%p1, %rd1, 0xffffffff; @%p1 xor.b32 %r9, %r9, 1;")
    };
    assert_eq!(words(&all("mov.u64 %rd1, 7;")), [0xffff_fffe; 32]);
    assert_eq!(words(&all("cvt.u64.u32 %rd1, %r0;")), [0; 32]);
}

#[test]
fn the_active_mask_is_that_of_the_lanes_that_run_together() {
    let body = "
        setp.lt.u32 %p1, %r0, 8;
        @%p1 bra low;
        activemask.b32 %r9;
        bra join;
    low:
        activemask.b32 %r9;
    join:";
    assert_eq!(words(body), of_each_lane(|lane| if lane < 8 { 0xff } else { 0xffff_ff00 }));
}

#[test]
fn barriers_order_the_warps_of_a_thread_block() {
    // Each round every thread takes its neighbour's word, across warps, in barriers of any name.
    let body = "
        .shared .align 4 .u32 words[96];
        mov.u32 %r1, words;
        mad.lo.u32 %r2, %r22, 4, %r1;
        add.u32 %r3, %r22, 1;
        rem.u32 %r3, %r3, 96;
        mad.lo.u32 %r3, %r3, 4, %r1;
        mov.u32 %r9, %r0;
        mov.u32 %r4, 10;
    again:
        st.shared.u32 [%r2], %r9;
        bar.sync 0;
        ld.shared.u32 %r9, [%r3];
        barrier.sync.aligned 3;
        sub.u32 %r4, %r4, 1;
        setp.ne.u32 %p1, %r4, 0;
        @%p1 bra again;";
    let run = Run::new(&format!("{body}{STORE_R9}")).threads(2, 96);
    let rotated = (0..2).flat_map(|block| (0..96).map(move |at| block * 96 + (at + 10) % 96));
    assert_eq!(run.words(), rotated.collect::<Vec<u32>>());
}
