//! The disk tier's store on a simulated drive: what it promises under power cuts and faults.

mod cuts;
mod inspection;
mod oracle;
mod orders;
mod promises;
mod reclaim;
mod refusals;
mod rig;
#[path = "../support/store.rs"]
mod support;
mod survey;
