//! The file format: switches by name, hosts and links as tables of TOML.

use std::{collections::HashMap, fs::File, io::Read as _, path::Path};

use serde::Deserialize;
use toml::Spanned;

use crate::{
    TopologyError,
    fat_tree::check_link,
    topology::{Host, Link, Topology, at_most},
};

/// As written in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    switches: Vec<Spanned<String>>,
    hosts: Vec<Spanned<HostEntry>>,
    #[serde(default)]
    links: Vec<Spanned<LinkEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    at: String,
    #[serde(default = "one")]
    count: u16,
    gbps: f64,
    delay_us: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    between: [String; 2],
    gbps: f64,
    delay_us: f64,
    #[serde(default = "one")]
    cost: u16,
}

fn one() -> u16 {
    1
}

/// The ports that there may be take less in any sensible notation.
const MAX_BYTES: u64 = 8 << 20;
/// Longest name of a switch, in bytes: names are written for each link.
const MAX_NAME: usize = 64;
const MAX_COST: u16 = 1_000;

impl Topology {
    /// Reads a topology from a file of at most 8 MiB.
    ///
    /// # Errors
    /// When the file cannot be read, is longer, or is not a topology.
    pub fn read(path: &Path) -> Result<Self, TopologyError> {
        let unreadable = |it: std::io::Error| TopologyError::Unreadable(it.to_string());
        let mut text = String::new();
        File::open(path)
            .and_then(|it| it.take(MAX_BYTES + 1).read_to_string(&mut text))
            .map_err(unreadable)?;
        Self::parse(&text)
    }

    /// Reads the text of a topology: the keys `switches` (names), `hosts` (`at`, `count`, `gbps`, `delay_us`) and
    /// `links` (`between`, `gbps`, `delay_us`, `cost`).
    ///
    /// # Errors
    /// When it is not TOML of that shape, or says what cannot be, with the line.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        if text.len() as u64 > MAX_BYTES {
            return Err(TopologyError::TooLong { most: MAX_BYTES });
        }
        let entries: Entries = toml::from_str(text)
            .map_err(|error| TopologyError::Shape(error.to_string().trim_end().to_owned()))?;
        at_most("switches", entries.switches.len(), u16::MAX.into())?;
        let lines = Lines::new(text);
        let numbers = numbers(&entries.switches, &lines)?;
        let hosts = hosts(&entries.hosts, &numbers, &lines)?;
        let links = entries.links.iter().map(|it| {
            let line = lines.of(it);
            link(it.as_ref(), &numbers).map_err(|problem| {
                let [first, second] = &it.as_ref().between;
                entry(
                    line,
                    format!("the link between {first:?} and {second:?}"),
                    problem,
                )
            })
        });
        let links = links.collect::<Result<_, _>>()?;
        let switches = entries.switches.into_iter().map(Spanned::into_inner);
        Self::new(switches.collect(), links, hosts)
    }
}

fn numbers<'a>(
    switches: &'a [Spanned<String>],
    lines: &Lines,
) -> Result<HashMap<&'a str, u16>, TopologyError> {
    let mut numbers = HashMap::new();
    for (number, name) in (0..).zip(switches) {
        let text = name.as_ref().as_str();
        let wrong = |problem: &str| {
            entry(
                lines.of(name),
                format!("the switch {text:?}"),
                problem.to_owned(),
            )
        };
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
        if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(is_plain) {
            return Err(wrong(
                "a name has 1 to 64 letters, digits, dots, dashes and underscores",
            ));
        }
        if numbers.insert(text, number).is_some() {
            return Err(wrong("there is one of that name above; give it another"));
        }
    }
    Ok(numbers)
}

fn hosts(
    entries: &[Spanned<HostEntry>],
    numbers: &HashMap<&str, u16>,
    lines: &Lines,
) -> Result<Vec<Host>, TopologyError> {
    let mut hosts = Vec::new();
    for spanned in entries {
        let host = spanned.as_ref();
        let wrong = |problem| {
            entry(
                lines.of(spanned),
                format!("hosts at {:?}", host.at),
                problem,
            )
        };
        let switch = switch(&host.at, numbers).map_err(wrong)?;
        check_link("gbps", host.gbps, "delay_us", host.delay_us)
            .map_err(|it| wrong(it.to_string()))?;
        if host.count == 0 {
            return Err(wrong("count = 0; leave the entry out".to_owned()));
        }
        let count = usize::from(host.count);
        at_most("hosts", hosts.len() + count, u16::MAX.into())?;
        let host = Host {
            switch,
            gbps: host.gbps,
            delay_us: host.delay_us,
        };
        hosts.extend(std::iter::repeat_n(host, count));
    }
    Ok(hosts)
}

