//! Replays the fuzz corpus of datagrams through the fuzzer's check.

#[path = "../support/packet.rs"]
mod packet;

use crate::corpus;

#[test]
fn the_corpus_of_datagrams_holds_what_must_hold() {
    for (name, input) in corpus::read("packet") {
        println!("packet/{name}");
        packet::check(&input);
    }
}

/// A kind that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_kind() {
    corpus::assert_has("packet", packet::seeds());
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    corpus::write("packet", packet::seeds());
}
