//! Replays the fuzz corpus of endpoints through the fuzzer's check.

#![cfg(feature = "std")]

#[path = "support/endpoint.rs"]
mod endpoint;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

#[test]
fn the_corpus_of_endpoints_holds_what_must_hold() {
    for (name, input) in corpus() {
        println!("endpoint/{name}");
        endpoint::check(&input);
    }
}

/// An operation that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_operation() {
    let corpus = corpus();
    for (name, seed) in endpoint::seeds() {
        assert_eq!(
            corpus.get(&name),
            Some(&seed),
            "endpoint/{name}: run `cargo test -p cloudburst-fec --test endpoint_corpus -- --ignored`"
        );
    }
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
    fs::create_dir_all(directory()).expect("can be made");
    for (name, seed) in endpoint::seeds() {
        fs::write(directory().join(name), seed).expect("can be written");
    }
}

fn corpus() -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory()).expect("the corpus is committed");
    let files = entries.map(|entry| {
        let entry = entry.expect("can be read");
        let name = entry.file_name().into_string().expect("named in ASCII");
        (name, fs::read(entry.path()).expect("can be read"))
    });
    files.collect()
}

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../fuzz/corpus/endpoint"]
        .iter()
        .collect()
}
