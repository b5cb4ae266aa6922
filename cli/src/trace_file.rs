//! Opens trace files: plain or zstd-compressed, told apart by their first bytes.

use crate::error::CliError;
use crate::progress;
use crate::zstd_frames::{ZstdFrames, is_zstd};
use kvtide::replay::Trace;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 17;

/// Bytes that tell a zstd frame.
const MAGIC_BYTES: u64 = 4;

/// The path that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Names a trace in errors.
fn name(path: &Path) -> String {
    if is_standard_input(path) {
        return "standard input".to_owned();
    }
    path.display().to_string()
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// Reads the trace at `path`, or standard input for `-`.
pub(crate) fn read(path: &Path) -> Result<Trace, CliError> {
    if is_standard_input(path) {
        return read_from(path, io::stdin().lock(), 0);
    }
    let open_error = |source| CliError::Open { name: name(path), source };
    let file = File::open(path).map_err(open_error)?;
    let metadata = file.metadata().map_err(open_error)?;
    if metadata.is_dir() {
        return Err(CliError::Folder { name: name(path) });
    }
    read_from(path, file, metadata.len())
}

fn read_from(path: &Path, source: impl Read, bytes: u64) -> Result<Trace, CliError> {
    let short_name = path.file_name().unwrap_or(path.as_os_str());
    let bar = progress::reading(&short_name.to_string_lossy(), bytes);
    let source = BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(source));
    let trace_error = |source| CliError::Trace { name: name(path), source };
    let text = decoded(source).map_err(|source| CliError::Open { name: name(path), source })?;
    Trace::read(text).map_err(trace_error)
}

/// Returns the text of `source`, through a decoder if it is compressed.
fn decoded<'source>(mut source: impl BufRead + 'source) -> io::Result<Box<dyn BufRead + 'source>> {
    let mut magic = Vec::new();
    source.by_ref().take(MAGIC_BYTES).read_to_end(&mut magic)?;
    let is_compressed = is_zstd(&magic);
    let whole = Cursor::new(magic).chain(source);
    Ok(if is_compressed {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, ZstdFrames::new(whole)))
    } else {
        Box::new(whole)
    })
}
