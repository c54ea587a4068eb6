//! A leaf that splits as well: packets choose among its uplinks by what spines report, while its role is in place.

use std::time::Duration;

use aya::Pod;
use aya::maps::{Array, Map, MapData};
use flow_balance::{PathId, RemoteBacklogs};
use flow_testbed::require::Requirement::{Program, Root};
use flow_testbed::{require, wait};
use nix::sys::signal::Signal;
use serde_json::Value as Json;
use splitter_datapath::clock::monotonic_ns;

use super::restarts::directory;
use super::rig::Rig;
use super::transfer::{scrape_splitter, transfer};
use crate::support::daemon::Daemon;
use crate::support::site::{BINARY, PATIENCE};

const UPLINKS: [&str; 2] = ["up0", "up1"];
/// The leaf that the other host is behind.
const FAR: u32 = 1;
const BYTES: usize = 400_000;

#[repr(transparent)]
#[derive(Clone, Copy)]
struct Reports(RemoteBacklogs);

// SAFETY: `repr(C)` and made of integers without padding, so that any bytes are a valid value.
unsafe impl Pod for Reports {}

/// The daemon that splits at the first leaf; it hears the role of that leaf.
fn split(rig: &Rig) -> Daemon {
    let (leaf, directory) = (&rig.leaves[0], rig.directory.path());
    let mut text = format!(
        "name = 'split'\nlan = ['host0']\nbpffs = {:?}\nruntime_dir = {:?}\npolicy = 'share'\n\
         balance = 'tr'\nfabric = '{}'\n",
        rig.bpffs(),
        directory.join("run"),
        leaf.name()
    );
    for (index, device) in UPLINKS.into_iter().enumerate() {
        text += &format!(
            "[[tunnels]]\ndevice = '{device}'\ngateway = '10.{}.0.2'\nrate_mbit = 100\n",
            100 + index
        );
    }
    text += "[short]\n[long]\n[steering]\nmode = 'mark'\n[flows]\ntable_size = 4096\n\
             [routes]\ndestinations = ['10.2.0.2/32']\n\
             [share]\nshape_percent = 100\nqueue_ms = 25\n";
    let path = directory.join("split.toml");
    std::fs::write(&path, text).expect("can be written");
    let mut command = leaf.command(BINARY);
    command.arg("--config").arg(path).arg("run");
    Daemon::start(command, &directory.join("log"))
}

/// Waits until the daemon has last said that so many of its tunnels are uplinks of the leaf.
fn wait_until_heard(daemon: &Daemon, uplinks: usize) {
    let what = format!("uplinks={uplinks}");
    wait::within(PATIENCE, &what, || {
        let log = daemon.log();
        let last = log.lines().rfind(|it| it.contains("fabric_heard"))?;
        last.contains(&what).then_some(())
    });
}

/// A spine reports now that its port to the other leaf takes so long to drain.
fn report(rig: &Rig, uplink: usize, backlog: Duration) {
    let directory = rig.bpffs().join("splitter-fabric");
    let map = directory.join(rig.leaves[0].name()).join("maps/REMOTE");
    let map = MapData::from_pin(map).expect("the role is in place");
    let map = Array::try_from(Map::Array(map));
    let mut remote: Array<_, Reports> = map.expect("is an array");
    let mut reports = remote.get(&FAR, 0).expect("is there");
    let uplink = PathId::new(uplink).expect("there are 16");
    let backlog_ns = backlog.as_nanos() as u64;
    reports
        .0
        .behind_mut(uplink)
        .report(backlog_ns, monotonic_ns());
    remote.set(FAR, reports, 0).expect("is there");
}

/// Bytes that each uplink sends while data are transferred to the other host.
fn sent(rig: &Rig) -> [u64; 2] {
    let read = || {
        UPLINKS.map(|device| {
            let counters = rig.leaves[0].device_counters(device);
            counters.expect("it is there").sent_bytes
        })
    };
    let before = read();
    transfer(rig, 2, BYTES, || {});
    let after = read();
    [0, 1].map(|it| after[it] - before[it])
}

/// What `splitter status` says of the tunnels that packets choose among.
fn chosen(rig: &Rig) -> Vec<Json> {
    let mut command = rig.leaves[0].command(BINARY);
    let file = rig.directory.path().join("split.toml");
    command.arg("-c").arg(file).args(["--json", "status"]);
    let output = command.output().expect("it is built");
    let status: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let chosen = status["chosen"].as_array().expect("packets choose").clone();
    assert_eq!(chosen.len(), UPLINKS.len());
    chosen
}

