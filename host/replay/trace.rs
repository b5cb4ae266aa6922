//! A trace in memory, and the reader of trace files.
//!
//! Invariants: at least one request; at most [`REQUESTS_MAX`] requests and [`UNIQUE_BLOCKS_MAX`]
//! unique blocks. Reading holds one line of text at a time and never expands a run.

use super::error::TraceError;
use super::json::{self, Line};
use super::request::{Request, Scope};
use super::unique::UniqueBlocks;
use crate::units::BlockCount;
use std::io::{BufRead, Read};

/// Most requests a trace may have: 16 Mi.
pub const REQUESTS_MAX: u64 = 1 << 24;

/// Most unique blocks a trace may have: 64 Mi. A cache's index of a whole trace stays in memory.
pub const UNIQUE_BLOCKS_MAX: u64 = 1 << 26;

/// Longest line accepted, in bytes: 256 MiB, a request of 16 Mi written-out block numbers.
pub const LINE_BYTES_MAX: u64 = 1 << 28;

/// Longest part of a JSON parser's message that an error repeats, in characters.
const PROBLEM_CHARS_MAX: usize = 160;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Requests in the order in which they run, with their unique blocks counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    requests: Vec<Request>,
    unique_blocks: UniqueBlocks,
    block_use_count: u64,
}

impl Trace {
    /// Reads a trace from JSON lines.
    ///
    /// A line is one of
    /// - a request with `hash_ids: [number, ..]`, one number a block;
    /// - a request with `hash_runs: [[first, count], ..]`;
    /// - a session with `requests: [..]`, whose block numbers are local to the line
    ///   (`hash_id_scope`, if there, is `"local"`). An entry is a request with `hash_ids` or
    ///   `hash_runs`, or a marker with `requests` of its own, which run where it stands.
    ///
    /// A request of its own line has `input_length` and `output_length` in tokens and may have
    /// `timestamp` in milliseconds; one inside a session has `in` and `out` in tokens and may have
    /// `t` in seconds from the start of its list. Other fields are ignored. Empty lines, CRLF
    /// line ends and a byte order mark are accepted; null counts as missing.
    ///
    /// # Errors
    ///
    /// [`TraceError`], naming line and field; [`TraceError::NoRequests`] for an empty file.
    pub fn read(mut reader: impl BufRead) -> Result<Self, TraceError> {
        let mut requests = Vec::new();
        let mut session_count = 0;
        let mut text = Vec::new();
        for line in 1_u64.. {
            text.clear();
            let length = read_line(&mut reader, &mut text)
                .map_err(|source| TraceError::Read { line, source })?;
            if length == 0 {
                break;
            }
            if length > LINE_BYTES_MAX {
                return Err(TraceError::LineTooLong { line });
            }
            if let Some(parsed) = parse_line(line, &text)? {
                append(&mut requests, parsed, &mut session_count, line)?;
            }
        }
        Self::from_requests(requests)
    }

    /// Makes a trace of `requests` in the order given.
    ///
    /// # Errors
    ///
    /// [`TraceError::NoRequests`] or [`TraceError::TooManyUniqueBlocks`].
    pub fn from_requests(requests: Vec<Request>) -> Result<Self, TraceError> {
        if requests.is_empty() {
            return Err(TraceError::NoRequests);
        }
        let unique_blocks = UniqueBlocks::of(&requests);
        let count = unique_blocks.count();
        if count > UNIQUE_BLOCKS_MAX {
            return Err(TraceError::TooManyUniqueBlocks { count });
        }
        let block_uses = requests.iter().map(|request| request.block_count().get());
        let block_use_count = block_uses.map(u64::from).sum();
        Ok(Self { requests, unique_blocks, block_use_count })
    }

    /// Returns the requests in the order in which they run, at least one.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns the unique blocks.
    pub fn unique_blocks(&self) -> &UniqueBlocks {
        &self.unique_blocks
    }

    /// Returns the most blocks that a request has.
    pub fn longest_request(&self) -> BlockCount {
        self.requests.iter().map(Request::block_count).max().unwrap_or_default()
    }

    /// Keeps the first `request_count` requests, or all if there are fewer.
    ///
    /// # Errors
    ///
    /// [`TraceError::NoRequests`] when none is to be kept.
    pub fn truncated(mut self, request_count: u64) -> Result<Self, TraceError> {
        self.requests.truncate(usize::try_from(request_count).unwrap_or(usize::MAX));
        Self::from_requests(self.requests)
    }

    /// Returns how many blocks the requests use, each use counted.
    pub fn block_use_count(&self) -> u64 {
        self.block_use_count
    }
}

/// Reads up to and with the next line feed, and no more than one byte over the limit.
fn read_line(reader: &mut impl BufRead, text: &mut Vec<u8>) -> std::io::Result<u64> {
    let length = reader.take(LINE_BYTES_MAX + 1).read_until(b'\n', text)?;
    Ok(length as u64)
}

/// Parses one line; `None` when it is empty.
fn parse_line(line: u64, text: &[u8]) -> Result<Option<Line>, TraceError> {
    let text = std::str::from_utf8(text)
        .map_err(|error| TraceError::NotUtf8 { line, byte: error.valid_up_to() + 1 })?;
    let text = match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) if line == 1 => rest,
        _ => text,
    };
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    match json::parse_line(text) {
        Ok(Ok(parsed)) => Ok(Some(parsed)),
        Ok(Err(fault)) => Err(TraceError::Field {
            line,
            field: match fault.path.as_str() {
                "" => "the request".to_owned(),
                path => path.to_owned(),
            },
            problem: fault.problem,
        }),
        Err(error) if error.is_eof() => Err(TraceError::LineCutOff { line }),
        Err(error) => Err(not_json(line, &error)),
    }
}

/// Takes the position out of the parser's message: it knows no line but the one it was given.
fn not_json(line: u64, error: &serde_json::Error) -> TraceError {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&position).unwrap_or(&message);
    TraceError::NotJson {
        line,
        column: error.column().max(1),
        problem: message.chars().take(PROBLEM_CHARS_MAX).collect(),
    }
}

fn append(
    requests: &mut Vec<Request>,
    parsed: Line,
    session_count: &mut u32,
    line: u64,
) -> Result<(), TraceError> {
    let too_many = || TraceError::TooManyRequests { line };
    let scope = if parsed.is_session {
        *session_count = session_count.checked_add(1).ok_or_else(too_many)?;
        Scope::new(*session_count)
    } else {
        Scope::GLOBAL
    };
    if (requests.len() + parsed.requests.len()) as u64 > REQUESTS_MAX {
        return Err(too_many());
    }
    let scoped = parsed.requests.into_iter();
    requests.extend(scoped.map(|request| request.with_scope(scope)));
    Ok(())
}

#[cfg(test)]
mod tests;
