//! Commands of an emergency: the configuration cannot be used, or something was left behind.

use nix::sys::signal::Signal;

use crate::support::site::{Site, on_site, stderr, stdout};

/// A foreign rule, route and root queueing discipline, which nothing of ours may touch.
fn add_foreign(site: &Site) {
    for line in [
        "ip rule add priority 1700 to 192.0.2.0/24 lookup 77",
        "ip route add 192.0.2.0/24 dev lan0 table 77 proto static",
    ] {
        site.border().run(line).expect("root");
    }
}

#[test]
fn rule_that_somebody_deletes_is_named_by_status() {
    const SAID: &str = "not everything is in place";
    on_site(|site| {
        let status = || stdout(&site.splitter(&["status"]));
        site.json(&["up"]);
        assert!(!status().contains(SAID), "{}", status());
        site.border()
            .run("ip rule del priority 1601 iif lan0")
            .expect("it is there");
        assert!(status().contains(SAID), "{}", status());
        // As the line goes on.
        site.json(&["up"]);
        assert!(!status().contains(SAID), "{}", status());
        site.json(&["down"]);
    });
}

#[test]
fn wrong_file_keeps_nobody_from_looking_and_taking_down() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        let right = std::fs::read_to_string(site.config()).expect("a file");
        std::fs::write(site.config(), format!("zebra = 1\n{right}")).expect("a file");
        for command in [&["status"][..], &["flows"], &["top"]] {
            let arguments = [command, &["--json"]].concat();
            let output = site.splitter(&arguments);
            assert!(output.status.success(), "{command:?}: {output:?}");
            let said = stderr(&output);
            assert!(said.contains("has noted in"), "{command:?}: {said}");
        }
        assert_eq!(site.json(&["status"])["in_place"], true);
        let checks = site.splitter(&["doctor", "--json"]);
        assert!(stderr(&checks).contains("has noted in"), "{checks:?}");
        // What puts something in place goes by the file alone.
        for command in ["up", "run", "plan"] {
            site.refused(&[command], 3);
        }
        assert!(site.splitter(&["down"]).status.success());
        site.assert_clean(&before);
        // Nothing is noted any more.
        site.refused(&["down"], 3);
    });
}

#[test]
fn missing_file_is_known_by_its_path_and_no_other_means_the_instance() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let away = site.path("away.toml");
        std::fs::rename(site.config(), &away).expect("a file");
        assert_eq!(site.json(&["status"])["up"], true);
        assert_eq!(site.json(&["status"])["owner"], "run");
        site.refused(&["down"], 5);
        assert_eq!(site.json(&["set", "threshold", "60"])["applied"], true);
        assert_eq!(site.json(&["advise"])["verdict"], "too_few_flows");

        for command in ["status", "advise", "set threshold 70"] {
            let mut mistyped = site.border().command(crate::support::site::BINARY);
            let nowhere = site.path("splitter.tml");
            mistyped.arg("--config").arg(nowhere);
            mistyped.args(command.split(' '));
            let output = crate::support::site::output(mistyped);
            // Not the agent of whoever has no file, either.
            assert_eq!(output.status.code(), Some(3), "{command}: {output:?}");
        }

        std::fs::rename(away, site.config()).expect("a file");
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn down_all_removes_what_instances_have_left_and_nothing_else() {
    on_site(|site| {
        add_foreign(site);
        let before = site.routing();
        site.run().end(Signal::SIGKILL);
        // Of another instance nothing but rules and routes is left, and no state tells of them.
        for line in [
            "ip rule add priority 2000 iif lan0 lookup 7001 proto 94",
            "ip -6 rule add priority 2000 iif lan0 lookup 7001 proto 94",
            "ip route add default via 10.9.0.2 dev tun0 table 7001 proto 94",
        ] {
            site.border().run(line).expect("root");
        }
        // A file that is wrong still tells where its instance is.
        let right = std::fs::read_to_string(site.config()).expect("a file");
        std::fs::write(site.config(), format!("zebra = 1\n{right}")).expect("a file");
        let cleared = site.json(&["down", "--all"]);
        assert_eq!(
            cleared["kept"].as_array().map(Vec::len),
            Some(0),
            "{cleared}"
        );
        site.assert_clean(&before);
        let again = site.json(&["down", "--all"]);
        assert_eq!(
            again["removed"].as_array().map(Vec::len),
            Some(0),
            "{again}"
        );
    });
}

#[test]
fn down_all_copes_with_a_damaged_state() {
    on_site(|site| {
        let before = site.routing();
        site.json(&["up"]);
        std::fs::write(site.path("run/test/state.json"), "{").expect("a file");
        site.json(&["down", "--all"]);
        site.assert_clean(&before);
    });
}

#[test]
fn down_all_leaves_an_instance_alone_that_an_agent_runs() {
    on_site(|site| {
        let before = site.routing();
        let daemon = site.run();
        let up = site.routing();
        let stray = "ip route add default via 10.9.0.2 dev tun0 table 7001 proto 94";
        site.border().run(stray).expect("root");
        let output = site.splitter(&["down", "--all"]);
        assert_eq!(output.status.code(), Some(5), "{output:?}");
        let said = stdout(&output);
        assert!(said.contains(&daemon.id().to_string()), "{said}");
        assert_eq!(site.routing(), up, "the stray route alone has gone");
        assert_eq!(site.get("/ready").expect("it answers").0, 200);
        assert!(daemon.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}

#[test]
fn down_all_takes_shaping_off_that_nobody_knows_of() {
    on_site(|site| {
        let has_shape = || {
            let shown = site
                .border()
                .run("tc qdisc show dev tun0")
                .expect("tc works");
            shown.contains("htb 7400:")
        };
        site.configure("policy = 'share'");
        site.json(&["up"]);
        assert!(has_shape());
        std::fs::remove_file(site.path("run/test/state.json")).expect("it is there");
        site.json(&["down", "--all"]);
        assert!(!has_shape());
    });
}
