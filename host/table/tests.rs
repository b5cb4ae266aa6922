//! What a pool promises beyond the model of `tests/block_table_model.rs`: its refusals, the order
//! of ids, and that the books panic rather than clamp.

use super::ledger::Ledger;
use super::{Appended, BlockPool, CopyOnWrite, SequenceId, TableError};
use crate::units::{BlockCount, BlockId, GroupIndex, TokenCount};

const GROUP: GroupIndex = GroupIndex::new(0);

fn pool(block_count: u32, block_tokens: u32) -> BlockPool {
    let block_count = BlockCount::new(block_count);
    BlockPool::new(GROUP, block_count, TokenCount::new(block_tokens)).unwrap()
}

fn append(pool: &mut BlockPool, sequence: SequenceId, tokens: u32) -> Option<CopyOnWrite> {
    let Appended { copy_on_write } = pool.append(sequence, TokenCount::new(tokens)).unwrap();
    copy_on_write
}

fn blocks(pool: &BlockPool, sequence: SequenceId) -> Vec<u32> {
    let table = pool.table(sequence).unwrap();
    table.blocks().iter().map(|block| block.get()).collect()
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let shape = |block_count, block_tokens| {
        let block_count = BlockCount::new(block_count);
        BlockPool::new(GROUP, block_count, TokenCount::new(block_tokens)).map(|_| ())
    };
    for count in [0, u32::MAX] {
        let block_count = BlockCount::new(count);
        assert_eq!(shape(count, 16), Err(TableError::BlockCount { block_count }));
    }
    assert_eq!(shape(1, 0), Err(TableError::BlockTokens));
    assert_eq!(shape(u32::MAX - 1, u32::MAX), Ok(()));
}

#[test]
fn fresh_ids_come_lowest_first_and_freed_ids_last_freed_first() {
    let mut pool = pool(8, 4);
    let (first, second, third) = (pool.open(), pool.open(), pool.open());
    append(&mut pool, first, 8);
    append(&mut pool, second, 8);
    assert_eq!(blocks(&pool, first), [0, 1]);
    assert_eq!(blocks(&pool, second), [2, 3]);
    pool.close(first).unwrap();
    pool.close(second).unwrap();
    append(&mut pool, third, 20);
    assert_eq!(blocks(&pool, third), [2, 3, 0, 1, 4], "runs stay ascending");
}

#[test]
fn a_closed_sequence_is_refused_by_every_call() {
    let mut pool = pool(4, 4);
    let sequence = pool.open();
    pool.close(sequence).unwrap();
    let reopened = pool.open();
    assert_ne!(reopened, sequence, "an id is never used again");
    let tokens = TokenCount::new(0);
    let refused = TableError::UnknownSequence { sequence };
    assert_eq!(pool.table(sequence).unwrap_err(), refused);
    assert_eq!(pool.blocks_needed(sequence, tokens), Err(refused));
    assert_eq!(pool.append(sequence, tokens), Err(refused));
    assert_eq!(pool.fork(sequence), Err(refused));
    assert_eq!(pool.fork_prefix(sequence, tokens), Err(refused));
    assert_eq!(pool.truncate(sequence, tokens), Err(refused));
    assert_eq!(pool.drop_before(sequence, tokens), Err(refused));
    assert_eq!(pool.close(sequence), Err(refused));
}

#[test]
fn a_sequence_of_another_group_is_refused() {
    let mut window =
        BlockPool::new(GroupIndex::new(1), BlockCount::new(4), TokenCount::new(4)).unwrap();
    let mut full = pool(4, 4);
    let (sequence, own) = (window.open(), full.open());
    let group = GROUP;
    assert_ne!(sequence, own);
    let refused = TableError::OtherGroup { sequence, group };
    assert_eq!(full.close(sequence), Err(refused));
    assert_eq!(
        refused.to_string(),
        "sequence 0 of group 1 was given to the pool of group 0: use the pool that opened it"
    );
}

