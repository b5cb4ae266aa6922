//! Callers that cancel, give up, drop and close at any moment, over rings of one piece and a host
//! tier of a few chunks: every ticket ends, nothing waits for ever, and no wrong byte comes back.

use crate::engine::{Engine, PATIENT, THREADS, Worker, keys};
use crate::support::scatter;
use kvtide::core::{Hop, Stage};
use kvtide::device::Ready;
use kvtide::device::cpu::{CpuConfig, Fault};
use kvtide::pager::{LoadChunks, Plan, StoreChunks, Ticket};
use kvtide::units::{GroupIndex, TenantId};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const FULL: GroupIndex = GroupIndex::new(0);
const SOON: Duration = Duration::from_secs(20);
const ROUNDS: u64 = 300;

/// What outlives its worker, and so perhaps the pager.
struct Left {
    ticket: Ticket,
    _plan: Plan,
}

struct Caller {
    worker: Worker,
    left: Sender<Left>,
    seed: u64,
}

impl Caller {
    fn chance(&mut self, of: u64) -> u64 {
        self.seed = scatter(self.seed);
        (self.seed >> 17) % of
    }

    fn timeout(&mut self) -> Option<Duration> {
        match self.chance(4) {
            0 => Some(Duration::ZERO),
            1 => Some(Duration::from_micros(200)),
            _ => None,
        }
    }

    /// Does to a ticket what an impatient engine may do.
    fn disturb(&mut self, ticket: &Ticket) {
        match self.chance(4) {
            0 => ticket.cancel(),
            1 => drop(ticket.stages()),
            2 => std::thread::yield_now(),
            _ => {}
        }
    }

    fn round(&mut self) {
        let chunk_count = 1 + u32::try_from(self.chance(6)).expect("small");
        let keys = keys(0, self.chance(5), chunk_count);
        let engine = Arc::clone(&self.worker.engine);
        let blocks: Vec<_> =
            (0..keys.len()).flat_map(|at| self.worker.blocks_of(at)).copied().collect();
        let plan = engine.pager.lookup(&[&keys, &[]]).expect("a plan is free");
        if self.chance(2) == 0 {
            for (at, key) in keys.iter().enumerate() {
                engine.write(FULL, *key, self.worker.blocks_of(at));
            }
            let timeout = self.timeout();
            let (group, ready) = (FULL, Ready::Now);
            let (keys, blocks, parent) = (&keys, &blocks, None);
            let tenant = TenantId::new(0);
            let request = StoreChunks { group, parent, keys, blocks, tenant, ready, timeout };
            let ticket = engine.pager.store(request).expect("a good request");
            self.disturb(&ticket);
            assert!(ticket.wait_released(SOON), "a store that is never released");
            if self.chance(3) == 0 {
                self.left.send(Left { ticket, _plan: plan }).expect("it is collected");
            }
            return;
        }
        engine.spoil(FULL, &blocks);
        let timeout = self.timeout();
        let (group, ready) = (FULL, Ready::Now);
        let request = LoadChunks { group, keys: &keys, blocks: &blocks, ready, timeout };
        let ticket = engine.pager.load(&plan, request).expect("a good request");
        self.disturb(&ticket);
        drop(plan);
        let report = ticket.wait_for(SOON).expect("a load that never ends");
        for (at, stage) in report.stages.iter().enumerate() {
            if *stage == Stage::Done {
                engine.compare(FULL, keys[at], self.worker.blocks_of(at));
            }
        }
    }
}

/// Runs callers until they have dropped everything, and returns how many tickets outlived them.
fn run(engine: Arc<Engine>, seed: u64) -> usize {
    let (left, collected) = channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let seed = scatter(seed << 8 | u64::from(number));
            let worker = Worker::new(&engine, number);
            let mut caller = Caller { worker, left: left.clone(), seed };
            let rounds = ROUNDS / 2 + seed % (ROUNDS / 2);
            std::thread::spawn(move || (0..rounds).for_each(|_| caller.round()))
        })
        .collect();
    // The last to drop the engine closes the pager, whoever it is.
    drop((engine, left));
    let collected: Vec<Left> = collected.into_iter().collect();
    for thread in threads {
        thread.join().expect("no wrong byte, and nothing that hangs");
    }
    for left in &collected {
        left.ticket.cancel();
        assert!(left.ticket.wait_for(SOON).is_some(), "a ticket that outlives its pager ends");
    }
    collected.len()
}

#[test]
fn whatever_callers_do_every_ticket_ends_and_no_wrong_byte_comes_back() {
    for (seed, host_chunks, pieces) in [(1, 3, 1), (2, 8, 1), (3, 40, 2)] {
        let config = CpuConfig { out_pieces: pieces, in_pieces: pieces };
        assert!(run(Engine::open(host_chunks, config, PATIENT), seed) > 0);
    }
}

#[test]
fn a_device_lost_at_any_moment_ends_every_ticket_of_every_caller() {
    let hops = [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack];
    for (seed, hop) in (0..8).zip(hops.into_iter().cycle()) {
        let config = CpuConfig { out_pieces: 2, in_pieces: 2 };
        let engine = Engine::open(8, config, Duration::from_millis(20));
        engine.device.inject(hop, scatter(seed) % 100, Fault::Hang);
        run(engine, 100 + seed);
    }
}
