//! A class that has left its dead tunnel, while somebody looks at it or changes the configuration.

use crate::support::pair;
use crate::support::site;
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use pair::{Pair, QUICK, on_pair};
use serde_json::{Value, json};
use site::{Connection, Site, stdout};

/// Makes the file say this, too.
fn append(site: &Site, section: &str, line: &str) {
    let text = std::fs::read_to_string(site.config()).expect("a file");
    let mut table: toml::Table = text.parse().expect("TOML");
    let section = table.entry(section).or_insert(toml::Table::new().into());
    let more: toml::Table = line.parse().expect("TOML");
    section.as_table_mut().expect("a section").extend(more);
    std::fs::write(site.config(), table.to_string()).expect("a file");
}

/// Where `splitter top` says that the classes go.
fn in_top(pair: &Pair<'_>) -> [Value; 2] {
    seats_of(&pair.site.json(&["top", "-i", "0.1"]))
}

/// Where the status page says so; it makes do with one look for a second.
fn on_page(pair: &Pair<'_>) -> [Value; 2] {
    let (_, body) = pair.site.get("/status.json").expect("it answers");
    seats_of(&serde_json::from_str(&body).expect("JSON"))
}

fn seats_of(reported: &Value) -> [Value; 2] {
    [0, 1].map(|class| reported["classes"][class]["tunnel"].clone())
}

fn wait_for_both(pair: &Pair<'_>, egresses: [Value; 2]) {
    pair.site.wait_for("top and page to show it", || {
        let reported = [in_top(pair), on_page(pair)];
        (reported.iter().all(|it| *it == egresses)).then_some(())
    });
}

#[test]
fn moved_class_is_shown_and_survives_changes_of_the_configuration() {
    require!(Program("nft"));
    on_pair(|pair| {
        let site = pair.site;
        let before = site.routing();
        let (near, far) = pair.run(QUICK);
        pair.wait_for_echo();
        let home = site.routing();
        wait_for_both(pair, [json!("short"), json!("long")]);

        pair.cut("tun0", "drop").expect("it was tried");
        pair.wait_for_seats("long", "long");
        let moved = site.routing();
        assert_ne!(moved, home);
        wait_for_both(pair, [json!("long"), json!("long")]);
        let (_, page) = site.get("/").expect("it answers");
        let row = "<th scope=\"row\">short</th><td>long</td>";
        assert!(page.contains(row), "{page}");
        let once = stdout(&site.splitter(&["top", "--once", "-i", "0.1"]));
        let row = ["│", "short", "┆", "long"];
        let is_row = |line: &str| line.split_whitespace().take(4).eq(row);
        assert!(once.lines().any(is_row), "{once}");

        // Settings, what the tunnels carry, and what the rules look at.
        let mut connection = Connection::open(&site.topology);
        let stays = |what: &str| {
            assert_eq!(pair.egresses(), ("long".into(), "long".into()), "{what}");
            let status = site.json(&["status"]);
            assert_eq!(status["in_place"], true, "{what}: {status}");
        };
        assert_eq!(site.json(&["set", "threshold", "60"])["applied"], true);
        stays("set");
        assert_eq!(site.routing(), moved);
        append(site, "flows", "threshold = 70");
        append(site, "short", "rate_mbit = 50");
        assert_eq!(site.json(&["reload"])["applied"], true);
        stays("reload");
        assert_eq!(site.routing(), moved);
        connection.send(200_000);
        append(site, "marks", "short = 5");
        append(site, "long", "table = 10403");
        assert_eq!(site.json(&["reload"])["applied"], true);
        stays("reload of rules and tables");
        let other = site.routing();
        assert!(
            other.contains("10403") && !other.contains("10402"),
            "{other}"
        );
        connection.send(200_000);
        // What takes the rights away from the guard for a while, and gives them back.
        assert_eq!(site.json(&["set", "shadow", "true"])["applied"], true);
        assert_eq!(site.json(&["set", "shadow", "false"])["applied"], true);
        stays("a shadow in between");
        assert_eq!(site.routing(), other);
        connection.send(200_000);

        pair.mend("tun0");
        pair.wait_for_seats("short", "long");
        wait_for_both(pair, [json!("short"), json!("long")]);
        assert_eq!(site.json(&["plan"])["changed"], false);
        connection.send(200_000);
        // Nothing but the cut and the mending has moved it.
        let moves = pair.health()["moves"].clone();
        let reasons: Vec<_> = moves.as_array().expect("a list").iter().collect();
        assert!(reasons.len() >= 2, "{moves}");
        assert!(near.end(Signal::SIGTERM).success());
        assert!(far.end(Signal::SIGTERM).success());
        site.assert_clean(&before);
    });
}
