//! Tests of fingerprints: framing, what is required, directory names.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    Codec, ContentFingerprint, ContentFingerprintBuilder, FingerprintError, FingerprintField,
    KeyMode, KvScales, RopeSettings, StoreId, StoreIdentity,
};
use crate::key::HexError;
use crate::key::decode::Fields;
use crate::key::frame::{Context, Tag};
use crate::units::{BlockCount, GroupIndex};

fn complete() -> ContentFingerprintBuilder {
    ContentFingerprint::builder()
        .model_id("tiny/model")
        .revision("1a2b3c")
        .weights_digest([1, 2, 3])
        .rope(RopeSettings::AsInCheckpoint)
        .element_type("bf16")
        .kv_scales(KvScales::None)
        .key_mode(KeyMode::Tokens)
}

#[test]
fn every_field_that_changes_meaning_must_be_stated() {
    let without = |forget: fn(&mut ContentFingerprintBuilder)| {
        let mut builder = complete();
        forget(&mut builder);
        builder.build()
    };
    let missing = |field| Err(FingerprintError::Missing { field });
    assert_eq!(without(|built| built.model_id = None), missing(FingerprintField::ModelId));
    assert_eq!(without(|built| built.rope = None), missing(FingerprintField::Rope));
    assert_eq!(without(|built| built.element_type = None), missing(FingerprintField::ElementType));
    assert_eq!(without(|built| built.kv_scales = None), missing(FingerprintField::KvScales));
    assert_eq!(without(|built| built.key_mode = None), missing(FingerprintField::KeyMode));
    let unversioned = |built: &mut ContentFingerprintBuilder| {
        built.revision = None;
        built.weights_digest = None;
    };
    assert_eq!(without(unversioned), missing(FingerprintField::Revision));
    assert!(without(|built| built.revision = None).is_ok());
    assert!(without(|built| built.weights_digest = None).is_ok());
}

#[test]
fn a_field_stated_as_nothing_is_refused() {
    let empty = |field| Err(FingerprintError::Empty { field });
    let override_nothing = RopeSettings::Override(String::new());
    let no_digest = KvScales::Digest(Vec::new());
    assert_eq!(complete().model_id("").build(), empty(FingerprintField::ModelId));
    assert_eq!(complete().revision("").build(), empty(FingerprintField::Revision));
    assert_eq!(complete().weights_digest([]).build(), empty(FingerprintField::WeightsDigest));
    assert_eq!(complete().rope(override_nothing).build(), empty(FingerprintField::Rope));
    assert_eq!(complete().element_type("").build(), empty(FingerprintField::ElementType));
    assert_eq!(complete().kv_scales(no_digest).build(), empty(FingerprintField::KvScales));
}

#[test]
fn a_refusal_names_the_field_and_what_to_call() {
    let refused = ContentFingerprint::builder().model_id("tiny/model").build().unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("revision") && text.contains("weights_digest"), "{text}");
    let refused = complete().element_type("").build().unwrap_err();
    assert!(refused.to_string().contains("call element_type with"), "{refused}");
}

fn any_scales() -> impl Strategy<Value = KvScales> {
    prop_oneof![
        Just(KvScales::None),
        Just(KvScales::AsInCheckpoint),
        Just(KvScales::InFragments),
        vec(any::<u8>(), 1..4).prop_map(KvScales::Digest),
    ]
}

fn decode_scales(fields: &mut Fields<'_>) -> KvScales {
    if let Some(digest) = fields.optional(Tag::KvScalesDigest) {
        return KvScales::Digest(digest.to_vec());
    }
    match fields.array(Tag::KvScales) {
        [0] => KvScales::None,
        [1] => KvScales::AsInCheckpoint,
        [2] => KvScales::InFragments,
        other => panic!("{other:?} is no kind of scales"),
    }
}

