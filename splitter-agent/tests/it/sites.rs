//! Several remote sites, by the command and the daemon, with traffic.

use crate::support::claims;
use crate::support::daemon;
use crate::support::hub;
use crate::support::pair;
use crate::support::pauses;
use crate::support::several;
use crate::support::site;
use crate::support::two_each;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use claims::{FAILOVER_IN_TIME, HUB_COMES_UP};
use daemon::Daemon;
use flow_testbed::claim;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::timed::decide_alone;
use flow_testbed::topology::Host;
use hub::Remote;
use nix::sys::signal::Signal;
use pair::{Pair, QUICK, decide_on_pair, on_pair};
use pauses::{FAILOVER, PERIOD, longest_pause};
use serde_json::Value;
use several::{Kind, add_tunnel, tunnel};
use site::{Connection, Site, on_site};
use two_each::run_with_far;

/// Sections that take the place of the only site's.
const INSTEAD: &str = "[short]\n[long]\n";

/// Where the second site is: another address of the far border.
pub(crate) const SECOND: Ipv4Addr = Ipv4Addr::new(10, 66, 0, 1);

/// A border with tunnels to so many sites, whose configuration names them.
fn on_hub(count: usize, test: impl FnOnce(&Site) + Send) {
    on_site(|site| {
        hub::add_tunnels(site.border(), count);
        site.wait_for("the tunnels' addresses to be in use", || {
            let shown = site.border().run("ip -6 route show table local");
            let shown = shown.expect("ip works");
            let of_tunnels = |kind: &str| shown.matches(&format!("{kind} fd00:10")).count();
            let is_there = |kind| of_tunnels(kind) == 2 * count;
            ["local", "anycast"].into_iter().all(is_there).then_some(())
        });
        site.configure(&(INSTEAD.to_owned() + &hub::sections(count)));
        test(site);
    });
}

/// What `splitter status` says of the tunnels' health.
fn health(site: &Site) -> Value {
    site.json(&["status"])["health"].take()
}

/// Where the long class of each site goes, by site.
fn long_classes(site: &Site) -> Vec<(String, String)> {
    let health = health(site);
    let classes = health["classes"].as_array().cloned().unwrap_or_default();
    let long = classes.iter().filter(|it| it["class"] == "long");
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    let mut long: Vec<_> = long
        .map(|it| (word(&it["site"]), word(&it["tunnel"])))
        .collect();
    long.sort_unstable();
    long
}

pub(crate) fn wait_for_long(site: &Site, expected: &[(&str, &str)]) {
    let own = |(site, egress): &(&str, &str)| ((*site).to_owned(), (*egress).to_owned());
    let expected: Vec<_> = expected.iter().map(own).collect();
    site.wait_for("the long classes to be there", || {
        (long_classes(site) == expected).then_some(())
    });
}

#[test]
fn fifty_sites_come_up_in_time_and_go_without_a_trace() {
    decide_alone(&HUB_COMES_UP, || {
        let mut held = Ok(());
        on_hub(50, |site| held = fifty_sites(site));
        held
    });
}

fn fifty_sites(site: &Site) -> Result<(), String> {
    let before = site.routing();
    let (mut times, mut ends) = (Vec::new(), Vec::new());
    for turn in 0..10 {
        let begin = Instant::now();
        let mut up = site.command(&["up"]).stdout(Stdio::piped()).spawn();
        let up = up.as_mut().expect("it can be started");
        // It tells when all is verified; what leaves is counted from then on.
        let mut told = up.stdout.take().expect("it is a pipe");
        told.read_exact(&mut [0]).expect("it tells");
        times.push(begin.elapsed());
        told.read_to_end(&mut Vec::new()).expect("it ends");
        assert!(up.wait().expect("it is ours").success());
        ends.push(begin.elapsed());
        if turn == 0 {
            let explained = site.json(&["explain", &Remote::new(7).addresses()[0]]);
            assert_eq!(explained["site"], "site7", "{explained}");
            assert_eq!(explained["verdict"], "split", "{explained}");
            assert_eq!(site.json(&["status"])["in_place"], true);
        }
        assert!(site.splitter(&["down"]).status.success());
        site.assert_clean(&before);
    }
    times.sort_unstable();
    ends.sort_unstable();
    let [(median, longest), (end, late)] = [&times, &ends].map(|it| (it[4], it[9]));
    println!(
        "50 sites, 100 tunnels, both families: verified in {median:?} (at most {longest:?}), counted, too, \
         in {end:?} ({late:?})"
    );
    claim!(longest <= Duration::from_secs(2), "{times:?}");
    Ok(())
}

