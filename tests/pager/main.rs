//! The pager with real bytes over the CPU device, with and without faults.

mod bytes;
#[path = "../support/counted.rs"]
mod counted;
mod disk;
mod engine;
mod erase;
mod faults;
mod recovery;
mod shares;
mod siblings;
mod stress;
mod stripes;
#[path = "../support/engine.rs"]
mod support;
