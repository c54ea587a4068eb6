//! `balance`, the list of tunnels that it chooses among, and what it needs of other keys.

use splitter_policy::flow::TunnelRole;

use super::super::{Balance, Config, SteeringMode};

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

/// The class is in the DSCP, and the tunnel where XDP cannot write it.
#[test]
fn by_dscp_tunnels_have_their_numbers_in_the_same_bits() {
    let config = parse(&LISTED.replace("'mark'", "'dscp'")).unwrap();
    assert_eq!(config.mark_bits(), None);
    assert_eq!(config.tunnel_marks(), [0x80, 0x100, 0x180]);
    assert_eq!(config.program_mode(), SteeringMode::Mark);
    let xdp = "lan = 'l'\n[attach]\nmode = 'native'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n";
    assert_eq!(parse(xdp).unwrap().program_mode(), SteeringMode::Dscp);
    refused(
        &LISTED.replace(
            "[short]\n[long]\n[steering]\nmode = 'mark'",
            "[attach]\nmode = 'native'\n[short]\n[long]",
        ),
        "with `balance` no XDP program is attached",
    );
}

/// What is redirected needs no mark, and all else that chooses by one finds it in the same bits.
#[test]
fn redirected_packets_choose_among_tunnels_whose_next_hops_are_named() {
    let text = by_class("tr", "", "")
        .replace("'mark'", "'redirect'\n[attach]\nmode = 'native'")
        .replace("'a'", "'a'\ngateway = '192.0.2.1'")
        .replace("'b'", "'b'\ngateway = '192.0.2.5'");
    let config = parse(&text).unwrap();
    assert_eq!(config.program_mode(), SteeringMode::Redirect);
    assert_eq!(config.mark_bits(), None);
    assert_eq!(config.tunnel_marks(), [0x80, 0x100]);
    assert_eq!(parse(&config.to_toml()).unwrap(), config);
    let lacks = "packets that choose a tunnel are redirected to its next hop";
    for (from, to, expected) in [
        ("gateway = '192.0.2.5'", "", lacks),
        // The other one is of both families.
        ("'192.0.2.5'", "['192.0.2.5', '2001:db8::5']", lacks),
        (
            "lan = 'l'",
            "fabric = 'here'\nlan = 'l'",
            "choose without what spines report",
        ),
        (
            "lan = 'l'",
            "policy = 'share'\nlan = 'l'",
            "goes past the queues that policy",
        ),
        (
            "mode = 'redirect'",
            "mode = 'redirect'\nmark_mask = 0x7f0",
            "takes six bits",
        ),
    ] {
        refused(&text.replacen(from, to, 1), expected);
    }
    // Nobody chooses.
    let placed = text
        .replace("balance = 'tr'", "")
        .replace("gateway = '192.0.2.5'", "");
    assert!(parse(&placed).is_ok());
}

#[test]
fn tunnels_of_the_classes_are_a_list_as_well() {
    let text = "lan = 'l'\nbalance = 'drb'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n\
                [steering]\nmode = 'mark'\n";
    assert_eq!(parse(text).unwrap().tunnel_marks().len(), 2);
}

/// The programs place each flow where somebody says so, with several tunnels a class too.
#[test]
fn placement_is_a_choice_among_the_tunnels_of_the_class() {
    let sections = "[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n";
    let several =
        "[short]\ndevice = 'a'\n[[long.tunnels]]\ndevice = 'b'\n[[long.tunnels]]\ndevice = 'c'\n";
    for (mode, tunnels, count) in [("dscp", sections, 2), ("mark", several, 3)] {
        let rest = format!("{tunnels}[steering]\nmode = '{mode}'\n");
        assert_eq!(
            parse(&format!("lan = 'l'\n{rest}")).unwrap().balancers(),
            None
        );
        let placed = parse(&format!("lan = 'l'\nbalance = 'placement'\n{rest}")).unwrap();
        let balancers = placed.balancers().unwrap();
        assert!(balancers.keep_to_classes());
        assert_eq!(placed.tunnel_marks().len(), count);
        assert_eq!(placed.program_mode(), SteeringMode::Mark);
        assert_eq!(parse(&placed.to_toml()).unwrap(), placed);
    }
    // No flow leaves its class's tunnels, which is all that sharing is for.
    let rated = several.replace('\n', "\nrate_mbit = 3\n");
    let rated = rated.replace("tunnels]]\nrate_mbit = 3", "tunnels]]");
    let rated = rated.replace("[short]\nrate_mbit = 3", "[short]");
    refused(
        &format!(
            "lan = 'l'\nbalance = 'placement'\npolicy = 'share'\n{rated}[steering]\nmode = 'mark'\n"
        ),
        "has nothing to share",
    );
}

