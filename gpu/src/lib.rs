//! What kvtide's host and device sides must agree on, and the kernels themselves.
//!
//! One `no_std` crate, free of allocation and panics in the parts that run on a device:
//!
//! - [`abi`]: constants of a packed chunk, descriptors and arguments of a launch;
//! - [`divisor`]: exact division by a launch constant, as one multiply and one shift;
//! - [`checksum`]: the position-keyed sum over a packed chunk, with published vectors;
//! - [`arch`]: what a kernel body may ask of the machine it runs on, and the host as one;
//! - [`kernels`]: the kernels' bodies, generic over that machine;
//! - [`ptx`]: the same bodies compiled for NVIDIA GPUs, as text.
//!
//! The host crate `kvtide` re-exports what its users need; nothing else depends on this crate.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, stdarch_nvptx, asm_experimental_arch))]
#![deny(unsafe_code)]

pub mod abi;
#[expect(unsafe_code, reason = "the primitives by which kernels touch memory")]
pub mod arch;
pub mod checksum;
pub mod divisor;
#[expect(unsafe_code, reason = "kernels touch the memory that their callers vouch for")]
pub mod kernels;
#[cfg(not(target_arch = "nvptx64"))]
pub mod ptx;
