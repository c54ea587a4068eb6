//! What goes wrong around the splitter: it says what and what to do, and harms nothing.

use crate::support::nobody;
use crate::support::site;
use std::net::TcpListener;
use std::time::Duration;

use flow_testbed::require::skip;
use nix::sys::signal::Signal;
use nobody::{as_nobody, open_to_everybody};
use serde_json::Value;
use site::{Connection, Site, on_site, stderr, stdout, within};

/// The kernel's numbers of the modes.
const NATIVE: Option<u64> = Some(1);
const GENERIC: Option<u64> = Some(2);
/// How long it may take to notice and mend: the agent looks every second.
const MENDED: Duration = Duration::from_secs(10);

/// Each of the commands that change something fails so, says all of `words`, and changes nothing.
fn refused(site: &Site, commands: &[&str], code: i32, words: &[&str]) {
    let before = site.routing();
    for command in commands {
        let reported = site.refused(&[command], code);
        for word in words {
            assert!(
                reported.contains(word),
                "{command}: no {word:?} in: {reported}"
            );
        }
    }
    site.assert_clean(&before);
}

#[test]
fn wrong_configuration_exits_with_3_and_names_the_line() {
    on_site(|site| {
        let tunnels = "[short]\ndevice = 'tun0'\n[long]\ndevice = 'tun1'\n";
        let loopback = format!("lan = 'lo'\n{tunnels}");
        let wrong = [
            (&*loopback, "1: lan = 'lo': "),
            ("lan = 'lan0'\nlann = 'x'\n", "2: lann = 'x': "),
            (
                "lan = 'lan0'\n[flows]\nthreshold = 0\n",
                "3: flows.threshold = 0: ",
            ),
            (
                "lan = 'lan0'\n[short]\ndevice = 'tun0'\n[long]\ndevice = 'tun0'\n",
                "5: long.device = 'tun0': ",
            ),
        ];
        for (text, line) in wrong {
            std::fs::write(site.config(), text).expect("a file");
            let place = format!("{}:{line}", site.config().display());
            refused(site, &["run", "up", "down", "status"], 3, &[&place]);
        }
    });
}

#[test]
fn missing_interface_is_named_with_those_that_exist() {
    on_site(|site| {
        site.configure("lan = ['lan0', 'lan9']");
        let words = ["lan9", "gen0", "lan0", "tun0", "tun1"];
        refused(site, &["up", "plan"], 1, &words);
    });
}

#[test]
fn port_in_use_is_named_and_nothing_changed() {
    on_site(|site| {
        let taken = site.border().enter(|| TcpListener::bind("127.0.0.1:9461"));
        let _taken = taken.expect("it exists").expect("it is free");
        refused(site, &["run"], 1, &["127.0.0.1:9461"]);
    });
}

#[test]
fn without_root_exits_with_4() {
    on_site(|site| {
        open_to_everybody(site);
        for command in ["run", "up", "down"] {
            let output = as_nobody(site, &[command]);
            assert_eq!(output.status.code(), Some(4), "{command}: {output:?}");
        }
        site.json(&["up"]);
        for command in ["status", "flows"] {
            let output = as_nobody(site, &[command]);
            assert_eq!(output.status.code(), Some(4), "{command}: {output:?}");
            assert!(!stdout(&output).contains("down"), "{output:?}");
        }
        site.json(&["down"]);
    });
}

