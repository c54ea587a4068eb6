//! Replays the fuzz corpus of datagrams through the fuzzer's check.

#![cfg(feature = "std")]

#[path = "support/packet.rs"]
mod packet;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

#[test]
fn the_corpus_of_datagrams_holds_what_must_hold() {
    for (name, input) in corpus() {
        println!("packet/{name}");
        packet::check(&input);
    }
}

/// A kind that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_kind() {
    let corpus = corpus();
    for (name, seed) in packet::seeds() {
        assert_eq!(
            corpus.get(&name),
            Some(&seed),
            "packet/{name}: run `cargo test -p cloudburst-fec --test packet_corpus -- --ignored`"
        );
    }
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    fs::create_dir_all(directory()).expect("can be made");
    for (name, seed) in packet::seeds() {
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
    [env!("CARGO_MANIFEST_DIR"), "../fuzz/corpus/packet"]
        .iter()
        .collect()
}
