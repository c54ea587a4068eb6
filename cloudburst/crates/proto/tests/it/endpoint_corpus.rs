//! Replays the fuzz corpus of endpoints through the fuzzer's check.

#[path = "../support/endpoint.rs"]
mod endpoint;

use crate::{any_bytes, corpus, machines};

use std::collections::BTreeMap;

#[test]
fn the_corpus_of_endpoints_holds_what_must_hold() {
    for (name, input) in corpus::read("endpoint") {
        if input.first().is_some_and(|options| machines::run(*options)) {
            println!("endpoint/{name}");
            endpoint::check(&input);
        }
    }
}

/// An operation that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_operation() {
    corpus::assert_has("endpoint", seeds());
}

#[test]
fn any_bytes_will_do() {
    // Those of all machines, so that each seed is followed by the same bytes wherever it is run.
    for input in any_bytes::after_each(seeds().into_values(), 50, 200) {
        if machines::run(input[0]) {
            endpoint::check(&input);
        }
    }
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    corpus::write("endpoint", seeds());
}

/// A course for each operation, under each of the options that matter.
fn seeds() -> BTreeMap<String, Vec<u8>> {
    let courses: [(&str, &[u8]); 12] = [
        (
            "message",
            &[0, 0, 0x30, 0, 4, 60, 2, 9, 0, 4, 60, 3, 1, 0, 4, 60],
        ),
        (
            "request_and_reply",
            &[0, 2, 1, 0, 4, 9, 128, 3, 1, 0, 4, 9, 3, 0, 9, 4, 99],
        ),
        (
            "lost",
            &[
                0, 0, 9, 0, 6, 6, 6, 3, 0, 9, 4, 9, 6, 3, 0, 9, 4, 9, 3, 0, 99, 4, 99,
            ],
        ),
        (
            "flipped",
            &[
                0, 0, 9, 0, 7, 0, 30, 1, 7, 0, 9, 128, 7, 0, 0, 32, 4, 9, 3, 0, 99, 4, 99,
            ],
        ),
        (
            "cut_short",
            &[
                0, 0, 9, 0, 8, 0, 30, 8, 0, 0, 8, 1, 0, 4, 9, 3, 0, 99, 4, 99,
            ],
        ),
        (
            "again",
            &[
                0, 0, 9, 0, 4, 99, 9, 0, 0, 9, 0, 1, 4, 99, 3, 255, 255, 9, 0, 0, 4, 99,
            ],
        ),
        (
            "strange",
            &[
                138, 9, 30, 0x21, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0,
                0, 1, 1, 1, 1, 1, 1, 4, 9,
            ],
        ),
        ("cancelled", &[0, 0, 9, 0, 11, 0, 4, 99, 3, 0, 99, 4, 99]),
        (
            "unreachable",
            &[
                0, 0, 9, 0, 12, 0, 12, 1, 12, 2, 12, 3, 4, 99, 0, 0, 1, 0, 4, 99,
            ],
        ),
        (
            "too_big",
            &[
                0, 0, 0x50, 0, 4, 99, 3, 0, 30, 4, 99, 13, 0, 5, 0x70, 0, 0, 0x50, 0, 4, 99,
            ],
        ),
        (
            "other_keys",
            &[
                0, 0, 9, 0, 14, 1, 142, 1, 4, 9, 14, 2, 142, 2, 0, 0, 9, 0, 4, 99,
            ],
        ),
        (
            "sockets",
            &[
                0, 0, 9, 0, 15, 0, 4, 9, 15, 1, 0, 0, 9, 0, 3, 1, 0, 4, 99, 143, 1, 128, 0, 9, 0,
                4, 99,
            ],
        ),
    ];
    let options = [
        ("plain", 0),
        ("paper", 64),
        ("paper_narrow", 64 | 4 | 16),
        ("half_paper", 128 | 16),
        ("sealed", 1),
        ("strict", 3),
        ("narrow", 4 | 16),
        ("slow", 9 | 32),
    ];
    let mut seeds = BTreeMap::new();
    for (course, operations) in courses {
        for (option, bits) in options {
            let seed = [&[bits], operations].concat();
            seeds.insert(format!("{course}_{option}"), seed);
        }
    }
    seeds
}
