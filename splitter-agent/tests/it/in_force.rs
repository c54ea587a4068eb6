//! What the kernel goes by after a change, and after one that was cut short.

use crate::support::daemon;
use crate::support::site;
use std::time::Instant;

use daemon::Daemon;
use flow_balance::ServiceTime;
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{Connection, Site, on_site};
use splitter_config::Config;
use splitter_datapath::{Dataplane, Pins};
use splitter_policy::config::PolicyConfig;

/// What the kernel program reads.
fn policy(site: &Site) -> PolicyConfig {
    let text = std::fs::read_to_string(site.config()).expect("a file");
    let config = Config::parse(&text, "test").expect("it is right");
    let pins = Pins::new(&config.bpffs, &config.pin_dir());
    let dataplane = Dataplane::open(&pins).expect("it is ours");
    dataplane.expect("it is up").policy().expect("it is read")
}

fn carrying(mbit: u64) -> ServiceTime {
    ServiceTime::from_bits_per_second(mbit * 1_000_000)
}

#[test]
fn model_of_the_tunnels_follows_every_change() {
    on_site(|site| {
        let daemon = site.run();
        let first = policy(site);
        assert_eq!(first.long_service, carrying(100));
        assert_eq!(
            (first.drain_margin_ns, first.max_wait_ns),
            (
                PolicyConfig::DEFAULT_DRAIN_MARGIN_NS,
                PolicyConfig::DEFAULT_MAX_WAIT_NS
            )
        );
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);

        for (key, value) in [
            ("long.rate_mbit", "40"),
            ("short.rate_mbit", "60"),
            ("handover.drain_margin_us", "700"),
            ("handover.max_wait_ms", "90"),
            ("handover.long_queue_ms", "8"),
        ] {
            assert_eq!(site.json(&["set", key, value])["applied"], true, "{key}");
        }
        let set = policy(site);
        assert_eq!(set.long_service, carrying(40));
        // Three percent slower than it is said to be.
        assert_eq!(
            set.short_service,
            ServiceTime::from_bits_per_second(60_000_000 * 97 / 100)
        );
        assert_eq!(
            (set.drain_margin_ns, set.max_wait_ns, set.long_queue_ns),
            (700_000, 90_000_000, 8_000_000)
        );
        assert_eq!(
            PolicyConfig {
                long_service: first.long_service,
                short_service: first.short_service,
                drain_margin_ns: first.drain_margin_ns,
                max_wait_ns: first.max_wait_ns,
                long_queue_ns: first.long_queue_ns,
                ..set
            },
            first,
            "nothing else has changed"
        );
        connection.send(200_000);

        // The file takes it back, and brings its own.
        site.configure("[handover]\nlong_queue_ms = 3");
        assert_eq!(site.json(&["reload"])["applied"], true);
        let reloaded = PolicyConfig {
            long_queue_ns: 3_000_000,
            ..first
        };
        assert_eq!(policy(site), reloaded);

        // Without a rate a flow waits for a gap: drain margin and longest wait are other ones then.
        let text = std::fs::read_to_string(site.config()).expect("a file");
        let text = text.replace("rate_mbit = 100\n", "");
        std::fs::write(site.config(), text).expect("a file");
        assert_eq!(site.json(&["reload"])["applied"], true);
        let blind = policy(site);
        assert_eq!(
            (blind.short_service, blind.long_service),
            (ServiceTime::UNKNOWN, ServiceTime::UNKNOWN)
        );
        assert_eq!(
            (blind.drain_margin_ns, blind.max_wait_ns),
            (
                PolicyConfig::DEFAULT_GAP_NS,
                PolicyConfig::DEFAULT_BLIND_MAX_WAIT_NS
            )
        );
        connection.send(200_000);
        let flows = site.json(&["flows"]);
        let known = flows["flows"].as_array().into_iter().flatten();
        let flow = known.filter(|it| it["source_port"] == connection.port());
        let classes: Vec<_> = flow.map(|it| it["class"].clone()).collect();
        assert_eq!(classes, [Value::from("long")], "{flows}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// From the first to the last thing that a reload does: packets find a way, flows stay known, and
/// the next agent brings about what the file says, from wherever the killed one had come to.
#[test]
fn agent_killed_in_the_middle_of_a_reload_is_taken_over() {
    const POINTS: u32 = 12;
    /// Interfaces, marks, tables and settings: everything that a reload may touch.
    const CONFIGURATIONS: [&str; 2] = [
        "",
        "lan = ['lan0']\n[marks]\nshort = 5\nlong = 3\n[routes]\nrule_priority = 900\n\
         [flows]\nthreshold = 70\ntable_size = 4096\n",
    ];
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let home = site.routing();
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        // How long a reload takes; the shorter of two, so that the points lie within one.
        let took = CONFIGURATIONS.into_iter().rev().map(|configuration| {
            site.configure(configuration);
            let begun = Instant::now();
            assert_eq!(site.json(&["reload"])["applied"], true);
            begun.elapsed()
        });
        let took = took.min().expect("there are two");
        assert_eq!(site.routing(), home);

        let mut daemon = Some(daemon);
        let mut cut_short = 0;
        // On a machine that is busy otherwise a reload may have ended where it should be cut short.
        for turn in 0..3 * (POINTS + 1) {
            let point = turn % (POINTS + 1);
            if turn > POINTS && cut_short > POINTS / 3 {
                break;
            }
            let target = CONFIGURATIONS[(turn as usize + 1) % 2];
            site.configure(target);
            let reload = Daemon::start(site.command(&["reload"]), &site.path("reload-log"));
            std::thread::sleep(took * point / POINTS);
            let killed = daemon.take().expect("one runs");
            killed.end(Signal::SIGKILL);
            // Who asked is reported that nobody answers any more, or had an answer.
            cut_short += u32::from(!reload.wait().success());
            connection.send(20_000);

            let next = site.run();
            assert_eq!(
                site.json(&["status"])["in_place"],
                true,
                "killed at {point}"
            );
            assert_eq!(site.json(&["plan"])["changed"], false, "killed at {point}");
            let threshold = policy(site).thresholds.common();
            assert_eq!(threshold, if target.is_empty() { 40 } else { 70 });
            assert_eq!(site.xdp_mode("gen0").is_some(), target.is_empty());
            if target.is_empty() {
                assert_eq!(site.routing(), home, "killed at {point}");
            }
            connection.send(20_000);
            let flow = site.flow_from(connection.port());
            assert_eq!(flow["class"], "long", "killed at {point}");
            let bytes = flow["bytes"].as_u64();
            assert!(bytes > Some(200_000), "killed at {point}: {flow}");
            daemon = Some(next);
        }
        assert!(cut_short > POINTS / 3, "only {cut_short} were cut short");
        assert!(
            daemon
                .take()
                .expect("one runs")
                .end(Signal::SIGTERM)
                .success()
        );
        site.assert_clean(&before);
    });
}

/// The defaults of rules and marks were others once. What an agent of that time has put in place is
/// taken over with its flows, or removed, by what it has noted.
#[test]
fn earlier_defaults_are_taken_over_or_removed() {
    const MODE: &str = "[steering]\nmode = 'mark'\n";
    const EARLIER: &str = "mark_mask = 0x3f000000\n[routes]\nrule_priority = 1000\n";
    on_site(|site| {
        let before = site.routing();
        site.configure(&format!("{MODE}{EARLIER}"));
        let killed = site.run();
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        killed.end(Signal::SIGKILL);
        let rules = || site.border().run("ip rule").expect("ip works");
        let is_earlier = |rules: &str| rules.contains("1001:") && rules.contains("/0x3f000000");
        assert!(is_earlier(&rules()), "{}", rules());

        site.configure(MODE);
        let daemon = site.run();
        let shown = rules();
        assert!(!is_earlier(&shown) && !shown.contains("100"), "{shown}");
        assert!(
            shown.contains("1601:") && shown.contains("0x4/0x7e"),
            "{shown}"
        );
        let long = || site.border().device_counters("tun1").expect("it is there");
        let earlier = long().sent_bytes;
        connection.send(200_000);
        assert!(
            long().sent_bytes > earlier + 200_000,
            "it is long, as it was"
        );
        assert_eq!(site.json(&["status"])["flows"]["became_long"], 1);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);

        site.configure(&format!("{MODE}{EARLIER}"));
        site.json(&["up"]);
        site.configure(MODE);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}
