//! What packets of each kind meet where both tunnels carry both classes: counted in the queues of a
//! real border between two sites.

use crate::support::claims;
use crate::support::daemon;
use crate::support::pair;
use crate::support::queues;
use crate::support::site;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use claims::{CLOUDBURST_LEAVES_THE_REST, PLACED_BY_RATE};
use flow_testbed::claim;
use flow_testbed::timed::decide;
use flow_testbed::topology::TUNNELS;
use pair::{Pair, QUICK, decide_on_pair};
use queues::{Sent, sent_by};
use serde_json::Value;
use site::{Connection, Site, on_site};

const SHARE: &str = "policy = 'share'\n[share]\nshape_percent = 97\n";
const BY_MARK: &str = "[steering]\nmode = 'mark'\n";
/// Enough for a flow to turn long.
const LONG_BYTES: usize = 400_000;
const SHORT: &str = "10";
const LONG: &str = "20";
const CLOUDBURST: &str = "30";
const CLOUDBURST_DSCP: u32 = 44;
/// Of a datagram of Cloudburst, and with its headers.
const PAYLOAD_BYTES: usize = 1_200;
const FRAME_BYTES: u64 = 1_200 + 42;

/// What a class of both tunnels has sent.
fn sent_by_both(site: &Site, class: &str) -> Sent {
    let [first, second] = TUNNELS.map(|device| sent_by(site.border(), device, class));
    first + second
}

/// Packets that the splitter has sent into a tunnel.
fn into_tunnel(site: &Site, tunnel: &str) -> u64 {
    let status = site.json(&["status"]);
    let traffic = status["traffic"].as_array().into_iter().flatten();
    let there = traffic.filter(|it| it["tunnel"] == tunnel);
    there.filter_map(|it| it["packets"].as_u64()).sum()
}

#[test]
fn pure_acknowledgements_of_long_flows_are_queued_with_short_ones() {
    acknowledgements_are_queued_with_short_ones("");
}

#[test]
fn pure_acknowledgements_are_queued_with_short_ones_by_mark() {
    acknowledgements_are_queued_with_short_ones(BY_MARK);
}

fn acknowledgements_are_queued_with_short_ones(steering: &str) {
    on_site(|site| {
        site.configure(&format!("{SHARE}{steering}"));
        let _daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        let before = sent_by_both(site, LONG);
        connection.send(LONG_BYTES);
        let data = sent_by_both(site, LONG).since(before);
        assert!(data.packets > 200, "it did not turn long: {data:?}");
        let sender = site.flow_from(connection.port());
        assert_eq!(sender["class"], "long");

        // From now on the same flow only acknowledges.
        let before = [SHORT, LONG].map(|class| sent_by_both(site, class));
        connection.answer(4_000_000);
        let [short, long] = [SHORT, LONG].map(|class| sent_by_both(site, class));
        let (short, long) = (short.since(before[0]), long.since(before[1]));
        let receiver = site.flow_from(connection.port());
        let packets = |flow: &Value| flow["packets"].as_u64().expect("a number");
        let acknowledgements = packets(&receiver) - packets(&sender);
        println!("{acknowledgements} acknowledgements: short {short:?}, long {long:?}");
        assert_eq!(receiver["class"], "long");
        assert!(acknowledgements > 100, "{receiver}");
        assert!(short.packets >= acknowledgements, "{short:?}");
        // No more than what hosts and routers say of themselves.
        assert!(long.packets < 20, "{long:?}");
        assert!(short.bytes < 120 * short.packets, "{short:?}");
    });
}

/// How many of new flows that turn long, and then go on, are placed in the tunnel for short ones,
/// and their ends.
fn place(site: &Site, count: usize) -> (usize, Vec<Connection>) {
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut connection = Connection::open(&site.topology);
        // Some 45 packets: long by now. After a pause it may change without overtaking itself.
        connection.send(65_000);
        std::thread::sleep(Duration::from_millis(30));
        connection.send(65_000);
        connections.push(connection);
        connections.iter_mut().for_each(|it| it.send(3_000));
    }
    let is_in_first = |connection: &&Connection| {
        let flow = site.flow_from(connection.port());
        assert_eq!(flow["class"], "long", "{flow}");
        flow["tunnel"] == "short"
    };
    let in_first = connections.iter().filter(is_in_first).count();
    (in_first, connections)
}

/// Both borders' agents probe the tunnels, which the first one shares.
fn share_probed(pair: &Pair<'_>) -> (daemon::Daemon, daemon::Daemon) {
    let site = pair.site;
    pair.configure(true, QUICK);
    share_unequal(site, 25, "");
    let far = pair.run_far();
    let near = site.run();
    pair.wait_for_echo();
    // At a start twice the usual silence is borne.
    std::thread::sleep(Duration::from_millis(800));
    (near, far)
}

