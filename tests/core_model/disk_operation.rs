//! What a run with a disk tier is made of: plain numbers, which the rig takes modulo what there is,
//! so that any part of a run is a run.

use kvtide::core::{CoreConfig, GroupConfig, WritePolicy};
use kvtide::layout::Attention;
use kvtide::units::TokenCount;
use proptest::prelude::*;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Store,
    Load,
    Plan,
    DropPlan,
    Complete,
    CompleteDisk,
    Cancel,
    Detach,
    Tick,
    MakeRoom,
    Flush,
    BeginSync,
    Synced,
    StopWrites,
    StopDisk,
    Clear,
    EraseKeys,
    EraseTenant,
    Adopt,
    FreeDisk,
}

/// One step of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiskOperation {
    pub(crate) action: Action,
    pub(crate) numbers: [usize; 3],
}

/// One operation; a run without failures loses nothing but by eviction.
pub(crate) fn disk_operation(may_fail: bool) -> impl Strategy<Value = DiskOperation> {
    let rare = u32::from(may_fail);
    let action = prop_oneof![
        200 => Just(Action::Store),
        160 => Just(Action::Load),
        80 => Just(Action::Plan),
        60 => Just(Action::DropPlan),
        800 => Just(Action::Complete),
        300 => Just(Action::CompleteDisk),
        1 + 20 * rare => Just(if may_fail { Action::Cancel } else { Action::Tick }),
        200 => Just(Action::Detach),
        120 => Just(Action::Tick),
        10 => Just(Action::MakeRoom),
        10 => Just(Action::Flush),
        20 => Just(Action::BeginSync),
        20 => Just(Action::Synced),
        1 => Just(if may_fail { Action::StopWrites } else { Action::Tick }),
        1 => Just(if may_fail { Action::StopDisk } else { Action::Tick }),
        8 => Just(if may_fail { Action::Clear } else { Action::Tick }),
        20 => Just(Action::EraseKeys),
        8 => Just(Action::EraseTenant),
        30 => Just(Action::Adopt),
        40 => Just(Action::FreeDisk),
    ];
    (action, [0..1000_usize, 0..1000_usize, 0..1000_usize])
        .prop_map(|(action, numbers)| DiskOperation { action, numbers })
}

fn write_policy() -> impl Strategy<Value = WritePolicy> {
    prop_oneof![
        2 => Just(WritePolicy::Through),
        1 => (1..99_u8).prop_flat_map(|low_percent| {
            (low_percent + 1..=100)
                .prop_map(move |high_percent| WritePolicy::Back { high_percent, low_percent })
        }),
        1 => Just(WritePolicy::OnEvict),
    ]
}

/// A core with a disk tier that is short of everything.
pub(crate) fn disk_config() -> impl Strategy<Value = CoreConfig> {
    let group = |attention| {
        let slot_count = prop_oneof![2..5_u32, 2..13_u32];
        let stripe = prop_oneof![1..6_u32, 4..40_u32];
        let disk_slot_counts = prop_oneof![
            1 => Just(Vec::new()),
            6 => prop::collection::vec(stripe, 1..=3),
        ];
        (slot_count, 1..3_u32, disk_slot_counts).prop_map(
            move |(slot_count, pieces_per_chunk, disk_slot_counts)| GroupConfig {
                slot_count,
                attention,
                pieces_per_chunk,
                disk_slot_counts,
            },
        )
    };
    let window = (1..20_u32)
        .prop_flat_map(move |tokens| group(Attention::Window { tokens: TokenCount::new(tokens) }));
    let groups = (group(Attention::Full), window, group(Attention::Full));
    let history = prop_oneof![1..4_u32, 1..100_u32];
    let sizes = (2..6_u32, 3..9_u32, 2..10_u32, 2..10_u32, 30..150_u64);
    let disk = (write_policy(), 1..12_u32, 1..6_u32, 1..6_u32);
    (groups, history, sizes, disk).prop_map(|(groups, history, sizes, disk)| {
        let mut config = CoreConfig::new(vec![groups.0, groups.1, groups.2]);
        config.history_count = history;
        config.plan_count_max = sizes.0;
        config.transfer_count_max = sizes.1;
        config.staging_out_pieces = sizes.2;
        config.staging_in_pieces = sizes.3;
        config.lease_ns = sizes.4;
        config.write_policy = disk.0;
        config.write_queue_max = disk.1;
        config.disk_writes_max = disk.2;
        config.disk_reads_max = disk.3;
        config
    })
}
