//! Every kernel against a naive reference on random layouts, on two machines: the bodies as twins,
//! lane by lane on the host, and the committed PTX in an interpreter.
//!
//! All that a launch touches lies in one [`memory::Memory`], guard bytes between. A test runs a
//! kernel on it, applies the reference to a copy of its bytes, and compares the whole: a byte that
//! is wrong, missing or written where none should be fails alike.

mod altered;
mod checks;
mod chosen;
mod contract;
mod copy;
mod fill;
mod judge;
mod kernel;
mod load;
mod machine;
mod memory;
mod reference;
mod scene;
mod store;
