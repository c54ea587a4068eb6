//! Nothing: the benchmarks lie in `benches/`, their kernel object in `bpf/`.
