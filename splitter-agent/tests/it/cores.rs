//! Flows whose packets come on several cores: after a change of RSS, and in both directions.

use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use splitter_config::PacketLog;
use splitter_datapath::{Object, PROGRAM};
use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::{Class, FlowEntry, FlowKey, FlowKeyV4, TunnelRole};
use splitter_policy::packet::protocol;

use crate::policy::packet::{Packet, Upper};
use crate::support::loaded::{Loaded, now_ns};

const TABLE_SIZE: u32 = 1 << 10;
const THRESHOLD: u64 = PolicyConfig::DEFAULT_THRESHOLD;
const CLIENT_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 443;

fn loaded() -> Option<Loaded> {
    if std::thread::available_parallelism().is_ok_and(|it| it.get() < 2) {
        return None;
    }
    let object = Object::for_level(PacketLog::Off).expect("it is embedded");
    let mut loaded = Loaded::new(object.bytes(), TABLE_SIZE);
    loaded.load_xdp(PROGRAM);
    loaded.set(PolicyConfig {
        drain_margin_ns: 0,
        ..PolicyConfig::default()
    });
    Some(loaded)
}

fn segment(ports: (u16, u16)) -> Vec<u8> {
    let upper = Upper::Tcp {
        ports,
        flags: 0x10,
        option_bytes: 0,
    };
    Packet {
        upper,
        ..Packet::tcp_v4()
    }
    .bytes()
}

/// Of a frame of IPv4 without options.
fn key(frame: &[u8]) -> FlowKey {
    let word = |at: usize| u32::from_ne_bytes(frame[at..at + 4].try_into().expect("four bytes"));
    FlowKey::V4(FlowKeyV4 {
        source: word(26),
        destination: word(30),
        ports: word(34),
        protocol: protocol::TCP.into(),
    })
}

fn flow(loaded: &Loaded, frame: &[u8]) -> FlowEntry {
    loaded.flow(&key(frame)).expect("it is known")
}

fn known(loaded: &Loaded) -> usize {
    let mut known = 0;
    loaded.tables().for_each(now_ns(), |_| known += 1);
    known
}

/// Runs the program so many times on a frame, on a core.
fn run_on(core: usize, loaded: &Loaded, frame: &[u8], runs: u32) {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut set = CpuSet::new();
            set.set(core).expect("a core");
            sched_setaffinity(Pid::from_raw(0), &set).expect("it is there");
            loaded.run_xdp(PROGRAM, frame, None, runs);
        });
        running.join().expect("no panic");
    });
}

/// The table is shared and not a core's own: whichever core has the next packet goes on with the count.
#[test]
fn flow_that_goes_to_another_core_keeps_its_count_and_its_class() {
    require!(Root);
    let Some(loaded) = loaded() else { return };
    let frame = segment((CLIENT_PORT, SERVER_PORT));
    let half = THRESHOLD as u32 / 2;
    run_on(0, &loaded, &frame, half);
    run_on(1, &loaded, &frame, half);
    let at_threshold = flow(&loaded, &frame);
    assert_eq!(
        (at_threshold.packets, at_threshold.class()),
        (THRESHOLD, Class::Short)
    );
    run_on(0, &loaded, &frame, 1);
    assert_eq!(flow(&loaded, &frame).class(), Class::Long);
    for core in [1, 0, 1] {
        run_on(core, &loaded, &frame, 1_000);
    }
    let long = flow(&loaded, &frame);
    assert_eq!(long.packets, THRESHOLD + 1 + 3_000);
    assert_eq!(long.tunnel(), TunnelRole::Long);
    assert_eq!(known(&loaded), 1);
}

/// As where RSS hashes addresses without their order: neither direction writes what the other one does.
#[test]
fn directions_on_two_cores_at_once_are_each_counted_in_full() {
    require!(Root);
    let Some(loaded) = loaded() else { return };
    const RUNS: u32 = 200_000;
    let forth = segment((CLIENT_PORT, SERVER_PORT));
    let mut back = segment((SERVER_PORT, CLIENT_PORT));
    let (source, destination) = (forth[26..30].to_vec(), forth[30..34].to_vec());
    back[26..30].copy_from_slice(&destination);
    back[30..34].copy_from_slice(&source);
    std::thread::scope(|scope| {
        for (core, frame) in [(0, &forth), (1, &back)] {
            let loaded = &loaded;
            scope.spawn(move || run_on(core, loaded, frame, RUNS));
        }
    });
    for frame in [&forth, &back] {
        let flow = flow(&loaded, frame);
        assert_eq!((flow.packets, flow.class()), (RUNS.into(), Class::Long));
    }
    let counters = loaded.counters();
    let counted: u64 = [Class::Short, Class::Long]
        .into_iter()
        .flat_map(|class| TunnelRole::ALL.map(|tunnel| counters.packets(class, tunnel)))
        .sum();
    assert_eq!(counted, 2 * u64::from(RUNS), "counters are each core's own");
}

/// What is documented of one flow on two cores at once: counts may be lost, and nothing else.
#[test]
fn flow_on_two_cores_at_once_loses_counts_alone() {
    require!(Root);
    let Some(loaded) = loaded() else { return };
    const RUNS: u32 = 200_000;
    let frame = segment((CLIENT_PORT, SERVER_PORT));
    std::thread::scope(|scope| {
        for core in [0, 1] {
            let (loaded, frame) = (&loaded, &frame);
            scope.spawn(move || run_on(core, loaded, frame, RUNS));
        }
    });
    let flow = flow(&loaded, &frame);
    assert_eq!(flow.class(), Class::Long);
    let all = 2 * u64::from(RUNS);
    assert!(
        flow.packets <= all && flow.packets >= u64::from(RUNS) / 2,
        "{flow:?}"
    );
    let counters = loaded.counters();
    let long = counters.packets(Class::Long, TunnelRole::Long);
    assert!(long >= all - 4 * THRESHOLD, "{long} of {all}");
    assert_eq!(known(&loaded), 1);
}