const BY_CLASS: &str = "lan = 'l'\n[short]\ndevice = 'a'\nrate_mbit = 3\nSHORT\n\
    [long]\ndevice = 'b'\nrate_mbit = 5\nLONG\n[steering]\nmode = 'mark'\n";

/// The words above all sections, in that of short flows and in that of long ones.
fn by_class(top: &str, short: &str, long: &str) -> String {
    let key = |word: &str| match word {
        "" => String::new(),
        word => format!("balance = '{word}'"),
    };
    let text = BY_CLASS.replace("SHORT", &key(short));
    format!("{}\n{}", key(top), text.replace("LONG", &key(long)))
}

#[test]
fn class_chooses_by_its_own_word_else_by_the_one_above() {
    use Balance::{Letflow, Placement, Rps, Tr};
    for (top, short, long, expected) in [
        ("", "", "", None),
        ("placement", "", "", Some([Placement; 2])),
        ("", "placement", "placement", Some([Placement; 2])),
        ("placement", "placement", "", Some([Placement; 2])),
        ("", "", "placement", Some([Placement; 2])),
        ("tr", "", "", Some([Tr, Tr])),
        ("", "", "tr", Some([Placement, Tr])),
        ("", "placement", "tr", Some([Placement, Tr])),
        ("tr", "placement", "", Some([Placement, Tr])),
        ("tr", "", "letflow", Some([Tr, Letflow])),
        ("placement", "rps", "", Some([Rps, Placement])),
        ("", "tr-paper", "tr-paper", Some([Balance::TrPaper; 2])),
    ] {
        let config = parse(&by_class(top, short, long)).unwrap();
        let found = config.balancers().map(|it| [it.short, it.long]);
        assert_eq!(found, expected, "{top} {short} {long}");
        assert_eq!(config.tunnel_marks().is_empty(), expected.is_none());
        assert_eq!(parse(&config.to_toml()).unwrap(), config);
    }
    // Those of a list of all belong to no class, which nobody asks where both choose.
    let listed = LISTED.replace("[long]", "[long]\nbalance = 'letflow'");
    assert!(parse(&listed).is_ok());
}

#[test]
fn what_contradicts_itself_between_classes_is_refused() {
    for (text, expected) in [
        (
            by_class("tr", "drb", "letflow"),
            "1: balance = 'tr': [short] and [long] have a `balance` each",
        ),
        (
            by_class("", "tr-paper", "tr"),
            "6: short.balance = 'tr-paper': \"tr-paper\" tells short and long",
        ),
        (
            by_class("tr-paper", "placement", ""),
            "1: balance = 'tr-paper': \"tr-paper\" tells short and long",
        ),
        (
            by_class("tr", "", "tr-paper"),
            "10: long.balance = 'tr-paper': \"tr-paper\" tells short and long",
        ),
        (
            LISTED.replace("[short]", "[short]\nbalance = 'placement'"),
            "the list does not say which tunnels a class has",
        ),
        // Whoever predicts, and wherever it is said.
        (
            by_class("", "placement", "tr").replace("rate_mbit = 3\n", ""),
            "balance = \"tr\" predicts when packets arrive",
        ),
        (
            format!("fabric = 'here'\n{}", by_class("", "rps", "drb")),
            "only balance = \"tr\" looks at what spines report",
        ),
    ] {
        refused(&text, expected);
    }
    // One of them hears it.
    let hears = format!("fabric = 'here'\n{}", by_class("", "placement", "tr"));
    assert!(parse(&hears).unwrap().heard_fabric().is_some());
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
        (
            "'tr'",
            "'placement'",
            "the list does not say which tunnels a class has",
        ),
        ("'mark'", "'dscp'\nmark_mask = 0x7f0", "takes six bits"),
        (
            "[short]",
            "[attach]\nmode = 'native'\n[short]",
            "attach.mode",
        ),
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