#[test]
fn second_instance_is_refused_and_the_first_one_named() {
    on_site(|site| {
        let before = site.routing();
        let first = site.run();
        for command in ["run", "up", "down"] {
            let reported = site.refused(&[command], 5);
            let process = first.id().to_string();
            assert!(reported.contains(&process), "{command}: {reported}");
        }
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        assert!(first.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn instance_with_the_tables_or_priorities_of_another_one_is_refused() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let up = site.routing();
        let tunnel = |index: usize, table: u32| {
            let gateways = site.topology.borders[0].gateway_addresses(index);
            format!("device = 'tun{index}'\ngateway = {gateways:?}\ntable = {table}\n")
        };
        let second = |tables: [u32; 2], priority: u32| {
            format!(
                "name = 'second'\n[short]\n{}[long]\n{}[routes]\nrule_priority = {priority}\n",
                tunnel(0, tables[0]),
                tunnel(1, tables[1]),
            )
        };
        for (text, shared) in [
            (second([10_401, 77], 500), "10401"),
            (second([76, 77], 1602), "1602"),
        ] {
            site.configure(&text);
            for command in ["run", "up", "plan", "down"] {
                let reported = site.refused(&[command], 5);
                let names_both = reported.contains("test") && reported.contains(shared);
                assert!(names_both, "{command}: {reported}");
                assert_eq!(site.routing(), up);
            }
        }
        // With numbers of its own it is in nobody's way, but for the interfaces.
        site.configure(&second([76, 77], 500));
        let reported = stderr(&site.splitter(&["plan"]));
        assert!(
            reported.contains("`lan0`") && reported.contains("`split`"),
            "{reported}"
        );

        site.configure("");
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn foreign_xdp_program_is_left_alone() {
    on_site(|site| {
        // Another instance's program, from this one's point of view a stranger's.
        let tables =
            "[short]\ndevice = 'tun0'\ntable = 7001\n[long]\ndevice = 'tun1'\ntable = 7002";
        site.configure(&format!(
            "name = 'stranger'\nlan = ['gen0']\n[routes]\nrule_priority = 2000\n{tables}"
        ));
        site.json(&["up"]);
        let before = site.routing();

        site.configure("");
        for command in ["run", "up"] {
            let reported = site.refused(&[command], 5);
            assert!(reported.contains("`gen0`"), "{command}: {reported}");
            // Neither rules nor the program on the other interface stay.
            assert_eq!(site.routing(), before);
        }
        assert!(!site.bpffs().join("splitter/test").exists());
        assert!(!site.path("run/test/state.json").exists());
    });
}

/// Makes `br0`, whose driver has no native XDP, or says why the test is skipped.
fn add_bridge(site: &Site, test: &str) -> bool {
    let made = site.border().run("ip link add br0 type bridge").is_ok();
    if !made {
        let reason = "lacks bridges, as devices without native XDP; use a kernel that has them";
        skip(&format!("bad_input::{test}"), reason);
        return false;
    }
    // Its link-local address would be in use, and in the routes, up to 2 s late.
    let key = "net.ipv6.conf.br0.disable_ipv6";
    site.border().sysctl(key, "1").expect("it is there");
    true
}

#[test]
fn port_of_a_bridge_is_told_to_be_none_that_rules_select() {
    on_site(|site| {
        if !add_bridge(
            site,
            "port_of_a_bridge_is_told_to_be_none_that_rules_select",
        ) {
            return;
        }
        let border = site.border();
        border
            .run("ip link set gen0 master br0")
            .expect("it is there");
        let plan = site.json(&["plan"]);
        let notes = plan["plan"]["routes"]["notes"].to_string();
        assert!(notes.contains("gen0 is a port of br0"), "{notes}");
        let checks: Value =
            serde_json::from_slice(&site.splitter(&["doctor", "--json"]).stdout).expect("JSON");
        let checks = checks.as_array().expect("a list");
        let found = checks.iter().find(|it| it["check"] == "rules for gen0");
        assert_eq!(found.expect("it is checked")["status"], "fail");
        assert!(!checks.iter().any(|it| it["check"] == "rules for lan0"));
    });
}

#[test]
fn tunnel_that_is_down_is_named_before_the_kernel_refuses_it() {
    on_site(|site| {
        let notes = || site.json(&["plan"])["plan"]["routes"]["notes"].to_string();
        assert!(!notes().contains("is down"), "{}", notes());
        site.border()
            .run("ip link set tun1 down")
            .expect("it is there");
        assert!(notes().contains("tun1 is down"), "{}", notes());
        site.refused(&["up"], 1);
    });
}

#[test]
fn driver_without_native_xdp_is_named_or_gets_generic() {
    on_site(|site| {
        if !add_bridge(site, "driver_without_native_xdp_is_named_or_gets_generic") {
            return;
        }
        let border = site.border();
        border.run("ip link set br0 up").expect("it is there");
        site.configure("lan = ['lan0', 'br0']\n[attach]\nmode = 'native'");
        let words = ["`br0`", "attach.mode"];
        refused(site, &["run", "up"], 1, &words);

        site.configure("lan = ['lan0', 'br0']\n[attach]\nmode = 'auto'");
        let output = site.splitter(&["up"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(
            (site.xdp_mode("lan0"), site.xdp_mode("br0")),
            (NATIVE, GENERIC)
        );
        let status = site.json(&["status"]);
        assert_eq!(status["attached"][1]["interface"], "br0");
        assert_eq!(status["attached"][1]["mode"], "generic");
        assert_eq!(site.json(&["up"])["changed"], false);
        site.json(&["down"]);
    });
}

#[test]
fn change_that_fails_leaves_what_was_up() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        // It is there, but the program cannot be attached to it.
        let tunnel = "ip tuntap add dev tun9 mode tun";
        site.border().run(tunnel).expect("the kernel has it");
        let up = site.routing();
        let mut connection = Connection::open(&site.topology);
        connection.send(10_000);

        let other = "[flows]\ntable_size = 4096\nthreshold = 7\n[routes]\nrule_priority = 3000\n";
        for lan in ["lan = ['lan0', 'tun9']\n", "lan = ['lan0', 'lan9']\n"] {
            site.configure(&format!("{lan}{other}"));
            site.refused(&["up"], 1);
            assert_eq!(site.routing(), up);
        }
        site.configure("");
        assert_eq!(site.json(&["plan"])["changed"], false);
        site.border().run("ip link del tun9").expect("it is there");
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn change_that_fails_at_the_last_step_is_rolled_back() {
    on_site(|site| {
        if !add_bridge(site, "change_that_fails_at_the_last_step_is_rolled_back") {
            return;
        }
        let border = site.border();
        border.run("ip link set br0 up").expect("it is there");
        let before = site.routing();
        site.configure("lan = ['lan0', 'br0']");
        site.json(&["up"]);
        let up = site.routing();
        assert_eq!(site.xdp_mode("br0"), GENERIC);
        site.configure(
            "lan = ['lan0', 'br0']\n[attach]\nmode = 'native'\n\
             [flows]\ntable_size = 4096\nthreshold = 7\n\
             [routes]\nrule_priority = 3000\n",
        );
        let output = site.splitter(&["up"]);
        assert!(stderr(&output).contains("`br0`"), "{output:?}");
        assert_eq!(site.routing(), up);
        site.configure("lan = ['lan0', 'br0']");
        assert_eq!(site.json(&["plan"])["changed"], false);
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}

#[test]
fn interface_deleted_while_running_comes_back() {
    on_site(|site| {
        let daemon = site.run();
        let generators = &site.topology.generators;
        let mut connection = Connection::between(&generators[0], &generators[1]);
        site.border().run("ip link del lan0").expect("it is there");
        within(MENDED, "the daemon to notice", || {
            let (status, said) = site.get("/ready").expect("it answers");
            // The other one is split as before.
            assert_eq!(status, 200, "{said}");
            said.contains("degraded: dataplane: there is no lan0")
                .then_some(())
        });
        assert!(daemon.is_running());

        // The other interface's packets are split as before.
        let split = || site.json(&["status"])["traffic"][0]["packets"].as_u64();
        let before = split();
        assert_eq!(site.json(&["status"])["in_place"], false);
        connection.send(10_000);
        assert!(split() > before);
        let (_, metrics) = site.get("/metrics").expect("it answers");
        let attached = "splitter_attached_interfaces{mode=\"native\"} 1\n";
        assert!(metrics.contains(attached), "{metrics}");

        let border = site.border();
        border
            .run("ip link add lan0 type veth peer name far0")
            .expect("root");
        border.run("ip link set lan0 up").expect("it is there");
        border.run("ip link set far0 up").expect("it is there");
        within(MENDED, "the daemon to be ready again", || {
            (site.get("/ready").expect("it answers").1 == "ready\n").then_some(())
        });
        assert_eq!(site.xdp_mode("lan0"), NATIVE);
        assert_eq!(site.json(&["status"])["in_place"], true);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn tunnel_set_down_while_its_link_alone_is_watched_comes_back() {
    on_site(|site| {
        site.configure("[health]\nenabled = false");
        let daemon = site.run();
        let border = site.border();
        border.run("ip link set tun1 down").expect("it is there");
        let words = "ready, but degraded: tunnels: tun1 is down, link down; the long class is in the \
                     short tunnel\n";
        within(MENDED, "the daemon to notice", || {
            (site.get("/ready").expect("it answers") == (200, words.to_owned())).then_some(())
        });
        border.run("ip link set tun1 up").expect("it is there");
        if site.topology.borders[0].gateways_ipv6.is_some() {
            // The kernel keeps the address of the other family, but not this one.
            let address = "ip address replace fd00:9:1::1/64 dev tun1 nodad";
            border.run(address).expect("it is there");
        }
        within(MENDED, "the daemon to be ready again", || {
            (site.get("/ready").expect("it answers").1 == "ready\n").then_some(())
        });
        assert_eq!(site.json(&["plan"])["changed"], false);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn rule_that_somebody_deletes_is_restored() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let set_up = site.routing();
        site.border()
            .run("ip rule del priority 1601 iif lan0")
            .expect("it is there");
        assert_ne!(site.routing(), set_up);
        within(MENDED, "the rule to be back", || {
            (site.routing() == set_up).then_some(())
        });
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn missing_bpf_file_system_is_named_with_the_remedy() {
    on_site(|site| {
        std::fs::create_dir(site.path("plain")).expect("a directory");
        for directory in ["plain", "nowhere"] {
            let path = site.path(directory).display().to_string();
            site.configure(&format!("bpffs = '{path}'"));
            let mount = format!("mount -t bpf bpf {path}");
            let remedy = match directory {
                "plain" => format!("`{mount}`"),
                _ => format!("`mkdir -p {path} && {mount}`"),
            };
            refused(site, &["run", "up"], 1, &[&remedy]);
        }
    });
}

#[test]
fn damaged_state_is_named() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        std::fs::write(site.path("run/test/state.json"), "{").expect("a file");
        let reported = site.refused(&["down"], 1);
        assert!(reported.contains("state.json"), "{reported}");
        std::fs::remove_file(site.path("run/test/state.json")).expect("it is there");
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}
