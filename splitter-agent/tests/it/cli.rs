//! The command as a user meets it: what it prints and how it exits.

use std::fs;
use std::process::{Command, Output};

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Device, File, Program, Root};
use flow_testbed::require::skip;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_splitter");
const TUNNELS: &str = "lan = 'lan'\n[short]\ndevice = 'wan0'\n[long]\ndevice = 'wan1'\n";

fn splitter(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_reports_mistakes_and_exits_with_3() {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/config/splitter.example.toml"
    );
    assert_eq!(splitter(&["check", example]).status.code(), Some(0));
    let file = file(&format!("{TUNNELS}[flows]\nthreshold = 0\nunit = 'bits'\n"));
    let output = splitter(&["check", file.path().to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reported["ok"], false);
    assert_eq!(reported["diagnostics"][1]["key"], "flows.unit");
}

#[test]
fn commands_that_need_an_agent_exit_with_1_where_none_runs() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!("runtime_dir = {:?}\n{TUNNELS}", directory.path());
    let file = file(&text);
    let path = file.path().to_str().unwrap();
    for arguments in [&["reload"][..], &["set", "threshold", "60"], &["advise"]] {
        let output = splitter(&[arguments, &["--config", path]].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn wrong_command_line_exits_with_2() {
    assert_eq!(splitter(&["plan", "--nonsense"]).status.code(), Some(2));
    assert_eq!(splitter(&["demo", "--load", "96"]).status.code(), Some(2));
}

#[test]
fn completions_know_the_keys_that_can_be_set() {
    // What clap_complete makes for fish names no values of positional arguments.
    for shell in ["bash", "zsh"] {
        let script = stdout(&splitter(&["completions", shell]));
        for expected in ["handover.max_wait_ms", "flows.unit=bytes"] {
            assert!(script.contains(expected), "{shell}: {expected}");
        }
        assert!(!script.contains("health.port"), "{shell}");
    }
}

#[test]
fn schema_and_example_are_printed_and_agree() {
    let schema: Value = serde_json::from_slice(&splitter(&["config", "schema"]).stdout).unwrap();
    assert!(schema["$schema"].as_str().unwrap().contains("2020-12"));
    let example = stdout(&splitter(&["config", "example"]));
    let example: toml::Table = example.parse().unwrap();
    for (name, _) in &example {
        assert!(schema["properties"].get(name).is_some(), "{name}");
    }
}

#[test]
fn completions_and_man_page_know_the_commands() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let output = splitter(arguments);
        assert!(output.status.success());
        assert!(stdout(&output).contains("doctor"));
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    assert!(splitter(&["man", "--out", out]).status.success());
    let page = |name: &str| fs::read_to_string(directory.path().join(name));
    assert!(page("splitter.1").unwrap().contains("splitter\\-doctor(1)"));
    assert!(page("splitter-apply.1").unwrap().contains("\\-\\-confirm"));
    assert!(page("splitter-config-schema.1").is_ok());
    assert!(page("splitter-man.1").is_err(), "hidden commands have none");
    let absent = splitter(&["man", "--out", "/nowhere"]);
    assert_eq!(absent.status.code(), Some(1));
    let error = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(error.contains("/nowhere"), "{error}");
}

/// Runs the command in a namespace with the interfaces that [`TUNNELS`] names.
fn in_namespace(prepare: &[&str], arguments: &[&str]) -> Output {
    let namespace = namespace(prepare);
    configured(&namespace, TUNNELS, arguments)
}

fn namespace(prepare: &[&str]) -> Namespace {
    let namespace = Namespace::new("cli").unwrap();
    for device in ["lan", "wan0", "wan1"] {
        let line = format!("ip link add {device} type veth peer far-{device}");
        namespace.run(&line).unwrap();
        namespace.run(&format!("ip link set {device} up")).unwrap();
    }
    for line in prepare {
        namespace.run(line).unwrap();
    }
    namespace
}

/// Runs the command there with a configuration.
fn configured(namespace: &Namespace, text: &str, arguments: &[&str]) -> Output {
    let file = file(text);
    let mut command = namespace.command(BINARY);
    command
        .args(arguments)
        .arg("--config")
        .arg(file.path())
        .output()
        .unwrap()
}

#[test]
fn plan_shows_steps_and_changes_nothing() {
    require!(Root, Program("ip"));
    let output = in_namespace(&[], &["plan"]);
    assert_eq!(output.status.code(), Some(0));
    let output = in_namespace(&[], &["plan", "--json"]);
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reported["changed"], true);
    assert_eq!(
        reported["plan"]["routes"]["actions"]
            .as_array()
            .unwrap()
            .len(),
        10
    );
    assert_eq!(reported["plan"]["attachments"][0]["action"], "attach");
}

#[test]
fn conflict_exits_with_5() {
    require!(Root, Program("ip"));
    let output = in_namespace(&["ip rule add lookup 7 priority 1601"], &["plan"]);
    assert_eq!(output.status.code(), Some(5));
    let output = in_namespace(&["ip rule add lookup 7 priority 1601"], &["plan", "--json"]);
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reported["exit_code"], 5);
}

