//! The two copies of the superblock: which one counts, and where the next change goes first.
//!
//! Invariants: at every instant at least one copy on the medium is whole, because a change is made
//! durable in the older copy before the other is touched; the copy that counts is the valid one
//! with the higher sequence.
//!
//! Called by open, by tasks that change it, and by `kvtide inspect` and `kvtide check`.

use super::format::{FormatError, PAGE_BYTES, Page, Superblock};

/// Number of a copy: the first or the second page of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copy {
    First,
    Second,
}

impl Copy {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    pub(super) const fn offset_bytes(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => PAGE_BYTES as u64,
        }
    }
}

/// Both copies of a superblock, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuperblockCopies {
    /// The first page of the file.
    pub first: Result<Superblock, FormatError>,
    /// The second page.
    pub second: Result<Superblock, FormatError>,
    has_blank: bool,
}

impl SuperblockCopies {
    /// Decodes the file's bytes; those that are missing count as zeros.
    ///
    /// ```
    /// use kvtide::store::SuperblockCopies;
    ///
    /// let copies = SuperblockCopies::decode(&[]);
    /// assert!(copies.current().is_err() && copies.has_blank());
    /// ```
    pub fn decode(bytes: &[u8]) -> Self {
        let mut pages: [Page; 2] = [[0; PAGE_BYTES]; 2];
        for (page, bytes) in pages.iter_mut().zip(bytes.chunks(PAGE_BYTES)) {
            page[..bytes.len()].copy_from_slice(bytes);
        }
        let has_blank = pages.contains(&[0; PAGE_BYTES]);
        let [first, second] = pages.map(|page| Superblock::decode(&page));
        Self { first, second, has_blank }
    }

    /// Returns the copy that counts.
    ///
    /// # Errors
    ///
    /// What is wrong with the first and with the second copy, where neither is valid.
    pub const fn current(&self) -> Result<&Superblock, (FormatError, FormatError)> {
        match (&self.first, &self.second) {
            (Ok(first), Ok(second)) if second.sequence <= first.sequence => Ok(first),
            (_, Ok(second)) => Ok(second),
            (Ok(first), Err(_)) => Ok(first),
            (Err(first), Err(second)) => Err((*first, *second)),
        }
    }

    /// Whether a copy is all zeros: never written.
    pub const fn has_blank(&self) -> bool {
        self.has_blank
    }

    /// Returns the version of a whole copy that another version of kvtide wrote.
    pub fn other_version(&self) -> Option<u32> {
        [&self.first, &self.second].into_iter().find_map(|copy| match copy {
            Err(FormatError::Version { found, .. }) => Some(*found),
            _ => None,
        })
    }

    /// Returns the copy that the next change is written to first: the invalid or older one.
    pub(super) fn older(&self) -> Copy {
        match (&self.first, &self.second) {
            (Ok(first), Ok(second)) if second.sequence < first.sequence => Copy::Second,
            (Ok(_), Err(_)) => Copy::Second,
            _ => Copy::First,
        }
    }
}
