//! Real faults: processes that are killed, file systems that are full or read-only, directories
//! that vanish, drives with large sectors. The disk tier of a pager on each, with bytes compared.

#[path = "../support/counted.rs"]
mod counted;
mod engine;
mod kill;
mod machine;
#[path = "../../host/io/tests/mounts.rs"]
mod mounts;
#[path = "../support/engine.rs"]
mod support;
