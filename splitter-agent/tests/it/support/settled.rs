//! What the kernel adds to a border by itself, some time after its links were made.

use flow_testbed::topology::Border;
use serde_json::Value;

use super::site::on_site;

/// Tells whether all of that is there: carriers, and of each IPv6 address the routes, which come
/// after the device has its carrier, from a work queue, also where nobody is asked for duplicates.
pub(crate) fn is_settled(border: &Border) -> bool {
    let run = |line: &str| border.namespace.run(line).expect("ip works");
    if run("ip -br link").contains("DOWN") || run("ip route show table all").contains("linkdown") {
        return false;
    }
    if border.gateways_ipv6.is_none() {
        return true;
    }
    let devices: Vec<Value> = serde_json::from_str(&run("ip -j address")).expect("JSON");
    let routes = run("ip -6 route show table local");
    devices.iter().all(|device| has_its_routes(device, &routes))
}

fn has_its_routes(device: &Value, routes: &str) -> bool {
    let name = device["ifname"].as_str().expect("a name");
    let addresses = device["addr_info"].as_array().into_iter().flatten();
    let addresses: Vec<_> = addresses.filter(|it| it["family"] == "inet6").collect();
    let is_usable = |address: &&Value| {
        let local = address["local"].as_str().expect("an address");
        address["tentative"] != true && routes.contains(&format!("local {local} dev {name} "))
    };
    // A router has the anycast address of each subnet (RFC 4291 §2.6.1).
    let is_anycast =
        |line: &&str| line.starts_with("anycast ") && line.contains(&format!(" dev {name} "));
    name == "lo"
        || addresses.iter().any(|it| it["scope"] == "link")
            && addresses.iter().all(is_usable)
            && routes.lines().filter(is_anycast).count() >= addresses.len()
}

#[test]
fn border_that_lacks_a_route_of_an_address_is_not_settled() {
    on_site(|site| {
        let border = &site.topology.borders[0];
        assert!(is_settled(border));
        if border.gateways_ipv6.is_none() {
            return;
        }
        let route = "ip -6 route del local fd00:9:1::1 dev tun1 table local";
        border.namespace.run(route).expect("it is there");
        assert!(!is_settled(border));
    });
}