#[test]
fn a_block_outside_the_pool_is_refused_by_name() {
    let pool = pool(4, 4);
    assert_eq!(pool.holders(BlockId::new(3)), Ok(0));
    for block in [BlockId::new(4), BlockId::SKIP] {
        let block_count = BlockCount::new(4);
        let refused = TableError::UnknownBlock { block, block_count };
        assert_eq!(pool.holders(block), Err(refused));
    }
}

#[test]
fn a_refused_append_says_what_it_needs_and_takes_nothing() {
    let mut pool = pool(3, 4);
    let sequence = pool.open();
    append(&mut pool, sequence, 6);
    let fork = pool.fork(sequence).unwrap();
    let (needed, free) = (BlockCount::new(2), BlockCount::new(1));
    let refused = pool.append(fork, TokenCount::new(3)).unwrap_err();
    assert_eq!(refused, TableError::OutOfBlocks { needed, free });
    assert_eq!(pool.free_blocks(), free);
    assert_eq!(blocks(&pool, fork), [0, 1]);
    let copy = append(&mut pool, fork, 2);
    let expected = CopyOnWrite {
        source: BlockId::new(1),
        target: BlockId::new(2),
        tokens: TokenCount::new(2),
    };
    assert_eq!(copy, Some(expected));
}

#[test]
fn the_tokens_of_a_sequence_do_not_overflow() {
    let mut pool = pool(1, u32::MAX);
    let sequence = pool.open();
    append(&mut pool, sequence, u32::MAX);
    let (tokens, added) = (TokenCount::new(u32::MAX), TokenCount::new(1));
    let last = TokenCount::new(u32::MAX - 1);
    let place = pool.table(sequence).unwrap().block_of(last);
    assert_eq!(place, Some((BlockId::new(0), last)));
    let refused = TableError::TooManyTokens { sequence, tokens, added };
    assert_eq!(pool.append(sequence, added), Err(refused));
}

#[test]
fn a_window_keeps_only_what_it_reaches() {
    let mut pool = pool(3, 4);
    let sequence = pool.open();
    for _ in 0..100 {
        append(&mut pool, sequence, 3);
        let tokens = pool.table(sequence).unwrap().tokens().get();
        let reached = TokenCount::new(tokens.saturating_sub(5));
        pool.drop_before(sequence, reached).unwrap();
        let table = pool.table(sequence).unwrap();
        let reached_block = table.block_of(reached);
        assert!(reached_block.is_some_and(|(block, _)| block != BlockId::SKIP));
    }
    let asked = TokenCount::new(291);
    let kept_from = TokenCount::new(292);
    let refused = TableError::Dropped { sequence, asked, kept_from };
    assert_eq!(pool.truncate(sequence, asked), Err(refused));
    assert_eq!(pool.fork_prefix(sequence, asked), Err(refused));
    pool.truncate(sequence, kept_from).unwrap();
    assert_eq!(pool.used_blocks(), BlockCount::new(0));
}

#[test]
fn an_engine_that_lost_its_ids_finds_every_block_again() {
    let mut pool = pool(4, 4);
    for _ in 0..2 {
        let lost = pool.open();
        append(&mut pool, lost, 8);
    }
    let lost: Vec<SequenceId> = pool.sequences().map(|(sequence, _)| sequence).collect();
    for sequence in lost {
        pool.close(sequence).unwrap();
    }
    assert_eq!(pool.free_blocks(), pool.block_count());
}

#[test]
#[should_panic(expected = "block 0 was given up but not held")]
fn holders_never_go_below_zero() {
    let mut ledger = Ledger::new(BlockCount::new(1));
    let block = ledger.allocate();
    ledger.give_up(block);
    ledger.give_up(block);
}

#[test]
#[should_panic(expected = "block 0 was shared but not held")]
fn a_free_block_is_never_shared() {
    let mut ledger = Ledger::new(BlockCount::new(1));
    let block = ledger.allocate();
    ledger.give_up(block);
    ledger.share(block);
}
