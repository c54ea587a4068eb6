//! Two borders of one site that share an address by VRRP: a takeover costs flows their state, and
//! nothing else.

use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement;
use flow_testbed::require::Requirement::Program;
use serde_json::Value;

use crate::support::pair::{cut_at, mend_at, on_pair};
use crate::support::site::{on_site, stdout};
use crate::support::vrrp::Shared;

const NEEDED: [Requirement; 3] = [Program("keepalived"), Program("vtysh"), Program("curl")];

/// Waits until a border knows the flows from these ports as long, and sends them by its long tunnel.
fn wait_until_split(shared: &Shared<'_>, index: usize, ports: &[u16]) {
    let before = sent(shared.border(index), "tun1");
    shared.site.wait_for("the flows to be long there", || {
        let is_long = |port: &u16| {
            let flow = shared.flow_from(index, *port);
            flow.is_some_and(|flow| flow["class"] == "long")
        };
        let is_used = sent(shared.border(index), "tun1") > before + 300_000;
        (ports.iter().all(is_long) && is_used).then_some(())
    });
}

fn sent(border: &Namespace, device: &str) -> u64 {
    let counters = border.device_counters(device).expect("it is there");
    counters.sent_bytes
}

#[test]
fn takeover_costs_flows_their_state_and_nothing_else() {
    require!(NEEDED[0], NEEDED[1], NEEDED[2]);
    on_site(|site| {
        let mut shared = Shared::set_up(site);
        // What carries nothing is watched all the same.
        assert_eq!(shared.ready(1), Some((200, "ready\n".to_owned())));
        site.wait_for("the tunnels of the second to be known by echo", || {
            let health = shared.json(1, &["status"])["health"].take();
            let tunnels = health["tunnels"].as_array()?;
            let is_known = |it: &Value| it["condition"] == "up" && it["evidence"] == "echo";
            tunnels.iter().all(is_known).then_some(())
        });
        shared.transferring(|shared, ports| {
            wait_until_split(shared, 0, ports);
            shared.wait_for_way_back(0);
            assert_eq!(shared.metric(1, "splitter_packets_total"), 0.0);
            assert_eq!(shared.metric(1, "splitter_tunnel_up"), 2.0);

            // An operator stops the first: it goes on forwarding what comes back.
            shared.stop_keepalived(0);
            shared.wait_for_address(1);
            wait_until_split(shared, 1, ports);
            // Classified anew, from the packet that came first.
            let became_long = shared.json(1, &["status"])["flows"]["became_long"].take();
            assert_eq!(became_long, ports.len());
            assert_eq!(shared.ready(0), Some((200, "ready\n".to_owned())));

            // It comes back, and with the flows that it knew.
            shared.start_keepalived(0);
            shared.wait_for_address(0);
            wait_until_split(shared, 0, ports);
            shared.wait_for_way_back(0);

            // It is gone at once, with all its tunnels.
            shared.lose_power(0);
            shared.wait_for_way_back(1);
            wait_until_split(shared, 1, ports);
        });
        let status = shared.json(1, &["status"]);
        assert_eq!(status["in_place"], true, "{status}");
    });
}

#[test]
fn doctor_warns_of_a_device_that_takes_the_packets_of_the_site() {
    on_site(|site| {
        let warned = || {
            let shown = stdout(&site.splitter(&["doctor"]));
            shown.contains("warn  devices on lan0: what is sent to the link address of vrrp.51")
        };
        assert!(!warned());
        // As `use_vmac` of keepalived makes it.
        let line = "ip link add link lan0 name vrrp.51 address 00:00:5e:00:01:33 type macvlan mode private";
        site.border().run(line).expect("the kernel has them");
        assert!(warned());
    });
}

#[test]
fn border_whose_tunnels_are_dead_hands_the_address_over() {
    require!(NEEDED[0], NEEDED[1], NEEDED[2]);
    on_pair(|pair| {
        let mut shared = Shared::set_up(pair.site);
        shared.transferring(|shared, ports| {
            wait_until_split(shared, 0, ports);
            // Silently: the links stay up.
            for device in ["tun0", "tun1"] {
                cut_at(shared.far(), device, "drop").expect("it could before");
            }
            shared.wait_for_address(1);
            let (status, _) = shared.ready(0).expect("it answers");
            assert_eq!(status, 503);
            shared.wait_for_way_back(1);
            wait_until_split(shared, 1, ports);
            for device in ["tun0", "tun1"] {
                mend_at(shared.far(), device);
            }
            shared.wait_for_address(0);
            shared.wait_for_way_back(0);
            wait_until_split(shared, 0, ports);
        });
    });
}