fn link(link: &LinkEntry, numbers: &HashMap<&str, u16>) -> Result<Link, String> {
    let [first, second] = &link.between;
    let ends = [switch(first, numbers)?, switch(second, numbers)?];
    if first == second {
        return Err("it leads nowhere; name two switches".to_owned());
    }
    check_link("gbps", link.gbps, "delay_us", link.delay_us).map_err(|it| it.to_string())?;
    if !(1..=MAX_COST).contains(&link.cost) {
        return Err(format!(
            "cost = {}: it must lie between 1 and {MAX_COST}",
            link.cost
        ));
    }
    Ok(Link {
        ends,
        gbps: link.gbps,
        delay_us: link.delay_us,
        cost: link.cost,
    })
}

fn switch(name: &str, numbers: &HashMap<&str, u16>) -> Result<u16, String> {
    let number = numbers.get(name).copied();
    number.ok_or_else(|| format!("there is no switch {name:?} among `switches`"))
}

fn entry(line: usize, entry: String, problem: String) -> TopologyError {
    TopologyError::Entry {
        line,
        entry,
        problem,
    }
}

/// Beginnings of the lines of a text.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(ends).collect())
    }

    /// The line on which a value begins, from 1.
    fn of<T>(&self, value: &Spanned<T>) -> usize {
        self.0.partition_point(|it| *it <= value.span().start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routes;
    use proptest::prelude::*;

    const GOOD: &str = r#"switches = ["a", "b"]
[[hosts]]
at = "a"
gbps = 10
delay_us = 1
[[hosts]]
at = "b"
count = 3
gbps = 25
delay_us = 0.5
[[links]]
between = ["a", "b"]
gbps = 40
delay_us = 2
"#;

    #[test]
    fn a_file_says_what_there_is() {
        let topology = Topology::parse(GOOD).expect("it is right");
        assert_eq!(topology.hosts().len(), 4);
        assert_eq!(topology.rack_of(0), 0);
        assert_eq!(topology.rack_of(3), 1);
        assert_eq!(
            topology.links()[0],
            Link {
                ends: [0, 1],
                gbps: 40.0,
                delay_us: 2.0,
                cost: 1
            }
        );
        assert_eq!(topology.name(crate::Port(1)), "b->a");
    }

    #[track_caller]
    fn error(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        let text = GOOD.replacen(from, to, 1);
        Topology::parse(&text)
            .and_then(|it| Routes::new(&it))
            .expect_err("it is wrong")
            .to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(
            error(r#"["a", "b"]"#, r#"["a", "b", "a"]"#),
            "line 1: the switch \"a\": there is one of that name above; give it another"
        );
        assert!(
            error(r#"["a", "b"]"#, r#"["a", "b", "x>y"]"#)
                .starts_with("line 1: the switch \"x>y\"")
        );
        assert_eq!(
            error(r#"between = ["a", "b"]"#, r#"between = ["a", "c"]"#),
            "line 11: the link between \"a\" and \"c\": there is no switch \"c\" among `switches`"
        );
        assert!(
            error(r#"between = ["a", "b"]"#, r#"between = ["a", "a"]"#).contains("leads nowhere")
        );
        assert!(
            error("gbps = 40", "gbps = 0")
                .contains("line 11: the link between \"a\" and \"b\": gbps = 0")
        );
        assert!(error("delay_us = 2", "delay_us = nan").contains("line 11"));
        assert!(error("delay_us = 2", "delay_us = 2\ncost = 0").contains("cost = 0"));
        assert!(
            error("at = \"b\"", "at = \"z\"")
                .starts_with("line 6: hosts at \"z\": there is no switch")
        );
        assert!(error("count = 3", "count = 0").contains("line 6: hosts at \"b\": count = 0"));
        assert!(error("gbps = 40", "mbps = 40").contains("mbps"));
        assert!(error("gbps = 40", "gbps = ").contains("line 13"));
        assert_eq!(
            error(r#"["a", "b"]"#, r#"["a", "b", "c"]"#),
            "hosts at a cannot be reached from c: no links lead there"
        );
    }

    #[test]
    fn a_hostile_file_is_refused_before_it_is_large() {
        let many = "[[hosts]]\nat = \"a\"\ncount = 65535\ngbps = 1\ndelay_us = 1\n".repeat(1000);
        let error = |text: &str| Topology::parse(text).expect_err("too large").to_string();
        assert!(
            error(&format!("switches = [\"a\"]\n{many}")).contains("hosts are more than 65535")
        );
        let long = "#".repeat(MAX_BYTES as usize + 1);
        assert!(error(&long).contains("more than 8388608 bytes"));
        let names: Vec<String> = (0..70_000).map(|it| format!("\"s{it}\"")).collect();
        let names = format!("switches = [{}]\nhosts = []", names.join(","));
        assert!(error(&names).contains("switches are more than 65535"));
        assert!(error("switches = []\nhosts = []").contains("at least two"));
        let nested = format!("switches = {}", "[".repeat(100_000));
        assert!(!error(&nested).is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", at in 0..GOOD.len(), len in 0..20usize) {
            let _ = Topology::parse(&text);
            let end = (at + len).min(GOOD.len());
            let spoilt = format!("{}{}{}", &GOOD[..at], text, &GOOD[end..]);
            let _ = Topology::parse(&spoilt).and_then(|it| Routes::new(&it));
        }
    }
}
