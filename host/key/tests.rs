//! Tests of key derivation: framing, chains against a naive model, refusals.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::decode::Fields;
use super::engine::HashLink;
use super::extra::Extras;
use super::frame::{Context, Tag};
use super::link::{TokenLink, root_encoding};
use super::{
    EngineHashDomain, Extra, HashSeed, HexError, Key, KeyChain, KeyError, Lora, MultimodalItem,
    Persistence, TailKey, TenantSalt,
};
use crate::fingerprint::{ContentFingerprint, KeyMode};
use crate::units::{BlockCount, GroupIndex, TokenCount};

const CONTENT: ContentFingerprint = ContentFingerprint::from_bytes([7; 32]);
const GROUP: GroupIndex = GroupIndex::new(0);

fn token_chain(chunk_tokens: u32) -> KeyChain {
    salted_chain(&TenantSalt::none(), chunk_tokens)
}

fn salted_chain(salt: &TenantSalt, chunk_tokens: u32) -> KeyChain {
    KeyChain::tokens(&CONTENT, salt, GROUP, TokenCount::new(chunk_tokens)).unwrap()
}

fn domain(tokens_per_hash: u32) -> EngineHashDomain {
    EngineHashDomain {
        algorithm: "sha256_cbor".to_owned(),
        seed: HashSeed::Fixed(b"0".to_vec()),
        tokens_per_hash: TokenCount::new(tokens_per_hash),
    }
}

fn try_hash_chain(
    domain: &EngineHashDomain,
    chunk_tokens: u32,
    persistence: Persistence,
) -> Result<KeyChain, KeyError> {
    let (salt, chunk_tokens) = (TenantSalt::none(), TokenCount::new(chunk_tokens));
    KeyChain::engine_hashes(&CONTENT, &salt, domain, GROUP, chunk_tokens, persistence)
}

fn hash_chain(domain: &EngineHashDomain, chunk_tokens: u32) -> KeyChain {
    try_hash_chain(domain, chunk_tokens, Persistence::ProcessLocal).unwrap()
}

fn lora(name: &[u8], digest: &[u8]) -> Lora {
    Lora { name: String::from_utf8_lossy(name).into_owned(), digest: digest.to_vec() }
}

fn item(first_token: u32, tokens: u32, digest: &[u8]) -> MultimodalItem {
    MultimodalItem {
        first_token: TokenCount::new(first_token),
        tokens: TokenCount::new(tokens),
        digest: digest.to_vec(),
    }
}

/// Returns the key of one chunk of `tokens` at the start of a sequence.
fn first_key(salt: &TenantSalt, extras: impl IntoIterator<Item = Extra>, tokens: &[u32]) -> Key {
    let mut chain = salted_chain(salt, u32::try_from(tokens.len()).unwrap());
    for extra in extras {
        chain.add_extra(extra).unwrap();
    }
    chain.push(tokens).unwrap()[0]
}

// Keys as values.

proptest! {
    #[test]
    fn a_key_reads_back_from_every_form(bytes: [u8; 16]) {
        let key = Key::from_bytes(bytes);
        prop_assert_eq!(key.to_bytes(), bytes);
        prop_assert_eq!(Key::from_u128(key.to_u128()), key);
        prop_assert_eq!(key.to_string().parse(), Ok(key));
        prop_assert_eq!(key.low_u64().to_le_bytes(), &bytes[..8]);
        prop_assert_eq!(key.high_u64().to_le_bytes(), &bytes[8..]);
    }

    #[test]
    fn keys_order_as_their_integers(first: u128, second: u128, same_half: bool) {
        let second = if same_half { (first >> 64 << 64) | (second >> 64) } else { second };
        let (first_key, second_key) = (Key::from_u128(first), Key::from_u128(second));
        prop_assert_eq!(first_key.cmp(&second_key), first.cmp(&second));
        prop_assert_eq!(first_key == second_key, first == second);
    }
}

