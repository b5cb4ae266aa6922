//! The rate of each kernel: its twin on the host, and what devices make of it.
//!
//! - `twin/KERNEL/FRAGMENT`: the kernels' own bodies, lane by lane on this machine's memory. They
//!   are oracles, not a fast way to copy; what is watched is that the tests' speed does not decay.
//! - `DEVICE/HOP/FRAGMENT`: the hops of every back end of `trait Device` at hand, with the time
//!   that a report takes to arrive. Written against the trait alone, so that a card is one more
//!   line in `back_ends`.
//!
//! Rates are payload; judge counts parts. Before a case is timed, its bytes are compared with a
//! naive reference: the time of wrong bytes is worth nothing. What copies could reach on this CPU
//! is the business of `cpu_device`.
//!
//! `cargo bench --bench kernels -- --warm-up-time 0.5 --measurement-time 1`

mod device;
mod geometry;
#[path = "../support/mod.rs"]
mod support;
mod twin;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use geometry::Geometry;
use std::hint::black_box;

/// Fragments in bytes. 1,152 are a row of multi-head latent attention; the rest are what blocks of
/// 16 tokens have in a plane.
const FRAGMENTS: [usize; 4] = [1152, 2 << 10, 16 << 10, 64 << 10];

/// Samples of each case, the least that criterion takes: a case is milliseconds.
const SAMPLES: usize = 10;

fn twins(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("twin");
    group.sample_size(SAMPLES);
    for fragment in FRAGMENTS {
        let twin = twin::Twin::new(Geometry::new(fragment));
        twin.verify();
        for kernel in twin::KERNELS {
            twin.prepare();
            group.throughput(match kernel.name {
                "judge" => Throughput::Elements(twin.part_count()),
                _ => Throughput::Bytes(twin.geometry().copied_bytes()),
            });
            group.bench_function(BenchmarkId::new(kernel.name, fragment), |bencher| {
                bencher.iter(|| (kernel.run)(black_box(&twin)));
            });
        }
    }
    group.finish();
}

fn devices(criterion: &mut Criterion) {
    for back_end in device::back_ends() {
        for fragment in FRAGMENTS {
            let rig = device::Rig::new(Geometry::new(fragment), back_end);
            rig.verify();
            let mut group = criterion.benchmark_group(rig.name());
            group.sample_size(SAMPLES);
            group.throughput(Throughput::Bytes(rig.geometry().copied_bytes()));
            for hop in device::HOPS {
                group.bench_function(BenchmarkId::new(hop.name, fragment), |bencher| {
                    bencher.iter(|| rig.run((hop.work)(&rig)));
                });
            }
            group.finish();
        }
    }
}

criterion_group!(benches, twins, devices);
criterion_main!(benches);
