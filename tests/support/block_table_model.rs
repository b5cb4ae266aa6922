//! What a block pool must do, said naively, and a device memory that shows whether it did.
//!
//! [`Reference`] keeps each sequence's whole token history and gives every block a name that is
//! never used again: no free list, no counts. [`Harness`] drives the real pool beside it over a
//! simulated device memory, where it writes each token's value at the place that the table says,
//! makes the copies that the pool asks for, and spoils every block that goes free. After each step
//! every sequence must read back exactly its own history.
//!
//! Shared by the property test `block_table_model` and the fuzz target `block_table`.

use std::collections::{HashMap, HashSet};

use kvtide::table::{Appended, BlockPool, BlockTable, CopyOnWrite, SequenceId, TableError};
use kvtide::units::{BlockCount, BlockId, GroupIndex, TokenCount};

/// The most sequences that are open at once; bounds the cost of a check.
pub(crate) const OPEN_MAX: usize = 12;

/// One step. A sequence is named by its place among the open ones.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Open,
    Append { sequence: usize, tokens: u32 },
    Fork { sequence: usize },
    ForkPrefix { sequence: usize, tokens: u32 },
    Truncate { sequence: usize, tokens: u32 },
    DropBefore { sequence: usize, tokens: u32 },
    Close { sequence: usize },
}

/// How a step must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// Done, once the first tokens of a shared block are copied.
    Copies {
        tokens: u32,
    },
    OutOfBlocks {
        needed: u32,
        free: u32,
    },
    BeyondEnd {
        tokens: u32,
    },
    Dropped {
        kept_from: u32,
    },
    TooManyTokens,
}

/// A sequence in the reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The value written for each token; no two writes write the same value.
    pub(crate) values: Vec<u64>,
    /// The name of each block; `None` where it was dropped.
    names: Vec<Option<u64>>,
}

impl History {
    pub(crate) fn tokens(&self) -> u32 {
        number(self.values.len())
    }

    /// The first position that has a block.
    fn kept_from(&self, block_tokens: u32) -> u32 {
        let dropped = self.names.iter().filter(|name| name.is_none());
        number(dropped.count()) * block_tokens
    }

    /// The first `tokens` tokens, in the same blocks.
    fn prefix(&self, tokens: u32, block_tokens: u32) -> Self {
        let blocks = tokens.div_ceil(block_tokens);
        Self {
            values: self.values[..index(tokens)].to_vec(),
            names: self.names[..index(blocks)].to_vec(),
        }
    }
}

/// The naive model: what the pool must do.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) block_count: u32,
    pub(crate) block_tokens: u32,
    /// The open sequences, in the order of opening.
    pub(crate) open: Vec<History>,
    /// How the last step must have ended.
    pub(crate) outcome: Outcome,
    /// Source of values and names that are never used again.
    next_unique: u64,
}

impl Reference {
    pub(crate) fn new(block_count: u32, block_tokens: u32) -> Self {
        Self { block_count, block_tokens, open: Vec::new(), outcome: Outcome::Done, next_unique: 0 }
    }

    /// Whether the step names an open sequence and keeps to [`OPEN_MAX`].
    pub(crate) fn can_apply(&self, operation: &Operation) -> bool {
        let has_room = self.open.len() < OPEN_MAX;
        match *operation {
            Operation::Open => has_room,
            Operation::Fork { sequence } | Operation::ForkPrefix { sequence, .. } => {
                has_room && sequence < self.open.len()
            }
            Operation::Append { sequence, .. }
            | Operation::Truncate { sequence, .. }
            | Operation::DropBefore { sequence, .. }
            | Operation::Close { sequence } => sequence < self.open.len(),
        }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) {
        self.outcome = match *operation {
            Operation::Open => {
                self.open.push(History::default());
                Outcome::Done
            }
            Operation::Append { sequence, tokens } => self.append(sequence, tokens),
            Operation::Fork { sequence } => {
                self.open.push(self.open[sequence].clone());
                Outcome::Done
            }
            Operation::ForkPrefix { sequence, tokens } => {
                self.keep(sequence, tokens, |open, kept| {
                    open.push(kept);
                })
            }
            Operation::Truncate { sequence, tokens } => {
                self.keep(sequence, tokens, |open, kept| {
                    open[sequence] = kept;
                })
            }
            Operation::DropBefore { sequence, tokens } => self.drop_before(sequence, tokens),
            Operation::Close { sequence } => {
                self.open.remove(sequence);
                Outcome::Done
            }
        };
    }