#[test]
fn packets_take_the_uplink_whose_spine_is_not_reported_to_be_full() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let daemon = split(&rig);
    // The other way round as well: the leaf's role comes after the daemon, and goes before it.
    wait_until_heard(&daemon, 0);
    for tunnel in chosen(&rig) {
        assert_eq!(tunnel["hears"], false, "{tunnel}");
        assert_eq!(tunnel["chosen_by_reports"], 0, "{tunnel}");
        assert!(tunnel["report_age_ms"].is_null(), "{tunnel}");
    }
    rig.fabric(&rig.leaves[0], "up");
    wait_until_heard(&daemon, 2);
    assert!(
        chosen(&rig)
            .iter()
            .all(|it| it["hears"] == true && it["report_age_ms"].is_null())
    );
    let (long, none) = (Duration::from_secs(60), Duration::ZERO);
    for (full, other) in [(0, 1), (1, 0), (0, 1)] {
        report(&rig, full, long);
        report(&rig, other, none);
        let sent = sent(&rig);
        println!("spine {full} is full: {sent:?} bytes");
        assert!(sent[other] > BYTES as u64, "{sent:?}");
        // Neighbours are asked for.
        assert!(sent[full] < 5_000, "{sent:?}");
    }
    let heard = chosen(&rig);
    for tunnel in &heard {
        // All that was chosen since there are reports, by the tunnel that was not full.
        let by_reports = tunnel["chosen_by_reports"].as_u64().expect("a count");
        let packets: u64 = ["short", "long", "other"]
            .map(|it| tunnel["packets"][it].as_u64().expect("a count"))
            .into_iter()
            .sum();
        assert!(by_reports > 100 && by_reports <= packets, "{tunnel}");
        let age_ms = tunnel["report_age_ms"].as_f64().expect("it was reported");
        assert!(
            age_ms > 0.0 && age_ms < 1e3 * PATIENCE.as_secs_f64(),
            "{tunnel}"
        );
    }
    let lines = heard.iter().zip(UPLINKS).flat_map(|(tunnel, device)| {
        let labels = format!("{{device=\"{device}\",site=\"default\"}}");
        let count = &tunnel["chosen_by_reports"];
        [
            format!("splitter_tunnel_chosen_by_reports_total{labels} {count}\n"),
            format!("splitter_tunnel_hears_spine{labels} 1\n"),
            format!("splitter_tunnel_spine_report_age_seconds{labels} "),
        ]
    });
    let lines: Vec<_> = lines.collect();
    // They are read once a second.
    wait::within(PATIENCE, "the metrics", || {
        let text = rig.leaves[0].enter(scrape_splitter).expect("it exists");
        lines.iter().all(|line| text.contains(line)).then_some(())
    });
    // What was reported of spine 0 counts for nothing any more: both are used.
    rig.fabric(&rig.leaves[0], "down");
    wait_until_heard(&daemon, 0);
    assert!(chosen(&rig).iter().all(|it| it["hears"] == false));
    let counts = || {
        chosen(&rig)
            .iter()
            .map(|it| it["chosen_by_reports"].clone())
            .collect::<Vec<_>>()
    };
    let before = counts();
    let sent = sent(&rig);
    assert_eq!(counts(), before);
    println!("nobody reports: {sent:?} bytes");
    assert!(sent.iter().all(|it| *it > 20_000), "{sent:?}");
    assert!(daemon.end(Signal::SIGTERM).success());
}

/// Of another build, or root's alone: what packets choose is counted and shown all the same.
#[test]
fn leaf_that_cannot_be_read_is_one_that_nothing_is_heard_of() {
    require!(Root, Program("ip"), Program("ethtool"));
    let rig = Rig::new();
    let daemon = split(&rig);
    rig.fabric(&rig.leaves[0], "up");
    wait_until_heard(&daemon, 2);
    let maps = directory(&rig, &rig.leaves[0]).join("maps");
    let (reports, aside) = (maps.join("REMOTE"), maps.join("ASIDE"));
    std::fs::rename(&reports, &aside).expect("it is pinned");
    std::fs::hard_link(maps.join("AGREEMENT"), &reports).expect("both are pins");
    sent(&rig);
    let unread = chosen(&rig);
    for tunnel in &unread {
        assert_eq!(tunnel["hears"], false, "{tunnel}");
        assert!(tunnel["report_age_ms"].is_null(), "{tunnel}");
    }
    let packets = |tunnel: &Json| tunnel["packets"]["other"].as_u64().expect("a count");
    let long = |tunnel: &Json| tunnel["packets"]["long"].as_u64().expect("a count");
    assert!(unread.iter().map(|it| long(it) + packets(it)).sum::<u64>() > 100);
    let lines = unread.iter().zip(UPLINKS).map(|(tunnel, device)| {
        let labels = format!("{{device=\"{device}\",site=\"default\",class=\"long\"}}");
        format!(
            "splitter_tunnel_chosen_packets_total{labels} {}\n",
            long(tunnel)
        )
    });
    let lines: Vec<_> = lines.collect();
    wait::within(PATIENCE, "the metrics", || {
        let text = rig.leaves[0].enter(scrape_splitter).expect("it exists");
        lines.iter().all(|line| text.contains(line)).then_some(())
    });
    std::fs::remove_file(&reports).expect("it is pinned");
    std::fs::rename(&aside, &reports).expect("it is pinned");
    wait::within(PATIENCE, "the leaf to be heard again", || {
        let are_heard = chosen(&rig).iter().all(|it| it["hears"] == true);
        are_heard.then_some(())
    });
    assert!(daemon.end(Signal::SIGTERM).success());
}
