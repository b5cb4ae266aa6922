//! The `kvtide` program.
fn main() {}