    fn drop_before(&mut self, sequence: usize, position: u32) -> Outcome {
        let history = &mut self.open[sequence];
        let tokens = history.tokens();
        if position > tokens {
            return Outcome::BeyondEnd { tokens };
        }
        let passed = position / self.block_tokens;
        history.names[..index(passed)].fill(None);
        Outcome::Done
    }

    /// Cuts a copy of a sequence, if it can be cut there, and puts it in its place.
    fn keep(
        &mut self,
        sequence: usize,
        tokens: u32,
        place: impl FnOnce(&mut Vec<History>, History),
    ) -> Outcome {
        let history = &self.open[sequence];
        if tokens > history.tokens() {
            return Outcome::BeyondEnd { tokens: history.tokens() };
        }
        let kept_from = history.kept_from(self.block_tokens);
        if tokens < kept_from {
            return Outcome::Dropped { kept_from };
        }
        let kept = history.prefix(tokens, self.block_tokens);
        place(&mut self.open, kept);
        Outcome::Done
    }

    fn append(&mut self, sequence: usize, added: u32) -> Outcome {
        let held = self.open[sequence].tokens();
        let Some(tokens) = held.checked_add(added) else {
            return Outcome::TooManyTokens;
        };
        let filled = held % self.block_tokens;
        let copies = added > 0 && filled > 0 && self.shares_last_block(sequence);
        let blocks = tokens.div_ceil(self.block_tokens) - held.div_ceil(self.block_tokens);
        let needed = blocks + u32::from(copies);
        let free = self.block_count - number(self.names().len());
        if needed > free {
            return Outcome::OutOfBlocks { needed, free };
        }
        let names: Vec<_> = (0..needed).map(|_| Some(self.unique())).collect();
        let values: Vec<u64> = (0..added).map(|_| self.unique()).collect();
        let history = &mut self.open[sequence];
        if copies {
            history.names.pop();
        }
        history.names.extend(names);
        history.values.extend(values);
        if copies { Outcome::Copies { tokens: filled } } else { Outcome::Done }
    }

    fn shares_last_block(&self, sequence: usize) -> bool {
        let last = self.open[sequence].names.last().expect("a partial block is listed");
        let holders = self.open.iter().filter(|other| other.names.contains(last));
        holders.count() > 1
    }

    /// The names of the blocks in use.
    fn names(&self) -> HashSet<u64> {
        let histories = self.open.iter();
        histories.flat_map(|history| history.names.iter().copied().flatten()).collect()
    }

    fn unique(&mut self) -> u64 {
        self.next_unique += 1;
        self.next_unique
    }
}

/// The real pool over a simulated device memory.
#[derive(Debug)]
pub(crate) struct Harness {
    pool: BlockPool,
    /// The ids of the open sequences, in the reference's order.
    open: Vec<SequenceId>,
    closed: Vec<SequenceId>,
    /// By block and offset; `None` is spoiled.
    memory: Vec<Vec<Option<u64>>>,
}

impl Harness {
    pub(crate) fn new(reference: &Reference) -> Self {
        let block_count = BlockCount::new(reference.block_count);
        let block_tokens = TokenCount::new(reference.block_tokens);
        let pool =
            BlockPool::new(GroupIndex::new(0), block_count, block_tokens).expect("a valid shape");
        let block = vec![None; index(reference.block_tokens)];
        Self {
            pool,
            open: Vec::new(),
            closed: Vec::new(),
            memory: vec![block; index(reference.block_count)],
        }
    }

