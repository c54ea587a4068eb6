//! Another file for the agent that runs: `splitter apply`, taken back unless `splitter confirm` keeps it.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::site::{Connection, Site, on_site};

/// A site whose agent's file is as it was, with a changed one beside it: an interface less, and
/// another threshold.
fn changed_file(site: &Site) -> String {
    let text = std::fs::read_to_string(site.config()).expect("a file");
    site.configure("lan = ['lan0']\n[flows]\nthreshold = 70\ntable_size = 4096\n");
    let changed = std::fs::read_to_string(site.config()).expect("a file");
    std::fs::write(site.config(), text).expect("a file");
    let path = site.path("changed.toml");
    std::fs::write(&path, changed).expect("a file");
    path.display().to_string()
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(path).expect("a file")
}

fn threshold(site: &Site) -> f64 {
    site.metric("splitter_threshold{unit=\"packets\"}")
}

fn changes(site: &Site, source: &str, result: &str) -> f64 {
    let labels = format!("{{source=\"{source}\",result=\"{result}\"}}");
    site.metric(&format!("splitter_config_changes_total{labels}"))
}

/// What is in force is that of the changed file, and nothing is to be mended.
#[track_caller]
fn assert_changed(site: &Site) {
    assert_eq!(threshold(site), 70.0);
    assert_eq!(site.xdp_mode("gen0"), None);
    let status = site.json(&["status"]);
    assert_eq!(status["in_place"], true, "{status}");
    assert_eq!(site.json(&["plan"])["changed"], false);
}

#[track_caller]
fn assert_as_before(site: &Site) {
    assert_eq!(threshold(site), 40.0);
    assert_eq!(site.xdp_mode("gen0"), Some(1));
    let status = site.json(&["status"]);
    assert_eq!(status["in_place"], true, "{status}");
    assert_eq!(status["unconfirmed"], Value::Null);
    assert_eq!(site.json(&["plan"])["changed"], false);
}

fn wait_until_reverted(site: &Site) {
    site.wait_for("the change to be taken back", || {
        (threshold(site) == 40.0).then_some(())
    });
}

