//! One process: an open pager, and what the engine has under way in it.

use super::engine::{
    BLOCKS_PER_CHUNK, CHUNK_TOKENS, Engine, GROUP_COUNT, group_index, keys, tenant_of,
};
use super::oracle::{CHUNK_COUNT_MAX, Oracle};
use super::step::HOPS;
use super::world::Tally;
use kvtide::core::{Failure, Hop, Stage};
use kvtide::device::cpu::{CpuDevice, OpenWork};
use kvtide::device::{EventHandle, Ready};
use kvtide::io::sim::{SimClock, SimDrive};
use kvtide::key::Key;
use kvtide::pager::{DiskAnswer, Erasure, LoadChunks, Plan, SimulatedPager, StoreChunks, Ticket};
use kvtide::units::{BlockId, GroupIndex, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// How long anything that was asked for may take: its own deadline, then a device operation or a
/// disk operation that had begun, and one look at the clock each.
const SETTLE_TIME: Duration = Duration::from_secs(3 + 2 + 2 * 2 + 1);

/// Rounds without virtual time after which something spins.
const ROUND_COUNT_MAX: u32 = 20_000;

/// A prompt that the engine is to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    pub(crate) conversation: usize,
    pub(crate) chunk_count: usize,
    /// Whether its load and store wait for work of the engine, and whether its plan is kept.
    pub(crate) how: usize,
}

impl Prompt {
    fn keys(self, group: GroupIndex) -> Vec<Key> {
        keys(usize::from(group.get()), self.conversation, self.chunk_count)
    }
}

/// A store or load under way.
#[derive(Debug)]
struct Request {
    ticket: Ticket,
    group: GroupIndex,
    keys: Vec<Key>,
    blocks: Vec<BlockId>,
    is_store: bool,
    /// Of what is stored.
    version: u32,
    /// The oldest version of each chunk that a load may bring.
    floors: Vec<u32>,
    /// What of the engine's it waits for.
    work: Option<(EventHandle, OpenWork)>,
    /// The blocks are the engine's again.
    is_released: bool,
}

/// What was asked of the disk tier.
#[derive(Debug)]
enum Question {
    Flush,
    Clear { version: u32 },
    Erase { version: u32, keys: Vec<Key> },
}

/// An open pager and its engine.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) pager: SimulatedPager,
    pub(crate) device: Arc<CpuDevice>,
    /// The number of its handle on the drive.
    pub(crate) disk: u32,
    clock: SimClock,
    requests: Vec<Request>,
    plans: Vec<Plan>,
    questions: Vec<(Question, DiskAnswer)>,
    /// The device hangs: none of its operations runs.
    pub(crate) is_device_hung: bool,
    /// Before which operation it begins to hang.
    pub(crate) hang_at: Option<(Hop, u64)>,
    /// Something that was asked of the disk tier was answered with an error.
    pub(crate) has_refused: bool,
}

impl Life {
    pub(crate) fn new(
        pager: SimulatedPager,
        device: Arc<CpuDevice>,
        disk: u32,
        clock: SimClock,
    ) -> Self {
        Self {
            pager,
            device,
            disk,
            clock,
            requests: Vec::new(),
            plans: Vec::new(),
            questions: Vec::new(),
            is_device_hung: false,
            hang_at: None,
            has_refused: false,
        }
    }

    /// Runs a prompt: what hits is loaded, the rest is computed and stored.
    pub(crate) fn request(&mut self, engine: &mut Engine, oracle: &Oracle, prompt: Prompt) {
        let lists: Vec<Vec<Key>> =
            (0..GROUP_COUNT).map(|group| prompt.keys(group_index(group))).collect();
        let lists: Vec<&[Key]> = lists.iter().map(Vec::as_slice).collect();
        let Ok(plan) = self.pager.pager().lookup(&lists) else { return };
        for (at, keys) in lists.iter().enumerate() {
            let held = plan.groups()[at];
            let first = held.first_chunk as usize;
            let end = first + held.chunk_count as usize;
            self.load(engine, oracle, &plan, group_index(at), &keys[first..end], prompt.how);
            let computed = (plan.tokens().get() / CHUNK_TOKENS) as usize;
            self.store(engine, oracle, group_index(at), prompt, computed);
        }
        if prompt.how & 1 << 4 == 0 {
            self.plans.push(plan);
        }
    }

