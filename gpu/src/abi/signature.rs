//! What the PTX exports: each kernel's name and how its arguments lie in memory.
//!
//! The host finds entry points by these names. The manifest beside the PTX repeats the table, so
//! that PTX from elsewhere is known to fit; tests compare both with it.

use super::{
    ChecksumArguments, CopyArguments, FillArguments, GatherArguments, JudgeArguments,
    ScatterArguments, Transfer,
};
use core::mem::offset_of;

/// One kernel: an entry point that takes one struct by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSignature {
    /// Name of the entry point.
    pub name: &'static str,
    /// Name of the struct.
    pub arguments: &'static str,
    /// Size of the struct, in bytes.
    pub arguments_bytes: usize,
    /// Alignment of the struct, in bytes.
    pub arguments_align: usize,
    /// Fields of the struct, in the order of their offsets.
    pub fields: &'static [ArgumentField],
}

/// One field of a kernel's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentField {
    /// Its path in the struct.
    pub name: &'static str,
    /// Where it starts, in bytes.
    pub offset_bytes: usize,
}

/// Lists fields of a struct with their offsets.
macro_rules! fields {
    ($arguments:ty: $($($part:ident).+),+ $(,)?) => {
        &[$(ArgumentField {
            name: fields!(@path $($part).+),
            offset_bytes: offset_of!($arguments, $($part).+),
        }),+]
    };
    (@path $first:ident $(. $rest:ident)*) => {
        concat!(stringify!($first) $(, ".", stringify!($rest))*)
    };
}

/// Describes the kernel of this name and arguments.
macro_rules! signature {
    ($name:literal, $arguments:ident, $fields:expr) => {
        KernelSignature {
            name: $name,
            arguments: stringify!($arguments),
            arguments_bytes: size_of::<$arguments>(),
            arguments_align: align_of::<$arguments>(),
            fields: $fields,
        }
    };
}

/// Gather and scatter wrap the same struct.
const TRANSFER: &[ArgumentField] = fields!(
    Transfer: planes, chunks, grid.span_count, grid.spans_per_cell, grid.column_count,
    grid.by_spans, grid.by_columns, fragments.words, fragments.quarters, fragments.by_words,
    align_bytes,
);

const COPY: &[ArgumentField] = fields!(
    CopyArguments: planes, pairs, grid.span_count, grid.spans_per_cell, grid.column_count,
    grid.by_spans, grid.by_columns, fragments.words, fragments.quarters, fragments.by_words,
    plane_words, align_bytes,
);

const CHECKSUM: &[ArgumentField] = fields!(
    ChecksumArguments: chunks, parts.start, parts.end, grid.span_count, grid.spans_per_cell,
    grid.column_count, grid.by_spans, grid.by_columns,
);

const JUDGE: &[ArgumentField] = fields!(
    JudgeArguments: chunks, parts.start, parts.end, grid.span_count, grid.spans_per_cell,
    grid.column_count, grid.by_spans, grid.by_columns,
);

const FILL: &[ArgumentField] = fields!(
    FillArguments: ranges, pattern_low, pattern_high, grid.span_count, grid.spans_per_cell,
    grid.column_count, grid.by_spans, grid.by_columns,
);

/// The kernels that the PTX exports, by name.
pub const KERNELS: [KernelSignature; 9] = [
    signature!("kvtide_checksum", ChecksumArguments, CHECKSUM),
    signature!("kvtide_copy_16", CopyArguments, COPY),
    signature!("kvtide_copy_4", CopyArguments, COPY),
    signature!("kvtide_fill", FillArguments, FILL),
    signature!("kvtide_gather_16", GatherArguments, TRANSFER),
    signature!("kvtide_gather_4", GatherArguments, TRANSFER),
    signature!("kvtide_judge", JudgeArguments, JUDGE),
    signature!("kvtide_scatter_16", ScatterArguments, TRANSFER),
    signature!("kvtide_scatter_4", ScatterArguments, TRANSFER),
];