#[test]
fn a_key_has_one_text() {
    let text = "00112233445566778899aabbccddeeff";
    let key: Key = text.parse().unwrap();
    assert_eq!(key.to_bytes()[..3], [0x00, 0x11, 0x22]);
    assert_eq!(format!("{key:?}"), format!("Key({text})"));
    let position = 20;
    let refused = |text: &str| text.parse::<Key>().unwrap_err();
    assert_eq!(refused(&text.to_uppercase()), HexError::Digit { position }.into());
    let (expected, found) = (32, 31);
    assert_eq!(refused(&text[1..]), HexError::Length { expected, found }.into());
    assert_eq!(refused("+0112233445566778899aabbccddeeff"), HexError::Digit { position: 0 }.into());
}

// Framing: what is encoded can be decoded, so no two inputs share their bytes.

fn any_salt() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(vec(any::<u8>(), 0..40))
}

fn salt_from(bytes: Option<&Vec<u8>>) -> TenantSalt {
    bytes.map_or(TenantSalt::none(), TenantSalt::new)
}

fn any_item(first_token_end: u32) -> impl Strategy<Value = MultimodalItem> {
    (0..first_token_end, 1..20_u32, vec(any::<u8>(), 1..4))
        .prop_map(|(first_token, tokens, digest)| item(first_token, tokens, &digest))
}

fn any_lora() -> impl Strategy<Value = Option<Lora>> {
    prop::option::of((".{0,8}", vec(any::<u8>(), 1..8)))
        .prop_map(|parts| parts.map(|(name, digest)| Lora { name, digest }))
}

fn decode_items(fields: &mut Fields<'_>) -> Vec<(Vec<u8>, i64, u32)> {
    let mut items = Vec::new();
    while let Some(mut nested) = fields.nested(Tag::Multimodal) {
        let digest = nested.required(Tag::MultimodalDigest).to_vec();
        let offset = i64::from_le_bytes(nested.array(Tag::MultimodalOffset));
        let tokens = u32::from_le_bytes(nested.array(Tag::MultimodalTokens));
        nested.end();
        items.push((digest, offset, tokens));
    }
    items
}

fn decode_lora(fields: &mut Fields<'_>) -> Option<Lora> {
    let mut nested = fields.nested(Tag::Lora)?;
    let name = String::from_utf8(nested.required(Tag::LoraName).to_vec()).unwrap();
    let digest = nested.required(Tag::LoraDigest).to_vec();
    nested.end();
    Some(Lora { name, digest })
}

