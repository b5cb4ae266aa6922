//! `kvtide inspect`, `check` and `gc`, run as an operator runs them on stores that the library made
//! and the tests damaged byte by byte. `rig.rs` makes them; one file a command.

mod check;
mod gc;
mod inspect;
mod repair;
mod rig;
#[path = "../../../tests/support/store.rs"]
mod support;
