//! Replays the fuzz corpus of endpoints through the fuzzer's check.

#![cfg(feature = "std")]

#[path = "support/corpus.rs"]
mod corpus;
#[path = "support/endpoint.rs"]
mod endpoint;

#[test]
fn the_corpus_of_endpoints_holds_what_must_hold() {
    for (name, input) in corpus::read("endpoint") {
        println!("endpoint/{name}");
        endpoint::check(&input);
    }
}

/// An operation that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_operation() {
    corpus::assert_has("endpoint", endpoint::seeds());
}

/// Not as good as a fuzzer, and always there: any bytes after each seed.
#[test]
fn any_bytes_will_do() {
    let mut state = 1u64;
    let mut any = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    for seed in endpoint::seeds().into_values() {
        for _ in 0..50 {
            let mut input = seed.clone();
            input.extend((0..200).map(|_| any()));
            endpoint::check(&input);
        }
    }
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    corpus::write("endpoint", endpoint::seeds());
}