proptest! {
    #[test]
    fn a_root_input_decodes_to_what_went_in(content: [u8; 32], salt in any_salt(), group: u8) {
        let fingerprint = ContentFingerprint::from_bytes(content);
        let salt_given = salt_from(salt.as_ref());
        let encoding = root_encoding(&fingerprint, &salt_given, GroupIndex::new(group));
        let mut fields = Fields::of(&encoding, Context::Root);
        prop_assert_eq!(fields.array(Tag::ContentFingerprint), content);
        prop_assert_eq!(fields.optional(Tag::TenantSalt).map(<[u8]>::to_vec), salt);
        prop_assert_eq!(fields.array(Tag::Group), [group]);
        fields.end();
    }

    #[test]
    fn a_link_input_decodes_to_what_went_in(
        previous: [u8; 16],
        tokens in vec(any::<u32>(), 1..20),
        link_index in 0..3_u32,
        lora in any_lora(),
        items in vec(any_item(60), 0..6),
    ) {
        let first = link_index * 20;
        let mut extras = Extras::default();
        for extra in lora.iter().cloned().map(Extra::from) {
            extras.add(extra, 0).unwrap();
        }
        for extra in items.iter().cloned().map(Extra::from) {
            extras.add(extra, 0).unwrap();
        }
        let mut link = TokenLink::new(Key::from_bytes(previous));
        link.append(&tokens);
        let encoding = link.tail_encoding(&extras, first, tokens.len());

        let mut fields = Fields::of(&encoding, Context::Link);
        prop_assert_eq!(fields.array(Tag::PreviousKey), previous);
        let (words, rest) = fields.required(Tag::Tokens).as_chunks();
        prop_assert_eq!(rest, b"");
        let decoded: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        prop_assert_eq!(&decoded, &tokens);
        prop_assert_eq!(decode_lora(&mut fields), lora.filter(|_| first == 0));
        let end = first + u32::try_from(tokens.len()).unwrap();
        prop_assert_eq!(decode_items(&mut fields), items_seen(&items, first, end));
        fields.end();
    }

    #[test]
    fn an_engine_hash_input_decodes_to_what_went_in(
        content: [u8; 32],
        salt in any_salt(),
        algorithm in ".{0,8}",
        seed in prop::option::of(vec(any::<u8>(), 0..8)),
        tokens_per_hash in 1_u32..,
        group: u8,
        hash in vec(any::<u8>(), 1..40),
    ) {
        let domain = EngineHashDomain {
            algorithm: algorithm.clone(),
            seed: seed.clone().map_or(HashSeed::PerProcess, HashSeed::Fixed),
            tokens_per_hash: TokenCount::new(tokens_per_hash),
        };
        let (fingerprint, salt_given) =
            (ContentFingerprint::from_bytes(content), salt_from(salt.as_ref()));
        let mut link = HashLink::new(&fingerprint, &salt_given, &domain, GroupIndex::new(group));
        link.check(&[&hash]).unwrap();
        link.append(&hash);
        let encoding = link.tail_encoding(1);

        let mut fields = Fields::of(&encoding, Context::EngineHash);
        prop_assert_eq!(fields.array(Tag::ContentFingerprint), content);
        prop_assert_eq!(fields.optional(Tag::TenantSalt).map(<[u8]>::to_vec), salt);
        prop_assert_eq!(fields.required(Tag::EngineAlgorithm), algorithm.as_bytes());
        prop_assert_eq!(fields.optional(Tag::EngineSeed).map(<[u8]>::to_vec), seed);
        prop_assert_eq!(fields.array(Tag::EngineTokensPerHash), tokens_per_hash.to_le_bytes());
        prop_assert_eq!(fields.array(Tag::Group), [group]);
        prop_assert_eq!(fields.required(Tag::EngineHash), &hash);
        fields.end();
    }

    /// Salt, LoRA name and LoRA digest of one run of bytes, cut at different places.
    #[test]
    fn shifted_boundaries_make_other_keys(
        bytes in "[a-z]{4,24}",
        cuts in prop::array::uniform4(any::<Index>()),
    ) {
        let bytes = bytes.as_bytes();
        let key = |one: Index, other: Index| {
            let (one, other) = (one.index(bytes.len()), other.index(bytes.len()));
            let (first, second) = (one.min(other), one.max(other));
            let salt = TenantSalt::new(&bytes[..first]);
            let adapter = lora(&bytes[first..second], &bytes[second..]);
            ((first, second), first_key(&salt, [adapter.into()], &[1, 2]))
        };
        let (left_cuts, left) = key(cuts[0], cuts[1]);
        let (right_cuts, right) = key(cuts[2], cuts[3]);
        prop_assert_eq!(left == right, left_cuts == right_cuts);
    }

    /// The last tokens of one chunk are, byte by byte, the item or adapter of another.
    #[test]
    fn tokens_that_spell_an_extra_make_another_key(
        tokens in vec(any::<u32>(), 2..12),
        cut: Index,
    ) {
        let kept = 1 + cut.index(tokens.len() - 1);
        let spelled = tokens[kept..].iter().flat_map(|token| token.to_le_bytes());
        let spelled: Vec<u8> = spelled.collect();
        let none = TenantSalt::none();
        let as_tokens = first_key(&none, [], &tokens);
        let as_item = first_key(&none, [item(0, 1, &spelled).into()], &tokens[..kept]);
        let as_lora = first_key(&none, [lora(b"", &spelled).into()], &tokens[..kept]);
        prop_assert_ne!(as_tokens, as_item);
        prop_assert_ne!(as_tokens, as_lora);
        prop_assert_ne!(as_item, as_lora);
    }

    #[test]
    fn a_salt_is_never_an_adapter_of_the_same_bytes(bytes in "[a-z]{1,16}") {
        let salted = first_key(&TenantSalt::new(&bytes), [], &[1]);
        let adapted = first_key(&TenantSalt::none(), [lora(bytes.as_bytes(), b"d").into()], &[1]);
        let both = first_key(&TenantSalt::new(&bytes), [lora(bytes.as_bytes(), b"d").into()], &[1]);
        prop_assert_ne!(salted, adapted);
        prop_assert_ne!(both, salted);
        prop_assert_ne!(both, adapted);
    }

    #[test]
    fn items_that_moved_grew_or_changed_make_other_keys(
        first in any_item(8),
        second in any_item(8),
    ) {
        let tokens = [9; 8];
        let none = TenantSalt::none();
        let key = |item: &MultimodalItem| first_key(&none, [item.clone().into()], &tokens);
        prop_assert_eq!(key(&first) == key(&second), first == second);
        prop_assert_ne!(key(&first), first_key(&none, [], &tokens));
    }
}

