//! Marks of congestion (ECN) that the kernel sets, between two machines.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use cloudburst::{EcnState, Endpoint, EndpointConfig, PathReport, Ports, Received};
use flow_testbed::{
    namespace::Namespace,
    require,
    require::Requirement::{NftRule, Program, QueueingDiscipline, Root},
};
use tokio::sync::oneshot;

use super::security;

const SERVER: u16 = 4_433;
const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1));
const MESSAGE_BYTES: usize = 20_000;
/// Longer than any of them takes.
const IN_TIME: Duration = Duration::from_secs(10);

/// Two machines on one network.
struct Network {
    client: Namespace,
    server: Namespace,
}

/// What came of messages from the client to the server.
#[derive(Debug)]
struct Outcome {
    path: PathReport,
    /// Datagrams of the client that are marked, as the server has counted and as it has reported.
    arrived: u64,
    reported: u64,
}

impl Network {
    fn new() -> Self {
        let [client, server] = ["client", "server"].map(|name| Namespace::new(name).unwrap());
        client.connect("eth0", &server, "eth0").unwrap();
        for (host, last) in [(&client, 2), (&server, 1)] {
            for line in [
                format!("ip address add 10.9.0.{last}/24 dev eth0"),
                // Without the wait for duplicates of the address.
                format!("ip address add fd09::{last}/64 dev eth0 nodad"),
                "ip link set eth0 up".to_owned(),
            ] {
                host.run(&line).unwrap();
            }
        }
        Self { client, server }
    }

    /// Does something to what comes to the server, as a router in front of it might.
    fn treat(&self, rule: &str) {
        let table = format!(
            "table inet router {{
                 chain prerouting {{
                     type filter hook prerouting priority mangle;
                     udp dport {SERVER} {rule}
                 }}
             }}\n"
        );
        self.server.run_with_input("nft -f -", &table).unwrap();
    }

    /// Sends messages to the server, one after another, each of which it answers.
    fn send(&self, to: IpAddr, dscp: u8, (count, bytes): (usize, usize)) -> Outcome {
        let (is_up, up) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let serving = self.server.spawn(move || {
            block_on(async move {
                let config = EndpointConfig::server(SERVER, security());
                let server = Endpoint::bind(config).await.unwrap();
                is_up.send(()).unwrap();
                let answer = |_: Received| async { Some(vec![1]) };
                tokio::select! {
                    () = server.serve(8, answer) => {}
                    _ = ended => {}
                }
                server.statistics().await.unwrap().protocol.congestion_marks
            })
        });
        let serving = serving.unwrap();
        let sending = || {
            block_on(async {
                up.await.unwrap();
                let config = EndpointConfig::client(security()).with_ports(Ports::Any(1));
                let config = config.unwrap().with_dscp(dscp).unwrap();
                let client = Endpoint::bind(config).await.unwrap();
                let server = [SocketAddr::new(to, SERVER)];
                let peer = client.connect(server).await.unwrap();
                for number in 0..count {
                    let message = vec![number as u8; bytes];
                    client.request(peer, message, IN_TIME).await.unwrap();
                }
                let statistics = client.statistics().await.unwrap().protocol;
                let paths = client.paths(peer).await.unwrap();
                (paths[0], statistics.datagrams_marked)
            })
        };
        let (path, reported) = self.client.enter(sending).unwrap();
        end.send(()).unwrap();
        let arrived = serving.join().unwrap().unwrap();
        let outcome = Outcome {
            path,
            arrived,
            reported,
        };
        println!("{to} {dscp}: {outcome:?}");
        outcome
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// By both ways that a code point goes out: with a DSCP and without.
#[test]
fn marks_of_the_kernel_are_counted_and_reported_and_nothing_is_lost() {
    const RULE: &str = "ip ecn ect0 numgen inc mod 10 == 0 ip ecn set ce";
    require!(Root, Program("ip"), Program("nft"), NftRule(RULE));
    let network = Network::new();
    network.treat(RULE);
    network.treat(&RULE.replace("ip ecn", "ip6 ecn"));
    for (to, dscp) in [(IPV4, 0), (IPV4, 46), (IPV6, 0), (IPV6, 46)] {
        let outcome = network.send(to, dscp, (50, MESSAGE_BYTES));
        assert_eq!(outcome.path.ecn, EcnState::Capable, "{to} {dscp}");
        // A tenth of 50 messages of 14 datagrams, or of their trains.
        assert!(outcome.arrived >= 10, "{to} {dscp}: {outcome:?}");
        assert_eq!(outcome.path.marked, outcome.reported);
        let unreported = outcome.arrived - outcome.reported;
        assert!(
            unreported <= outcome.arrived / 2,
            "{to} {dscp}: {outcome:?}"
        );
        assert!(outcome.path.loss < 0.01, "{to} {dscp}: {outcome:?}");
    }
}

#[test]
fn router_that_clears_or_drops_what_is_capable_is_done_without() {
    const CLEAR: &str = "ip ecn ect0 ip ecn set not-ect";
    const DROP: &str = "ip ecn ect0 drop";
    require!(Root, Program("ip"), Program("nft"), NftRule(CLEAR));
    for rule in [CLEAR, DROP] {
        let network = Network::new();
        network.treat(rule);
        let outcome = network.send(IPV4, 0, (20, MESSAGE_BYTES));
        assert_eq!(outcome.path.ecn, EcnState::Failed, "{rule}");
        assert_eq!((outcome.arrived, outcome.reported), (0, 0), "{rule}");
    }
}

/// A queue of the kernel that marks what has waited for too long, behind a link of 20 Mbit/s.
#[test]
fn queue_of_the_kernel_that_marks_drops_nothing() {
    const QUEUE: &str = "fq_codel ecn";
    require!(
        Root,
        Program("ip"),
        Program("tc"),
        QueueingDiscipline(QUEUE)
    );
    let network = Network::new();
    for line in [
        "tc qdisc add dev eth0 root handle 1: tbf rate 20mbit burst 3200 limit 1000000".to_owned(),
        format!("tc qdisc add dev eth0 parent 1:1 handle 2: {QUEUE}"),
    ] {
        network.client.run(&line).unwrap();
    }
    let outcome = network.send(IPV4, 0, (1, 6_000_000));
    let shown = network.client.run("tc -s qdisc show dev eth0").unwrap();
    println!("{shown}");
    assert_eq!(outcome.path.ecn, EcnState::Capable);
    assert!(outcome.arrived > 0 && outcome.reported > 0, "{outcome:?}");
    let dropped: Vec<_> = shown.split("dropped ").skip(1).collect();
    assert!(dropped.iter().all(|it| it.starts_with("0,")), "{shown}");
}
