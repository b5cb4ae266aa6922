//! The pager with real bytes over the CPU device, with and without faults.

mod bytes;
mod engine;
mod faults;
mod stress;
