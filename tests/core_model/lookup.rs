//! The longest prefix over several groups, against its definition: the largest multiple of every
//! group's chunk tokens for which each full group has all chunks before it, and each window group
//! all chunks that overlap the window before it.
//!
//! Prompts are long enough to take several steps, and any chunks may be missing.

use crate::plans::needed_chunks;
use kvtide::core::{
    Action, Core, CoreConfig, GroupConfig, GroupKeys, Hop, HopFailure, LoadRequest, Lookup,
    LookupError, MissReason, PrefixHit, Room, StoreRequest,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, TenantId, Timestamp, TokenCount};
use proptest::prelude::*;

const SLOT_COUNT: u32 = 256;
const NOW: Timestamp = Timestamp::new(0);

/// One group of a prompt.
#[derive(Clone, Debug)]
struct Shape {
    chunk_tokens: u32,
    /// Tokens of the window; none in a full group.
    window: Option<u32>,
    /// Chunks are stored one by one, none told its parent; in window groups only.
    is_loose: bool,
    /// Whether each chunk of the prompt is stored.
    stored: Vec<bool>,
}

impl Shape {
    fn attention(&self) -> Attention {
        self.window
            .map_or(Attention::Full, |tokens| Attention::Window { tokens: TokenCount::new(tokens) })
    }