#[test]
fn each_of_fifty_sites_is_watched_and_moved_by_itself() {
    on_hub(50, |site| {
        let before = site.routing();
        let daemon = site.run();
        let tunnels = health(site)["tunnels"].as_array().cloned();
        let tunnels = tunnels.expect("they are watched");
        let named: BTreeSet<_> = tunnels.iter().map(|it| it["site"].as_str()).collect();
        assert_eq!((tunnels.len(), named.len()), (100, 50));
        let home = site.routing();
        let set = |device: &str, state: &str| {
            let line = format!("ip link set far-{device} {state}");
            site.border().run(&line).expect("it is there");
        };
        set("l7", "down");
        let moved = |(site, egress): &(String, String)| (site == "site7") == (egress == "short");
        site.wait_for("one site to move", || {
            long_classes(site).iter().all(moved).then_some(())
        });
        let said = site.splitter(&["status"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let expected =
            "  degraded: site7: l7 is down, link down; the long class is in the short tunnel\n";
        assert!(said.contains(expected), "{said}");
        let moves = health(site)["moves"].take();
        assert_eq!(moves.as_array().map(Vec::len), Some(1), "{moves}");
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        let placed = r#"splitter_class_in_tunnel{class="long",tunnel="short",site="#;
        assert_eq!(site.metric(&format!("{placed}\"site7\"}} ")), 1.0);
        assert_eq!(site.metric(&format!("{placed}\"site8\"}} ")), 0.0);
        // None of the other sites' routes have changed.
        let others = |routing: &str| {
            let lines = routing.lines().filter(|it| it.contains("table 104"));
            let of_seven = ["10.100.7.0/24", "fd00:b:7::/48"];
            let lines = lines.filter(|it| !of_seven.iter().any(|net| it.contains(net)));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(others(&site.routing()), others(&home));

        // The other tunnel, too: packets to this site alone follow the main table.
        set("s7", "down");
        let (_, why) = site.wait_for("not to be ready", || {
            site.get("/ready").ok().filter(|(status, _)| *status == 503)
        });
        assert!(why.contains("site7: no tunnel is alive"), "{why}");
        assert!(!why.contains("site8"), "{why}");
        set("l7", "up");
        set("s7", "up");
        site.wait_for("all to be as before", || {
            let is_home = |(_, egress): &(String, String)| egress == "long";
            let is_ready = site.get("/ready").is_ok_and(|(status, _)| status == 200);
            (long_classes(site).iter().all(is_home) && is_ready).then_some(())
        });
        assert!(daemon.end(Signal::SIGTERM).success());
        let left = site.routing();
        let ours = |routing: &str| routing.matches("proto 94").count();
        assert_eq!((ours(&before), ours(&left)), (0, 0), "{left}");
    });
}

#[test]
fn sites_are_added_and_dropped_while_the_others_go_on() {
    on_hub(3, |site| {
        let with = |sections: String| site.configure(&(INSTEAD.to_owned() + &sections));
        with(hub::sections(2));
        let daemon = site.run();
        wait_for_long(site, &[("site0", "long"), ("site1", "long")]);
        with(hub::sections(3));
        assert!(site.splitter(&["reload"]).status.success());
        let three = [("site0", "long"), ("site1", "long"), ("site2", "long")];
        wait_for_long(site, &three);
        // The new one is watched as the others are.
        site.border()
            .run("ip link set far-l2 down")
            .expect("it is there");
        wait_for_long(
            site,
            &[("site0", "long"), ("site1", "long"), ("site2", "short")],
        );
        // What it has moved is remembered for the agent that comes after one that was killed.
        assert!(!daemon.end(Signal::SIGKILL).success());
        assert_eq!(site.json(&["status"])["in_place"], true);
        let daemon = site.run();
        wait_for_long(
            site,
            &[("site0", "long"), ("site1", "long"), ("site2", "short")],
        );
        with(hub::sections(1));
        assert!(site.splitter(&["reload"]).status.success());
        wait_for_long(site, &[("site0", "long")]);
        let left = site.routing();
        assert!(!left.contains("10.100.1.0/24"), "{left}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// Both borders with two tunnels to either of two sites, which both are at the far border, and the
/// agents of both.
pub(crate) fn run_two_sites(pair: &Pair<'_>) -> (Daemon, Daemon) {
    run_two_sites_with(pair, ["", ""])
}

/// The same with further keys of each site.
fn run_two_sites_with(pair: &Pair<'_>, more: [&str; 2]) -> (Daemon, Daemon) {
    let site = pair.site;
    for number in [2, 3] {
        add_tunnel(site, number, Kind::Veth, 1_500);
    }
    pair.far()
        .run(&format!("ip addr add {SECOND}/32 dev lo"))
        .expect("root");
    // For the key.
    pair.configure(true, QUICK);
    let health = format!("[health]\nkey_file = {:?}\n{QUICK}", site.path("key"));
    configure_two_sites(site, &health, more);
    let lists = [
        &[tunnel(0, 1), tunnel(2, 1)][..],
        &[tunnel(1, 1), tunnel(3, 1)],
    ];
    run_with_far(pair, &(several::sections(site, 1, lists, true) + &health))
}

/// Names two sites behind two tunnels each, with further keys of each.
fn configure_two_sites(site: &Site, health: &str, more: [&str; 2]) {
    let tunnel_of = |number: u8| {
        let address = format!("10.9.{number}.2");
        format!("{{ device = 'tun{number}', gateway = '{address}', peer = '{address}' }}")
    };
    let server = site.topology.server.ipv4;
    let remote = |name: &str, net: Ipv4Addr, first: u8, more: &str| {
        format!(
            "[[site]]\nname = '{name}'\ndestinations = '{net}/32'\nshort = {}\nlong = {}\n{more}\n",
            tunnel_of(first),
            tunnel_of(first + 1)
        )
    };
    let sites = remote("one", server, 0, more[0]) + &remote("two", SECOND, 2, more[1]);
    site.configure(&format!("{INSTEAD}{health}{sites}"));
}

/// The class of the flow that a connection sends.
fn class_of(site: &Site, connection: &Connection) -> String {
    let flows = site.json(&["flows"]);
    let flows = flows["flows"].as_array().cloned().unwrap_or_default();
    let mut own = flows
        .iter()
        .filter(|it| it["source_port"] == connection.port());
    let class = own
        .next()
        .map(|it| it["class"].as_str().unwrap_or_default());
    class.unwrap_or_default().to_owned()
}

#[test]
fn each_site_has_the_threshold_of_its_own() {
    on_pair(|pair| {
        let site = pair.site;
        let (daemon, _far) = run_two_sites_with(pair, ["threshold = 8", "threshold = 2000"]);
        let client = &site.topology.client;
        let second = Host {
            namespace: pair.far().clone(),
            ipv4: SECOND,
            ipv6: None,
        };
        let mut connections =
            [&site.topology.server, &second].map(|host| Connection::between(client, host));
        // Some hundred segments each.
        connections.iter_mut().for_each(|it| it.send(200_000));
        let classes =
            |connections: &[Connection; 2]| connections.each_ref().map(|it| class_of(site, it));
        assert_eq!(classes(&connections), ["long", "short"], "{}", daemon.log());
        let explained = site.json(&["explain", &SECOND.to_string()]);
        let changes = explained["changes"].to_string();
        assert!(
            changes.contains("packet 2001 on (the threshold of the site two)"),
            "{explained}"
        );

        // What has been looked up goes by another threshold with its next packet.
        let health = format!("[health]\nkey_file = {:?}\n{QUICK}", site.path("key"));
        configure_two_sites(site, &health, ["threshold = 8", "threshold = 50"]);
        let reloaded = site.splitter(&["reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
        connections[1].send(1_000);
        assert_eq!(classes(&connections), ["long", "long"], "{}", daemon.log());
        // Without, all go by the common one.
        configure_two_sites(site, &health, ["", ""]);
        assert!(site.splitter(&["reload"]).status.success());
        let mut third = Connection::between(client, &second);
        third.send(200_000);
        assert_eq!(class_of(site, &third), "long");
    });
}

/// How the tunnels to a site stand.
fn conditions(site: &Site, name: &str) -> Vec<String> {
    let tunnels = health(site)["tunnels"].as_array().cloned();
    let tunnels = tunnels.unwrap_or_default().into_iter();
    let of_site = tunnels.filter(|it| it["site"] == name);
    of_site
        .map(|it| it["condition"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn site_has_a_key_and_times_of_its_own() {
    on_pair(|pair| {
        let site = pair.site;
        let (daemon, _far) = run_two_sites(pair);
        let wait_for = |condition: &str| {
            site.wait_for("the tunnels to the second site to be so", || {
                (conditions(site, "two") == [condition; 2]).then_some(())
            });
        };
        let health = format!("[health]\nkey_file = {:?}\n{QUICK}", site.path("key"));
        let own = site.path("own-key");
        let reload_with = |key: &str| {
            std::fs::write(&own, key).expect("a file");
            std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600)).expect("ours");
            let more = format!("[site.health]\nkey_file = {own:?}\ninterval_ms = 50\n");
            configure_two_sites(site, &health, ["", &more]);
            site.splitter(&["reload"])
        };
        // Another key than the other border has: it does not answer for this site any more.
        let reloaded = reload_with(&"7".repeat(64));
        assert!(reloaded.status.success(), "{reloaded:?}");
        wait_for("down");
        assert_eq!(conditions(site, "one"), ["up", "up"], "{}", daemon.log());
        let doctor = site.splitter(&["doctor"]);
        let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.contains("site.health.key_file"), "{doctor}");
        // The file is read again although its name is the same.
        let common = std::fs::read_to_string(site.path("key")).expect("it is there");
        let reloaded = reload_with(&common);
        let said = String::from_utf8_lossy(&reloaded.stdout).into_owned();
        assert!(said.contains("own-key holds: "), "{reloaded:?}");
        wait_for("up");
        // A key that cannot be used is refused, and what there is stays.
        assert!(!reload_with("no key").status.success());
        assert_eq!(conditions(site, "two"), ["up", "up"]);
    });
}

/// What the kernel says of changes of routes from now on.
struct Changes(Child);

impl Changes {
    fn watch(site: &Site) -> Self {
        let mut command = site.border().command("ip");
        command.args(["monitor", "route"]).stdin(Stdio::null());
        let output = std::fs::File::create(site.path("changes")).expect("a file");
        Self(command.stdout(output).spawn().expect("it was tried"))
    }

    fn end(mut self, site: &Site) -> String {
        let _ = self.0.kill();
        let _ = self.0.wait();
        std::fs::read_to_string(site.path("changes")).expect("it was made")
    }
}

#[test]
fn failover_of_one_site_does_not_touch_another() {
    require!(Program("nft"));
    decide_on_pair(&FAILOVER_IN_TIME, |pair| {
        let site = pair.site;
        let (near, _far) = run_two_sites(pair);
        let client = &site.topology.client;
        let second = Host {
            namespace: pair.far().clone(),
            ipv4: SECOND,
            ipv6: None,
        };
        let hosts = [&site.topology.server, &second];
        let changes = Changes::watch(site);
        let pauses = std::thread::scope(|scope| {
            let watched = hosts.map(|host| {
                scope.spawn(move || {
                    longest_pause([client, host], || {
                        std::thread::sleep(Duration::from_millis(2_500));
                    })
                })
            });
            std::thread::sleep(Duration::from_millis(500));
            pair.cut("tun0", "drop").expect("it was tried");
            watched.map(|it| it.join().expect("no panic"))
        });
        let changes = changes.end(site);
        println!("the longest pauses were {pauses:?}");
        assert!(pauses[0] > PERIOD * 10, "nothing was cut");
        let server = site.topology.server.ipv4.to_string();
        assert!(changes.contains(&server), "{changes}");
        assert!(!changes.contains(&SECOND.to_string()), "{changes}");
        claim!(pauses[0] <= FAILOVER, "{pauses:?}\n{}", near.log());
        claim!(pauses[1] <= PERIOD * 10, "{pauses:?}\n{}", near.log());
        let health = pair.health();
        let moves = health["moves"].as_array().cloned().unwrap_or_default();
        claim!(moves.iter().all(|it| it["site"] == "one"), "{health}");
        claim!(moves.len() == 1, "{health}");
        // Long flows to both go on.
        for (host, device) in [(hosts[0], "tun1"), (hosts[1], "tun3")] {
            let sent = || {
                let shown = site.border().run(&format!("ip -j -s link show {device}"));
                let links: Value =
                    serde_json::from_str(&shown.expect("it is there")).expect("JSON");
                links[0]["stats64"]["tx"]["bytes"]
                    .as_u64()
                    .expect("a number")
            };
            let mut connection = Connection::between(client, host);
            // Long by now, and no more in the short tunnel.
            connection.send(400_000);
            let before = sent();
            connection.send(400_000);
            let carried = sent() - before;
            assert!(carried >= 400_000, "{device} carried {carried}");
        }
        pair.mend("tun0");
        Ok(())
    });
}
