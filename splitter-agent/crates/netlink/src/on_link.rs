//! Whether a next hop can be one.

use std::net::IpAddr;

use netlink_packet_route::route::RouteAttribute;

use super::{Netlink, NetlinkError};

impl Netlink {
    /// Finds out whether an address is on the link of this interface, so that the kernel takes it for
    /// a next hop by it: whether the interface is in a network that contains it.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub async fn is_on_link(&self, address: IpAddr, interface: u32) -> Result<bool, NetlinkError> {
        let route = self.route(address, interface).await?;
        let by_another_hop = |it: &RouteAttribute| matches!(it, RouteAttribute::Gateway(_));
        Ok(route.is_some_and(|it| !it.attributes.iter().any(by_another_hop)))
    }
}

#[cfg(test)]
mod tests {
    use flow_testbed::namespace::Namespace;
    use flow_testbed::require;
    use flow_testbed::require::Requirement::{Program, Root};

    use super::*;

    #[test]
    fn next_hop_is_one_where_the_kernel_takes_a_route_by_it() {
        require!(Root, Program("ip"));
        let router = Namespace::new("on-link").unwrap();
        let batch = "link add wan0 type veth peer far0\nlink set far0 up\nlink set wan0 up\n\
                     address add 192.0.2.2/24 dev wan0\n\
                     address add 2001:db8::2/64 dev wan0 nodad\n\
                     route add 198.51.100.0/24 via 192.0.2.1 dev wan0\n\
                     route add 2001:db8:b::/64 via 2001:db8::1 dev wan0\n\
                     route add default via 192.0.2.1 dev wan0\n";
        router.run_with_input("ip -batch -", batch).unwrap();
        for (gateway, expected) in [
            ("192.0.2.1", true),
            ("2001:db8::1", true),
            ("198.51.100.1", false),
            ("2001:db8:b::1", false),
            ("203.0.113.1", false),
            ("2001:db8:c::1", false),
        ] {
            let address: IpAddr = gateway.parse().unwrap();
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let ask = || {
                let runtime = runtime.enable_all().build().unwrap();
                runtime.block_on(async {
                    let netlink = Netlink::connect().unwrap();
                    let wan0 = "wan0".to_owned().try_into().unwrap();
                    let index = netlink.interface(&wan0).await.unwrap().unwrap().index;
                    netlink.is_on_link(address, index).await.unwrap()
                })
            };
            let is_on_link = router.enter(ask).unwrap();
            assert_eq!(is_on_link, expected, "{gateway}");
            // What the kernel makes of it.
            let (flag, net) = match address {
                IpAddr::V4(_) => ("", "10.2.0.0/24"),
                IpAddr::V6(_) => ("-6", "fd00:2::/48"),
            };
            let route = format!("ip {flag} route add {net} via {gateway} dev wan0 table 7");
            assert_eq!(router.run(&route).is_ok(), expected, "{route}");
            let _ = router.run(&format!("ip {flag} route flush table 7"));
        }
    }
}
