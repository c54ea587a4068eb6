//! The paper's machine as a host sees it, in the harness of the product's machine.

#[path = "../../../../cloudburst/crates/proto/tests/it/any_bytes.rs"]
mod any_bytes;
#[path = "../../../fuzz/corpus.rs"]
mod corpus;
#[path = "../../../../cloudburst/crates/proto/tests/it/endpoint_corpus.rs"]
mod endpoint_corpus;
mod machine;
mod machines;
mod pair;
mod paper;
#[allow(dead_code, reason = "the product's tests use all of it")]
#[path = "../../../../cloudburst/crates/proto/tests/support/simulation/mod.rs"]
mod simulation;
mod sweep;
