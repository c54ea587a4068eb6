//! A flow that crosses the threshold in the middle of a burst must not suffer from its change of
//! tunnels: by which tunnel each of its packets leaves the border, and, as far as the machine can
//! tell, that none of an upload that ends just after it has become long is overtaken.

use crate::support::claims;
use crate::support::egress;
use crate::support::site;
use crate::support::starved;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use claims::HANDED_OVER_IN_ORDER;
use egress::{Capture, Left, Stream};
use flow_testbed::claim;
use flow_testbed::experiment::{Experiment, Mode, Traffic};
use flow_testbed::require;
use flow_testbed::require::Requirement::{
    CongestionControl, FileSystem, Program, QueueingDiscipline, Root,
};
use flow_testbed::scheme::{Scheme, SplitterScheme};
use flow_testbed::timed::{decide_at_rate, disturb};
use flow_testbed::topology::TopologyOptions;
use flow_testbed::workload::Schedule;
use site::{Site, on_site};
use splitter_config::Dscp;
use starved::Starved;
use tokio_util::sync::CancellationToken;

/// Data packets of an upload; SYN, ACK and FIN come on top, so that each crosses the threshold.
const PACKETS: u32 = 40;
/// Uploads, and uploads a second, for each Mbit/s of a tunnel: a good quarter of it.
const UPLOADS_PER_MBIT: f64 = 2.5;
const PER_SECOND_PER_MBIT: f64 = 0.6;

const SHARE: &str = "policy = 'share'\n[share]\nshape_percent = 97\n\
    [flows]\ntable_size = 4096\nthreshold = 20\nprotocols = ['tcp', 'udp']\n";

/// With a longest wait that no stream comes to: each has pauses of its own.
const DEDICATED: &str = "[flows]\ntable_size = 4096\nthreshold = 20\nprotocols = ['tcp', 'udp']\n\
    [handover]\nmax_wait_ms = 200\n";

/// Leaves a test early, and says why, where an experiment cannot run.
macro_rules! needs {
    () => {
        require!(
            Root,
            Program("ip"),
            Program("tc"),
            Program("ethtool"),
            FileSystem("bpf")
        );
        require!(
            CongestionControl("cubic"),
            QueueingDiscipline("tbf rate 100mbit burst 3100 limit 250000")
        );
    };
}

/// Two experiments at once would measure each other.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn change_of_tunnels_at_the_drain_does_no_harm() {
    needs!();
    harmless(true);
}

#[test]
fn change_of_tunnels_at_a_gap_does_no_harm() {
    needs!();
    harmless(false);
}

/// Claims that no packet of an upload is overtaken, at a rate that the machine carries.
fn harmless(states_rates: bool) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    decide_at_rate(&HANDED_OVER_IN_ORDER, |mbit| {
        let uploads = (UPLOADS_PER_MBIT * f64::from(mbit)) as usize;
        let per_second = PER_SECOND_PER_MBIT * f64::from(mbit);
        let schedule = Schedule::uploads(uploads, PACKETS, per_second, 1);
        let experiment = experiment(states_rates, mbit, schedule);
        let measured = experiment.run(&mut (), &CancellationToken::new());
        let [splitter] = &measured.expect("the testbed works")[..] else {
            panic!("one measurement for each mode");
        };
        let (tcp, finished) = (splitter.tcp, splitter.short.samples.len());
        let handovers = splitter.handovers.expect("the splitter reports");
        println!("{finished} of {uploads} at {mbit} Mbit/s: {tcp:?}, {handovers:?}");
        assert_eq!(splitter.xdp_mode.as_deref(), Some("native"));
        // Not because nothing was there to be moved, or to move it.
        assert!(
            handovers.became_long >= finished as u64,
            "{handovers:?} of {finished} uploads"
        );
        claim!(finished == uploads, "{finished} of {uploads} finished");
        claim!(tcp.paws_estab == 0, "packets overtook each other: {tcp:?}");
        claim!(tcp.timeouts == 0, "{tcp:?}");
        claim!(!states_rates || handovers.at_max_wait == 0, "{handovers:?}");
        Ok(())
    });
}

