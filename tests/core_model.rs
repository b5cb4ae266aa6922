//! The core against its promises, from outside.

#[path = "core_model/promises.rs"]
mod promises;
