//! Packets that choose where the class is in their DSCP: the tunnel is in the kernel's mark all the same.

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;

use super::{BYTES, balanced, connection, sent_while, without_offloads};
use crate::support::changed::{count_dscp, with_dscp};
use crate::support::site::{on_site, stderr, stdout};

#[test]
fn one_flow_fills_two_tunnels_and_each_packet_has_the_dscp_of_its_class() {
    require!(Program("nft"));
    on_site(|site| {
        without_offloads(site);
        site.configure(&balanced(site, "tr", false).replace("'mark'", "'dscp'"));
        let before = site.routing();
        count_dscp(site);
        let plan = stdout(&site.splitter(&["plan"]));
        assert!(plan.contains("+ attach the TC program to lan0\n"), "{plan}");
        // Exactly, or by the bits that old kernels look at; of no tunnel in either case.
        assert!(plan.contains(" fwmark 0/0xf80 lookup 10402"), "{plan}");
        assert!(plan.contains(" fwmark 0x80/0xf80 lookup 10411"), "{plan}");
        let first = site.run();
        assert_eq!(site.json(&["plan"])["changed"], false);
        let status = site.json(&["status"]);
        assert_eq!(status["steering"], "dscp");
        let mode = &status["attached"][0]["mode"];
        assert!(*mode == "tcx" || *mode == "clsact", "{status}");
        let server = &site.topology.server;
        let addresses = [Some(server.ipv4.into()), server.ipv6.map(Into::into)];
        for address in addresses.into_iter().flatten() {
            let mut connection = connection(site, address);
            let sent = sent_while(site, || connection.send(BYTES));
            let share = sent[1] as f64 / (sent[0] + sent[1]) as f64;
            println!("{address}: {sent:?} bytes");
            // 8 of 38.
            assert!((0.12..0.3).contains(&share), "{address}: {sent:?}");
        }
        let status = site.json(&["status"]);
        let of_class = |class: &str| {
            let tunnels = status["chosen"].as_array().expect("there are tunnels");
            let counts = tunnels.iter().map(|it| it["packets"][class].as_u64());
            counts.map(|it| it.expect("a number")).sum::<u64>()
        };
        let split = of_class("short") + of_class("long");
        let marked = with_dscp(site);
        println!("{split} packets were split, {marked} came with a DSCP");
        assert!(split > 4_000 && marked >= split, "{marked} of {split}");
        // What left is counted by its mark, which is the class's from its first packet on.
        let left: u64 = ["short", "long"]
            .iter()
            .map(|class| {
                let rows = status["egress"].as_array().expect("there are tunnels");
                let counts = rows.iter().map(|it| it["packets"][*class].as_u64());
                counts.map(|it| it.expect("a number")).sum::<u64>()
            })
            .sum();
        assert!(left >= split, "{left} of {split}: {}", status["egress"]);
        first.end(Signal::SIGKILL);
        let second = site.run();
        assert!(second.log().contains("adopted"), "{}", second.log());
        assert!(second.end(Signal::SIGTERM).success());
        site.assert_clean(&before);

        // As rules of old kernels match.
        let by_tos = balanced(site, "tr", false).replace("'mark'", "'dscp'");
        site.configure(&(by_tos + "[marks]\nmatch = 'tos'\n"));
        let plan = stdout(&site.splitter(&["up"]));
        assert!(
            plan.contains(" tos 0x08 fwmark 0/0xf80 lookup 10402"),
            "{plan}"
        );
        assert_eq!(site.json(&["plan"])["changed"], false);
        let mut connection = connection(site, server.ipv4.into());
        let sent = sent_while(site, || connection.send(BYTES / 4));
        assert!(sent.iter().all(|it| *it > BYTES as u64 / 50), "{sent:?}");

        // The kind of the program is the same.
        site.configure(&balanced(site, "tr", false));
        for command in ["plan", "up"] {
            let refused = site.splitter(&[command]);
            let reported = stderr(&refused);
            assert_eq!(refused.status.code(), Some(5), "{reported}");
            assert!(
                reported.contains("\"dscp\" cannot be replaced by that of \"mark\""),
                "{reported}"
            );
        }
        site.json(&["down"]);
        site.assert_clean(&before);
    });
}