#[test]
fn everything_that_enters_a_root_changes_every_key() {
    let other_content = ContentFingerprint::from_bytes([8; 32]);
    let (none, empty, salted) = (TenantSalt::none(), TenantSalt::new(b""), TenantSalt::new(b"s"));
    let variants = [
        (&CONTENT, &none, 0),
        (&other_content, &none, 0),
        (&CONTENT, &empty, 0),
        (&CONTENT, &salted, 0),
        (&CONTENT, &none, 1),
    ];
    let mut keys: Vec<Key> = Vec::new();
    for (content, salt, group) in variants {
        let (group, chunk_tokens) = (GroupIndex::new(group), TokenCount::new(2));
        let mut tokens = KeyChain::tokens(content, salt, group, chunk_tokens).unwrap();
        keys.push(tokens.root());
        keys.extend(tokens.push(&[1, 2, 3, 4]).unwrap());
        let persistence = Persistence::Persistent;
        let mut hashes =
            KeyChain::engine_hashes(content, salt, &domain(2), group, chunk_tokens, persistence)
                .unwrap();
        keys.extend(hashes.push_hashes(&[b"one", b"two"]).unwrap());
    }
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((keys.len(), count), (25, 25));
}

#[test]
fn everything_in_an_engine_domain_changes_its_keys() {
    let seeded = |seed| EngineHashDomain { seed, ..domain(16) };
    let domains = [
        domain(16),
        domain(32),
        EngineHashDomain { algorithm: "xxhash_cbor".to_owned(), ..domain(16) },
        seeded(HashSeed::Fixed(b"1".to_vec())),
        seeded(HashSeed::Fixed(Vec::new())),
        seeded(HashSeed::PerProcess),
    ];
    let key = |domain: &EngineHashDomain| {
        let mut chain = hash_chain(domain, domain.tokens_per_hash.get());
        chain.push_hashes(&[[5; 32]]).unwrap()[0]
    };
    for (index, one) in domains.iter().enumerate() {
        for other in &domains[..index] {
            assert_ne!(key(one), key(other), "{one:?} and {other:?}");
        }
    }
}

// Chains against a naive model, which derives everything anew from the documented framing.

fn field(tag: u8, value: &[u8]) -> Vec<u8> {
    [&[tag][..], &(value.len() as u64).to_le_bytes(), value].concat()
}

fn hash(input: &[u8]) -> Key {
    Key::from_bytes(blake3::hash(input).as_bytes()[..16].try_into().unwrap())
}

/// Digest, offset and tokens of the items that cover a token in `first..end`, in order.
fn items_seen(items: &[MultimodalItem], first: u32, end: u32) -> Vec<(Vec<u8>, i64, u32)> {
    let covers = |item: &MultimodalItem, token: u32| {
        token.checked_sub(item.first_token.get()).is_some_and(|into| into < item.tokens.get())
    };
    let mut seen: Vec<&MultimodalItem> =
        items.iter().filter(|item| (first..end).any(|token| covers(item, token))).collect();
    seen.sort_by_key(|item| (item.first_token, item.tokens, item.digest.clone()));
    seen.into_iter()
        .map(|item| {
            let offset = i64::from(item.first_token.get()) - i64::from(first);
            (item.digest.clone(), offset, item.tokens.get())
        })
        .collect()
}

