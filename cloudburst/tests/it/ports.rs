//! Ports that a network leads where nothing arrives.

use std::time::{Duration, Instant};

use cloudburst::{Endpoint, Health, PeerId, Ports};
use flow_testbed::{
    namespace::Namespace,
    require,
    require::Requirement::{NftRule, Program, Root},
};

use super::{LOCALHOST, config, pair};

const PORTS: u16 = 16;
/// Where the server is, so that rules can name it.
const SERVER: u16 = 7_433;
/// Between two messages.
const PAUSE: Duration = Duration::from_millis(20);
const LINKS: u32 = 4;

/// Of what goes to the server, that which a hash of the ports leads over one of four links is lost.
fn kill(namespace: &Namespace, link: u32) {
    let rules = format!(
        "table inet links
         delete table inet links
         table inet links {{
             counter lost {{ }}
             chain input {{
                 type filter hook input priority 0;
                 udp dport {SERVER} meta mark set jhash udp sport . udp dport mod {LINKS}
                 udp dport {SERVER} meta mark {link} counter name lost drop
             }}
         }}\n"
    );
    namespace.run_with_input("nft -f -", &rules).unwrap();
}

/// Datagrams that were lost.
fn lost(namespace: &Namespace) -> u64 {
    let reported = namespace.run("nft list counter inet links lost").unwrap();
    let (_, rest) = reported
        .split_once("packets ")
        .expect("a counter has packets");
    let count = rest.split_whitespace().next().expect("and how many");
    count.parse().expect("a number")
}

async fn health(client: &Endpoint, peer: PeerId, health: Health) -> usize {
    let paths = client.paths(peer).await.unwrap();
    paths.iter().filter(|path| path.health == health).count()
}

/// Sends messages, which must all be delivered, until `is_enough` or for 40 s.
async fn send_until(client: &Endpoint, peer: PeerId, mut is_enough: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_enough().await {
        assert!(
            began.elapsed() < Duration::from_secs(40),
            "it takes too long"
        );
        client.send(peer, vec![7; 5_000]).await.unwrap();
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ports_leave_a_link(namespace: &Namespace) {
    let server = config(1).with_ports(Ports::one(SERVER)).unwrap();
    let (client, server, peer) = pair(config(PORTS), server).await;
    let server = tokio::spawn(async move {
        let echo = |it: cloudburst::Received| async move { it.is_request().then_some(it.message) };
        server.serve(64, echo).await;
    });
    let all: usize = PORTS.into();
    send_until(&client, peer, async || {
        health(&client, peer, Health::Good).await == all
    })
    .await;
    let before = client.local_addrs();
    assert_eq!(before.len(), all);

    // Of 16 ports hardly ever none leads over a link; then another link is tried.
    for link in 0..LINKS {
        kill(namespace, link);
        let until = Instant::now() + Duration::from_secs(1);
        send_until(&client, peer, async || Instant::now() > until).await;
        if health(&client, peer, Health::Dead).await > 0 {
            break;
        }
    }
    let mut quiet_since = Instant::now();
    let mut last = lost(namespace);
    assert!(last > 0, "nothing was lost");
    // No port leads there: not even a ping is lost.
    send_until(&client, peer, async || {
        let now = lost(namespace);
        if core::mem::replace(&mut last, now) != now {
            quiet_since = Instant::now();
        }
        quiet_since.elapsed() > Duration::from_millis(2_500)
    })
    .await;
    assert_eq!(health(&client, peer, Health::Good).await, all);

    let statistics = client.statistics().await.unwrap();
    let replaced = statistics.protocol.ports_rotated;
    let after = client.local_addrs();
    let others = before
        .iter()
        .zip(&after)
        .filter(|(one, other)| one != other);
    let others = others.count() as u64;
    assert!(others >= 1 && replaced >= others, "{others} of {replaced}");
    assert!(replaced < 40, "{replaced} ports were given up for {others}");
    assert!(others < PORTS.into(), "those that were good stay");
    assert_eq!(statistics.sockets.sockets, all as u64);
    assert_eq!(statistics.sockets.replace_errors, 0);
    assert!(after.iter().all(|it| it.ip() == LOCALHOST && it.port() > 0));
    // Answers come back to ports that the server did not know at first.
    for _ in 0..50 {
        let reply = client.request(peer, vec![3; 9_000], Duration::from_secs(2));
        assert_eq!(reply.await.unwrap().len(), 9_000);
    }
    server.abort();
}

#[test]
fn no_port_is_kept_that_leads_over_a_dead_link() {
    require!(Root, Program("ip"), Program("nft"));
    require!(NftRule("meta mark set jhash udp sport . udp dport mod 4"));
    let namespace = Namespace::new("ports").unwrap();
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(ports_leave_a_link(&namespace));
    };
    namespace.enter(run).unwrap();
}
