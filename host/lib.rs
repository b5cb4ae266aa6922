//! kvtide: a paging runtime for the KV caches of large language models.
#![deny(unsafe_code)]

pub mod core;
pub mod fingerprint;
pub mod key;
pub mod layout;
mod links;
pub mod policy;
#[cfg(feature = "replay")]
pub mod replay;
pub mod table;
pub mod units;