/// Shares a tunnel of 100 Mbit/s and one that is said to have this rate, with `more` under
/// `[share]` and all else as it is configured.
fn share_unequal(site: &Site, long_mbit: i64, more: &str) {
    let written = std::fs::read_to_string(site.config()).expect("a file");
    let mut changes: toml::Table = written.parse().expect("TOML");
    let sharing = format!("{SHARE}{more}");
    changes.extend(sharing.parse::<toml::Table>().expect("TOML"));
    changes["long"]["rate_mbit"] = long_mbit.into();
    site.configure(&changes.to_string());
}

#[test]
fn long_flows_are_placed_by_rate_and_none_in_a_dead_tunnel() {
    decide_on_pair(&PLACED_BY_RATE, |pair| {
        let (near, _far) = share_probed(pair);
        let site = pair.site;
        // A machine that stands still may pass for a dead tunnel, and for flows that never pause.
        let reported = || format!("{}\n{}", site.json(&["status"])["flows"], near.log());
        let (in_first, mut placed) = place(site, 20);
        println!("{in_first} of 20 in the tunnel of 100 Mbit/s");
        claim!((14..=18).contains(&in_first), "{in_first}: {}", reported());

        pair.cut(TUNNELS[1], "drop").expect("it was tried");
        pair.wait_for_seats("short", "short");
        let before = into_tunnel(site, "long");
        let (in_first, _new) = place(site, 15);
        claim!(
            in_first == 15,
            "placed in a dead tunnel: {in_first}, {}",
            reported()
        );
        // Those that were placed there go on in the other one.
        placed.iter_mut().for_each(|it| it.send(10_000));
        let meant_for_dead = into_tunnel(site, "long") - before;
        claim!(meant_for_dead == 0, "{meant_for_dead}: {}", reported());

        pair.mend(TUNNELS[1]);
        pair.wait_for_seats("short", "long");
        let (in_first, _others) = place(site, 20);
        println!("{in_first} of 20 when both are alive again");
        claim!((14..=18).contains(&in_first), "{in_first}: {}", reported());
        Ok(())
    });
}

/// A sender of Cloudburst at the first site and where its datagrams arrive.
struct Burster {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Burster {
    fn new(site: &Site) -> Self {
        let [from, to] = &site.topology.generators;
        let bind = |host: &flow_testbed::topology::Host| {
            let socket = host.namespace.enter(|| UdpSocket::bind((host.ipv4, 0)));
            socket.expect("it exists").expect("a port")
        };
        let (sender, receiver) = (bind(from), bind(to));
        let address = receiver.local_addr().expect("it has one");
        sender.connect(address).expect("an address");
        let socket = socket2::SockRef::from(&sender);
        socket.set_tos_v4(CLOUDBURST_DSCP << 2).expect("a setting");
        receiver.set_nonblocking(true).expect("a setting");
        Self { sender, receiver }
    }

    fn send(&self, datagrams: usize) {
        for _ in 0..datagrams {
            let sent = self.sender.send(&[7; PAYLOAD_BYTES]);
            sent.expect("nothing is full before the border");
        }
    }