#[test]
fn doctor_gives_each_check_its_remedy() {
    require!(Root, Program("ip"));
    let output = in_namespace(
        &["ip link set wan1 down", "ip link del lan"],
        &["doctor", "--json"],
    );
    assert_eq!(output.status.code(), Some(1));
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = |check: &str| {
        let found = reported
            .as_array()
            .unwrap()
            .iter()
            .find(|reported| reported["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check} in {reported:#}"));
        assert!(
            found["status"] == "ok" || found["remedy"].is_string(),
            "{found:#}"
        );
        found["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status("IPv4 forwarding"), "fail");
    assert_eq!(status("interface lan"), "fail");
    assert_eq!(status("interface wan1 (long tunnel)"), "fail");
    assert_eq!(status("interface wan0 (short tunnel)"), "warn");
    // They can be looked at without the interface.
    assert_eq!(status("rules and tables"), "ok");
}

#[test]
fn doctor_asks_for_forwarding_of_the_families_that_the_tunnels_carry() {
    require!(Root, Program("ip"));
    let (v4, v6) = (["192.0.2.1", "192.0.2.5"], ["fe80::1", "fe80::2"]);
    let [v4, v6] = [v4, v6].map(|[short, long]| {
        format!(
            "lan = 'lan'\n[short]\ndevice = 'wan0'\ngateway = '{short}'\n\
             [long]\ndevice = 'wan1'\ngateway = '{long}'\n"
        )
    });
    let namespace = namespace(&[]);
    namespace.sysctl("net.ipv4.ip_forward", "0").unwrap();
    let statuses = |text: &str| {
        let output = configured(&namespace, text, &["doctor", "--json"]);
        let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
        ["IPv4 forwarding", "IPv6 forwarding"].map(|check| {
            let mut all = reported.as_array().unwrap().iter();
            let found = all.find(|reported| reported["check"] == check);
            found.map(|reported| reported["status"].as_str().unwrap().to_owned())
        })
    };
    let some = |status: &str| Some(status.to_owned());
    for (value, v6_status) in [("0", "fail"), ("1", "ok")] {
        namespace
            .sysctl("net.ipv6.conf.all.forwarding", value)
            .unwrap();
        assert_eq!(statuses(&v6), [None, some(v6_status)]);
        assert_eq!(statuses(&v4), [some("fail"), None]);
    }
    namespace
        .sysctl("net.ipv6.conf.all.forwarding", "0")
        .unwrap();
    assert_eq!(statuses(TUNNELS), [some("fail"), some("warn")]);
}

#[test]
fn doctor_fails_where_a_tunnel_filters_reverse_paths_strictly() {
    require!(Root, Program("ip"));
    let namespace = namespace(&[]);
    namespace
        .sysctl("net.ipv4.conf.all.rp_filter", "0")
        .unwrap();
    namespace
        .sysctl("net.ipv4.conf.wan0.rp_filter", "2")
        .unwrap();
    namespace
        .sysctl("net.ipv4.conf.wan1.rp_filter", "1")
        .unwrap();
    let output = configured(&namespace, TUNNELS, &["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = |tunnel: &str| {
        let check = format!("reverse path filter of {tunnel}");
        let mut all = reported.as_array().unwrap().iter();
        let found = all.find(|reported| reported["check"] == *check);
        found.map(|reported| reported["status"].clone())
    };
    assert_eq!(status("wan0"), Some("ok".into()));
    assert_eq!(status("wan1"), Some("fail".into()));
}

#[test]
fn advise_reads_a_file_of_flows() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../netsim/crates/workload/distributions/web_search_dctcp_tg.csv"
    );
    let arguments = [
        "advise", "--sizes", path, "--load", "40", "--rates", "100,100",
    ];
    let output = splitter(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reported["verdict"], "change");
    // A distribution without error of sampling.
    assert_eq!(reported["range"], Value::Null);
    let (present, expected) = (&reported["present"], &reported["expected"]);
    assert!(expected["mean_slowdown"].as_f64() < present["mean_slowdown"].as_f64());
    let load = |of: &Value| of["short_load"].as_f64().unwrap() + of["long_load"].as_f64().unwrap();
    assert!((load(expected) - 0.8).abs() < 1e-6, "{reported}");

    let wrong = file("1000\nmany\n");
    let wrong = splitter(&["advise", "--sizes", wrong.path().to_str().unwrap()]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("line 2"),
        "{wrong:?}"
    );
    assert_eq!(
        splitter(&["advise", "--load", "40"]).status.code(),
        Some(2),
        "without a file"
    );
}

#[test]
fn doctor_and_plan_report_what_redirecting_does_not_see() {
    require!(Root, Program("ip"), Program("ethtool"));
    if Device("vlan id 7").check().is_err() {
        let reason = "lacks VLAN devices; use a kernel that has them";
        return skip(
            "cli::doctor_and_plan_report_what_redirecting_does_not_see",
            reason,
        );
    }
    let namespace = namespace(&["ip link add link lan name lan.7 type vlan id 7"]);
    let reported = |mode: &str, command: &str| {
        let text = format!("{TUNNELS}[steering]\nmode = '{mode}'\n");
        let output = configured(&namespace, &text, &[command]);
        stdout(&output) + &stderr(&output)
    };
    let remedy = "ethtool -K lan rxvlan off";
    for command in ["doctor", "plan"] {
        let redirect = reported("redirect", command);
        assert!(
            redirect.contains("lan.7") && redirect.contains(remedy),
            "{command}: {redirect}"
        );
        for mode in ["dscp", "mark"] {
            let other = reported(mode, command);
            assert!(!other.contains(remedy), "{command}: {other}");
        }
    }
    namespace.run(remedy).unwrap();
    for command in ["doctor", "plan"] {
        let redirect = reported("redirect", command);
        assert!(!redirect.contains(remedy), "{command}: {redirect}");
    }
}

#[test]
fn doctor_and_plan_report_where_ipv6_is_not_redirected() {
    require!(Root, Program("ip"), File("/proc/sys/net/ipv6"));
    let namespace = namespace(&["ip -6 route add default dev wan0"]);
    let remedy = "ip -6 route del ::/0 dev wan0";
    let reported = |command: &str| {
        let text = format!("{TUNNELS}[steering]\nmode = 'redirect'\n");
        let output = configured(&namespace, &text, &[command]);
        stdout(&output) + &stderr(&output)
    };
    for command in ["doctor", "plan"] {
        let reported = reported(command);
        assert!(reported.contains(remedy), "{command}: {reported}");
    }
    namespace.run(remedy).unwrap();
    for command in ["doctor", "plan"] {
        let reported = reported(command);
        assert!(!reported.contains(remedy), "{command}: {reported}");
    }
}
