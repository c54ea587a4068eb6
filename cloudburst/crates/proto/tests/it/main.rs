//! The state machine as a host sees it: whole courses in virtual time, corpora and the book's vectors.

mod any_bytes;
#[path = "../../../../../lab/fuzz/corpus.rs"]
mod corpus;
mod cost;
mod endpoint_corpus;
#[path = "../support/liar/mod.rs"]
mod liar;
mod liar_corpus;
mod machines;
mod memory;
mod packet_corpus;
#[path = "../support/simulation/mod.rs"]
mod simulation;
mod virtual_time;
mod wire_page;