    fn received(&self) -> u64 {
        let mut buffer = [0; 2 * PAYLOAD_BYTES];
        let received = std::iter::from_fn(|| self.receiver.recv(&mut buffer).ok());
        received.map(|_| 1).sum()
    }
}

#[test]
fn burst_larger_than_cloudbursts_queue_is_cut_to_a_few_packets() {
    burst_is_cut("");
}

#[test]
fn burst_is_cut_to_a_few_packets_where_marks_steer() {
    burst_is_cut(BY_MARK);
}

fn burst_is_cut(steering: &str) {
    /// At a quarter of the tunnel it lasts for 0.4 s: nobody sends so slowly.
    const BURST: u64 = 1_000;
    on_site(|site| {
        let cloudburst = format!("cloudburst_dscp = {CLOUDBURST_DSCP}\n");
        site.configure(&format!("{SHARE}{cloudburst}{steering}"));
        assert!(site.splitter(&["up"]).status.success());
        cut(site, &Burster::new(site), BURST);
        assert!(site.splitter(&["down"]).status.success());
    });

    fn cut(site: &Site, burster: &Burster, burst: u64) {
        let classes = [SHORT, LONG, CLOUDBURST];
        let of = |class| sent_by(site.border(), TUNNELS[0], class);
        let before = classes.map(of);
        let start = Instant::now();
        let mut received = 0;
        // In parts, for the receiver's buffer holds no more than some hundred.
        for _ in 0..burst / 100 {
            burster.send(100);
            received += burster.received();
        }
        site.wait_for("all to be sent or dropped", || {
            let seen = of(CLOUDBURST).since(before[2]);
            (seen.packets + seen.dropped == burst).then_some(())
        });
        // Until then, for the router may come to the last of them long after they were sent.
        let took = start.elapsed();
        let [short, long, own] = [0, 1, 2].map(|it| of(classes[it]).since(before[it]));
        site.wait_for("what has left to arrive", || {
            received += burster.received();
            (received >= own.packets).then_some(())
        });
        println!("{received} of {burst} in {took:?}: {own:?}, short {short:?}, long {long:?}");
        assert_eq!(own.packets, received, "what left arrived");
        assert!(received >= 4, "the queue holds four");
        assert!(own.dropped > 0, "that was no burst: it took {took:?}");
        assert_eq!((short.dropped, long.dropped), (0, 0));
        assert!(long.packets < 20, "it queued with long flows: {long:?}");
        // Four wait, HTB's burst has three, and a quarter of the tunnel leaves meanwhile, however
        // long that takes.
        let per_second = 97_000_000.0 * 0.25 / 8.0 / FRAME_BYTES as f64;
        let most = 12.0 + took.as_secs_f64() * per_second;
        assert!(
            (received as f64) < most,
            "{received} and not {most} at most"
        );
    }
}

#[test]
fn cloudburst_without_end_takes_its_share_and_nothing_of_other_classes() {
    flood_takes_its_share("");
}

#[test]
fn cloudburst_without_end_takes_its_share_where_marks_steer() {
    flood_takes_its_share(BY_MARK);
}

fn flood_takes_its_share(steering: &str) {
    decide(&CLOUDBURST_LEAVES_THE_REST, || {
        let mut held = Ok(());
        on_site(|site| {
            // So much slower that a flow starts in the other one, with what is not split.
            let cloudburst = format!("cloudburst_dscp = {CLOUDBURST_DSCP}\n");
            share_unequal(site, 1, &format!("{cloudburst}{steering}"));
            assert!(site.splitter(&["up"]).status.success());
            held = share_with_flood(site);
            assert!(site.splitter(&["down"]).status.success());
        });
        held
    });
}

/// What classes take and who drops holds at any time; what TCP makes of the rest is claimed.
fn share_with_flood(site: &Site) -> Result<(), String> {
    let burster = Burster::new(site);
    // From a host that nothing queues in front of, and before anything waits, which might make it
    // start in the slow tunnel.
    let [from, to] = &site.topology.generators;
    let mut short = Connection::between(from, to);
    short.send(1_000);
    short.answer(1_000);
    let mut bulk = Connection::open(&site.topology);
    bulk.send(LONG_BYTES);
    let classes = [SHORT, LONG, CLOUDBURST];
    let of = |class| sent_by(site.border(), TUNNELS[0], class);
    let at_first = of(SHORT);
    let ended = AtomicBool::new(false);
    let (sent, took) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                burster.send(20);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let asking = scope.spawn(|| {
            // It stays below the threshold.
            for _ in 0..15 {
                short.send(1_000);
                short.answer(1_000);
            }
        });
        // The counters are read within the time that is measured, so that it is never too short.
        let start = Instant::now();
        let before = classes.map(of);
        bulk.send(6_000_000);
        let sent = [0, 1, 2].map(|it| of(classes[it]).since(before[it]));
        let took = start.elapsed();
        asking.join().expect("no panic");
        ended.store(true, Ordering::Relaxed);
        (sent, took)
    });
    let [_, in_long, own] = sent;
    println!("{took:?}: {own:?}, long {in_long:?}");
    let [bulk, short] = [&bulk, &short].map(|it| site.flow_from(it.port()));
    assert_eq!(bulk["tunnel"], "short", "{bulk}");
    assert_eq!(short["tunnel"], "short", "{short}");
    assert_eq!(short["class"], "short", "{short}");
    // A quarter of the tunnel, and what it may have saved up.
    let quarter = 0.25 * 97_000_000.0 / 8.0 * took.as_secs_f64();
    assert!((own.bytes as f64) < quarter + 20_000.0, "{own:?}");
    let in_short = of(SHORT).since(at_first);
    assert_eq!(in_short.dropped, 0, "{in_short:?}");
    assert!(
        in_short.packets >= 15,
        "short packets queue apart: {in_short:?}"
    );
    assert!(in_long.bytes > 6_000_000, "so do long ones: {in_long:?}");
    claim!(own.dropped > own.packets, "that was no flood: {own:?}");
    // Three quarters are left for the long class.
    let share = in_long.bytes as f64 / (in_long.bytes + own.bytes) as f64;
    claim!(share > 0.65, "the long class had {share:.2}: {sent:?}");
    Ok(())
}
