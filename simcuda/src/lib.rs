//! Runs kvtide's device code on a CPU: for tests, and for nothing else.
//!
//! - [`ptx`]: an interpreter of PTX text, the code that a GPU's driver would compile.
//!
//! It looks for faults that a GPU may not report: reads of what nobody wrote, accesses beside a
//! buffer, threads that race. It says nothing about speed. Called by the tests of the workspace.
#![deny(unsafe_code)]

pub mod ptx;