    /// Returns when a request may begin: at once, or after work of the engine.
    fn ready(&self, how: usize) -> (Ready, Option<(EventHandle, OpenWork)>) {
        if how.is_multiple_of(4) {
            let event = self.device.create_event();
            let work = self.device.record_open(event).expect("the device's own event");
            return (Ready::After(event), Some((event, work)));
        }
        (Ready::Now, None)
    }

    fn load(
        &mut self,
        engine: &mut Engine,
        oracle: &Oracle,
        plan: &Plan,
        group: GroupIndex,
        keys: &[Key],
        how: usize,
    ) {
        if keys.is_empty() {
            return;
        }
        let Some(blocks) = engine.lend(group, keys.len()) else { return };
        let (ready, work) = self.ready(how);
        let chunks = LoadChunks { group, keys, blocks: &blocks, ready, timeout: None };
        match self.pager.pager().load(plan, chunks) {
            Ok(ticket) => self.requests.push(Request {
                ticket,
                group,
                keys: keys.to_vec(),
                blocks,
                is_store: false,
                version: oracle.version,
                floors: keys.iter().map(|key| oracle.floor(*key)).collect(),
                work,
                is_released: false,
            }),
            Err(_) => engine.take_back(group, &blocks),
        }
    }

    /// Stores a conversation's chunks from `first` on.
    fn store(
        &mut self,
        engine: &mut Engine,
        oracle: &Oracle,
        group: GroupIndex,
        prompt: Prompt,
        first: usize,
    ) {
        let keys = prompt.keys(group);
        let stored = &keys[first.min(keys.len())..];
        if stored.is_empty() {
            return;
        }
        let Some(blocks) = engine.lend(group, stored.len()) else { return };
        let (ready, work) = self.ready(prompt.how >> 2);
        let version = oracle.version;
        if work.is_none() {
            compute(engine, group, stored, version, &blocks);
        }
        let parent = first.checked_sub(1).map(|above| keys[above]);
        let chunks = StoreChunks {
            group,
            parent,
            keys: stored,
            blocks: &blocks,
            tenant: tenant_of(prompt.conversation),
            ready,
            timeout: None,
        };
        match self.pager.pager().store(chunks) {
            Ok(ticket) => self.requests.push(Request {
                ticket,
                group,
                keys: stored.to_vec(),
                blocks,
                is_store: true,
                version,
                floors: Vec::new(),
                work,
                is_released: false,
            }),
            Err(_) => engine.take_back(group, &blocks),
        }
    }

    /// Ends the work that a request waits for.
    pub(crate) fn end_work(&mut self, engine: &Engine, number: usize) {
        let waiting: Vec<usize> =
            (0..self.requests.len()).filter(|&at| self.requests[at].work.is_some()).collect();
        let Some(&at) = waiting.get(number % waiting.len().max(1)) else { return };
        let request = &mut self.requests[at];
        let Some((event, work)) = request.work.take() else { return };
        if !request.is_released {
            if request.is_store {
                compute(engine, request.group, &request.keys, request.version, &request.blocks);
            } else {
                let what = "a block of a load whose event had not happened";
                engine.expect_spoilt(request.group, &request.blocks, what);
            }
        }
        work.end();
        self.device.destroy_event(event).expect("the device's own event");
    }

    pub(crate) fn cancel(&mut self, number: usize) {
        if let Some(request) = self.requests.get(number % self.requests.len().max(1)) {
            request.ticket.cancel();
        }
    }

