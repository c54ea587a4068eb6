//! Replays the fuzz corpus of a peer that lies through the fuzzer's check.

use std::collections::BTreeMap;

use crate::{any_bytes, corpus, liar};

#[test]
fn the_corpus_of_a_liar_holds_what_must_hold() {
    for (name, input) in corpus::read("liar") {
        println!("liar/{name}");
        liar::check(&input);
    }
}

/// An operation that is added without a seed would be left to chance.
#[test]
fn there_is_a_seed_for_every_lie() {
    corpus::assert_has("liar", seeds());
}

/// Else most of what a fuzzer makes would be nothing.
#[test]
fn what_is_said_is_sealed_from_the_beginning() {
    for options in 0..8 {
        let said = |options: u8| liar::check(&[&[options][..], &lie(3, 9)].concat());
        let (with, without) = (said(options), said(options | liar::WITHOUT_KEYS));
        assert!(with > 100, "{options}: {with} datagrams");
        assert_eq!(without, 0, "{options}: there is no offer");
    }
}

#[test]
fn whatever_a_peer_with_a_key_says_harms_nobody_else() {
    let inputs = any_bytes::after_each(seeds().into_values(), 10, 400);
    let datagrams: u64 = inputs.map(|input| liar::check(&input)).sum();
    assert!(datagrams > 1_000, "{datagrams} datagrams");
}

#[test]
#[ignore = "writes fuzz/corpus anew instead of testing it"]
fn write_seeds() {
    corpus::write("liar", seeds());
}

/// For each kind an offer with it, and it under the keys that follow; and a long course of all kinds,
/// for a fuzzer makes inputs no longer than those it has.
fn seeds() -> BTreeMap<String, Vec<u8>> {
    let mut seeds = BTreeMap::new();
    for (option, bits) in [("usual", 0), ("narrow", 1), ("strict", 2), ("pairs", 4)] {
        let offer = [
            bits, 132, 0, 0, 9, 1, 7, 0, 1, 3, 3, 9, 9, 9, 1, 0, 0, 2, 0, 1,
        ];
        for kind in 0..16 {
            let seed = [&offer[..], &lie(kind, 9)].concat();
            seeds.insert(format!("{option}_{kind}"), seed);
        }
        for kind in [2, 4, 6, 9] {
            let seed = [&offer[..], &[128 | 6, 8, 0], &count(kind)].concat();
            seeds.insert(format!("{option}_{kind}_counts"), seed);
        }
        let lies = (0..ROUNDS).flat_map(|round| (0..16).map(move |kind| lie(kind, round)));
        let course = offer.into_iter().chain(lies.flatten()).collect();
        seeds.insert(format!("{option}_course"), course);
    }
    seeds
}

/// All kinds are said as often as this in a course: as often as 4 kB of input hold.
const ROUNDS: u8 = 12;

/// An operation: an answer of that kind with a report, of whose datagrams more were marked than arrived.
fn count(kind: u8) -> [u8; 26] {
    let mut count = [0; 26];
    count[..4].copy_from_slice(&[128 | 7, 8, 9, 9]);
    count[4..9].copy_from_slice(&[64 | kind, 0, 1, 3, 3]);
    // Path, received, highest, delay, capable and marked.
    count[9..16].copy_from_slice(&[0, 1, 9, 8, 7, 10, 3]);
    count
}

/// An operation: a datagram of that kind, sealed.
fn lie(kind: u8, any: u8) -> [u8; 19] {
    let mut lie = [0; 19];
    lie[..4].copy_from_slice(&[128 | 7, 8, 9, any]);
    lie[4..9].copy_from_slice(&[kind, 0, 1, 3, 3]);
    lie[9..].copy_from_slice(&[200, 40, 3, 7, any, any, 9, 9, 0, 0]);
    lie
}
