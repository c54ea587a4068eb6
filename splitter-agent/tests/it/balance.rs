//! Packets that choose among the tunnels of a site: one TCP flow over two unequal ones; a tunnel that dies
//! under it; an agent that is killed. How many segments came early is printed and not held: it depends on
//! when a shaper's timer runs.

mod by_class;
mod by_dscp;
mod by_hash;
mod by_redirect;
mod changed;

use std::time::Duration;

use crate::support::pair;
use crate::support::site;

use flow_testbed::namespace::Namespace;
use flow_testbed::topology::TUNNELS;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt::SndBuf};
use pair::{Pair, QUICK, on_pair};
use site::{Connection, Site, on_site, stdout};

const RATES_MBIT: [u32; 2] = [30, 8];
const BYTES: usize = 3_000_000;
/// Less than the queues in front of both tunnels hold.
const SEND_BUFFER_BYTES: usize = 100_000;
/// A flow that is silent for more than 50 ms may change tunnels.
const LONGER_THAN_A_FLOWLETS_GAP: Duration = Duration::from_millis(70);

/// The keys for `balance`, with both tunnels shaped to their rates.
pub(crate) fn balanced(site: &Site, balance: &str, peers: bool) -> String {
    let mut text = format!("balance = '{balance}'\npolicy = 'share'\n");
    for (index, rate_mbit) in RATES_MBIT.into_iter().enumerate() {
        text += &format!("[[tunnels]]\n{}weight = {rate_mbit}\n", tunnel(site, index));
        if peers {
            let gateways = site.topology.borders[0].gateway_addresses(index);
            text += &format!("peer = '{}'\n", gateways[0]);
        }
    }
    text + "[short]\n[long]\n[steering]\nmode = 'mark'\n" + SHAPED
}

const SHAPED: &str = "[share]\nshape_percent = 100\nqueue_ms = 200\n";

/// The keys of a tunnel.
fn tunnel(site: &Site, index: usize) -> String {
    let gateways = site.topology.borders[0].gateway_addresses(index);
    let (device, rate_mbit) = (TUNNELS[index], RATES_MBIT[index]);
    format!("device = '{device}'\ngateway = {gateways:?}\nrate_mbit = {rate_mbit}\ndelay_ms = 1\n")
}

/// Bytes that each tunnel's device has sent.
fn sent(site: &Site) -> [u64; 2] {
    TUNNELS.map(|device| {
        let counters = site.border().device_counters(device);
        counters.expect("it is there").sent_bytes
    })
}

/// Bytes that each tunnel has sent while that was done.
fn sent_while(site: &Site, act: impl FnOnce()) -> [u64; 2] {
    let before = sent(site);
    act();
    let after = sent(site);
    [0, 1].map(|it| after[it] - before[it])
}