/// Uploads of 1.5 MB from a host whose access is much faster than the tunnels never pause: most find
/// the long tunnel the emptier one, and could only overtake themselves.
#[test]
fn uploads_that_never_pause_are_made_to_and_leave_the_short_tunnel_in_order() {
    needs!();
    const UPLOAD_PACKETS: u32 = 1_036;
    const UPLOAD_MBIT: f64 = 12.5;
    const UPLOADS: usize = 40;
    const LOAD_OF_A_TUNNEL: f64 = 0.4;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    decide_at_rate(&HANDED_OVER_IN_ORDER, |mbit| {
        let per_second = LOAD_OF_A_TUNNEL * f64::from(mbit) / UPLOAD_MBIT;
        let schedule = Schedule::uploads(UPLOADS, UPLOAD_PACKETS, per_second, 1);
        let experiment = experiment(true, mbit, schedule);
        let measured = experiment.run(&mut (), &CancellationToken::new());
        let [splitter] = &measured.expect("the testbed works")[..] else {
            panic!("one measurement for each mode");
        };
        let (tcp, finished) = (splitter.tcp, splitter.short.samples.len());
        let handovers = splitter.handovers.expect("the splitter reports");
        println!("{finished} of {UPLOADS} at {mbit} Mbit/s: {tcp:?}, {handovers:?}");
        assert!(
            handovers.dropped_packets > 0,
            "none had to pause: {handovers:?}"
        );
        claim!(finished == UPLOADS, "{finished} of {UPLOADS} finished");
        claim!(tcp.paws_estab == 0, "packets overtook each other: {tcp:?}");
        claim!(handovers.at_max_wait == 0, "{handovers:?}");
        Ok(())
    });
}

fn experiment(states_rates: bool, mbit: u32, schedule: Schedule) -> Experiment {
    let splitter = Scheme::Splitter(SplitterScheme {
        binary: env!("CARGO_BIN_EXE_splitter").into(),
        threshold: PACKETS,
        attach: "native".to_owned(),
        states_rates,
        configuration: toml::Table::new(),
    });
    Experiment {
        modes: vec![Mode {
            name: "splitter".to_owned(),
            scheme: splitter,
        }],
        topology: TopologyOptions {
            rates_mbit: [mbit; 2],
            shape_access: false,
            ..TopologyOptions::default()
        },
        traffic: Traffic::Fixed(Arc::new(schedule)),
        warm_up: Duration::ZERO,
        drain: Duration::from_secs(3),
        rounds: 1,
    }
}

#[test]
fn long_flow_leaves_by_one_tunnel_and_from_some_packet_on_by_the_other() {
    on_site(|site| {
        site.configure(DEDICATED);
        let egress = leaves_in_order(site);
        for flow in &egress {
            // A pause was longer than the queue is deep: it was handed over.
            let devices: Vec<_> = flow.iter().map(|part| part.0.as_str()).collect();
            assert_eq!(devices, ["tun0", "tun1"], "{flow:?}");
            assert!(flow[0].1 >= 20, "as a short flow: {flow:?}");
        }
    });
}

#[test]
fn shared_tunnels_keep_a_flow_in_order_across_its_hand_over() {
    on_site(|site| {
        site.configure(SHARE);
        for flow in &leaves_in_order(site) {
            assert!(
                flow.len() <= 2,
                "it changed tunnels more than once: {flow:?}"
            );
        }
    });
}

/// A border whose timers and packets wait for 5 to 20 ms while senders go on has queues that are
/// longer than it believes. Then only flows that change tunnels overtake themselves.
#[test]
fn starved_softirqs_reorder_only_flows_that_change_tunnels() {
    let Some(_alone) = disturb() else { return };
    on_site(|site| {
        for (policy, configuration) in [("share", SHARE), ("dedicated", DEDICATED)] {
            site.configure(configuration);
            assert!(site.splitter(&["up"]).status.success());
            for length_ms in [5, 20] {
                let length = Duration::from_millis(length_ms);
                let starved = Starved::start(length, 3 * length);
                let (moved, harmed) = changes_of_tunnels(site);
                // Where tunnels are shared and equal, flows part when they start.
                assert!(moved > 0 || policy == "share", "none changed tunnels");
                let turns = starved.end();
                println!(
                    "{policy}: {length_ms} ms, {turns} times: {harmed} of {moved} that changed \
                     tunnels are out of order"
                );
            }
            assert!(site.splitter(&["down"]).status.success());
        }
    });
}

