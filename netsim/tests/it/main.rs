//! What users of the library and of the command see.

mod analytic;
mod binary;
mod cloudburst;
mod collectives;
mod documentation;
mod expresspass;
mod fabrics;
mod lists;
mod outages;
mod own_balancer;
mod recipes;
mod scenarios;
mod shards;
mod support;
mod topologies;
mod tr;
mod trace;
#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../../../crates/cli/tests/support/transcript.rs"]
mod transcript;
mod wording;