    /// Makes the step that brought the reference to the state `after`.
    pub(crate) fn apply(&mut self, operation: &Operation, after: &Reference) {
        let result = match *operation {
            Operation::Open => {
                let opened = self.pool.open();
                self.push(Ok(opened))
            }
            Operation::Append { sequence, tokens } => self.append(sequence, tokens, after),
            Operation::Fork { sequence } => {
                let forked = self.pool.fork(self.open[sequence]);
                self.push(forked)
            }
            Operation::ForkPrefix { sequence, tokens } => {
                let tokens = TokenCount::new(tokens);
                let forked = self.pool.fork_prefix(self.open[sequence], tokens);
                self.push(forked)
            }
            Operation::Truncate { sequence, tokens } => {
                let tokens = TokenCount::new(tokens);
                self.pool.truncate(self.open[sequence], tokens).map(|()| None)
            }
            Operation::DropBefore { sequence, tokens } => {
                let position = TokenCount::new(tokens);
                self.pool.drop_before(self.open[sequence], position).map(|()| None)
            }
            Operation::Close { sequence } => {
                let id = self.open.remove(sequence);
                self.closed.push(id);
                self.pool.close(id).map(|()| None)
            }
        };
        assert_eq!(outcome_of(result), after.outcome, "{operation:?}");
        self.spoil_free_blocks();
    }

    fn push(
        &mut self,
        opened: Result<SequenceId, TableError>,
    ) -> Result<Option<CopyOnWrite>, TableError> {
        let id = opened?;
        assert!(!self.open.contains(&id), "{id} was opened twice");
        assert!(!self.closed.contains(&id), "{id} was used again");
        self.open.push(id);
        Ok(None)
    }

    fn append(
        &mut self,
        sequence: usize,
        added: u32,
        after: &Reference,
    ) -> Result<Option<CopyOnWrite>, TableError> {
        let id = self.open[sequence];
        let held = self.pool.table(id)?.tokens().get();
        let needed = self.pool.blocks_needed(id, TokenCount::new(added));
        let free = self.pool.free_blocks();
        let appended = self.pool.append(id, TokenCount::new(added));
        let taken = BlockCount::new(free.get() - self.pool.free_blocks().get());
        let told = match appended {
            Ok(_) => Ok(taken),
            Err(TableError::OutOfBlocks { needed, .. }) => Ok(needed),
            Err(other) => Err(other),
        };
        assert_eq!(told, needed, "blocks_needed is exact");
        let Appended { copy_on_write } = appended?;
        if let Some(copy) = copy_on_write {
            let copied = index(copy.tokens.get());
            let source = self.memory[index(copy.source.get())][..copied].to_vec();
            self.memory[index(copy.target.get())][..copied].copy_from_slice(&source);
        }
        for position in held..held + added {
            let value = after.open[sequence].values[index(position)];
            *self.cell(id, position) = Some(value);
        }
        Ok(copy_on_write)
    }

    fn cell(&mut self, id: SequenceId, position: u32) -> &mut Option<u64> {
        let table = self.pool.table(id).expect("the sequence is open");
        let place = table.block_of(TokenCount::new(position));
        let (block, offset) = place.expect("an appended token has a place");
        &mut self.memory[index(block.get())][index(offset.get())]
    }

    fn spoil_free_blocks(&mut self) {
        let mut held: HashSet<BlockId> = HashSet::new();
        for (_, table) in self.pool.sequences() {
            held.extend(table.blocks());
        }
        for (block, cells) in (0..).zip(&mut self.memory) {
            if !held.contains(&BlockId::new(block)) {
                cells.fill(None);
            }
        }
    }

    /// Checks every promise against the reference.
    pub(crate) fn check(&self, reference: &Reference) {
        self.check_histories(reference);
        self.check_books(reference);
        self.check_closed();
    }