proptest! {
    /// Decodable, hence no two assignments of values to fields share a hash input.
    #[test]
    fn a_content_input_decodes_to_what_went_in(
        model_id in ".{1,8}",
        revision in prop::option::of(".{1,8}"),
        weights in prop::option::of(vec(any::<u8>(), 1..8)),
        rope in prop::option::of(".{1,8}"),
        element_type in ".{1,8}",
        kv_scales in any_scales(),
        engine_hashes: bool,
    ) {
        prop_assume!(revision.is_some() || weights.is_some());
        let key_mode = if engine_hashes { KeyMode::EngineHashes } else { KeyMode::Tokens };
        let settings = rope.clone().map_or(RopeSettings::AsInCheckpoint, RopeSettings::Override);
        let mut builder = ContentFingerprint::builder()
            .model_id(&model_id)
            .rope(settings)
            .element_type(&element_type)
            .kv_scales(kv_scales.clone())
            .key_mode(key_mode);
        builder.revision = revision.clone();
        builder.weights_digest = weights.clone();
        let encoding = builder.encode().unwrap();

        let mut fields = Fields::of(&encoding, Context::Content);
        prop_assert_eq!(fields.required(Tag::ModelId), model_id.as_bytes());
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        prop_assert_eq!(fields.optional(Tag::Revision).map(text), revision);
        prop_assert_eq!(fields.optional(Tag::WeightsDigest).map(<[u8]>::to_vec), weights);
        prop_assert_eq!(fields.optional(Tag::RopeOverride).map(text), rope);
        prop_assert_eq!(fields.required(Tag::ElementType), element_type.as_bytes());
        prop_assert_eq!(decode_scales(&mut fields), kv_scales);
        prop_assert_eq!(fields.array(Tag::KeyMode), [u8::from(engine_hashes)]);
        fields.end();
    }

    #[test]
    fn a_store_input_decodes_to_what_went_in(
        content: [u8; 32],
        layout in vec(any::<u8>(), 0..64),
        group: u8,
        blocks_per_chunk: u32,
        format_version: u32,
    ) {
        let identity = StoreIdentity {
            content: &ContentFingerprint::from_bytes(content),
            layout: &layout,
            group: GroupIndex::new(group),
            codec: Codec::Raw,
            blocks_per_chunk: BlockCount::new(blocks_per_chunk),
            format_version,
        };
        let encoding = identity.encode();
        let mut fields = Fields::of(&encoding, Context::Store);
        prop_assert_eq!(fields.array(Tag::ContentFingerprint), content);
        prop_assert_eq!(fields.required(Tag::Layout), &layout);
        prop_assert_eq!(fields.array(Tag::Group), [group]);
        prop_assert_eq!(fields.array(Tag::Codec), Codec::Raw.code().to_le_bytes());
        prop_assert_eq!(fields.array(Tag::BlocksPerChunk), blocks_per_chunk.to_le_bytes());
        prop_assert_eq!(fields.array(Tag::FormatVersion), format_version.to_le_bytes());
        fields.end();
        prop_assert_eq!(StoreId::new(&identity).to_bytes(), encoding.key().to_bytes());
    }

    #[test]
    fn a_store_id_is_a_directory_name_that_reads_back(bytes: [u8; 16]) {
        let id = StoreId::from_bytes(bytes);
        let name = id.to_string();
        prop_assert_eq!(name.len(), 32);
        prop_assert!(name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        prop_assert_eq!(name.parse(), Ok(id));
    }

    #[test]
    fn a_content_fingerprint_reads_back_from_its_text(bytes: [u8; 32]) {
        let content = ContentFingerprint::from_bytes(bytes);
        prop_assert_eq!(content.to_string().parse(), Ok(content));
    }
}

#[test]
fn a_text_that_is_no_store_id_is_refused() {
    let refused = |text: &str| text.parse::<StoreId>().unwrap_err();
    let upper = refused("ABCDEF00000000000000000000000000");
    assert_eq!(upper, FingerprintError::Hex(HexError::Digit { position: 0 }));
    let long = refused("lost+found");
    let length = HexError::Length { expected: 32, found: 10 };
    assert_eq!(long, FingerprintError::Hex(length));
}
