use super::*;
use std::string::{String, ToString as _};
use std::vec::Vec;

fn word(address: &str) -> (bool, u64) {
    let bytes = |it: &[u8]| {
        let mut word = [0; 8];
        let length = it.len().min(8);
        word[..length].copy_from_slice(&it[..length]);
        u64::from_ne_bytes(word)
    };
    match address.parse().expect("an address") {
        IpAddr::V4(v4) => (false, bytes(&v4.octets())),
        IpAddr::V6(v6) => (true, bytes(&v6.octets())),
    }
}

fn built(prefixes: &[(&str, Reach)]) -> PrefixLengths {
    let mut builder = PrefixLengthsBuilder::new();
    for (prefix, reach) in prefixes {
        let (address, length) = prefix.split_once('/').expect("a prefix");
        let address = address.parse().expect("an address");
        builder.add(address, length.parse().expect("a length"), *reach);
    }
    builder.build()
}

/// What counts of each destination, in words.
fn matched(lengths: &PrefixLengths, destinations: &[&str]) -> Vec<String> {
    let one = |destination: &&str| {
        let (is_v6, word) = word(destination);
        let matched = lengths.of(is_v6, word);
        let [high, low] = matched.masks();
        match (
            matched.is_everything(),
            high.count_ones() + low.count_ones(),
        ) {
            (true, _) => "everything".to_string(),
            (false, bits) => bits.to_string(),
        }
    };
    destinations.iter().map(one).collect()
}

#[test]
fn default_route_alone_looks_at_no_bit_of_either_family() {
    let lengths = built(&[("0.0.0.0/0", Reach::Prefix), ("::/0", Reach::Prefix)]);
    let destinations = ["8.8.8.8", "203.0.113.7", "2001:db8::1", "fd00::1"];
    assert_eq!(matched(&lengths, &destinations), ["0"; 4]);
    // Those which the kernel treats apart from all routes.
    assert_eq!(matched(&lengths, &["fe80::1", "ff02::1"]), ["10", "8"]);
}

#[test]
fn longer_prefix_counts_near_it_alone() {
    let lengths = built(&[
        ("0.0.0.0/0", Reach::Prefix),
        ("127.0.0.0/8", Reach::Prefix),
        ("10.2.0.0/16", Reach::Prefix),
        ("10.3.4.128/25", Reach::Prefix),
        ("192.0.2.1/32", Reach::Prefix),
        ("2001:db8:1:2::/64", Reach::Prefix),
        ("2001:db8:2::/56", Reach::Prefix),
        ("2001:db8:3::1/128", Reach::Prefix),
    ]);
    let destinations = [
        "8.8.8.8",
        "127.0.0.1",
        "10.2.9.9",
        "10.3.4.1",
        "192.0.2.200",
        "192.0.3.1",
    ];
    assert_eq!(
        matched(&lengths, &destinations),
        // The loopback network has too many granules to be listed.
        ["0", "8", "16", "25", "32", "8"]
    );
    let destinations = [
        "2400::1",
        "2001:db8:1:2::9",
        "2001:db8:2:77::",
        "2001:db8:3::9",
        "2001:db8:9::",
    ];
    assert_eq!(
        matched(&lengths, &destinations),
        ["0", "64", "56", "128", "10"]
    );
}

#[test]
fn all_of_the_destination_or_the_packet_counts_below_such_a_prefix() {
    let lengths = built(&[
        ("192.0.2.0/24", Reach::Destination),
        ("198.51.0.0/16", Reach::Flow),
        ("2001:db8::/64", Reach::Destination),
        ("fd00::/8", Reach::Flow),
    ]);
    let destinations = [
        "192.0.2.9",
        "192.0.3.9",
        "198.51.7.7",
        "198.52.0.1",
        "2001:db8::9",
        "fd00:1::",
        "fc00::",
    ];
    let every = "everything";
    assert_eq!(
        matched(&lengths, &destinations),
        ["32", "0", every, "0", "128", every, "0"]
    );
}

#[test]
fn nobody_having_written_it_everything_counts() {
    let lengths = PrefixLengths::EVERYTHING;
    let destinations = ["8.8.8.8", "2001:db8::1"];
    assert_eq!(matched(&lengths, &destinations), ["everything"; 2]);
    // As the kernel makes the map.
    let bytes = lengths.octets.iter().flatten();
    assert!(
        bytes
            .chain(lengths.granules.iter().flatten())
            .all(|it| *it == 0)
    );
}

#[test]
fn families_have_no_number_in_common() {
    let lengths = built(&[]);
    let number = |destination| {
        let (is_v6, word) = word(destination);
        lengths.of(is_v6, word).number()
    };
    assert_ne!(number("8.8.8.8"), number("2001:db8::1"));
    let numbers = |family: Numbers| family.no_bit..=family.all;
    assert!(numbers(V4).all(|number| !numbers(V6).contains(&number)));
    for family in FAMILIES {
        assert!(family.no_bit > EVERYTHING && family.all < SEE_GRANULE);
        assert!(family.no_bit + family.counted_bits <= family.all);
    }
}

#[test]
fn bits_behind_the_length_of_a_prefix_do_not_matter() {
    let tidy = built(&[
        ("10.2.0.0/12", Reach::Prefix),
        ("2001:db8::/33", Reach::Prefix),
    ]);
    let untidy = built(&[
        ("10.15.255.255/12", Reach::Prefix),
        ("2001:db8:7fff::9/33", Reach::Prefix),
    ]);
    assert!(tidy == untidy);
    let beyond = built(&[("10.0.0.1/255", Reach::Prefix)]);
    assert!(beyond == built(&[("10.0.0.1/32", Reach::Prefix)]));
}