    fn keys(&self, group: usize) -> Vec<Key> {
        (0..self.stored.len() as u128)
            .map(|chunk| Key::from_u128((group as u128) << 64 | chunk))
            .collect()
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let window = prop_oneof![Just(None), (0..60_u32).prop_map(Some), (0..600_u32).prop_map(Some)];
    // Holes are rare, so that long prefixes are found, and windows are.
    let holes = prop::collection::vec(0..SLOT_COUNT as usize, 0..4);
    (1..7_u32, window, any::<bool>(), 0..200_usize, holes).prop_map(
        |(chunk_tokens, window, is_loose, count, holes)| {
            let mut stored = vec![true; count];
            for hole in holes.into_iter().filter(|hole| *hole < count) {
                stored[hole] = false;
            }
            Shape { chunk_tokens, window, is_loose: is_loose && window.is_some(), stored }
        },
    )
}

fn group_index(group: usize) -> GroupIndex {
    GroupIndex::new(u8::try_from(group).expect("a few groups"))
}

/// Ends all hops, the unpacking of a load as told.
fn finish(core: &mut Core, unpacked: Result<(), HopFailure>) {
    let mut actions = Vec::new();
    loop {
        core.take_actions(&mut actions);
        if actions.is_empty() {
            return;
        }
        for action in actions.drain(..) {
            if let Action::Start(hop) = action {
                core.complete(hop.ended(if hop.hop == Hop::Unpack { unpacked } else { Ok(()) }));
            }
        }
    }
}

/// A core that holds the stored chunks of a prompt, and no others.
fn core_with(shapes: &[Shape]) -> Core {
    let group = |shape: &Shape| GroupConfig {
        slot_count: SLOT_COUNT,
        attention: shape.attention(),
        pieces_per_chunk: 1,
        disk_slot_counts: Vec::new(),
    };
    let config = CoreConfig::new(shapes.iter().map(group).collect());
    let mut core = Core::new(&config).expect("the sizes work");
    for (at, shape) in shapes.iter().enumerate() {
        let group = group_index(at);
        let keys = shape.keys(at);
        let deadline = Timestamp::NEVER;
        let length = if shape.is_loose { 1 } else { 64 };
        for (place, part) in keys.chunks(length).enumerate() {
            let above = (place * length).checked_sub(1).filter(|_| !shape.is_loose);
            let parent = above.map(|above| keys[above]);
            let request =
                StoreRequest { group, parent, keys: part, tenant: TenantId::new(0), deadline };
            let transfer = core.store(request).expect("a transfer is free");
            core.detach(transfer);
            finish(&mut core, Ok(()));
        }
        // Only a loss can take a chunk out of the middle of a full group.
        for (key, _) in keys.iter().zip(&shape.stored).filter(|(_, stored)| !**stored) {
            let request = LoadRequest { group, keys: &[*key], deadline };
            let transfer = core.load(request).expect("a transfer is free");
            core.detach(transfer);
            finish(&mut core, Err(HopFailure::Checksum));
        }
    }
    core
}

fn look_up(core: &mut Core, groups: &[GroupKeys<'_>]) -> PrefixHit {
    let mut lookup = Lookup::begin(core, groups, NOW).expect("a plan is free");
    loop {
        if let Some(hit) = lookup.step(core).expect("the plan is open") {
            return hit;
        }
        assert_eq!(core.audit(), Ok(()));
    }
}

/// The definition, tried from the longest prefix on.
fn longest_prefix(shapes: &[Shape], groups: &[GroupKeys<'_>]) -> u32 {
    let is_held = |end: u32| {
        groups.iter().zip(shapes).all(|(group, shape)| {
            end.is_multiple_of(group.chunk_tokens.get())
                && shape
                    .stored
                    .get(needed_chunks(group, end))
                    .is_some_and(|chunks| chunks.iter().all(|is_stored| *is_stored))
        })
    };
    (0..=1200).rev().find(|end| is_held(*end)).expect("nothing is always held")
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_lookup_finds_and_pins_the_longest_prefix(
        shapes in prop::collection::vec(shape(), 1..5),
    ) {
        let mut core = core_with(&shapes);
        let numbered = shapes.iter().enumerate();
        let keys: Vec<Vec<Key>> = numbered.map(|(at, shape)| shape.keys(at)).collect();
        let groups: Vec<GroupKeys<'_>> = shapes.iter().zip(&keys).map(|(shape, keys)| GroupKeys {
            keys,
            chunk_tokens: TokenCount::new(shape.chunk_tokens),
            attention: shape.attention(),
        }).collect();
        let hit = look_up(&mut core, &groups);
        prop_assert_eq!(hit.tokens.get(), longest_prefix(&shapes, &groups));
        let key_count: usize = keys.iter().map(Vec::len).sum();
        prop_assert!(core.counters().probes <= key_count as u64, "each key is asked for once");

        // Whatever can leave does: what stays is what the plan holds.
        for (at, (group, hits)) in groups.iter().zip(hit.groups()).enumerate() {
            let index = group_index(at);
            while core.make_room(index, SLOT_COUNT) == Ok(Room::MoreWork) {}
            let needed = needed_chunks(group, hit.tokens.get());
            prop_assert_eq!(hits.chunk_count as usize, needed.len());
            prop_assert!(needed.is_empty() || hits.first_chunk as usize == needed.start);
            let used = core.slots(index).map(|slots| slots.used as usize);
            prop_assert_eq!(used, Some(needed.len()));
            for key in &group.keys[needed] {
                prop_assert_eq!(core.peek(*key), None);
            }
        }
        core.drop_plan(hit.plan);
        while core.has_backlog() {
            prop_assert_eq!(core.tick(NOW).map(|_| ()), Ok(()));
        }
        prop_assert_eq!(core.audit(), Ok(()));
        for at in 0..groups.len() {
            let index = group_index(at);
            while core.make_room(index, SLOT_COUNT) == Ok(Room::MoreWork) {}
            prop_assert_eq!(core.slots(index).map(|slots| slots.used), Some(0));
        }
    }
}

#[test]
fn a_lookup_says_why_each_group_ended() {
    let full = Shape {
        chunk_tokens: 1,
        window: None,
        is_loose: false,
        stored: vec![true, true, false, true],
    };
    let window = Shape { chunk_tokens: 1, window: Some(1), is_loose: true, stored: vec![true; 4] };
    let shapes = [full, window];
    let mut core = core_with(&shapes);
    let keys = [shapes[0].keys(0), shapes[1].keys(1)];
    let groups = [0, 1].map(|at: usize| GroupKeys {
        keys: &keys[at],
        chunk_tokens: TokenCount::new(1),
        attention: shapes[at].attention(),
    });
    let hit = look_up(&mut core, &groups);
    assert_eq!(hit.tokens.get(), 2);
    assert_eq!(hit.groups()[0].miss, Some(MissReason::Lost));
    assert_eq!(hit.groups()[1].miss, None);
    // Two hits and a miss in the full group, one hit in the window.
    assert_eq!(core.counters().probes, 4);
}

#[test]
fn a_lookup_over_other_groups_than_the_cores_is_refused() {
    let full = Shape { chunk_tokens: 1, window: None, is_loose: false, stored: vec![true] };
    let window = Shape { chunk_tokens: 1, window: Some(1), is_loose: true, stored: vec![false] };
    let shapes = [full, window];
    let mut core = core_with(&shapes);
    let keys = [shapes[0].keys(0), shapes[1].keys(1), shapes[0].keys(2)];
    let attentions = [shapes[0].attention(), shapes[1].attention(), Attention::Full];
    let group = |at: usize, attention: Attention| GroupKeys {
        keys: &keys[at],
        chunk_tokens: TokenCount::new(1),
        attention,
    };
    // What group 0 has alone is no hit: group 1 has nothing.
    let groups = [0, 1, 2].map(|at: usize| group(at, attentions[at]));
    assert_eq!(look_up(&mut core, &groups[..2]).tokens.get(), 0);
    for group_count in [0, 1, 3] {
        let refused = Lookup::begin(&mut core, &groups[..group_count], NOW).map(|_| ());
        assert_eq!(refused, Err(LookupError::GroupCount { group_count, core_group_count: 2 }));
    }
    let swapped = [group(0, attentions[1]), group(1, attentions[1])];
    let refused = Lookup::begin(&mut core, &swapped, NOW).map(|_| ());
    let (given, made_with) = (attentions[1], attentions[0]);
    assert_eq!(refused, Err(LookupError::Attention { group: 0, given, made_with }));
}
