//! Grid of what the paper leaves open of its testbed, one thing at a time from two centres, and how close each point comes to
//! figures 9 to 13 and 16 (`C4`, `C5`, `C6`, `C9`) taken together.
//!
//! One centre is what the items are measured with here; the other takes the paper's words to the letter: 4 MB a switch and
//! no shared buffer, a hundredth of it for messages, and hosts without queues of their own.

pub mod score;
pub mod targets;

use super::{Effort, experiment::Experiment};

/// Ports of a switch among which its memory is divided where nothing is shared.
const PORTS: u32 = 8;
/// Of a whole packet.
const PACKET_BYTES: u32 = 1_500;

/// Settings that the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settings {
    /// Memory of a switch in kB, and whether its ports share it.
    memory_kb: u32,
    is_shared: bool,
    /// Messages of A and B wait with bulk, not in a queue of their own.
    coded_with_bulk: bool,
    /// Hosts have one queue that marks nothing, and none for messages in front of bulk.
    plain_hosts: bool,
    /// Packets that the queue of C and D holds.
    tiny_queue: u32,
    rto_ms: u32,
    /// Round trips until MPTCP's other subflows join.
    join_round_trips: u32,
}

/// As the items have it here.
const HERE: Settings = Settings {
    memory_kb: 140,
    is_shared: true,
    coded_with_bulk: false,
    plain_hosts: false,
    tiny_queue: 8,
    rto_ms: 10,
    join_round_trips: 0,
};

/// As the paper has it to the letter (A-C8): 27 packets are a hundredth of 4 MB.
const LETTER: Settings = Settings {
    memory_kb: 4_000,
    is_shared: false,
    coded_with_bulk: true,
    plain_hosts: true,
    tiny_queue: 27,
    rto_ms: 10,
    join_round_trips: 2,
};

const CENTRES: [(&str, Settings); 2] = [("here", HERE), ("to the letter", LETTER)];
const MEMORIES_KB: [u32; 4] = [140, 450, 1_000, 4_000];
const TINY_QUEUES: [u32; 3] = [3, 8, 27];
const RTOS_MS: [u32; 2] = [10, 200];

/// Schemes: ours, and what they are called in the runs.
const CODED: [(&str, &str); 4] = [
    ("fec-one-path", "A"),
    ("fec-all-paths", "B"),
    ("fec-dropping", "C"),
    ("cloudburst", "D"),
];
const FLOWS: [&str; 4] = ["dctcp", "pias", "repdctcp-4", "mptcp"];
const RATES: [u32; 2] = [800, 2_000];
const BROKEN: [u32; 3] = [1, 2, 3];

/// A point of the grid.
#[derive(Clone, Debug)]
struct Point {
    /// Centre and what is changed of it.
    name: String,
    settings: Settings,
}

/// All points: each centre, and one thing changed at a time.
fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for (centre, settings) in CENTRES {
        let mut add = |change: String, settings: Settings| {
            let is_known = |it: &Point| it.settings == settings && it.name.starts_with(centre);
            if !points.iter().any(is_known) {
                let name = format!("{centre}{change}");
                points.push(Point { name, settings });
            }
        };
        add(String::new(), settings);
        for is_shared in [true, false] {
            for memory_kb in MEMORIES_KB {
                let how = if is_shared { "shared" } else { "divided" };
                let change = format!(", {memory_kb} kB {how}");
                add(
                    change,
                    Settings {
                        memory_kb,
                        is_shared,
                        ..settings
                    },
                );
            }
        }
        let coded_with_bulk = !settings.coded_with_bulk;
        let which = if coded_with_bulk {
            "bulk's"
        } else {
            "their own"
        };
        let change = format!(", A and B in {which} queue");
        add(
            change,
            Settings {
                coded_with_bulk,
                ..settings
            },
        );
        let plain_hosts = !settings.plain_hosts;
        let which = if plain_hosts {
            "one queue"
        } else {
            "two queues"
        };
        add(
            format!(", hosts with {which}"),
            Settings {
                plain_hosts,
                ..settings
            },
        );
        for tiny_queue in TINY_QUEUES {
            let change = format!(", {tiny_queue} packets for messages");
            add(
                change,
                Settings {
                    tiny_queue,
                    ..settings
                },
            );
        }
        for rto_ms in RTOS_MS {
            add(
                format!(", RTOmin {rto_ms} ms"),
                Settings { rto_ms, ..settings },
            );
        }
        let join_round_trips = 2 - settings.join_round_trips;
        let change = format!(", subflows join after {join_round_trips} round trips");
        add(
            change,
            Settings {
                join_round_trips,
                ..settings
            },
        );
    }
    points
}

/// One for each point, whose runs lie side by side: the text of a scenario is read for each of its schemes, and one of all
/// points would take long to read.
pub fn experiments(effort: &Effort) -> Vec<Experiment> {
    let points = points();
    let each = points.iter().enumerate().map(|(number, point)| Experiment {
        name: "grid",
        scenario: "cloudburst-testbed",
        schemes: point.settings.schemes(number),
        seeds: effort.grid_seeds,
        messages: Some(effort.grid_messages),
    });
    each.collect()
}

fn name(point: usize, scheme: &str, rate: u32, broken: u32) -> String {
    format!("p{point:02}-{scheme}-{rate}-{broken}")
}

