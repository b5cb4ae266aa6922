//! Why a trace cannot be read: the line, the field, and what to do about it.

use super::request::RequestError;
use super::trace::{LINE_BYTES_MAX, REQUESTS_MAX, UNIQUE_BLOCKS_MAX};
use std::io;

/// Why a trace cannot be read. Lines count from 1, empty lines too.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The reader failed.
    #[error("cannot be read from line {line} on: {source}")]
    Read {
        /// Line that was being read.
        line: u64,
        /// What the reader said.
        source: io::Error,
    },
    /// A line is longer than [`LINE_BYTES_MAX`].
    #[error(
        "line {line}: is longer than {} MiB; write one request or one session a line",
        LINE_BYTES_MAX >> 20
    )]
    LineTooLong {
        /// The line.
        line: u64,
    },
    /// A line is not UTF-8.
    #[error(
        "line {line}: byte {byte} is not UTF-8; a trace is JSON lines, plain or zstd-compressed"
    )]
    NotUtf8 {
        /// The line.
        line: u64,
        /// First bad byte of the line, from 1.
        byte: usize,
    },
    /// A line ends before its JSON value does.
    #[error(
        "line {line}: ends before its JSON object does; if it is the last line, the file was cut \
         off: fetch it again"
    )]
    LineCutOff {
        /// The line.
        line: u64,
    },
    /// A line is not a JSON object.
    #[error("line {line}: column {column}: {problem}; each line is one JSON object")]
    NotJson {
        /// The line.
        line: u64,
        /// Byte of the line, from 1.
        column: usize,
        /// What the JSON parser said.
        problem: String,
    },
    /// A field is missing or has a bad value.
    #[error("line {line}: {field} {problem}")]
    Field {
        /// The line.
        line: u64,
        /// Path of the field in the line's object, such as `requests[3].hash_runs[0]`.
        field: String,
        /// What is wrong with it.
        problem: FieldProblem,
    },
    /// The trace has more requests than [`REQUESTS_MAX`].
    #[error("line {line}: is over the limit of {REQUESTS_MAX} requests a trace; split the file")]
    TooManyRequests {
        /// Line that passes the limit.
        line: u64,
    },
    /// The trace has more unique blocks than [`UNIQUE_BLOCKS_MAX`].
    #[error(
        "the trace has {count} unique blocks, over the limit of {UNIQUE_BLOCKS_MAX}; \
         split it or use larger blocks"
    )]
    TooManyUniqueBlocks {
        /// Unique blocks of the trace.
        count: u64,
    },
    /// The trace has no request.
    #[error("the trace has no requests; give a file with one JSON object a line")]
    NoRequests,
}

/// What is wrong with a field of a trace line; Display continues a sentence that names the field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldProblem {
    /// The field is not there, or null.
    #[error("is missing; every request states it")]
    Missing,
    /// The field is of another JSON type.
    #[error("is {found}, not {expected}")]
    WrongType {
        /// JSON type that the field has.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The number is negative, has a fraction where it may not, or is far out of range.
    #[error("is {}; give {expected}", plain(*.value))]
    BadNumber {
        /// The number.
        value: f64,
        /// What it should be.
        expected: &'static str,
    },
    /// The number is over what the field may hold.
    #[error("is {value}, over the limit of {limit}")]
    TooLarge {
        /// The number.
        value: u64,
        /// Largest value accepted.
        limit: u64,
    },
    /// A run is not a pair of numbers.
    #[error("has {length} numbers; a run is [first, count]")]
    NotAPair {
        /// Numbers found.
        length: usize,
    },
    /// The blocks do not make a request.
    #[error(transparent)]
    Blocks(#[from] RequestError),
    /// The object has neither `hash_ids` nor `hash_runs`.
    #[error("has no blocks; give hash_ids or hash_runs, or requests for a session")]
    NoBlocks,
    /// The object has more than one of `hash_ids`, `hash_runs` and `requests`.
    #[error("has more than one of hash_ids, hash_runs and requests; keep one")]
    SeveralBlockLists,
    /// The session's block numbers are not local to it.
    #[error("is {found}; only \"local\" is known, for numbers local to the session")]
    UnknownIdScope {
        /// The field as JSON, cut short.
        found: String,
    },
}

/// Prints numbers of a usual size as people write them, others with an exponent.
///
/// What is whole and not negative came with a decimal point, which is what is wrong with it.
fn plain(value: f64) -> String {
    if value.abs() >= 1e16 {
        format!("{value:e}")
    } else if value >= 0.0 && value.fract() == 0.0 {
        format!("{value:.1}")
    } else {
        value.to_string()
    }
}
