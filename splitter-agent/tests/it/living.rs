//! Changing a configuration while packets flow, and asking the agent for advice.

use crate::support::daemon;
use crate::support::nobody;
use crate::support::site;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use daemon::Daemon;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nobody::as_nobody;
use serde_json::{Value, json};
use site::{Connection, Site, on_site, output};

/// A section of the configuration with this threshold.
fn threshold(threshold: &str) -> String {
    format!("[flows]\nthreshold = {threshold}\ntable_size = 4096\n")
}

fn threshold_in_force(site: &Site) -> f64 {
    site.metric("splitter_threshold{unit=\"packets\"}")
}

fn changes(site: &Site, source: &str, result: &str) -> f64 {
    let labels = format!("{{source=\"{source}\",result=\"{result}\"}}");
    site.metric(&format!("splitter_config_changes_total{labels}"))
}

fn hang_up(daemon: &Daemon) {
    kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGHUP).expect("it is ours");
}

/// It fails so, says all of `words`, and the threshold stays.
fn refused(site: &Site, arguments: &[&str], code: i32, words: &[&str]) {
    let before = threshold_in_force(site);
    let reported = site.refused(arguments, code);
    for word in words {
        assert!(
            reported.contains(word),
            "{arguments:?}: no {word:?} in: {reported}"
        );
    }
    assert_eq!(threshold_in_force(site), before);
}

#[test]
fn reload_under_load_keeps_flows_and_reports_what_changed() {
    require!(Program("iperf3"));
    on_site(|site| {
        let daemon = site.run();
        let server = &site.topology.server;
        let mut listen = server.namespace.command("iperf3");
        listen.args(["-s", "-1", "-p", "5201"]);
        let server_log = site.path("iperf3-server");
        let _server = Daemon::start(listen, &server_log);
        site.wait_for("iperf3 to listen", || {
            let sockets = server.namespace.run("ss -tln").ok()?;
            sockets.contains(":5201").then_some(())
        });
        let mut send = site.topology.client.namespace.command("iperf3");
        send.args([
            "-c",
            &server.ipv4.to_string(),
            "-p",
            "5201",
            "-t",
            "8",
            "-J",
        ]);
        let client = Daemon::start(send, &site.path("iperf3-client"));
        let busiest = || {
            let flows = site.json(&["flows"]);
            let flow = flows["flows"][0].clone();
            (flow["packets"].as_u64() > Some(500)).then_some(flow)
        };
        let before = site.wait_for("a long flow", busiest);

        site.configure(&threshold("60"));
        let dry = site.json(&["reload", "--dry-run"]);
        let change = json!([{ "key": "flows.threshold", "from": 40, "to": 60 }]);
        assert_eq!((&dry["changes"], &dry["applied"]), (&change, &false.into()));
        assert_eq!(threshold_in_force(site), 40.0);
        assert_eq!(changes(site, "reload", "applied"), 0.0, "a dry run is none");

        let reported = site.json(&["reload"]);
        assert_eq!(
            (&reported["changes"], &reported["applied"]),
            (&change, &true.into())
        );
        assert_eq!(reported["steps"], json!(["+ write their settings"]));
        assert_eq!(threshold_in_force(site), 60.0);
        assert_eq!(changes(site, "reload", "applied"), 1.0);
        let status = site.json(&["status"]);
        assert_eq!(status["in_place"], true, "{status}");

        let after = busiest().expect("it is still there");
        assert_eq!(after["source_port"], before["source_port"]);
        assert!(after["packets"].as_u64() >= before["packets"].as_u64());
        assert!(
            after["age_s"].as_f64() > before["age_s"].as_f64(),
            "it did not start again"
        );
        assert_eq!(after["class"], "long");

        assert!(client.wait().success(), "{}", client.log());
        let sent: Value = serde_json::from_str(&client.log()).expect("JSON");
        let rate = sent["end"]["sum_received"]["bits_per_second"].as_f64();
        assert!(rate > Some(30e6), "{rate:?}");

        assert_eq!(site.json(&["reload"])["changes"], json!([]));
        assert_eq!(changes(site, "reload", "unchanged"), 1.0);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn hang_up_has_the_file_read_again() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        // More than settings: an interface goes, too.
        let other = threshold("70");
        site.configure(&format!("lan = ['lan0']\n{other}"));
        hang_up(&daemon);
        site.wait_for("the new threshold", || {
            (threshold_in_force(site) == 70.0).then_some(())
        });
        assert_eq!(
            (site.xdp_mode("lan0"), site.xdp_mode("gen0")),
            (Some(1), None)
        );
        assert_eq!(changes(site, "signal", "applied"), 1.0);
        let log = daemon.log();
        assert!(log.contains("flows.threshold: 40 -> 70"), "{log}");
        let flows = site.json(&["flows"]);
        let flow = flows["flows"].as_array().into_iter().flatten();
        let known = flow.filter(|it| it["source_port"] == connection.port());
        assert_eq!(known.count(), 1, "{flows}");

        // What was refused changes nothing, and is reported by log and metric.
        site.configure("[flows]\nthreshold = 80\ntable_size = 4096\n[health]\nport = 9463\n");
        hang_up(&daemon);
        site.wait_for("the refusal", || {
            (changes(site, "signal", "refused") == 1.0).then_some(())
        });
        assert_eq!(threshold_in_force(site), 70.0);
        assert_eq!(site.metric("splitter_config_refused"), 1.0);
        assert!(
            daemon.log().contains("health.port: 9462 -> 9463"),
            "{}",
            daemon.log()
        );

        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
        assert!(!site.path("run/test/control.sock").exists());
    });
}

