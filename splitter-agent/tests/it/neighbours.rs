//! Others who steer, mark and look at packets on the border: `doctor` and `plan` know them by what they
//! have put into the kernel.

use std::path::Path;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::require::skip;
use flow_testbed::topology::{LAN, TUNNELS};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::site::{Site, on_site, stdout};
use crate::support::stranger::pin_classifier;

const MARK: &str = "[steering]\nmode = 'mark'\n";

/// The checks of `doctor` about neighbours: name, status, detail and remedy.
fn beside(site: &Site) -> Vec<(String, String, String)> {
    let output = site.splitter(&["doctor", "--json"]);
    let checks: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = checks.as_array().expect("a list").iter();
    let beside = checks.filter_map(|check| {
        let word = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let name = word("check");
        let name = name.strip_prefix("beside ")?.to_owned();
        let words = format!("{}; {}", word("detail"), word("remedy"));
        Some((name, word("status"), words))
    });
    beside.collect()
}

#[track_caller]
fn about(site: &Site, name: &str) -> (String, String) {
    let all = beside(site);
    let found = all.iter().find(|it| it.0 == name);
    let (_, status, words) = found.unwrap_or_else(|| panic!("no {name} in {all:#?}"));
    (status.clone(), words.clone())
}

fn add_rules(site: &Site, rules: &[&str]) {
    for rule in rules {
        let line = format!("ip rule add {rule}");
        site.border().run(&line).expect("the kernel takes it");
    }
}

fn nft(site: &Site, ruleset: &str) {
    let border = site.border();
    border
        .run_with_input("nft -f -", ruleset)
        .expect("nft takes it");
}

#[test]
fn programs_are_named_by_their_rules() {
    require!(Program("nft"));
    on_site(|site| {
        site.configure(MARK);
        assert_eq!(beside(site), [], "nobody is here");
        add_rules(
            site,
            &[
                "pref 5210 fwmark 0x80000/0xff0000 lookup main",
                "pref 5270 lookup 52",
                "pref 32764 not fwmark 51820 lookup 51820",
                "pref 32763 lookup main suppress_prefixlength 0",
                "pref 2001 fwmark 0x100/0x3f00 lookup 1",
                "pref 9 fwmark 0x200/0xf00 lookup 2004",
            ],
        );
        for (name, word) in [
            ("Tailscale", "5210: fwmark 0x80000/0xff0000"),
            ("mwan3", "marks 0x3f00"),
            ("Cilium", "lookup 2004"),
            ("WireGuard (wg-quick)", "not fwmark"),
        ] {
            let (status, words) = about(site, name);
            assert_eq!(status, "ok", "{words}");
            assert!(words.contains(word), "{words}");
        }
        // It looks at all bits, so at the splitter's, too.
        add_rules(site, &["pref 500 fwmark 5 lookup 200"]);
        let (status, words) = about(site, "other rules");
        assert_eq!(status, "fail", "{words}");
        assert!(words.contains("ip rule 500: fwmark 0x5"), "{words}");
    });
}

#[test]
fn bits_of_the_mark_that_others_use_are_named_with_free_ones() {
    require!(Program("nft"));
    on_site(|site| {
        // As Felix marks by default.
        let calico = "table ip mangle {\nchain cali-PREROUTING {\n\
                      meta mark set meta mark & 0xffff0000 | 0x10000\n\
                      meta mark & 0x000a0000 == 0x80000 accept\n}\n\
                      chain PREROUTING {\ntype filter hook prerouting priority -150;\n\
                      meta mark set meta mark & 0x0000ffff | 0x20000\n}\n}\n";
        nft(site, calico);
        let (status, words) = about(site, "Calico");
        assert_eq!(status, "ok", "marks mean nothing to DSCPs: {words}");

        site.configure(&format!("{MARK}mark_mask = 0x3f000000\n"));
        let (status, words) = about(site, "the firewall");
        assert_eq!(status, "fail", "{words}");
        let remedy = "set steering.mark_mask to 0x7e";
        for word in ["PREROUTING writes 0xffff0000", "0x3f000000"] {
            assert!(words.contains(word), "{words}");
        }
        // Both lower halves are used as well.
        assert!(words.contains("no other bits are left"), "{words}");

        nft(site, "delete chain ip mangle cali-PREROUTING\n");
        let (_, words) = about(site, "the firewall");
        assert!(words.contains(remedy), "{words}");
        let output = site.splitter(&["plan"]);
        let shown = stdout(&output);
        assert!(shown.contains(&format!("; {remedy}")), "{shown}");
        let plan = site.json(&["plan"]);
        let concern = &plan["neighbours"]["found"][0]["concerns"][0];
        assert_eq!(concern["is_certain"], true, "{plan}");

        // What is advised helps.
        site.configure("[steering]\nmode = 'mark'\nmark_mask = 0x7e\n");
        let (status, words) = about(site, "the firewall");
        assert_eq!(status, "ok", "{words}");
    });
}

