//! Arbitrary bytes through the trace reader: read or refused, never a panic, and no memory for
//! blocks that a line only claims to have.
#![no_main]

use kvtide::replay::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(trace) = Trace::read(bytes) else {
        return;
    };
    let unique = trace.unique_blocks();
    assert!(!trace.requests().is_empty());
    assert!(unique.count() <= trace.block_use_count());
    for request in trace.requests() {
        for &run in request.runs() {
            assert!(unique.dense_first(request.scope(), run).is_some());
        }
    }
});
