//! What kvtide's host and device sides must agree on.
//!
//! One `no_std` crate, free of allocation and panics in the parts that will run on a device:
//!
//! - [`abi`]: alignments of a packed chunk and the reserved block id;
//! - [`divisor`]: exact division by a launch constant, as one multiply and one shift;
//! - [`checksum`]: the position-keyed sum over a packed chunk, with published vectors.
//!
//! The host crate `kvtide` re-exports what its users need; nothing else depends on this crate.
#![no_std]
#![forbid(unsafe_code)]

pub mod abi;
pub mod checksum;
pub mod divisor;
