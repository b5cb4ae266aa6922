//! The disk tier: one directory of slots, and everything that keeps it right.

mod entry;
pub mod format;
mod ids;
mod shape;

pub use entry::Entry;
pub use ids::{Epoch, Generation, StoreUuid};
pub use shape::ChunkShape;
