//! What a child tells its parent, each when it has happened, in frames over a socket: one byte for
//! the kind, four for the length, the rest.
//!
//! A frame is sent by one call, and one that a kill cut short counts as not sent.

use kvtide::key::Key;
use std::io::{Read, Result, Write};

/// What has happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The pager is open.
    Opened,
    /// These chunks are on disk, as the pager has it. Nothing was stored or loaded yet.
    Found(Vec<Key>),
    /// A load handed a chunk over.
    Hit(Key, Vec<u8>),
    /// Everything that a lookup finds was loaded.
    Looked,
    /// These chunks are about to be loaded or stored.
    Using(Vec<Key>),
    /// These chunks are written.
    Written(Vec<Key>),
    /// A flush was answered; these chunks are durable, and nothing waits for its write.
    Flushed(Vec<Key>),
    /// Everything is about to be dropped.
    Clearing,
    /// The clear was answered. What is stored from now on was computed with the next weights.
    Cleared,
}

impl Report {
    pub(super) fn send(&self, to: &mut impl Write) -> Result<()> {
        let (kind, body) = match self {
            Self::Opened => (0, Vec::new()),
            Self::Found(keys) => (1, join(keys)),
            Self::Hit(key, bytes) => (2, [&key.to_bytes()[..], bytes].concat()),
            Self::Looked => (3, Vec::new()),
            Self::Using(keys) => (4, join(keys)),
            Self::Written(keys) => (5, join(keys)),
            Self::Flushed(keys) => (6, join(keys)),
            Self::Clearing => (7, Vec::new()),
            Self::Cleared => (8, Vec::new()),
        };
        let length = u32::try_from(body.len()).expect("a short report");
        to.write_all(&[&[kind], &length.to_le_bytes()[..], &body].concat())
    }

    /// Returns the next report; `None` after the last.
    pub(super) fn receive(from: &mut impl Read) -> Option<Self> {
        let mut head = [0; 5];
        from.read_exact(&mut head).ok()?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes(length)).expect("64 bits");
        let mut body = vec![0; length];
        from.read_exact(&mut body).ok()?;
        Some(match kind {
            0 => Self::Opened,
            1 => Self::Found(split(&body)),
            2 => {
                let (key, bytes) = body.split_first_chunk().expect("a key");
                Self::Hit(Key::from_bytes(*key), bytes.to_vec())
            }
            3 => Self::Looked,
            4 => Self::Using(split(&body)),
            5 => Self::Written(split(&body)),
            6 => Self::Flushed(split(&body)),
            7 => Self::Clearing,
            8 => Self::Cleared,
            kind => panic!("a report of kind {kind}"),
        })
    }
}

fn join(keys: &[Key]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_bytes()).collect()
}

fn split(body: &[u8]) -> Vec<Key> {
    body.as_chunks().0.iter().map(|key| Key::from_bytes(*key)).collect()
}