    pub(crate) fn drop_plan(&mut self, number: usize) {
        if !self.plans.is_empty() {
            drop(self.plans.swap_remove(number % self.plans.len()));
        }
    }

    pub(crate) fn flush(&mut self) {
        if let Ok(answer) = self.pager.begin_flush() {
            self.questions.push((Question::Flush, answer));
        }
    }

    pub(crate) fn clear(&mut self, oracle: &mut Oracle) {
        let version = oracle.begin_clear();
        if let Ok(answer) = self.pager.begin_clear() {
            self.questions.push((Question::Clear { version }, answer));
        }
    }

    /// Erases the chunks of a conversation from one of them on.
    pub(crate) fn erase_keys(&mut self, oracle: &mut Oracle, conversation: usize, first: usize) {
        let all = (0..GROUP_COUNT)
            .flat_map(|group| keys(group, conversation, CHUNK_COUNT_MAX).into_iter().skip(first));
        let keys: Vec<Key> = all.collect();
        self.erase(oracle, &Erasure::Keys(keys.clone()), keys);
    }

    pub(crate) fn erase_tenant(&mut self, oracle: &mut Oracle, conversation: usize) {
        let tenant = tenant_of(conversation);
        self.erase(oracle, &Erasure::Tenant(tenant), Oracle::keys_of(tenant));
    }

    fn erase(&mut self, oracle: &mut Oracle, what: &Erasure, keys: Vec<Key>) {
        let version = oracle.begin_erasure();
        if let Ok(answer) = self.pager.begin_erase(what) {
            self.questions.push((Question::Erase { version, keys }, answer));
        }
    }

    /// Takes in what has been answered and what has ended, and checks every byte of it.
    ///
    /// With `may_fail` the disk tier may have failed what was asked of it.
    pub(crate) fn look(
        &mut self,
        engine: &mut Engine,
        oracle: &mut Oracle,
        tally: &mut Tally,
        may_fail: bool,
    ) {
        self.questions.retain(|(question, answer)| {
            let Some(answer) = answer.poll() else { return true };
            match (question, answer) {
                // A store that somebody has keeps what it holds; here, an operation that hangs.
                (_, Ok(())) if !self.pager.pager().uncleared().is_empty() => {
                    assert!(oracle.has_faults, "a store is held by nobody");
                }
                (Question::Clear { version }, Ok(())) => oracle.cleared(*version),
                (Question::Erase { version, keys }, Ok(())) => oracle.erased(keys, *version),
                (_, Err(error)) => {
                    assert!(may_fail, "the disk tier failed by itself: {error}");
                    self.has_refused = true;
                }
                (Question::Flush, Ok(())) => {}
            }
            false
        });
        let mut at = 0;
        while at < self.requests.len() {
            let request = &mut self.requests[at];
            if request.is_store && !request.is_released && request.ticket.is_released() {
                request.is_released = true;
                engine.take_back(request.group, &request.blocks);
            }
            match request.ticket.poll_report() {
                Some(report) => {
                    let request = self.requests.swap_remove(at);
                    self.end_request(engine, oracle, tally, request, &report.stages);
                }
                None => at += 1,
            }
        }
    }

    fn end_request(
        &self,
        engine: &mut Engine,
        oracle: &Oracle,
        tally: &mut Tally,
        request: Request,
        stages: &[Stage],
    ) {
        let Request { group, keys, blocks, is_store, floors, work, is_released, .. } = request;
        if is_store {
            assert!(is_released, "what has ended is released");
        } else {
            let chunks = keys.iter().zip(floors).zip(blocks.chunks_exact(BLOCKS_PER_CHUNK));
            for (((key, floor), blocks), stage) in chunks.zip(stages) {
                match stage {
                    Stage::Done => {
                        let mut versions = floor..=oracle.version;
                        let is_right =
                            versions.any(|version| engine.holds(group, *key, version, blocks));
                        assert!(is_right, "wrong bytes for {key} in group {group}");
                        tally.compared += 1;
                    }
                    // What failed on the device may have written some of the blocks.
                    // What was cleared had perhaps been written before.
                    Stage::Failed(Failure::Device | Failure::Poisoned | Failure::Cleared) => {}
                    _ => engine.expect_spoilt(group, blocks, "a block of a failed chunk"),
                }
            }
            engine.take_back(group, &blocks);
        }
        if let Some((event, work)) = work {
            work.end();
            self.device.destroy_event(event).expect("the device's own event");
        }
    }

