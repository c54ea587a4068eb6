//! Servers with several addresses, and clients that let nothing in that they did not ask for.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use cloudburst::{Endpoint, EndpointConfig, Ports, Received};
use flow_testbed::{
    namespace::Namespace,
    require,
    require::{
        Requirement::{NftRule, Program, Root},
        skip,
    },
};
use tokio::sync::oneshot;

use super::security;

const SERVER: u16 = 4_433;
/// Longer than a few round trips, and shorter than a message is tried for.
const SOON: Duration = Duration::from_secs(2);

/// Two hosts on one network. The client's firewall is a stateful one.
struct Network {
    client: Namespace,
    server: Namespace,
}

impl Network {
    fn new() -> Self {
        let [client, server] = ["client", "server"].map(|name| Namespace::new(name).unwrap());
        client.connect("eth0", &server, "eth0").unwrap();
        for (host, addresses) in [
            (&client, &["10.9.0.2/24", "fd09::2/64"][..]),
            (
                &server,
                &["10.9.0.1/24", "10.9.0.9/24", "fd09::1/64", "fd09::9/64"],
            ),
        ] {
            for address in addresses {
                // Without the wait for duplicates of the address.
                let nodad = if address.contains(':') { "nodad" } else { "" };
                let line = format!("ip address add {address} dev eth0 {nodad}");
                host.run(&line).unwrap();
            }
            host.run("ip link set eth0 up").unwrap();
        }
        let firewall = "table inet firewall {
             chain input {
                 type filter hook input priority 0; policy drop;
                 ct state established,related accept
                 meta l4proto ipv6-icmp accept
             }
         }\n";
        client.run_with_input("nft -f -", firewall).unwrap();
        Self { client, server }
    }

    /// How many of `asks` requests to each address are answered, by a server that is bound to all
    /// of its addresses.
    fn answered(&self, dscp: u8, addresses: &[IpAddr], asks: usize) -> Vec<usize> {
        let (is_up, up) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let serving = self.server.spawn(move || {
            block_on(async move {
                let config = EndpointConfig::server(SERVER, security());
                let config = config.with_dscp(dscp).unwrap();
                let server = Endpoint::bind(config).await.unwrap();
                is_up.send(()).unwrap();
                let echo = |it: Received| async move { Some(it.message) };
                tokio::select! {
                    () = server.serve(8, echo) => {}
                    _ = ended => {}
                }
            });
        });
        let serving = serving.unwrap();
        let asking = || {
            block_on(async {
                up.await.unwrap();
                let mut answered = Vec::new();
                for &address in addresses {
                    answered.push(ask(address, asks).await);
                }
                answered
            })
        };
        let answered = self.client.enter(asking).unwrap();
        end.send(()).unwrap();
        serving.join().unwrap().unwrap();
        answered
    }
}

async fn ask(address: IpAddr, asks: usize) -> usize {
    let config = EndpointConfig::client(security())
        .with_ports(Ports::Any(2))
        .unwrap();
    let client = Endpoint::bind(config).await.unwrap();
    let server = [SocketAddr::new(address, SERVER)];
    let peer = client.connect(server).await.unwrap();
    let mut answered = 0;
    for _ in 0..asks {
        let message = vec![7; 3_000];
        let reply = client.request(peer, message.clone(), SOON).await;
        answered += usize::from(reply.is_ok_and(|reply| reply == message));
    }
    answered
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

fn addresses(last: u8) -> [IpAddr; 2] {
    [
        Ipv4Addr::new(10, 9, 0, last).into(),
        Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, last.into()).into(),
    ]
}

#[test]
fn every_address_of_a_server_answers_through_a_stateful_firewall() {
    require!(Root, Program("ip"), Program("nft"));
    require!(NftRule("ct state established,related accept"));
    let network = Network::new();
    let all = [addresses(1), addresses(9)].concat();
    for dscp in [0, 46] {
        let answered = network.answered(dscp, &all, 2);
        assert_eq!(answered, [2; 4], "of {all:?}, dscp {dscp}");
    }
}

/// A virtual address that a router in front of the server translates.
#[test]
fn a_translated_address_answers() {
    require!(Root, Program("ip"), Program("nft"));
    require!(NftRule("ct state established,related accept"));
    let network = Network::new();
    let translation = "table ip translation {
         chain prerouting {
             type nat hook prerouting priority dstnat;
             ip daddr 10.9.0.77 dnat to 10.9.0.9
         }
     }\n";
    if let Err(error) = network.server.run_with_input("nft -f -", translation) {
        fn here() {}
        skip(std::any::type_name_of_val(&here), &error.to_string());
        return;
    }
    let to_it = "ip route add 10.9.0.77/32 via 10.9.0.1";
    network.client.run(to_it).unwrap();
    let virtual_address = addresses(77)[0];
    assert_eq!(network.answered(0, &[virtual_address], 3), [3]);
}
