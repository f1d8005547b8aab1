//! Cost of one hook call, from the bytes of its body to the bytes of its response, without the network.
//!
//! A decoder that builds the whole document as a tree runs beside it on the same bytes, so that a result is a ratio
//! and not a property of the machine.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sluice_benches::{Answerer, body};
use sluice_hooks::Hook;

/// The peer: decodes the whole document.
const TREE: &str = "tree";

fn hook_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hook_path");
    // A Cluster with a few variables, and one with many worker pools and variables.
    for (size, bytes) in [("2.8KB", 2_800), ("14KB", 14_000)] {
        let request = body::of(Hook::BeforeClusterUpgrade, bytes);
        group.throughput(Throughput::Bytes(request.len() as u64));
        for answerer in [Answerer::releasing(), Answerer::holding(), Answerer::gated()] {
            let id = BenchmarkId::new(answerer.name(), size);
            group.bench_with_input(id, request.as_bytes(), |bencher, request| {
                bencher.iter(|| answerer.answer(black_box(request)));
            });
        }
        let id = BenchmarkId::new(TREE, size);
        group.bench_with_input(id, request.as_bytes(), |bencher, request| {
            bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(request)));
        });
    }
    group.finish();
}

criterion_group!(benches, hook_path);
criterion_main!(benches);