    /// Runs one operation of the device, unless it hangs; returns whether there was one.
    pub(crate) fn step_device(&mut self, hop: Hop) -> bool {
        self.is_device_hung |= self.hang_at == Some((hop, self.device.begun(hop)));
        !self.is_device_hung && self.device.step(hop)
    }

    /// Gives everybody a turn; returns how long all would sleep now, `None` when somebody has more
    /// to do.
    pub(crate) fn turn(&mut self, engine: &Engine) -> Option<Duration> {
        while self.requests.iter().any(|request| request.work.is_some()) {
            self.end_work(engine, 0);
        }
        let mut has_worked = false;
        for hop in HOPS {
            while self.step_device(hop) {
                has_worked = true;
            }
        }
        let sleeps = [self.pager.run_device(), self.pager.run_disk()];
        let [Some(device), Some(disk)] = sleeps else { return None };
        (!has_worked).then_some(device.min(disk))
    }

    /// Lets time pass until something may happen on the drive, at most `longest`.
    pub(crate) fn pass_time(&self, drive: &SimDrive, longest: Duration) {
        pass_time(&self.clock, drive, longest);
    }

    /// Runs until all that was asked for has ended, which it must in time. Only what was asked of
    /// the disk tier waits for as long as an operation that hangs.
    pub(crate) fn settle(
        &mut self,
        engine: &mut Engine,
        oracle: &mut Oracle,
        drive: &SimDrive,
        tally: &mut Tally,
        has_hung: bool,
    ) {
        let latest = self.clock.now().after(nanoseconds(SETTLE_TIME));
        let mut rounds = 0;
        while !self.requests.is_empty() || !self.questions.is_empty() {
            if self.clock.now() >= latest {
                assert!(self.requests.is_empty(), "this does not end: {:?}", self.requests);
                assert!(has_hung, "this is not answered: {:?}", self.questions);
                return;
            }
            let sleep = self.turn(engine);
            let may_fail = oracle.has_faults || drive.counters().cuts > tally.power_cuts;
            self.look(engine, oracle, tally, may_fail);
            rounds = if let Some(sleep) = sleep {
                self.pass_time(drive, sleep);
                0
            } else {
                rounds + 1
            };
            assert!(rounds < ROUND_COUNT_MAX, "somebody spins");
        }
    }

    /// Lets go of everything that the engine holds.
    pub(crate) fn let_go(&mut self) {
        self.requests.clear();
        self.plans.clear();
        self.questions.clear();
    }
}

/// Lets time pass until something may happen on the drive, at most `longest`.
pub(crate) fn pass_time(clock: &SimClock, drive: &SimDrive, longest: Duration) {
    let latest = clock.now().after(nanoseconds(longest));
    let next = drive.next_event().unwrap_or(Timestamp::NEVER);
    // At least a little, or what is due now is waited for for ever.
    clock.advance_to(next.min(latest).max(clock.now().after(1)));
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Computes chunks into blocks.
fn compute(engine: &Engine, group: GroupIndex, keys: &[Key], version: u32, blocks: &[BlockId]) {
    for (key, blocks) in keys.iter().zip(blocks.chunks_exact(BLOCKS_PER_CHUNK)) {
        engine.compute(group, *key, version, blocks);
    }
}
