//! Replays the fuzz corpus through the fuzzer's check.

#[path = "../../../../../lab/fuzz/corpus.rs"]
mod committed;

use std::collections::BTreeMap;

use crate::support::checks;

#[test]
fn the_corpus_for_the_decoder_holds_what_must_hold() {
    for (name, input) in committed::read("decoder") {
        println!("decoder/{name}");
        checks::decoder(&input);
    }
}

/// A way through the code that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_way() {
    committed::assert_has("decoder", seeds());
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    committed::write("decoder", seeds());
}

/// Each schedule with each shape and each course of events.
fn seeds() -> BTreeMap<String, Vec<u8>> {
    // The message's length and that of symbols.
    let shapes = [
        ("one_symbol", 1, 5),
        ("short_last", 100, 30),
        ("full_block", 64 * 16, 16),
        ("three_blocks", 130 * 8 - 3, 8),
    ];
    // See `checks::Operation`.
    let courses: [(&str, &[u8]); 6] = [
        ("all", &[0, 200]),
        ("first_half_lost", &[2, 30, 0, 200, 0, 200]),
        ("backwards", &[3, 0, 9, 3, 0, 5, 3, 0, 5, 3, 0, 2, 0, 255]),
        (
            "spoiled",
            &[
                0, 1, 4, 0, 1, 7, 4, 4, 0, 2, 8, 1, 4, 0, 2, 11, 1, 5, 0, 1, 3, 0, 255,
            ],
        ),
        ("again", &[0, 255, 7, 0, 255]),
        (
            "foreign",
            &[
                6, 14, 0, 0, 0, 0, 0, 0, 0, 1, 9, 0, 0, 4, 1, 2, 0, 9, 7, 0, 255,
            ],
        ),
    ];
    let schedules = ["default", "mds", "paper_fixed", "paper_uniform"];
    let mut seeds = BTreeMap::new();
    for (number, schedule) in (0u8..).zip(schedules) {
        for (shape, message_bytes, symbol_bytes) in shapes {
            if number > 1 && shape == "three_blocks" {
                continue;
            }
            for (kernel, (course, operations)) in (0u8..).zip(courses) {
                let [high, low] = (message_bytes - 1u16).to_be_bytes();
                let choices = number | (kernel % 4) << 2 | (kernel & 1) << 4;
                let options = [choices, high, low, 0, 7, symbol_bytes - 1, 9];
                let name = format!("{schedule}_{shape}_{course}");
                seeds.insert(name, [&options, operations].concat());
            }
        }
    }
    seeds
}