/// A sequence in token mode as its plain parts.
#[derive(Clone, Debug, Default)]
struct Sequence {
    lora: Option<Lora>,
    items: Vec<MultimodalItem>,
    tokens: Vec<u32>,
}

impl Sequence {
    fn root() -> Key {
        let root = [field(0x01, &CONTENT.to_bytes()), field(0x03, &[0])].concat();
        hash(&[b"kvtroot1", &root[..]].concat())
    }

    fn link(&self, previous: Key, first: usize, end: usize) -> Key {
        let tokens: Vec<u8> =
            self.tokens[first..end].iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut input = b"kvtlink1".to_vec();
        input.extend(field(0x10, &previous.to_bytes()));
        input.extend(field(0x11, &tokens));
        if let (0, Some(lora)) = (first, &self.lora) {
            let value = [field(0x13, lora.name.as_bytes()), field(0x14, &lora.digest)].concat();
            input.extend(field(0x12, &value));
        }
        let seen =
            items_seen(&self.items, u32::try_from(first).unwrap(), u32::try_from(end).unwrap());
        for (digest, offset, tokens) in seen {
            let offset = field(0x17, &offset.to_le_bytes());
            let tokens = field(0x18, &tokens.to_le_bytes());
            input.extend(field(0x15, &[field(0x16, &digest), offset, tokens].concat()));
        }
        hash(&input)
    }

    fn keys(&self, chunk_tokens: usize) -> Vec<Key> {
        let mut previous = Self::root();
        let chunks = 0..self.tokens.len() / chunk_tokens;
        chunks
            .map(|chunk| {
                let first = chunk * chunk_tokens;
                previous = self.link(previous, first, first + chunk_tokens);
                previous
            })
            .collect()
    }

    fn tail_keys(&self, chunk_tokens: usize, block_tokens: usize) -> Vec<TailKey> {
        let keys = self.keys(chunk_tokens);
        let previous = keys.last().copied().unwrap_or(Self::root());
        let first = keys.len() * chunk_tokens;
        let blocks = (self.tokens.len() - first) / block_tokens;
        (1..=blocks)
            .rev()
            .map(|blocks| TailKey {
                key: self.link(previous, first, first + blocks * block_tokens),
                blocks: BlockCount::new(u32::try_from(blocks).unwrap()),
            })
            .collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u32>),
    /// An item that begins so many tokens after those that are under a key.
    Item(MultimodalItem),
    Lora(Lora),
    Truncate(Index),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => vec(0..4_u32, 0..20).prop_map(Step::Push),
        2 => any_item(16).prop_map(Step::Item),
        1 => (".{0,3}", vec(any::<u8>(), 1..3))
            .prop_map(|(name, digest)| Step::Lora(Lora { name, digest })),
        2 => any::<Index>().prop_map(Step::Truncate),
    ]
}

/// Applies `step` to chain and model; a refusal must be the one that the model expects.
fn apply(step: Step, chain: &mut KeyChain, model: &mut Sequence, chunk_tokens: usize) {
    let held = model.tokens.len();
    let hashed = held - held % chunk_tokens;
    match step {
        Step::Push(tokens) => {
            let known = chain.keys().len();
            model.tokens.extend(&tokens);
            let new = chain.push(&tokens).unwrap().to_vec();
            assert_eq!(new, model.keys(chunk_tokens)[known..]);
        }
        Step::Item(mut item) => {
            let first = item.first_token.get() + u32::try_from(hashed).unwrap();
            item.first_token = TokenCount::new(first);
            model.items.push(item.clone());
            chain.add_extra(item).unwrap();
        }
        Step::Lora(lora) => {
            let accepted = chain.add_extra(lora.clone()).is_ok();
            assert_eq!(accepted, hashed == 0 && model.lora.is_none());
            if accepted {
                model.lora = Some(lora);
            }
        }
        Step::Truncate(at) => {
            let to = at.index(held + 1);
            let outcome = chain.truncate(TokenCount::new(u32::try_from(to).unwrap()));
            assert_eq!(outcome.is_ok(), to >= hashed || to % chunk_tokens == 0, "{outcome:?}");
            if let Ok(dropped) = outcome {
                let past = |item: &MultimodalItem| item.first_token.get() as usize >= to;
                let (mut gone, kept): (Vec<_>, _) = model.items.drain(..).partition(past);
                gone.sort();
                let gone: Vec<Extra> = gone.into_iter().map(Extra::from).collect();
                assert_eq!(dropped, gone);
                model.items = kept;
                model.tokens.truncate(to);
            }
        }
    }
}

