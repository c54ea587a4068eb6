//! Commands that look at a border or change it, and end.

use serde_json::Value;

use super::{Cases, on_border};
use crate::support::site::Site;

/// Makes a device whose packets have no Ethernet header.
fn add_tun9(site: &Site) {
    let border = site.border();
    border
        .run("ip tuntap add dev tun9 mode tun")
        .expect("the kernel has it");
    border.run("ip link set tun9 up").expect("it is there");
}

/// The kernel's number of the program on the interface of the site.
fn program_number(site: &Site) -> Value {
    let shown = site
        .border()
        .run("ip -j link show gen0")
        .expect("it exists");
    let links: Value = serde_json::from_str(&shown).expect("JSON");
    links[0]["xdp"]["prog"]["id"].clone()
}

/// Adds refusals that `plan`, `up` and `run` have in common.
pub(super) fn add_refusals(cases: &mut Cases, command: &str) {
    let site = cases.site;
    cases.add_wrong_files(&[command]);
    // An agent waits for it.
    if command != "run" {
        cases.configure("lan = ['lan0', 'lan9']");
        cases.add("no such interface", &[command]);
    }
    add_tun9(site);
    cases.configure("lan = ['lan0', 'tun9']");
    cases.add("an interface without Ethernet headers", &[command]);
    if command != "plan" {
        std::fs::create_dir(site.path("plain")).expect("a directory");
        cases.configure(&format!("bpffs = {:?}", site.path("plain")));
        cases.add("no BPF file system", &[command]);
    }
    cases.configure("");
    let rule = "priority 1601 lookup 7";
    site.border()
        .run(&format!("ip rule add {rule}"))
        .expect("root");
    cases.add("a rule of somebody else", &[command]);
    site.border()
        .run(&format!("ip rule del {rule}"))
        .expect("it is there");
}

#[test]
fn words_of_plan_are_those_reviewed() {
    on_border("plan", |cases| {
        cases.add("nothing is up", &["plan"]);
        add_refusals(cases, "plan");
        // The kernel chooses the handle of a queueing discipline that has none.
        cases.words.mask("qdisc tbf [0-9a-f]+:", "qdisc tbf N:");
        cases.configure("policy = 'share'");
        cases.add("shared tunnels", &["plan"]);
        cases.configure("[steering]\nmode = 'redirect'");
        cases.add("redirected packets", &["plan"]);
        cases.configure("shadow = true");
        cases.add("a shadow", &["plan"]);
        cases.configure("");
        cases.site.json(&["up"]);
        cases.add("all is up", &["plan"]);
        cases
            .site
            .configure("lan = ['lan0']\n[flows]\nthreshold = 60\ntable_size = 4096");
        cases.add("other settings, and one interface fewer", &["plan"]);
        cases.site.json(&["down"]);
    });
}

#[test]
fn words_of_up_are_those_reviewed() {
    on_border("up", |cases| {
        add_refusals(cases, "up");
        cases.add_as_nobody("without rights", &["up"]);
        let tables =
            "[short]\ndevice = 'tun0'\ntable = 7001\n[long]\ndevice = 'tun1'\ntable = 7002";
        let stranger =
            format!("name = 'stranger'\nlan = 'gen0'\n[routes]\nrule_priority = 2000\n{tables}");
        cases.configure(&stranger);
        cases.site.json(&["up"]);
        let number = format!("number {}", program_number(cases.site));
        cases.words.hide(number, "number N");
        cases.configure("");
        cases.add("a program of somebody else on an interface", &["up"]);
        cases.configure(&stranger);
        cases.site.json(&["down"]);
        cases.configure("");
        cases.add("the first time", &["up"]);
        cases.add("a second time", &["up"]);
        cases.configure("name = 'stranger'");
        cases.add("the tables of another instance", &["up"]);
        cases.configure("");
        cases.site.json(&["down"]);
    });
}

#[test]
fn words_of_down_are_those_reviewed() {
    on_border("down", |cases| {
        cases.add_wrong_files(&["down"]);
        cases.add("nothing is up", &["down"]);
        cases.site.json(&["up"]);
        cases.add_as_nobody("without rights", &["down"]);
        cases.add("all is up", &["down"]);
        cases.site.json(&["up"]);
        let state = cases.site.path("run/test/state.json");
        std::fs::write(&state, "{").expect("a file");
        cases.add("a damaged state", &["down"]);
        std::fs::remove_file(&state).expect("it is there");
        cases.add("a state that was removed", &["down"]);
    });
}

#[test]
fn words_of_status_are_those_reviewed() {
    on_border("status", |cases| {
        cases.add_wrong_files(&["status"]);
        cases.add("nothing is up", &["status"]);
        cases.site.json(&["up"]);
        cases.add_as_nobody("without rights", &["status"]);
        cases.site.json(&["down"]);
    });
}

#[test]
fn words_of_flows_are_those_reviewed() {
    on_border("flows", |cases| {
        cases.add_wrong_files(&["flows"]);
        cases.add("a limit that is none", &["flows", "--limit", "some"]);
        cases.add("nothing is up", &["flows"]);
        cases.site.json(&["up"]);
        cases.add_as_nobody("without rights", &["flows"]);
        cases.add("no flow yet", &["flows"]);
        cases.site.json(&["down"]);
    });
}

