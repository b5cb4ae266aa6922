//! Stand-in.
use crate::units::TokenCount;
/// a
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// f
    Full,
    /// w
    Window {
        /// t
        tokens: TokenCount,
    },
}
