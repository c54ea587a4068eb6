//! `balance`, the list of tunnels that it chooses among, and what it needs of other keys.

use splitter_policy::flow::TunnelRole;

use super::super::{Balance, Config};

const LISTED: &str = "lan = 'eth0'\nbalance = 'tr'\n\
    [[tunnels]]\ndevice = 'a'\nrate_mbit = 30\ndelay_ms = 10\n\
    [[tunnels]]\ndevice = 'b'\nrate_mbit = 8\n\
    [[tunnels]]\ndevice = 'c'\nrate_mbit = 8\nweight = 3\n\
    [short]\n[long]\n[steering]\nmode = 'mark'\n";

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, "t").map_err(|error| error.to_string())
}

fn refused(text: &str, expected: &str) {
    let reported = parse(text).expect_err(expected);
    assert!(reported.contains(expected), "{reported}");
    // Once each.
    assert_eq!(reported.matches(expected).count(), 1, "{reported}");
}

#[test]
fn list_is_all_tunnels_in_its_order() {
    let config = parse(LISTED).unwrap();
    assert_eq!(config.balance, Some(Balance::Tr));
    let devices: Vec<_> = config.tunnels().map(|(_, it)| it.device.as_str()).collect();
    assert_eq!(devices, ["a", "b", "c"]);
    assert_eq!(config.tunnels_of(TunnelRole::Short).iter().count(), 1);
    let delays: Vec<_> = config.tunnels().map(|(_, it)| it.delay).collect();
    assert_eq!(delays[0].map(|it| it.as_millis()), Some(10));
    assert_eq!(delays[1], None);
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
}

#[test]
fn spines_are_heard_by_the_name_of_a_leaf_and_with_tr_alone() {
    assert_eq!(parse(LISTED).unwrap().heard_fabric(), None);
    let text = format!("fabric = 'here'\nbpffs = '/bpf'\n{LISTED}");
    let config = parse(&text).unwrap();
    let directory = config.heard_fabric();
    assert_eq!(
        directory.as_deref(),
        Some("/bpf/splitter-fabric/here".as_ref())
    );
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
    let other = text.replace("balance = 'tr'", "balance = 'tr-paper'");
    refused(&other, "fabric = 'here': only balance = \"tr\" looks at");
    refused(&text.replace("'here'", "'a b'"), "fabric = 'a b'");
}

#[test]
fn each_tunnel_has_a_number_above_the_class_and_a_table() {
    let config = parse(LISTED).unwrap();
    assert_eq!(config.tunnel_mask(), 0xf80);
    assert_eq!(config.tunnel_marks(), [0x80, 0x100, 0x180]);
    let tables: Vec<_> = config.tunnel_tables().iter().map(|it| it.get()).collect();
    assert_eq!(tables, [10411, 10412, 10413]);
    let without = parse(
        "lan = 'l'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[steering]\nmode = 'mark'\n",
    );
    let without = without.unwrap();
    assert_eq!(
        (without.tunnel_mask(), without.tunnel_tables().len()),
        (0, 0)
    );
}

#[test]
fn tunnels_of_the_classes_are_a_list_as_well() {
    let text = "lan = 'l'\nbalance = 'drb'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n\
                [steering]\nmode = 'mark'\n";
    assert_eq!(parse(text).unwrap().tunnel_marks().len(), 2);
}

#[test]
fn only_what_predicts_arrivals_needs_rates() {
    let unrated = LISTED.replace("rate_mbit = 8\n", "");
    for balance in ["ecmp", "rps", "drb", "presto", "letflow"] {
        let text = unrated.replace("'tr'", &format!("'{balance}'"));
        let config = parse(&text).unwrap();
        assert_eq!(
            config.balance.map(|it| it.to_string()).as_deref(),
            Some(balance)
        );
        assert!(!config.balance.unwrap().needs_rates());
    }
    for balance in ["'tr'", "'tr-paper'"] {
        assert!(parse(&LISTED.replace("'tr'", balance)).is_ok());
        let text = unrated.replace("'tr'", balance);
        let reported = parse(&text).expect_err("of two tunnels the rate is not known");
        assert!(reported.contains("rate must be known"), "{reported}");
    }
}

#[test]
fn sharing_takes_any_number_of_them() {
    let shared = LISTED.replace("balance", "policy = 'share'\nbalance");
    assert!(parse(&shared).unwrap().is_shared());
    refused(
        &shared.replace("device = 'b'\nrate_mbit = 8", "device = 'b'"),
        "policy = \"share\" shapes the tunnel",
    );
}

#[test]
fn what_does_not_work_yet_is_refused_by_name() {
    for (from, to, expected) in [
        ("'tr'", "'placement'", "\"placement\" is not built"),
        ("'mark'", "'dscp'", "steering.mode = \"mark\""),
        ("'mark'", "'redirect'", "steering.mode = \"mark\""),
        ("balance = 'tr'", "", "without `balance` each class"),
        ("'mark'", "'mark'\nmark_mask = 0x7f0", "takes six bits"),
        ("'mark'", "'mark'\nmark_mask = 0xfc000000", "takes six bits"),
        (
            "device = 'a'\nrate_mbit = 30",
            "device = 'a'",
            "predicts when packets arrive",
        ),
        ("[short]", "[short]\ndevice = 'd'", "short.device"),
        (
            "[short]",
            "[routes]\ntunnel_tables = 10400\n[short]",
            "routes.tunnel_tables",
        ),
    ] {
        refused(&LISTED.replace(from, to), expected);
    }
    let one = "lan = 'l'\nbalance = 'tr'\n[[tunnels]]\ndevice = 'a'\nrate_mbit = 1\n[short]\n[long]\n\
               [steering]\nmode = 'mark'\n";
    refused(one, "the list has 1 tunnels");
    let unlooked = "lan = 'l'\n[short]\ndevice = 'a'\ndelay_ms = 3\n[long]\ndevice = 'b'\n";
    refused(unlooked, "short.delay_ms");
}
