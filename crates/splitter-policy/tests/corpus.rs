//! Replays the fuzz corpora through the fuzzer's checks.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use splitter_policy::config::PolicyConfig;
use support::shapes::simple_shapes_with;
use support::{checks, fabric};

/// Settings that between them take each way through the policy; see `checks`.
const CHOICES: [u8; 8] = [0x00, 0x10, 0x52, 0x35, 0x98, 0xc1, 0x4e, 0x90];

#[test]
fn the_corpus_for_split_holds_what_must_hold() {
    for (name, input) in corpus("split") {
        println!("split/{name}");
        checks::split(&input);
        // Any frame under any settings, not only those it was found with.
        for choices in CHOICES {
            checks::split(&[&[choices], input.get(1..).unwrap_or_default()].concat());
        }
    }
}

#[test]
fn the_corpus_for_the_parser_holds_what_must_hold() {
    for (name, input) in corpus("parser") {
        println!("parser/{name}");
        checks::parser(&input);
        fabric::check(&input);
    }
}

/// A shape that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_shape() {
    for (target, seeds) in seeds() {
        let corpus = corpus(target);
        for (name, seed) in seeds {
            assert_eq!(
                corpus.get(&name),
                Some(&seed),
                "{target}/{name}: run `cargo test -p splitter-policy --test corpus -- --ignored`"
            );
        }
    }
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    for (target, seeds) in seeds() {
        fs::create_dir_all(directory(target)).expect("can be made");
        for (name, seed) in seeds {
            fs::write(directory(target).join(name), seed).expect("can be written");
        }
    }
}

fn seeds() -> [(&'static str, BTreeMap<String, Vec<u8>>); 2] {
    // What is not TCP is touched only when it carries the long mark; the ECN
    // bits must never be.
    let traffic_class = PolicyConfig::DEFAULT_LONG_MARK.value() << 2 | 0b01;
    let shapes = simple_shapes_with(traffic_class);
    let frames = shapes.into_iter().map(|shape| (shape.name, shape.frame));
    let parser: BTreeMap<_, _> = frames.collect();
    let choices = CHOICES.into_iter().cycle();
    let split = parser
        .iter()
        .zip(choices)
        .map(|((name, frame), choices)| (name.clone(), [&[choices], &frame[..]].concat()))
        .collect();
    let parser = parser.into_iter().chain(fabric::seeds()).collect();
    [("split", split), ("parser", parser)]
}

fn corpus(target: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory(target)).expect("the corpus is committed");
    let files = entries.map(|entry| {
        let entry = entry.expect("can be read");
        let name = entry.file_name().into_string().expect("named in ASCII");
        (name, fs::read(entry.path()).expect("can be read"))
    });
    files.collect()
}

fn directory(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../lab/fuzz/corpus", target]
        .iter()
        .collect()
}