/// Segments that a host's TCP has received ahead of others, since it is there.
fn out_of_order(host: &Namespace) -> u64 {
    let text = host.run("cat /proc/net/netstat").expect("it is there");
    let mut lines = text.lines().filter(|it| it.starts_with("TcpExt:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut fields = names.split(' ').zip(values.split(' '));
    let found = fields.find(|(name, _)| *name == "TCPOFOQueue");
    found.expect("it is counted").1.parse().expect("a number")
}

/// One packet each, as on a wire.
fn without_offloads(site: &Site) {
    let client = &site.topology.client.namespace;
    let off = client.run("ethtool -K eth0 tso off gso off tx off");
    off.expect("veth can do without");
}

fn connection(site: &Site, address: std::net::IpAddr) -> Connection {
    let connection = Connection::over(&site.topology.client, &site.topology.server, address);
    setsockopt(connection.sender(), SndBuf, &SEND_BUFFER_BYTES).expect("a size");
    connection
}

#[test]
fn one_flow_fills_two_unequal_tunnels_in_both_families() {
    on_site(|site| {
        without_offloads(site);
        site.configure(&balanced(site, "tr", false));
        let before = site.routing();
        let plan = stdout(&site.splitter(&["plan"]));
        assert!(plan.contains("fwmark 0x80/0xf80 lookup 10411"), "{plan}");
        assert!(plan.contains("fwmark 0x100/0xf80 lookup 10412"), "{plan}");
        let daemon = site.run();
        assert_eq!(site.json(&["plan"])["changed"], false);
        let server = &site.topology.server;
        let addresses = [Some(server.ipv4.into()), server.ipv6.map(Into::into)];
        for address in addresses.into_iter().flatten() {
            let mut connection = connection(site, address);
            let early = out_of_order(&server.namespace);
            let sent = sent_while(site, || connection.send(BYTES));
            let early = out_of_order(&server.namespace) - early;
            let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
            println!("{address}: {sent:?} bytes, {early} segments out of order");
            // 8 of 38.
            assert!((0.12..0.3).contains(&share), "{address}: {sent:?}");
        }
        shows_what_was_chosen(site);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

/// Compares `status` and the metrics with what the tunnels' devices have sent.
fn shows_what_was_chosen(site: &Site) {
    let chosen = site.json(&["status"])["chosen"].clone();
    let sent = sent(site);
    let (_, metrics) = site.get("/metrics").expect("it answers");
    let mut shares = 0.0;
    for (index, device) in TUNNELS.into_iter().enumerate() {
        let row = &chosen[index];
        assert_eq!(
            (&row["device"], &row["usable"]),
            (&device.into(), &true.into())
        );
        // 1 ms is stated, and what a shaper lets through at once counts for the slower one.
        let delay_ms = row["delay_ms"].as_f64().expect("a number");
        assert!((1.0..6.0).contains(&delay_ms), "{row}");
        shares += row["share"].as_f64().expect("a number");
        let bytes = row["bytes"].as_f64().expect("a number");
        // Beside it the device has sent what is the kernel's own, such as questions to neighbours.
        let part = bytes / sent[index] as f64;
        assert!((0.95..=1.0).contains(&part), "{bytes} of {sent:?}");
        let of_class = |class: &str| row["packets"][class].as_u64().expect("a number");
        let long = of_class("long");
        let all = long + of_class("short") + of_class("other");
        assert!(long > bytes as u64 / 2 / 1_514, "{row}");
        let counted = |name: &str| {
            let labels = format!("{{device=\"{device}\",site=\"default\"}} ");
            let sample = format!("splitter_tunnel_chosen_{name}_total{labels}");
            let value = metrics.lines().find_map(|it| it.strip_prefix(&*sample));
            let value = value.expect("it is there").parse::<f64>();
            value.expect("a number")
        };
        // Read once a second, and the last packets may have come since.
        let value = counted("bytes");
        assert!(value > 0.0 && value <= bytes, "{value} of {bytes}");
        let of = |key: &str| row[key].as_u64().expect("a number");
        assert!((1..=all).contains(&of("changes")), "{row}");
        assert!(of("refusals") <= all, "{row}");
        assert!(counted("changes") <= of("changes") as f64, "{row}");
        assert!(counted("refusals") <= of("refusals") as f64, "{row}");
    }
    let changes = |index: usize| chosen[index]["changes"].as_u64().expect("a number");
    // Whichever way a flow changes, it changes back before it can again.
    assert!(changes(0).abs_diff(changes(1)) < 20, "{chosen}");
    assert!((shares - 1.0).abs() < 1e-9, "{chosen}");
    let table = stdout(&site.splitter(&["status"]));
    assert!(table.contains("chosen"), "{table}");
    let changed = "took another tunnel than the one before of their flow";
    assert!(table.contains(changed), "{table}");
    says_that_packets_choose(site, &metrics);
}

/// Nothing says of a flow that it is in one of the tunnels, or was handed over from one to the other.
fn says_that_packets_choose(site: &Site, metrics: &str) {
    let status = site.json(&["status"]);
    let traffic = status["traffic"].as_array().expect("a list");
    let rows = traffic.iter().map(|it| (&it["class"], &it["tunnel"]));
    assert!(rows.eq([
        (&"short".into(), &"any".into()),
        (&"long".into(), &"any".into())
    ]));
    let long = traffic[1]["bytes"].as_u64().expect("a number");
    assert!(long > BYTES as u64, "{traffic:?}");
    let flows = &status["flows"];
    assert!(flows["became_long"].as_u64() > Some(0), "{flows}");
    let moved = (&flows["moved_drained"], &flows["moved_at_max_wait"]);
    assert_eq!(moved, (&0.into(), &0.into()));
    let table = stdout(&site.splitter(&["status"]));
    assert!(
        table.contains("long in any tunnel, each packet by tr"),
        "{table}"
    );
    let handed_over = metrics
        .lines()
        .filter(|it| it.starts_with("splitter_handovers_total{"));
    assert!(handed_over.clone().count() > 0 && handed_over.clone().all(|it| it.ends_with(" 0")));
    let listed = site.json(&["flows"])["flows"].clone();
    let listed = listed.as_array().expect("a list");
    assert!(
        !listed.is_empty() && listed.iter().all(|it| it["tunnel"] == "any"),
        "{listed:?}"
    );
    let table = stdout(&site.splitter(&["flows"]));
    let words = "As configured, all packets choose by tr: those are in `any` tunnel.";
    assert!(table.contains(words), "{table}");
}

#[test]
fn packets_go_on_to_choose_while_there_is_no_agent() {
    on_site(|site| {
        without_offloads(site);
        site.configure(&balanced(site, "tr", false));
        let first = site.run();
        let mut connection = connection(site, site.topology.server.ipv4.into());
        connection.send(BYTES);
        first.end(Signal::SIGKILL);
        let sent = sent_while(site, || connection.send(BYTES));
        assert!(sent[1] > BYTES as u64 / 10, "{sent:?}");
        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        let sent = sent_while(site, || connection.send(BYTES));
        assert!(sent[1] > BYTES as u64 / 10, "{sent:?}");
    });
}

#[test]
fn another_balancer_takes_the_place_of_one_without_a_restart() {
    on_site(|site| {
        without_offloads(site);
        for balance in ["drb", "presto"] {
            site.configure(&balanced(site, balance, false));
            site.json(&["up"]);
            assert_eq!(site.json(&["plan"])["changed"], false);
            let mut connection = connection(site, site.topology.server.ipv4.into());
            let sent = sent_while(site, || connection.send(1_000_000));
            println!("{balance}: {sent:?}");
            // By turns, whatever they carry.
            let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
            assert!((0.4..0.6).contains(&share), "{balance}: {sent:?}");
        }
        site.json(&["down"]);
    });
}

/// The program goes on with the map that it had, and with as many places as that has.
#[test]
fn tables_of_another_size_leave_flows_their_places() {
    on_site(|site| {
        without_offloads(site);
        let up_with = |flows: u32| {
            let sized = format!("[flows]\ntable_size = {flows}\n");
            site.configure(&(balanced(site, "tr", false) + &sized));
            site.json(&["up"])["plan"]["program"].clone()
        };
        let places = || {
            let map = site.bpffs().join("splitter/test/maps/PATH_FLOWS");
            aya::maps::MapInfo::from_pin(map)
                .expect("is pinned")
                .max_entries()
        };
        up_with(4_096);
        assert_eq!(places(), 8_192);
        assert_eq!(up_with(65_536), "resize");
        assert_eq!(places(), 8_192);
        let chosen = || {
            let chosen = site.json(&["status"])["chosen"].clone();
            let bytes = [0, 1].map(|it| chosen[it]["bytes"].as_u64().expect("a number"));
            bytes.iter().sum::<u64>()
        };
        // Of a flow whose place would lie beyond these nothing would be chosen.
        for _ in 0..8 {
            let before = chosen();
            connection(site, site.topology.server.ipv4.into()).send(20_000);
            assert!(chosen() - before >= 20_000);
        }
        site.json(&["down"]);
    });
}

#[test]
fn by_chance_a_flow_takes_tunnels_by_their_weights_and_by_hash_one_alone() {
    on_site(|site| {
        without_offloads(site);
        let share_of = |balance: &str, act: &dyn Fn(&mut Connection)| {
            site.configure(&balanced(site, balance, false));
            site.json(&["up"]);
            assert_eq!(site.json(&["plan"])["changed"], false);
            let mut connection = connection(site, site.topology.server.ipv4.into());
            let sent = sent_while(site, || act(&mut connection));
            println!("{balance}: {sent:?}");
            sent[1] as f64 / (sent[0] + sent[1]) as f64
        };
        let at_once = |connection: &mut Connection| connection.send(BYTES);
        // 8 of 38 packets.
        let by_chance = share_of("rps", &at_once);
        assert!((0.12..0.3).contains(&by_chance), "{by_chance}");
        // Each of 60 flowlets by chance, which is in the slower tunnel one in five times.
        let after_pauses = share_of("letflow", &|connection| {
            for _ in 0..60 {
                connection.send(20_000);
                std::thread::sleep(LONGER_THAN_A_FLOWLETS_GAP);
            }
        });
        assert!((0.02..0.5).contains(&after_pauses), "{after_pauses}");
        let of_one = share_of("ecmp", &at_once);
        assert!(!(0.05..0.95).contains(&of_one), "{of_one}");
        let chosen = site.json(&["status"])["chosen"].clone();
        let changes = [0, 1].map(|it| chosen[it]["changes"].as_u64());
        assert_eq!(changes, [Some(0); 2], "{chosen}");
        site.json(&["down"]);
    });
}

#[test]
fn flow_goes_on_by_the_other_tunnel_when_one_dies() {
    on_pair(|pair| {
        let site = pair.site;
        without_offloads(site);
        pair.configure(true, QUICK);
        let key = site.path("key");
        let health = format!("[health]\nkey_file = {key:?}\n{QUICK}");
        site.configure(&format!("{}{health}", balanced(site, "tr", true)));
        let far = pair.run_far();
        let near = site.run();
        pair.wait_for_echo();
        let mut connection = connection(site, site.topology.server.ipv4.into());
        let both = sent_while(site, || connection.send(BYTES));
        assert!(both[1] > BYTES as u64 / 10, "{both:?}");
        cut_one(pair, 1);
        site.wait_for("the tunnel not to be chosen", || {
            let chosen = site.json(&["status"])["chosen"].clone();
            (chosen[0]["usable"] == true && chosen[1]["usable"] == false).then_some(())
        });
        let one = sent_while(site, || connection.send(BYTES));
        assert!(
            one[1] < BYTES as u64 / 10 && one[0] > BYTES as u64,
            "{one:?}"
        );
        // The class that falls back has a route there, too.
        pair.mend(TUNNELS[1]);
        site.wait_for("the tunnel to be used again", || {
            let sent = sent_while(site, || connection.send(BYTES / 4));
            (sent[1] > BYTES as u64 / 40).then_some(())
        });
        drop((near, far));
    });
}

/// Cuts a tunnel and waits until the agent knows.
fn cut_one(pair: &Pair<'_>, index: usize) {
    pair.cut(TUNNELS[index], "drop").expect("nft can");
    pair.site.wait_for("the tunnel to be found dead", || {
        let health = pair.health();
        (health["tunnels"][index]["condition"] == "down").then_some(())
    });
}
