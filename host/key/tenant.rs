//! The tenant salt: the secret that keeps one tenant's keys apart from another's.
//!
//! Two tenants with different salts never share a chunk, and without the salt nobody can tell from
//! a key, or from how long a lookup took, what another tenant asked. The salt never appears in a
//! `Debug` text. Called by `KeyChain`, which feeds it into the root.

use std::fmt;

use super::frame::{Encoding, Tag};

/// A tenant's salt: bytes of any length that enter every key of that tenant.
///
/// ```
/// use kvtide::key::TenantSalt;
///
/// let salt = TenantSalt::new(b"per-tenant secret");
/// assert_eq!(format!("{salt:?}"), "TenantSalt(secret)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct TenantSalt {
    bytes: Option<Box<[u8]>>,
}

impl TenantSalt {
    /// Takes the bytes of a salt. An empty salt is a salt too, and not [`TenantSalt::none`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self { bytes: Some(bytes.as_ref().into()) }
    }

    /// No salt: all who use none share their chunks.
    pub const fn none() -> Self {
        Self { bytes: None }
    }

    /// Appends the salt's field; none appends nothing.
    pub(super) fn encode(&self, encoding: &mut Encoding) {
        if let Some(bytes) = &self.bytes {
            encoding.field(Tag::TenantSalt, bytes);
        }
    }
}

impl fmt::Debug for TenantSalt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.bytes.is_some() { "secret" } else { "none" };
        write!(formatter, "TenantSalt({shown})")
    }
}