proptest! {
    /// Covers pushes in any pieces, extras at any moment, truncation with or without new tokens,
    /// and refusals that change nothing.
    #[test]
    fn a_chain_equals_the_naive_model_after_every_step(
        blocks in 1..4_usize,
        block_tokens in 1..5_usize,
        steps in vec(any_step(), 0..24),
    ) {
        let chunk_tokens = blocks * block_tokens;
        let mut chain = token_chain(u32::try_from(chunk_tokens).unwrap());
        let mut model = Sequence::default();
        for step in steps {
            apply(step, &mut chain, &mut model, chunk_tokens);
            prop_assert_eq!(chain.token_count().get() as usize, model.tokens.len());
            prop_assert_eq!(chain.keys(), model.keys(chunk_tokens));
            let tails = model.tail_keys(chunk_tokens, block_tokens);
            let block_tokens = TokenCount::new(u32::try_from(block_tokens).unwrap());
            prop_assert_eq!(chain.tail_key(block_tokens).unwrap(), tails.first().copied());
            prop_assert_eq!(chain.tail_keys(block_tokens).unwrap(), tails);
        }
    }

    #[test]
    fn a_fork_goes_its_own_way_and_leaves_the_other_alone(
        shared in vec(any_step(), 0..12),
        left in vec(any_step(), 0..6),
        right in vec(any_step(), 0..6),
    ) {
        let (mut chain, mut model) = (token_chain(6), Sequence::default());
        for step in shared {
            apply(step, &mut chain, &mut model, 6);
        }
        let (mut fork, mut fork_model) = (chain.clone(), model.clone());
        for step in left {
            apply(step, &mut chain, &mut model, 6);
        }
        for step in right {
            apply(step, &mut fork, &mut fork_model, 6);
        }
        prop_assert_eq!(chain.keys(), model.keys(6));
        prop_assert_eq!(fork.keys(), fork_model.keys(6));
    }

    /// Engine mode in any pieces and with truncation: a chunk's key is that of its last hash.
    #[test]
    fn a_chain_of_engine_hashes_names_chunks_by_their_last_hash(
        hashes_per_chunk in 1..5_usize,
        pieces in vec((vec(any::<[u8; 4]>(), 0..9), any::<Index>()), 0..8),
    ) {
        let tokens_per_hash = 16;
        let chunk_tokens = u32::try_from(hashes_per_chunk).unwrap() * tokens_per_hash;
        let name = |hash: &[u8; 4]| {
            let mut single = hash_chain(&domain(tokens_per_hash), tokens_per_hash);
            single.push_hashes(&[hash]).unwrap()[0]
        };
        let mut chain = hash_chain(&domain(tokens_per_hash), chunk_tokens);
        let mut model: Vec<[u8; 4]> = Vec::new();
        for (piece, cut) in pieces {
            chain.push_hashes(&piece).unwrap();
            model.extend(piece);
            let hashed = model.len() - model.len() % hashes_per_chunk;
            let to = cut.index(model.len() + 1);
            let tokens = TokenCount::new(u32::try_from(to).unwrap() * tokens_per_hash);
            let cuts = to >= hashed || to.is_multiple_of(hashes_per_chunk);
            prop_assert_eq!(chain.truncate(tokens).is_ok(), cuts);
            if cuts {
                model.truncate(to);
            }
            let chunks = model.chunks_exact(hashes_per_chunk);
            let tails: Vec<Key> = chunks.remainder().iter().rev().map(name).collect();
            let keys: Vec<Key> = chunks.map(|chunk| name(&chunk[hashes_per_chunk - 1])).collect();
            prop_assert_eq!(chain.keys(), keys);
            let found = chain.tail_keys(TokenCount::new(tokens_per_hash)).unwrap();
            prop_assert_eq!(found.iter().map(|tail| tail.key).collect::<Vec<_>>(), tails);
        }
    }

    #[test]
    fn a_tail_is_never_the_full_chunk_of_the_same_tokens(tokens in vec(any::<u32>(), 2..20)) {
        let chunk_tokens = u32::try_from(tokens.len()).unwrap();
        let mut chain = token_chain(chunk_tokens);
        let (last, head) = tokens.split_last().unwrap();
        chain.push(head).unwrap();
        let tails = chain.tail_keys(TokenCount::new(1)).unwrap();
        prop_assert_eq!(tails.len(), head.len());
        let full = chain.push(&[*last]).unwrap()[0];
        prop_assert!(tails.iter().all(|tail| tail.key != full));
    }
}