impl Settings {
    /// All schemes at a point: a name, the scenario's scheme, and changes.
    fn schemes(&self, point: usize) -> Vec<(String, &'static str, String)> {
        let mut schemes = Vec::new();
        for scheme in FLOWS {
            for rate in RATES {
                let changes = self.of_flows(scheme, rate);
                schemes.push((name(point, scheme, rate, 0), scheme, changes));
            }
        }
        let mut add = |scheme: &'static str, rate: u32, broken: u32| {
            let changes = self.of_coded(scheme, rate, broken);
            schemes.push((name(point, scheme, rate, broken), scheme, changes));
        };
        for (scheme, _) in CODED {
            add(scheme, RATES[1], 0);
        }
        add("cloudburst", RATES[0], 0);
        for broken in BROKEN {
            add("cloudburst", RATES[1], broken);
        }
        schemes
    }

    /// Changes for every scheme.
    fn common(&self, rate: u32) -> String {
        let memory = self.memory_kb * 1_000;
        // Where nothing is shared, the pool is too large to matter.
        let (port, pool) = match self.is_shared {
            true => (memory, u64::from(memory)),
            false => (memory / PORTS, 64 * u64::from(memory)),
        };
        let mut text = format!(
            "until_ms = 60_000\n\
             traffic.0.per_second = {rate}\n\
             port.buffer_bytes = {port}\n\
             port.shared.buffer_bytes = {pool}\n\
             background_transport.rto_min_us = {}\n",
            self.rto_ms * 1_000
        );
        if self.plain_hosts {
            text += "host_port.discipline = \"fifo\"\nhost_port.queue = []\n\
                     host_port.buffer_bytes = 4_000_000\nhost_port.ecn_bytes = 4_000_000\n";
        }
        text
    }

    fn of_flows(&self, scheme: &str, rate: u32) -> String {
        let mut text = self.common(rate);
        text += &format!("transport.rto_min_us = {}\n", self.rto_ms * 1_000);
        if scheme == "mptcp" {
            text += &format!("transport.join_round_trips = {}\n", self.join_round_trips);
        }
        text
    }

    fn of_coded(&self, scheme: &str, rate: u32, broken: u32) -> String {
        let mut text = self.common(rate);
        if broken > 0 {
            text += &format!("fabric.failed = {broken}\n");
        }
        let drops = matches!(scheme, "fec-dropping" | "cloudburst");
        if drops {
            let bytes = self.tiny_queue * PACKET_BYTES;
            text +=
                &format!("port.queue = [{{ buffer_bytes = {bytes} }}, {{ ecn_bytes = 97_500 }}]\n");
        } else if self.coded_with_bulk {
            text += "transport.priority = 1\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_point_changes_one_thing_of_its_centre() {
        let points = points();
        assert_eq!(points.len(), 28);
        for (centre, settings) in CENTRES {
            let mine: Vec<_> = points
                .iter()
                .filter(|it| it.name.starts_with(centre))
                .collect();
            assert_eq!(mine.len(), 14, "{centre}");
            for it in mine {
                let (a, b) = (it.settings, settings);
                let changed = [
                    (a.memory_kb, a.is_shared) != (b.memory_kb, b.is_shared),
                    a.coded_with_bulk != b.coded_with_bulk,
                    a.plain_hosts != b.plain_hosts,
                    a.tiny_queue != b.tiny_queue,
                    a.rto_ms != b.rto_ms,
                    a.join_round_trips != b.join_round_trips,
                ];
                let count = changed.iter().filter(|it| **it).count();
                assert_eq!(count, usize::from(it.name != centre), "{it:?}");
            }
        }
    }

    /// Each run of a point is a scenario that is right and has what the point says.
    #[test]
    fn points_have_their_settings() {
        let all = experiments(&Effort::quick(1));
        let source = |point: usize| {
            netsim::Source::from_text("grid", &all[point].text().unwrap())
                .with_paper_machine(paper_machine::simulated)
        };
        let settings = |source: &netsim::Source, point: usize, scheme: &str, broken: u32| {
            let overrides = netsim::Overrides {
                scheme: Some(name(point, scheme, RATES[1], broken)),
                ..Default::default()
            };
            let experiment = source.experiment(&overrides);
            let experiment = experiment.unwrap_or_else(|error| panic!("{error}"));
            serde_json::to_value(experiment.settings()).unwrap()
        };
        for (number, Point { settings: it, .. }) in points().iter().enumerate() {
            let source = source(number);
            let settings = |scheme: &str, broken: u32| settings(&source, number, scheme, broken);
            let bytes = it.memory_kb * 1_000;
            for scheme in FLOWS.into_iter().chain(CODED.map(|it| it.0)) {
                let found = settings(scheme, 0);
                let port = if it.is_shared { bytes } else { bytes / 8 };
                assert_eq!(found["port"]["buffer_bytes"], port, "{scheme}");
                let is_bound = found["port"]["shared"]["buffer_bytes"] == bytes;
                assert_eq!(is_bound, it.is_shared, "{scheme}");
                let of_bulk = &found["background_transport"]["rto_min_us"];
                assert_eq!(*of_bulk, it.rto_ms * 1_000, "{scheme}");
                let is_plain = found["host_port"]["discipline"] == "fifo";
                assert!(is_plain || !it.plain_hosts, "{scheme}");
            }
            let flows = settings("mptcp", 0);
            assert_eq!(flows["transport"]["join_round_trips"], it.join_round_trips);
            assert_eq!(flows["transport"]["rto_min_us"], it.rto_ms * 1_000);
            for scheme in ["fec-one-path", "fec-all-paths"] {
                let priority = u32::from(it.coded_with_bulk);
                assert_eq!(settings(scheme, 0)["transport"]["priority"], priority);
            }
            for scheme in ["fec-dropping", "cloudburst"] {
                let found = settings(scheme, 0);
                let queue = &found["port"]["queue"][0]["buffer_bytes"];
                assert_eq!(*queue, it.tiny_queue * 1_500, "{scheme}");
            }
            assert_eq!(settings("cloudburst", 3)["fabric"]["failed"], 3);
        }
    }
}
