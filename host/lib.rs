//! kvtide: a paging runtime for the KV caches of large language models.
//!
//! An inference engine states once how its KV cache lies on the device; kvtide then keeps cold
//! chunks of it elsewhere and brings them back byte-exact when a prompt shares a prefix or a
//! sequence resumes. Correct bytes come first, then speed, then ease: a miss is always allowed,
//! wrong bytes never.
//!
//! # What is here
//!
//! | module | for |
//! |---|---|
//! | [`layout`] | stating the device cache: groups, planes, fragments; the packing map of a chunk |
//! | [`fingerprint`] | what the bytes mean, and which store they belong to |
//! | [`key`] | content addresses of chunks, chained over a sequence's tokens |
//! | [`table`] | block tables, for engines that have none |
//! | [`pager`] | the public face: lookup, store, load, tickets, plans |
//! | [`device`] | packing, copying, unpacking: `trait Device` and back ends |
//! | [`mem`] | host memory that devices and disks use directly |
//! | [`io`] | files and disk operations: `trait Disk` |
//! | [`capability`] | what this machine lets kvtide do |
//! | [`core`] | the sans-I/O paging core: what is stored where, pinned by whom, evicted when |
//! | [`policy`] | the order of eviction |
//! | `replay` | request traces through the core (feature `replay`) |
//! | [`units`] | newtypes for ids, counts, bytes and points in time |
//!
//! Engines use [`pager`]; what is beneath it is public for those who build on a part.
//!
//! # From a prompt to a lookup
//!
//! ```
//! use kvtide::core::{Core, CoreConfig, GroupConfig, GroupKeys, Lookup};
//! use kvtide::fingerprint::{ContentFingerprint, KeyMode, KvScales, RopeSettings};
//! use kvtide::key::{KeyChain, TenantSalt};
//! use kvtide::layout::Attention;
//! use kvtide::units::{GroupIndex, Timestamp, TokenCount};
//!
//! // Once: what the bytes mean, and room for 4,096 chunks of 256 tokens.
//! let content = ContentFingerprint::builder()
//!     .model_id("meta-llama/Llama-3.1-8B")
//!     .revision("d04e592bb4f6aa9cfee91e2e20afa771667e1d4b")
//!     .rope(RopeSettings::AsInCheckpoint)
//!     .element_type("bf16")
//!     .kv_scales(KvScales::None)
//!     .key_mode(KeyMode::Tokens)
//!     .build()?;
//! let attention = Attention::Full;
//! let group =
//!     GroupConfig { slot_count: 4096, attention, pieces_per_chunk: 1, disk_slot_counts: vec![] };
//! let mut core = Core::new(&CoreConfig::new(vec![group]))?;
//!
//! // Per sequence: keys, each token hashed once. 1,000 tokens make three full chunks.
//! let chunk_tokens = TokenCount::new(256);
//! let salt = TenantSalt::none();
//! let mut chain = KeyChain::tokens(&content, &salt, GroupIndex::new(0), chunk_tokens)?;
//! let prompt: Vec<u32> = (0..1000).collect();
//! chain.push(&prompt)?;
//! assert_eq!(chain.keys().len(), 3);
//!
//! // Per lookup: bounded steps, each a short hold of the caller's lock.
//! let groups = [GroupKeys { keys: chain.keys(), chunk_tokens, attention }];
//! let mut lookup = Lookup::begin(&mut core, &groups, Timestamp::new(0))?;
//! let hit = loop {
//!     if let Some(hit) = lookup.step(&mut core)? {
//!         break hit;
//!     }
//! };
//! assert_eq!(hit.tokens.get(), 0, "a cold cache: everything is to be computed");
//! core.drop_plan(hit.plan);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Crate features
//!
//! - `replay` (off by default): reads request traces and generates seeded workloads. Costs `serde`
//!   and `serde_json`; the `kvtide` program turns it on.
//! - `testing` (off by default): a simulated disk (`io::sim`), faults on demand in the CPU device,
//!   and its copy loops. For tests and benchmarks, not for production.
#![deny(unsafe_code)]

/// The README's example, compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;

pub mod capability;
pub mod core;
pub mod device;
pub mod fingerprint;
pub mod io;
pub mod key;
pub mod layout;
mod links;
pub mod mem;
pub mod pager;
pub mod policy;
#[cfg(any(test, feature = "testing", feature = "replay"))]
mod random;
#[cfg(feature = "replay")]
pub mod replay;
pub mod store;
pub mod table;
pub mod units;