// Refusals and what is never printed.

#[test]
fn hashes_seeded_per_process_never_make_persistent_keys() {
    let seeded = EngineHashDomain { seed: HashSeed::PerProcess, ..domain(16) };
    assert!(!seeded.is_persistent() && domain(16).is_persistent());
    let refused = try_hash_chain(&seeded, 256, Persistence::Persistent).unwrap_err();
    assert_eq!(refused, KeyError::SeedPerProcess { algorithm: "sha256_cbor".to_owned() });
    assert_eq!(hash_chain(&seeded, 256).persistence(), Persistence::ProcessLocal);
    assert_eq!(token_chain(256).persistence(), Persistence::Persistent);
}

#[test]
fn chunks_that_cannot_be_are_refused() {
    let zero = KeyChain::tokens(&CONTENT, &TenantSalt::none(), GROUP, TokenCount::new(0));
    assert_eq!(zero.unwrap_err(), KeyError::ChunkTokensZero);
    let refused = |tokens_per_hash, chunk_tokens| {
        let persistence = Persistence::Persistent;
        try_hash_chain(&domain(tokens_per_hash), chunk_tokens, persistence).unwrap_err()
    };
    assert_eq!(refused(16, 0), KeyError::ChunkTokensZero);
    for tokens_per_hash in [0, 24, 512] {
        let chunk_tokens = 256;
        let expected = KeyError::TokensPerHash { tokens_per_hash, chunk_tokens };
        assert_eq!(refused(tokens_per_hash, chunk_tokens), expected);
    }
}

#[test]
fn a_chain_takes_only_its_own_kind_of_input() {
    let mut tokens = token_chain(4);
    assert_eq!(tokens.push_hashes(&[[1; 32]]), Err(KeyError::Mode { chain: KeyMode::Tokens }));
    let mut hashes = hash_chain(&domain(4), 4);
    let refused = KeyError::Mode { chain: KeyMode::EngineHashes };
    assert_eq!(hashes.push(&[1]), Err(refused.clone()));
    assert_eq!(hashes.add_extra(item(0, 1, b"d")), Err(refused));
}