/// As they mark and route by default, all on one machine.
#[test]
fn defaults_are_beside_those_of_others() {
    require!(Program("nft"));
    on_site(|site| {
        site.configure(MARK);
        let marks = [
            ("cali-PREROUTING", "& 0xfff0ffff | 0x10000"),
            ("KUBE-MARK-MASQ", "| 0x4000"),
            ("ts-forward", "& 0xff00ffff | 0x40000"),
            ("mwan3_hook", "& 0xffffc0ff | 0x100"),
            ("CILIUM_PRE_mangle", "& 0xfffff0ff | 0x200"),
        ];
        let chain = |(name, mark): (&str, &str)| {
            format!("chain {name} {{\nmeta mark set meta mark {mark}\n}}\n")
        };
        let chains: String = marks.map(chain).concat();
        nft(site, &format!("table ip mangle {{\n{chains}}}\n"));
        add_rules(
            site,
            &[
                "pref 9 fwmark 0x200/0xf00 lookup 2004",
                "pref 305 to 10.77.0.0/16 lookup 10000",
                "pref 1000 to 10.78.0.0/16 lookup 10001",
                "pref 1002 to 10.78.0.0/16 lookup 10001",
                "pref 2001 fwmark 0x100/0x3f00 lookup 1",
                "pref 5210 fwmark 0x80000/0xff0000 lookup main",
                "pref 5270 lookup 52",
                "pref 32764 not fwmark 51820 lookup 51820",
            ],
        );
        let all = beside(site);
        for name in ["Calico", "Cilium", "FRR (pbrd)", "Tailscale", "mwan3"] {
            assert!(all.iter().any(|it| it.0 == name), "no {name} in {all:#?}");
        }
        for (name, status, words) in &all {
            assert_eq!(status, "ok", "{name}: {words}");
        }
        site.json(&["up"]);
        site.json(&["down"]);
    });
}

#[test]
fn dscp_that_is_written_before_the_rules_is_named_and_behind_them_is_not() {
    require!(Program("nft"));
    on_site(|site| {
        let table = |hook: &str| {
            format!(
                "table inet qos {{\nchain c {{\ntype filter hook {hook} priority 0;\nip dscp set af41\n}}\n}}\n"
            )
        };
        nft(site, &table("postrouting"));
        let (status, words) = about(site, "the firewall");
        assert_eq!(status, "ok", "{words}");
        nft(
            site,
            &format!("delete table inet qos\n{}", table("prerouting")),
        );
        let (status, words) = about(site, "the firewall");
        assert_eq!(status, "warn", "{words}");
        assert!(
            words.contains("nft chain inet qos c writes the DSCP"),
            "{words}"
        );
    });
}

#[test]
fn dropping_policy_beside_dockers_chain_is_named() {
    require!(Program("nft"));
    on_site(|site| {
        let docker = "table ip filter {\nchain FORWARD {\n\
                      type filter hook forward priority 0; policy drop;\n}\n\
                      chain DOCKER-USER {\n}\n}\n";
        nft(site, docker);
        let (status, words) = about(site, "Docker");
        assert_eq!(status, "warn", "{words}");
        assert!(
            words.contains(&format!("iptables -I DOCKER-USER -i {LAN} -j ACCEPT")),
            "{words}"
        );
    });
}

#[test]
fn flow_tables_that_take_packets_past_the_rules_are_named() {
    require!(Program("nft"));
    on_site(|site| {
        let devices = format!("devices = {{ {LAN}, {} }};", TUNNELS[0]);
        let table = format!(
            "table inet fw4 {{\nflowtable ft {{\nhook ingress priority 0;\n{devices}\n}}\n\
             chain forward {{\ntype filter hook forward priority 0;\nip protocol tcp flow add @ft\n}}\n}}\n"
        );
        if let Err(error) = site.border().run_with_input("nft -f -", &table) {
            return skip(
                "neighbours::flow_tables_that_take_packets_past_the_rules_are_named",
                &format!("this kernel has no flow tables: {error}"),
            );
        }
        let (status, words) = about(site, "the firewall");
        assert_eq!(status, "fail", "{words}");
        assert!(words.contains("nft flowtable inet fw4 ft"), "{words}");
    });
}

#[test]
fn programs_of_others_on_the_same_devices_are_named_and_ours_are_not() {
    require!(Program("nft"));
    on_site(|site| {
        let daemon = site.run();
        assert_eq!(beside(site), []);
        let pin = site.path("bpf/other");
        pin_classifier("cil_from_netdev", &pin);
        attach(site, LAN, "ingress", &pin);
        attach(site, TUNNELS[1], "egress", &pin);
        let (status, words) = about(site, "Cilium");
        assert_eq!(status, "warn", "{words}");
        let at = "`cil_from_netdev`, number";
        assert!(
            words.contains(at) && words.contains(&format!("TC ingress of {LAN}")),
            "{words}"
        );
        let plan = site.json(&["plan"]);
        let seen = &plan["neighbours"]["found"][0]["seen"];
        assert_eq!(seen.as_array().map(Vec::len), Some(2), "{plan}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

fn attach(site: &Site, device: &str, side: &str, pin: &Path) {
    for line in [
        format!("tc qdisc add dev {device} clsact"),
        format!(
            "tc filter add dev {device} {side} bpf direct-action object-pinned {}",
            pin.display()
        ),
    ] {
        site.border().run(&line).expect("the kernel takes it");
    }
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    on_site(|site| {
        for directory in ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"] {
            let nft = Path::new(directory).join("nft");
            if nft.exists() {
                let null = Some("/dev/null");
                mount(null, &nft, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                    .expect("we are root, in mounts of our own");
            }
        }
        let output = site.splitter(&["doctor"]);
        let shown = stdout(&output);
        let line = shown
            .lines()
            .find(|line| line.contains("nftables: not looked at"));
        let line = line.unwrap_or_else(|| panic!("{shown}"));
        assert!(line.starts_with("warn") && line.contains("`nft`"), "{line}");
    });
}