/// How many streams changed tunnels, and how many of them left out of order; no other did, but for a
/// packet now and then that HTB owes a long class while short ones wait (`LONG_RATE` in
/// crates/steering/src/shaping/wanted.rs): at most one in 0.6 s by each tunnel.
fn changes_of_tunnels(site: &Site) -> (usize, usize) {
    const ROUNDS: usize = 15;
    const OWED_ONE_IN_S: f64 = 0.6;
    let (begun, mut owed) = (Instant::now(), 0);
    let (mut moved, mut harmed) = (0, 0);
    for _ in 0..ROUNDS {
        let (sent, streams) = burst_of_streams(site);
        for port in streams {
            let own: Vec<_> = sent.iter().filter(|it| it.port == port).collect();
            let changes = own.iter().any(|it| it.device != own[0].device);
            let in_order = own.is_sorted_by_key(|it| it.number);
            if !changes && !in_order {
                assert!(is_in_order_but_for_a_long_packet(&own), "{own:?}");
                owed += 1;
            }
            moved += usize::from(changes);
            harmed += usize::from(changes && !in_order);
        }
    }
    let most = 2.0 * (1.0 + begun.elapsed().as_secs_f64() / OWED_ONE_IN_S);
    assert!(
        f64::from(owed) <= most,
        "{owed} packets overtook their flow"
    );
    (moved, harmed)
}

/// Tells if a stream without one packet left in order: a long one, that left before short ones.
fn is_in_order_but_for_a_long_packet(own: &[&Left]) -> bool {
    let is_long = |it: &Left| {
        [Dscp::LONG, Dscp::LONG_ON_SHORT]
            .map(u8::from)
            .contains(&it.dscp)
    };
    let mut pairs = own.windows(2);
    let Some(early) = pairs.find_map(|it| (it[0].number > it[1].number).then_some(it[0])) else {
        return false;
    };
    let overtaken = own
        .iter()
        .skip_while(|it| it.number != early.number)
        .filter(|it| it.number < early.number);
    let others = own.iter().filter(|it| it.number != early.number);
    is_long(early)
        && !overtaken.clone().any(|it| is_long(it))
        && others.is_sorted_by_key(|it| it.number)
}

/// Streams that turn long and pause for a little longer than what they sent takes to leave: all
/// their packets as they left, and their ports.
fn burst_of_streams(site: &Site) -> (Vec<Left>, Vec<u16>) {
    const STREAMS: usize = 6;
    const BURST: u32 = 25;
    let mut capture = Capture::start(site.border());
    let mut streams: Vec<_> = (0..STREAMS).map(|_| Stream::open(site)).collect();
    // The first to start has the tunnel whose turn it is, which the first to turn long is to have.
    streams.iter_mut().for_each(|it| it.send(1));
    for _ in 0..3 {
        for stream in streams.iter_mut().rev() {
            stream.send(BURST);
        }
        // 75 frames of 642 bytes, half of the streams', take 4 ms.
        std::thread::sleep(Duration::from_millis(4));
    }
    streams.iter_mut().for_each(Stream::receive_all);
    let left = capture.left(site, STREAMS * (3 * BURST as usize + 1));
    (left, streams.iter().map(Stream::port).collect())
}

/// Sends flows of some bursts; by which device each one's packets left, and how many one after the
/// other. All leave in the order in which they were sent, which the queue before a device cannot
/// change, and no device has any of what another had before.
fn leaves_in_order(site: &Site) -> Vec<Vec<(String, usize)>> {
    const FLOWS: usize = 4;
    const BURST: u32 = 30;
    assert!(site.splitter(&["up"]).status.success());
    let mut capture = Capture::start(site.border());
    let mut streams: Vec<_> = (0..FLOWS).map(|_| Stream::open(site)).collect();
    for _ in 0..3 {
        for stream in &mut streams {
            stream.send(BURST);
        }
        // Much longer than what was sent takes to drain.
        std::thread::sleep(Duration::from_millis(60));
    }
    streams.iter_mut().for_each(Stream::receive_all);
    let left = capture.left(site, FLOWS * 3 * BURST as usize);
    for stream in &streams {
        assert_eq!(site.flow_from(stream.port())["class"], "long");
    }
    assert!(site.splitter(&["down"]).status.success());
    let by_device = |stream: &Stream| {
        let own = left.iter().filter(|it| it.port == stream.port());
        let mut own: Vec<_> = own.collect();
        for device in ["tun0", "tun1"] {
            let of_device = own.iter().filter(|it| it.device == device);
            let numbers: Vec<_> = of_device.map(|it| it.number).collect();
            assert!(numbers.is_sorted(), "{device}: {numbers:?}");
        }
        own.sort_by_key(|it| it.number);
        let all: Vec<_> = own.iter().map(|it| it.number).collect();
        let sent: Vec<_> = (0..3 * BURST).collect();
        assert_eq!(all, sent, "each left once");
        let mut parts: Vec<(String, usize)> = Vec::new();
        for it in own {
            match parts.last_mut() {
                Some((device, count)) if *device == it.device => *count += 1,
                _ => parts.push((it.device.clone(), 1)),
            }
        }
        parts
    };
    streams.iter().map(by_device).collect()
}