    /// Every sequence reads back its own history, and shares the blocks that it must.
    fn check_histories(&self, reference: &Reference) {
        let mut block_by_name = HashMap::new();
        for (&id, history) in self.open.iter().zip(&reference.open) {
            let table = self.pool.table(id).expect("the sequence is open");
            assert_eq!(table.tokens().get(), history.tokens());
            let kept_from = history.kept_from(reference.block_tokens);
            assert_eq!(table.kept_from().get(), kept_from);
            for (position, &value) in (0..).zip(&history.values) {
                let expected = (position >= kept_from).then_some(value);
                assert_eq!(self.read(table, position), expected, "{id} at {position}: {table:?}");
            }
            assert_eq!(table.block_of(table.tokens()), None);
            assert_eq!(table.blocks().len(), history.names.len());
            for (&name, &block) in history.names.iter().zip(table.blocks()) {
                let known = *block_by_name.entry(name).or_insert(block);
                assert_eq!(known, block, "one block, two ids");
                assert_eq!(name.is_none(), block == BlockId::SKIP, "a dropped place is a skip");
            }
        }
        let used: HashSet<_> = block_by_name.values().collect();
        assert_eq!(used.len(), block_by_name.len(), "two blocks, one id");
    }

    /// The value that the table leads to; `None` where it leads nowhere or to spoiled memory.
    fn read(&self, table: &BlockTable, position: u32) -> Option<u64> {
        let (block, offset) = table.block_of(TokenCount::new(position))?;
        self.memory[index(block.get())][index(offset.get())]
    }

    /// Each block is held by exactly the tables that list it, and used + free = count.
    fn check_books(&self, reference: &Reference) {
        let mut holders = vec![0; index(reference.block_count)];
        let mut listed = Vec::new();
        for (id, table) in self.pool.sequences() {
            listed.push(id);
            for block in table.blocks().iter().filter(|&&block| block != BlockId::SKIP) {
                holders[index(block.get())] += 1;
            }
        }
        let mut open = self.open.clone();
        open.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, open);
        for (block, &expected) in (0..).zip(&holders) {
            let counted = self.pool.holders(BlockId::new(block)).expect("an id of the pool");
            assert_eq!(counted, expected, "holders of block {block}");
        }
        let used = self.pool.used_blocks().get();
        assert_eq!(index(used), holders.iter().filter(|&&count| count > 0).count());
        assert_eq!(index(used), reference.names().len());
        assert_eq!(used + self.pool.free_blocks().get(), reference.block_count);
    }

    /// The id of a closed sequence stays an error.
    fn check_closed(&self) {
        for &sequence in self.closed.iter().rev().take(OPEN_MAX) {
            let refused = Err(TableError::UnknownSequence { sequence });
            assert_eq!(self.pool.table(sequence).map(|_| ()), refused);
        }
    }
}

/// What a result of the pool is in the reference's words.
fn outcome_of(result: Result<Option<CopyOnWrite>, TableError>) -> Outcome {
    match result {
        Ok(None) => Outcome::Done,
        Ok(Some(copy)) => Outcome::Copies { tokens: copy.tokens.get() },
        Err(TableError::OutOfBlocks { needed, free }) => {
            Outcome::OutOfBlocks { needed: needed.get(), free: free.get() }
        }
        Err(TableError::BeyondEnd { tokens, .. }) => Outcome::BeyondEnd { tokens: tokens.get() },
        Err(TableError::Dropped { kept_from, .. }) => {
            Outcome::Dropped { kept_from: kept_from.get() }
        }
        Err(TableError::TooManyTokens { .. }) => Outcome::TooManyTokens,
        Err(other) => panic!("no step ends so: {other}"),
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).expect("a usize holds a u32")
}

fn number(length: usize) -> u32 {
    u32::try_from(length).expect("a small count")
}
