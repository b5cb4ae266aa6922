//! Stand-in while the key module is on its way.
/// key
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key([u64; 2]);
impl Key {
    /// c
    pub const fn from_u128(v: u128) -> Self {
        Self([v as u64, (v >> 64) as u64])
    }
    /// c
    pub const fn low_u64(self) -> u64 {
        self.0[0]
    }
    /// c
    pub const fn high_u64(self) -> u64 {
        self.0[1]
    }
}