#[test]
fn extras_that_come_late_or_say_nothing_are_refused() {
    let mut chain = token_chain(4);
    chain.add_extra(lora(b"one", b"1")).unwrap();
    let (held, given) = ("one".to_owned(), "two".to_owned());
    assert_eq!(chain.add_extra(lora(b"two", b"2")), Err(KeyError::LoraTwice { held, given }));
    chain.push(&[1, 2, 3, 4, 5]).unwrap();
    let late = |first_token| KeyError::ExtraLate { first_token, hashed_tokens: 4 };
    assert_eq!(chain.add_extra(item(3, 9, b"d")), Err(late(3)));
    assert_eq!(chain.add_extra(lora(b"two", b"2")), Err(late(0)));
    assert_eq!(chain.add_extra(item(4, 0, b"d")), Err(KeyError::ItemEmpty { first_token: 4 }));
    let no_digest = KeyError::ExtraDigestEmpty { first_token: 4 };
    assert_eq!(chain.add_extra(item(4, 1, b"")), Err(no_digest));
    let mut plain = token_chain(4);
    plain.add_extra(lora(b"one", b"1")).unwrap();
    let expected = plain.push(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap().to_vec();
    chain.push(&[6, 7, 8]).unwrap();
    assert_eq!(chain.keys(), expected, "what was refused left no trace");
}

#[test]
fn hashes_that_are_not_of_one_algorithm_are_refused_whole() {
    let mut chain = hash_chain(&domain(16), 32);
    let position = 1;
    let refused = KeyError::HashLength { position, expected: 2, found: 3 };
    assert_eq!(chain.push_hashes(&[&b"ab"[..], b"abc"]), Err(refused));
    let empty = KeyError::HashEmpty { position: 0 };
    assert_eq!(chain.push_hashes(&[b""]), Err(empty));
    assert_eq!(chain.token_count().get(), 0);
    chain.push_hashes(&[b"abc"]).unwrap();
    let refused = KeyError::HashLength { position: 0, expected: 3, found: 2 };
    assert_eq!(chain.push_hashes(&[b"ab"]), Err(refused));
    assert_eq!(chain.token_count().get(), 16);
}

#[test]
fn truncation_says_where_it_can_cut() {
    let mut chain = token_chain(4);
    chain.push(&[0; 10]).unwrap();
    let refused = KeyError::TruncatePastEnd { to: 11, tokens: 10 };
    assert_eq!(chain.truncate(TokenCount::new(11)), Err(refused));
    let refused = KeyError::TruncateInsideChunk { to: 7, boundary: 4 };
    assert_eq!(chain.truncate(TokenCount::new(7)), Err(refused));
    assert_eq!(chain.token_count().get(), 10);
    let mut hashes = hash_chain(&domain(4), 16);
    hashes.push_hashes(&[[1; 8], [2; 8]]).unwrap();
    let refused = KeyError::TruncateInsideHash { to: 5, tokens_per_hash: 4 };
    assert_eq!(hashes.truncate(TokenCount::new(5)), Err(refused));
}

#[test]
fn tails_are_whole_blocks_of_whole_hashes() {
    let refused = |chain: &KeyChain, block_tokens, unit_tokens| {
        let expected = KeyError::BlockTokens { block_tokens, chunk_tokens: 32, unit_tokens };
        assert_eq!(chain.tail_key(TokenCount::new(block_tokens)), Err(expected.clone()));
        assert_eq!(chain.tail_keys(TokenCount::new(block_tokens)), Err(expected));
    };
    refused(&token_chain(32), 0, 1);
    refused(&token_chain(32), 12, 1);
    refused(&hash_chain(&domain(16), 32), 8, 16);
}

#[test]
fn a_sequence_ends_where_positions_do() {
    let mut chain = hash_chain(&domain(1 << 30), 1 << 30);
    chain.push_hashes(&[[1]; 3]).unwrap();
    let refused = KeyError::SequenceLong { tokens: 3 << 30, pushed: 1 << 30 };
    assert_eq!(chain.push_hashes(&[[1]]), Err(refused));
    assert_eq!(chain.keys().len(), 3);
}

#[test]
fn an_item_at_the_last_position_does_not_overflow() {
    let mut chain = token_chain(2);
    chain.add_extra(item(u32::MAX, u32::MAX, b"d")).unwrap();
    assert_eq!(chain.push(&[1, 2]).unwrap(), token_chain(2).push(&[1, 2]).unwrap());
}

#[test]
fn debug_texts_keep_secrets() {
    let secret = "hunter2";
    let salt = TenantSalt::new(secret);
    let mut tokens = salted_chain(&salt, 8);
    tokens.push(&[55_555]).unwrap();
    let persistence = Persistence::Persistent;
    let chunk_tokens = TokenCount::new(8);
    let hashes =
        KeyChain::engine_hashes(&CONTENT, &salt, &domain(8), GROUP, chunk_tokens, persistence)
            .unwrap();
    let secret_bytes = format!("{:?}", secret.as_bytes());
    for text in [format!("{salt:?}"), format!("{tokens:?}"), format!("{hashes:?}")] {
        assert!(!text.contains(secret), "{text}");
        assert!(!text.contains(secret_bytes.trim_matches(['[', ']'])), "{text}");
        assert!(!text.contains("55555"), "{text}");
    }
}