#[test]
fn words_of_explain_are_those_reviewed() {
    on_border("explain", |cases| {
        let client = cases.site.topology.client.ipv4.to_string();
        let server = cases.site.topology.server.ipv4.to_string();
        let arguments = ["explain", &client, &format!("{server}:443")];
        cases.add_wrong_files(&arguments);
        for (case, ends) in [
            ("no address", &[][..]),
            ("what is no address", &["server"]),
            ("no host", &["127.0.0.1"]),
            ("no port", &["10.2.0.5:0"]),
            ("two families", &["10.2.0.5", "2001:db8::5"]),
            ("three addresses", &["10.2.0.5", "10.2.0.6", "10.2.0.7"]),
        ] {
            cases.add(case, &[&["explain"], ends].concat());
        }
        cases.add("nothing is up", &arguments);
        cases.site.json(&["up"]);
        cases.add("a new flow", &arguments);
        cases.add("from anywhere", &["explain", &server]);
        cases.add("from the wrong side", &["explain", &server, &client]);
        let rule = format!("to {server} lookup main priority 500");
        let border = cases.site.border();
        border.run(&format!("ip rule add {rule}")).expect("root");
        cases.add("a rule of somebody else", &arguments);
        border.run(&format!("ip rule del {rule}")).expect("root");
        cases.add_as_nobody("without rights", &arguments);
        cases.site.json(&["down"]);
    });
}

#[test]
fn words_of_verify_are_those_reviewed() {
    on_border("verify", |cases| {
        let server = cases.site.topology.server.ipv4.to_string();
        let arguments = ["verify", "--to", &server];
        cases.add_wrong_files(&arguments);
        cases.add("no host", &["verify"]);
        cases.add("what is no address", &["verify", "--to", "server"]);
        cases.add("no port", &["verify", "--to", &server, "--tcp", "0"]);
        cases.add("no probe", &["verify", "--to", &server, "--count", "0"]);
        cases.add("nothing is up", &arguments);
        cases.configure("shadow = true");
        cases.site.json(&["up"]);
        cases.add("a shadow", &arguments);
        cases.site.json(&["down"]);
        cases.configure("");
        cases.site.json(&["up"]);
        cases.add_as_nobody("without rights", &arguments);
        let rule = format!("to {server} prohibit priority 500");
        let border = cases.site.border();
        border.run(&format!("ip rule add {rule}")).expect("root");
        cases
            .words
            .mask("none of [0-9]+ packets", "none of N packets");
        cases.add("nothing leaves", &arguments);
        border.run(&format!("ip rule del {rule}")).expect("root");
        cases.site.json(&["down"]);
    });
}

#[test]
fn words_of_tap_are_those_reviewed() {
    on_border("tap", |cases| {
        cases.add("no device", &["tap"]);
        cases.add("no such direction", &["tap", "lan0:out"]);
        cases.add("no time", &["tap", "lan0", "--seconds", "0"]);
        cases.add("no packet", &["tap", "lan0", "--packets", "0"]);
        cases.add("a key for nothing", &["tap", "lan0", "--packet-key", "k"]);
        cases.add(
            "no such key",
            &[
                "tap",
                "lan0",
                "--packets",
                "1",
                "--packet-key",
                "/nonexistent",
            ],
        );
        cases.add("a join with one file", &["tap", "--join", "a.json"]);
        cases.add("a join of devices", &["tap", "--join", "a", "b", "lan0"]);
        cases.add(
            "a join of what is not there",
            &["tap", "--join", "/nonexistent", "b"],
        );
        cases.add("no such device", &["tap", "lan7:egress"]);
        add_tun9(cases.site);
        cases.add("a device without Ethernet headers", &["tap", "tun9"]);
        cases.add_as_nobody("without rights", &["tap", "lan0"]);
    });
}

/// The checks whose lines are the same on every machine that can run the test.
const CHECKS: [&str; 5] = [
    "IPv4 forwarding",
    "interface ",
    "reverse path filter of",
    "MTU",
    "rules and tables",
];

#[test]
fn words_of_doctor_are_those_reviewed() {
    on_border("doctor", |cases| {
        let site = cases.site;
        let border = site.border();
        let sysctl = |name: &str, value: &str| border.sysctl(name, value).expect("root");
        sysctl("net.ipv4.conf.all.rp_filter", "0");
        sysctl("net.ipv4.conf.tun0.rp_filter", "2");
        sysctl("net.ipv4.conf.tun1.rp_filter", "1");
        add_checks(cases, "strict filters of reverse paths");
        sysctl("net.ipv4.ip_forward", "0");
        border.run("ip link set tun1 down").expect("it is there");
        border
            .run("ip rule add priority 1601 lookup 7")
            .expect("root");
        cases.configure("lan = ['lan0', 'lan9']");
        add_checks(
            cases,
            "no forwarding, a tunnel that is down, an interface that is missing",
        );
        cases.add_wrong_files(&["doctor"]);
    });
}

/// Adds what `doctor` says of [`CHECKS`].
fn add_checks(cases: &mut Cases, case: &str) {
    let said = cases.run(&["doctor"]);
    let is_pinned = |line: &str| {
        // After the status.
        let check = line.get(6..).unwrap_or_default();
        CHECKS.iter().any(|it| check.starts_with(it))
    };
    cases.words.add_lines(case, &["doctor"], &said, is_pinned);
}
