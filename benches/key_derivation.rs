//! Time to derive keys, against the target of 1.5 us per 256 tokens.
//!
//! `cargo bench --bench key_derivation`. Each row derives the keys of one prompt of 65,536 tokens,
//! so a row's time divided by 256 is the time per 256 tokens; `Throughput` counts tokens. The
//! prompt comes whole, as a prefill does, or token by token, as a decode does. `blake3` hashes
//! the same bytes, 1 KiB a call, without framing or chain: the bound.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvtide::fingerprint::ContentFingerprint;
use kvtide::key::{EngineHashDomain, HashSeed, KeyChain, Persistence, TenantSalt};
use kvtide::units::{GroupIndex, TokenCount};

const PROMPT_TOKENS: u32 = 1 << 16;
const TOKENS_PER_HASH: u32 = 16;

fn token_chain(chunk_tokens: u32) -> KeyChain {
    let content = ContentFingerprint::from_bytes([7; ContentFingerprint::BYTES]);
    let chunk_tokens = TokenCount::new(chunk_tokens);
    KeyChain::tokens(&content, &TenantSalt::new(b"salt"), GroupIndex::new(0), chunk_tokens)
        .expect("a chunk has tokens")
}

fn hash_chain(chunk_tokens: u32) -> KeyChain {
    KeyChain::engine_hashes(
        &ContentFingerprint::from_bytes([7; ContentFingerprint::BYTES]),
        &TenantSalt::new(b"salt"),
        &EngineHashDomain {
            algorithm: "sha256_cbor".into(),
            seed: HashSeed::Fixed(b"0".to_vec()),
            tokens_per_hash: TokenCount::new(TOKENS_PER_HASH),
        },
        GroupIndex::new(0),
        TokenCount::new(chunk_tokens),
        Persistence::Persistent,
    )
    .expect("a chunk is a whole number of hashes")
}

fn derivation(criterion: &mut Criterion) {
    let prompt: Vec<u32> = (0..PROMPT_TOKENS).map(|token| token.wrapping_mul(48_271)).collect();
    let hashes: Vec<[u8; 32]> = (0..PROMPT_TOKENS / TOKENS_PER_HASH)
        .map(|index| *blake3::hash(&index.to_le_bytes()).as_bytes())
        .collect();
    let mut group = criterion.benchmark_group("key_derivation");
    group.throughput(Throughput::Elements(u64::from(PROMPT_TOKENS)));
    for chunk_tokens in [64, 256, 1024, 4096] {
        let fresh = token_chain(chunk_tokens);
        group.bench_function(format!("prefill/{chunk_tokens}"), |bencher| {
            bencher.iter(|| fresh.clone().push(black_box(&prompt)).map(<[_]>::len));
        });
    }
    let fresh = token_chain(256);
    group.bench_function("decode/256", |bencher| {
        bencher.iter(|| {
            let mut chain = fresh.clone();
            for token in &prompt {
                chain.push(black_box(std::slice::from_ref(token))).expect("room");
            }
            chain
        });
    });
    let fresh = hash_chain(256);
    group.bench_function("engine_hashes/256", |bencher| {
        bencher.iter(|| fresh.clone().push_hashes(black_box(&hashes)).map(<[_]>::len));
    });
    let bytes: Vec<u8> = prompt.iter().flat_map(|token| token.to_le_bytes()).collect();
    group.bench_function("blake3/256", |bencher| {
        bencher.iter(|| {
            for kibibyte in black_box(&bytes).chunks_exact(1024) {
                black_box(blake3::hash(kibibyte));
            }
        });
    });
    group.finish();
}

criterion_group!(benches, derivation);
criterion_main!(benches);
