//! Which accesses of a launch are ordered: the clock of the race detector.
//!
//! Inside a launch only `bar.sync` orders the warps of a thread block; nothing orders thread
//! blocks. So every byte remembers who touched it by one number, a *tag*. Tags grow: each launch
//! begins with a tag that stands for several thread blocks; then, each time that a thread block
//! begins or leaves a barrier, comes one for several of its warps, and one for each warp. Since
//! thread blocks run one after another, comparing a tag with the three that are current says what
//! it means. Fences are not looked at: flags in memory do not order accesses here. Lanes of a warp
//! count as ordered. Called by memory, for every byte of every access.

/// What is ordered before the warp that runs.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Stands for several thread blocks of this launch; lower tags are of earlier launches.
    launch: u32,
    /// The first tag of this thread block.
    thread_block: u32,
    /// Stands for several of its warps since the last barrier; lower tags are from before it.
    since_barrier: u32,
    /// This warp's tag.
    warp: u32,
    warp_count: u32,
    /// The first tags of all thread blocks that have begun, and the blocks' numbers.
    begun: Vec<(u32, u64)>,
}

impl Order {
    /// Starts a launch of thread blocks of `warp_count` warps behind the tags used up to `end`.
    pub(super) fn new(end: u32, warp_count: u32) -> Self {
        let launch = end + 1;
        Self {
            launch,
            thread_block: launch,
            since_barrier: launch,
            warp: launch,
            warp_count,
            begun: Vec::new(),
        }
    }

    /// Returns the last tag used up; `None` if there are no more.
    pub(super) fn end(&self) -> Option<u32> {
        self.since_barrier.checked_add(self.warp_count)
    }

    /// Begins thread block `number`.
    pub(super) fn begin_thread_block(&mut self, number: u64) {
        self.pass_barrier();
        self.thread_block = self.since_barrier;
        self.begun.push((self.thread_block, number));
    }

    /// Orders what the thread block did before what it does next.
    pub(super) fn pass_barrier(&mut self) {
        let is_first = self.begun.is_empty();
        let used = if is_first { 0 } else { self.warp_count };
        self.since_barrier += used + 1;
    }

    /// Lets warp `number` of the thread block run.
    pub(super) fn run_warp(&mut self, number: u32) {
        self.warp = self.since_barrier + 1 + number;
    }

    /// Returns this warp's tag.
    #[inline]
    pub(super) fn tag(&self) -> u32 {
        self.warp
    }

    /// Returns whether an access by `tag` is ordered before this warp's next.
    #[inline]
    pub(super) fn is_before(&self, tag: u32) -> bool {
        tag < self.launch
            || tag == self.warp
            || (self.thread_block <= tag && tag < self.since_barrier)
    }

    /// Returns the tag that stands for `tag` and this warp.
    #[inline]
    pub(super) fn join(&self, tag: u32) -> u32 {
        if self.is_before(tag) {
            self.warp
        } else if tag >= self.since_barrier {
            self.since_barrier
        } else {
            self.launch
        }
    }

    /// Returns the number of the thread block of `tag`, if it stands for one.
    pub(super) fn thread_block_of(&self, tag: u32) -> Option<u64> {
        let behind = self.begun.partition_point(|(first, _)| *first <= tag);
        behind.checked_sub(1).map(|index| self.begun[index].1)
    }
}
