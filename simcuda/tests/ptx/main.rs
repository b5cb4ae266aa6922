//! The interpreter on small hand-written kernels: what each instruction does, and each fault.

mod faults;
mod flow;
mod harness;
mod instructions;
mod memory;
mod parsing;
mod races;
mod warps;