#[test]
fn what_is_wrong_is_refused_as_a_whole() {
    on_site(|site| {
        let daemon = site.run();
        let right = std::fs::read_to_string(site.config()).expect("a file");
        // The threshold alone would be right.
        let text = format!("{right}\n[handover]\nmax_wait_ms = 0\nzebra = 1\n")
            .replace("table_size = 4096", "table_size = 4096\nthreshold = 70");
        std::fs::write(site.config(), text).expect("a file");
        let words = [
            "handover.max_wait_ms = 0",
            "handover.zebra = 1",
            "splitter.toml:",
        ];
        refused(site, &["reload"], 3, &words);
        refused(site, &["reload", "--dry-run"], 3, &words);
        std::fs::write(site.config(), "lan = [").expect("a file");
        refused(site, &["reload"], 3, &["splitter.toml:1"]);

        site.configure("[flows]\nthreshold = 70\ntable_size = 4096\n[health]\nport = 9463\n");
        let words = ["health.port: 9462 -> 9463", "end the agent"];
        refused(site, &["reload"], 5, &words);
        site.configure(&format!("{}[long]\ndevice = 'nowhere'\n", threshold("70")));
        refused(site, &["reload"], 1, &["nowhere"]);
        // Another file than the agent's.
        let copy = site.path("copy.toml");
        site.configure("");
        std::fs::copy(site.config(), &copy).expect("a file");
        let mut other = site.border().command(site::BINARY);
        other.arg("--config").arg(&copy).arg("reload");
        let other = output(other);
        assert_eq!(other.status.code(), Some(5), "{other:?}");

        for (arguments, code, words) in [
            (&["set", "treshold", "60"][..], 3, "flows.threshold"),
            (&["set", "threshold", "0"], 3, "flows.threshold = 0"),
            (
                &["set", "threshold", "60", "max_wait_ms", "0"],
                3,
                "handover.max_wait_ms = 0",
            ),
            (&["set", "health.port", "9463"], 3, "health.port"),
            (&["set", "lan", "gen0"], 3, "`splitter reload`"),
            (&["set", "threshold", "60", "unit"], 1, "unit"),
            (&["set", "threshold", "auto"], 0, ""),
        ] {
            if code == 0 {
                assert!(site.splitter(arguments).status.success());
            } else {
                refused(site, arguments, code, &[words]);
            }
        }
        assert!(changes(site, "reload", "refused") >= 3.0);
        assert!(changes(site, "set", "refused") >= 2.0);
        assert!(daemon.is_running());
        assert_eq!(site.json(&["reload"])["applied"], true);
        assert_eq!(site.metric("splitter_config_refused"), 0.0);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn two_who_set_at_once_are_both_served() {
    on_site(|site| {
        let daemon = site.run();
        let start = |arguments: &[&str]| {
            let mut command = site.command(arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("it can be started")
        };
        for round in 0..5u32 {
            let (threshold, timeout) = ((60 + round).to_string(), (10 + round).to_string());
            let both = [
                start(&["set", "threshold", &threshold]),
                start(&["set", "idle_timeout_s", &timeout]),
            ];
            for child in both {
                let output = child.wait_with_output().expect("it ends");
                assert!(output.status.success(), "{output:?}");
            }
            let status = site.json(&["status"]);
            let set = json!({ "flows.threshold": 60 + round, "flows.idle_timeout_s": 10 + round });
            assert_eq!((&status["set"], &status["in_place"]), (&set, &true.into()));
        }
        assert_eq!(threshold_in_force(site), 64.0);
        // The file takes all of it back.
        let back = site.json(&["reload"]);
        let keys: Vec<_> = back["changes"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| &it["key"])
            .collect();
        assert_eq!(keys, ["flows.threshold", "flows.idle_timeout_s"]);
        assert_eq!(threshold_in_force(site), 40.0);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn nobody_else_speaks_to_the_agent() {
    on_site(|site| {
        let daemon = site.run();
        let socket = site.path("run/test/control.sock");
        let mode = std::fs::metadata(&socket)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        // The way to it is open; the socket is not.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(site.path(""), open).expect("it is ours");
        let output = as_nobody(site, &["set", "threshold", "60"]);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        assert_eq!(threshold_in_force(site), 40.0);
        assert!(daemon.end(Signal::SIGTERM).success());

        site.refused(&["set", "threshold", "60"], 1);
    });
}

#[test]
fn agent_after_a_killed_one_listens_again() {
    on_site(|site| {
        let before = site.routing();
        site.run().end(Signal::SIGKILL);
        assert!(site.path("run/test/control.sock").exists());
        let daemon = site.run();
        site.json(&["set", "threshold", "60"]);
        assert_eq!(threshold_in_force(site), 60.0);
        daemon.end(Signal::SIGKILL);
        site.json(&["down"]);
        site.assert_clean(&before);
        assert!(!site.path("run/test/control.sock").exists());
    });
}

#[test]
fn automatic_threshold_starts_in_its_bounds_and_is_handed_on() {
    on_site(|site| {
        site.configure(&format!("{}[advise]\nmin = 50\n", threshold("'auto'")));
        let first = site.run();
        assert_eq!(threshold_in_force(site), 50.0);
        // From a number back to `auto`, it stays where it is.
        site.json(&["set", "threshold", "90"]);
        site.json(&["set", "threshold", "auto"]);
        assert_eq!(threshold_in_force(site), 90.0);
        assert_eq!(site.json(&["status"])["in_place"], true);
        // The next agent takes it over, as far as its bounds allow.
        first.end(Signal::SIGKILL);
        let second = site.run();
        assert_eq!(threshold_in_force(site), 90.0);
        site.json(&["set", "advise.max", "80"]);
        assert_eq!(threshold_in_force(site), 80.0);
        assert!(second.end(Signal::SIGTERM).success());
    });
}

#[test]
fn advice_needs_flows_that_have_ended() {
    on_site(|site| {
        site.configure("[flows]\nsweep_interval_s = 1\ntable_size = 4096\n");
        let daemon = site.run();
        let advice = site.json(&["advise"]);
        assert_eq!(
            (&advice["verdict"], &advice["recommended"]),
            (&"too_few_flows".into(), &Value::Null)
        );
        let mut connection = Connection::open(&site.topology);
        connection.send(50_000);
        connection.close();
        // Finished flows are remembered for five seconds.
        site.wait_for("the flow to be counted", || {
            let flows = site.json(&["advise"])["flows"].as_f64();
            (flows > Some(0.9)).then_some(())
        });
        let advice = site.json(&["advise"]);
        assert_eq!(advice["verdict"], "too_few_flows", "{advice}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
