//! What the engines of several test programs have in common: what their KV means, and numbers that
//! look random.
//!
//! Shared by the tests `pager`, `real` and `sim`, and by the fuzz target `simulation`.

use kvtide::fingerprint::{ContentFingerprint, KeyMode, KvScales, RopeSettings};

/// What the KV of a model means, whose keys are made in this way.
pub(crate) fn content(model_id: &str, key_mode: KeyMode) -> ContentFingerprint {
    ContentFingerprint::builder()
        .model_id(model_id)
        .revision("1")
        .rope(RopeSettings::AsInCheckpoint)
        .element_type("pattern")
        .kv_scales(KvScales::None)
        .key_mode(key_mode)
        .build()
        .expect("all is stated")
}

/// Mixes a number, as `SplitMix64` does (Steele, Lea, Flood 2014).
pub(crate) fn scatter(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
