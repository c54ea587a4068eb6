//! Endpoints that share a port.

use std::collections::BTreeSet;

use cloudburst::{Endpoint, EndpointConfig};

use super::{LOCALHOST, SOON, config, security};

const CLIENTS: usize = 16;
const REQUESTS: usize = 20;

fn server(port: u16, is_shared: bool) -> EndpointConfig {
    let config = EndpointConfig::server(port, security()).with_local([LOCALHOST]);
    config.unwrap().with_shared_port(is_shared)
}

/// The first endpoint of a port that is shared, which nobody else has taken meanwhile.
async fn first_of_a_port() -> (Endpoint, u16) {
    let domain = socket2::Domain::IPV4;
    let held = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
    held.set_reuse_port(true).unwrap();
    held.bind(&std::net::SocketAddr::new(LOCALHOST, 0).into())
        .unwrap();
    let port = held.local_addr().unwrap().as_socket().unwrap().port();
    (Endpoint::bind(server(port, true)).await.unwrap(), port)
}

/// Answers each request with this name.
async fn answer(endpoint: Endpoint, name: &'static str) {
    while let Ok(request) = endpoint.recv().await {
        endpoint.reply(&request, name).await.unwrap();
    }
}

#[tokio::test]
async fn peers_of_a_shared_port_are_spread_over_its_endpoints_and_stay_there() {
    let (one, port) = first_of_a_port().await;
    let address = one.local_addrs()[0];
    let other = Endpoint::bind(server(port, true)).await.unwrap();
    assert_eq!(other.local_addrs(), [address]);
    let answering = [
        tokio::spawn(answer(one, "one")),
        tokio::spawn(answer(other, "other")),
    ];
    let mut names = BTreeSet::new();
    for _ in 0..CLIENTS {
        let client = Endpoint::bind(config(1)).await.unwrap();
        let peer = client.connect([address]).await.unwrap();
        let mut of_this_client = BTreeSet::new();
        for _ in 0..REQUESTS {
            let reply = client.request(peer, vec![7; 9_000], SOON).await;
            of_this_client.insert(reply.unwrap().to_vec());
        }
        assert_eq!(of_this_client.len(), 1, "a peer stays at its endpoint");
        names.append(&mut of_this_client);
    }
    // By chance all are at one in 1 of 32,768 runs.
    assert_eq!(names, [&b"one"[..], b"other"].map(<[u8]>::to_vec).into());
    answering.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn port_is_shared_only_if_all_say_so() {
    for (first, second) in [(false, false), (true, false), (false, true)] {
        let bound = match first {
            true => first_of_a_port().await.0,
            false => Endpoint::bind(server(0, false)).await.unwrap(),
        };
        let port = bound.local_addrs()[0].port();
        let refused = Endpoint::bind(server(port, second)).await;
        let refused = refused.expect_err("somebody has the port").to_string();
        assert!(refused.contains(&port.to_string()), "{refused}");
    }
}