#[test]
fn change_that_is_not_confirmed_is_taken_back_and_flows_are_kept() {
    on_site(|site| {
        let daemon = site.run();
        let (routing, file) = (site.routing(), read(site.config()));
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        let age = site.flow_from(connection.port())["age_s"].as_f64();

        let begun = Instant::now();
        let applied = site.json(&["apply", &changed_file(site), "--confirm", "12s"]);
        assert_eq!(
            (&applied["applied"], &applied["confirm_within_s"]),
            (&true.into(), &12.into())
        );
        assert_changed(site);
        assert_eq!(read(site.config()), file, "what the next start goes by");
        let status = site.json(&["status"]);
        let waiting = &status["unconfirmed"];
        assert_eq!(waiting["file"], json!(site.path("changed.toml")));
        let remaining = waiting["remaining_s"].as_f64();
        assert!(remaining > Some(0.0) && remaining <= Some(12.0), "{status}");

        // Nothing else may change meanwhile: then the old would not be what was there before.
        let again = changed_file(site);
        for arguments in [
            &["reload"][..],
            &["set", "threshold", "50"],
            &["apply", &again],
            &["apply", &again, "--confirm", "1h"],
        ] {
            let reported = site.refused(arguments, 5);
            assert!(reported.contains("`splitter confirm`"), "{reported}");
        }
        kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGHUP).expect("it is ours");
        site.wait_for("the signal to be refused", || {
            (changes(site, "signal", "refused") == 1.0).then_some(())
        });
        connection.send(200_000);
        assert!(
            begun.elapsed() < Duration::from_secs(12),
            "the machine is too busy for this test"
        );
        assert_changed(site);

        wait_until_reverted(site);
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(12), "{took:?}");
        assert_as_before(site);
        assert_eq!(site.routing(), routing);
        assert_eq!(changes(site, "revert", "applied"), 1.0);
        connection.send(20_000);
        let flow = site.flow_from(connection.port());
        assert_eq!(flow["class"], "long", "{flow}");
        assert!(flow["bytes"].as_u64() > Some(400_000), "{flow}");
        assert!(flow["age_s"].as_f64() > age, "it did not start again");

        let reported = site.refused(&["confirm"], 1);
        assert!(reported.contains("was taken back"), "{reported}");
        assert_eq!(site.json(&["reload"])["changed"], false);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn change_that_is_confirmed_stays_also_for_the_next_start() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        std::fs::set_permissions(site.config(), PermissionsExt::from_mode(0o640)).expect("ours");
        let reported = site.refused(&["confirm"], 1);
        assert!(reported.contains("no change awaits"), "{reported}");
        let changed = changed_file(site);
        site.json(&["apply", &changed, "--confirm", "5s"]);
        let confirmed = site.json(&["confirm"]);
        assert_eq!(
            confirmed,
            json!({ "confirmed": true, "file": site.config() })
        );
        assert_eq!(read(site.config()), read(changed.into()));
        let mode = std::fs::metadata(site.config())
            .expect("a file")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        std::thread::sleep(Duration::from_secs(6));
        assert_changed(site);
        assert_eq!(site.json(&["status"])["unconfirmed"], Value::Null);
        assert_eq!(site.json(&["reload"])["changed"], false);
        assert_eq!(site.json(&["set", "threshold", "71"])["applied"], true);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);

        let daemon = site.run();
        assert_changed(site);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn agent_that_dies_before_the_confirmation_comes_up_with_the_old_file() {
    on_site(|site| {
        let daemon = site.run();
        let (routing, file) = (site.routing(), read(site.config()));
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        site.json(&["apply", &changed_file(site), "--confirm", "1h"]);
        daemon.end(Signal::SIGKILL);
        assert_eq!(read(site.config()), file);
        let daemon = site.run();
        assert_as_before(site);
        assert_eq!(site.routing(), routing);
        let flow = site.flow_from(connection.port());
        assert_eq!(flow["class"], "long", "{flow}");
        site.refused(&["confirm"], 1);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

/// What `splitter up` has brought up stays when the agent ends, but not what nobody has confirmed.
#[test]
fn agent_that_is_ended_before_the_confirmation_leaves_the_old_in_force() {
    on_site(|site| {
        site.json(&["up"]);
        let routing = site.routing();
        let daemon = site.run();
        site.json(&["apply", &changed_file(site), "--confirm", "1h"]);
        assert_ne!(site.routing(), routing);
        assert!(daemon.end(Signal::SIGTERM).success());
        assert_eq!(site.routing(), routing);
        assert_eq!(site.json(&["plan"])["changed"], false);
        site.json(&["down"]);
    });
}

#[test]
fn change_can_be_taken_back_at_once_or_kept_at_once() {
    on_site(|site| {
        let daemon = site.run();
        let file = read(site.config());
        let changed = changed_file(site);
        let shown = site.json(&["apply", "--dry-run", &changed]);
        assert_eq!(
            (&shown["changed"], &shown["applied"]),
            (&true.into(), &false.into())
        );
        assert_as_before(site);

        // What was set is there again, too.
        site.json(&["set", "unit", "packets", "threshold", "41"]);
        site.json(&["apply", &changed, "--confirm", "1h"]);
        assert_changed(site);
        assert_eq!(site.json(&["confirm", "--revert"])["changed"], true);
        assert_eq!(threshold(site), 41.0);
        assert_eq!(site.json(&["status"])["set"]["flows.threshold"], 41);
        site.refused(&["confirm", "--revert"], 1);
        assert_eq!(site.json(&["reload"])["changed"], true);
        assert_as_before(site);
        assert_eq!(read(site.config()), file);

        assert_eq!(site.json(&["apply", &changed])["applied"], true);
        assert_changed(site);
        assert_eq!(read(site.config()), read(changed.into()));
        let left = std::fs::read_dir(site.path("")).expect("a directory");
        let left: Vec<_> = left
            .filter_map(|it| it.ok()?.file_name().into_string().ok())
            .collect();
        assert!(left.iter().all(|name| !name.ends_with(".new")), "{left:?}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn revert_that_cannot_be_done_is_tried_until_it_can() {
    on_site(|site| {
        let daemon = site.run();
        site.json(&["apply", &changed_file(site), "--confirm", "1s"]);
        // The interface that only the old configuration has.
        let rename = |from: &str, to: &str| {
            let commands = [
                format!("ip link set {from} down"),
                format!("ip link set {from} name {to}"),
                format!("ip link set {to} up"),
            ];
            for command in commands {
                site.border().run(&command).expect("it is ours");
            }
        };
        rename("gen0", "away");
        site.wait_for("the revert to fail", || {
            (changes(site, "revert", "refused") >= 1.0).then_some(())
        });
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(threshold(site), 70.0, "what is in force stays whole");
        assert_eq!(changes(site, "revert", "refused"), 1.0, "reported once");
        rename("away", "gen0");
        wait_until_reverted(site);
        assert_as_before(site);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn what_cannot_be_applied_is_refused_and_changes_nothing() {
    on_site(|site| {
        let changed = changed_file(site);
        let reported = site.refused(&["apply", &changed, "--confirm", "60s"], 1);
        assert!(reported.contains("no agent runs"), "{reported}");
        let daemon = site.run();
        let file = read(site.config());
        let own = site.config().display().to_string();
        let reported = site.refused(&["apply", &own, "--confirm", "60s"], 1);
        assert!(reported.contains("the agent's own file"), "{reported}");
        std::fs::write(
            site.path("wrong.toml"),
            format!("{file}\n[handover]\nmax_wait_ms = 0"),
        )
        .expect("a file");
        let wrong = site.path("wrong.toml").display().to_string();
        let reported = site.refused(&["apply", &wrong], 3);
        assert!(reported.contains("wrong.toml"), "{reported}");
        site.refused(&["apply", "/nowhere.toml"], 3);
        let frozen = format!("{file}\n[health]\nport = 9463\n");
        std::fs::write(site.path("frozen.toml"), frozen).expect("a file");
        let frozen = site.path("frozen.toml").display().to_string();
        site.refused(&["apply", &frozen, "--confirm", "60s"], 5);
        assert_eq!(read(site.config()), file);
        assert_as_before(site);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
