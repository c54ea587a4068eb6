//! Datagrams to many destinations, while a route that is longer than the default one comes and goes: each
//! takes the way that is right by then, and few of them have the kernel asked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;

use flow_testbed::namespace::NamespaceError;
use flow_testbed::topology::Topology;
use socket2::{Domain, Protocol, Socket, Type};

use super::*;

/// All flows stay short.
const MANY: &str = "[steering]\nmode = 'redirect'\n[health]\nenabled = false\n\
                    [flows]\ntable_size = 4096\nthreshold = 10000\nprotocols = ['tcp', 'udp']\n";

const PORT: u16 = 7_000;
/// Of each family, half of them in the longer route.
const DESTINATIONS: u8 = 64;
/// Those of the longer route have this bit.
const UPPER: u8 = 0x80;
/// A datagram says this after all phases.
const END: u8 = u8::MAX;

fn destination(is_v6: bool, number: u8) -> IpAddr {
    if is_v6 {
        Ipv6Addr::new(0x2001, 0xdb8, 0x77, u16::from(number) << 8, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::new(198, 18, number, 1).into()
    }
}

type Sender = JoinHandle<Result<(), NamespaceError>>;

/// Sends to all destinations in turn, each datagram with its phase and the number of its
/// destination, until the phase is [`END`].
fn send(topology: &Topology, phase: &Arc<AtomicU8>) -> Sender {
    let phase = Arc::clone(phase);
    let client = &topology.client;
    let families: Vec<IpAddr> = [Some(client.ipv4.into()), client.ipv6.map(IpAddr::from)]
        .into_iter()
        .flatten()
        .collect();
    let send = move || {
        let bind = |address| UdpSocket::bind((address, 0)).expect("the address is there");
        let sockets: Vec<_> = families.into_iter().map(bind).collect();
        let step = u8::MAX / DESTINATIONS + 1;
        for number in (0..DESTINATIONS).map(|it| it * step).cycle() {
            let phase = phase.load(Ordering::SeqCst);
            if phase == END {
                return;
            }
            for socket in &sockets {
                let is_v6 = socket.local_addr().expect("it is bound").is_ipv6();
                let to = SocketAddr::new(destination(is_v6, number), PORT);
                // What the border cannot send meanwhile is missed below.
                let _ = socket.send_to(&[phase, number], to);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    client.namespace.spawn(send).expect("the client is there")
}

/// The far border as every destination: what comes by one tunnel of one family.
struct Sink {
    socket: UdpSocket,
    tunnel: usize,
}

fn sinks(topology: &Topology) -> Vec<Sink> {
    let far = &topology.borders[1].namespace;
    let is_v6 = topology.client.ipv6.is_some();
    far.run("ip route add local 198.18.0.0/15 dev lo")
        .expect("it can");
    if is_v6 {
        far.run("ip -6 route add local 2001:db8:77::/48 dev lo")
            .expect("it can");
    }
    let sink = |tunnel: usize, is_v6: bool| {
        let (domain, any) = if is_v6 {
            (Domain::IPV6, IpAddr::V6(Ipv6Addr::UNSPECIFIED))
        } else {
            (Domain::IPV4, IpAddr::V4(Ipv4Addr::UNSPECIFIED))
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
        if is_v6 {
            socket.set_only_v6(true).expect("it can");
        }
        let device = TUNNELS[tunnel].as_bytes();
        socket.bind_device(Some(device)).expect("it is there");
        socket.set_nonblocking(true).expect("it can");
        socket.set_recv_buffer_size(4 << 20).expect("it can");
        socket
            .bind(&SocketAddr::new(any, PORT).into())
            .expect("it is free");
        Sink {
            socket: socket.into(),
            tunnel,
        }
    };
    let open = || -> Vec<Sink> {
        let families = if is_v6 { &[false, true][..] } else { &[false] };
        let both = families.iter().flat_map(|is_v6| [(0, *is_v6), (1, *is_v6)]);
        both.map(|(tunnel, is_v6)| sink(tunnel, is_v6)).collect()
    };
    far.enter(open).expect("it is there")
}

/// How many datagrams of a phase came by each tunnel, to the lower half of the destinations and to the upper.
fn arrived(sinks: &[Sink], phase: u8) -> [[usize; 2]; 2] {
    let mut counts = [[0; 2]; 2];
    for sink in sinks {
        let mut datagram = [0; 2];
        while let Ok(2) = sink.socket.recv(&mut datagram) {
            let [of, number] = datagram;
            if of == phase {
                counts[usize::from(number & UPPER != 0)][sink.tunnel] += 1;
            }
        }
    }
    counts
}

#[test]
fn datagrams_take_the_way_of_a_longer_route_as_long_as_it_is_there() {
    on_site(|site| {
        be_redirectable(site, &TUNNELS);
        site.configure(MANY);
        let daemon = site.run();
        let sinks = sinks(&site.topology);
        let phase = Arc::new(AtomicU8::new(0));
        let sender = send(&site.topology, &phase);
        let settle = || std::thread::sleep(Duration::from_millis(1_500));
        let families = if site.topology.client.ipv6.is_some() {
            2
        } else {
            1
        };
        // Enough to see one of them go astray.
        let many = 200 * families;
        let measure = |number: u8| {
            settle();
            let asked = || site.metric("splitter_redirect_fib_lookups_total");
            let before = (redirected(site), asked());
            phase.store(number, Ordering::SeqCst);
            settle();
            phase.store(0, Ordering::SeqCst);
            let after = (redirected(site), asked());
            std::thread::sleep(Duration::from_millis(200));
            let part = (after.1 - before.1) / (after.0 - before.0);
            (arrived(&sinks, number), part)
        };
        let (default_alone, part) = measure(1);
        assert_eq!([default_alone[0][1], default_alone[1][1]], [0, 0]);
        assert!(
            default_alone[0][0] > many && default_alone[1][0] > many,
            "{default_alone:?}"
        );
        assert!(part < 0.1, "the kernel was asked for {part} of them");

        let border = &site.topology.borders[0];
        let gateways = border.gateway_addresses(1);
        let route = |what: &str| {
            let prefixes = ["198.18.128.0/17", "2001:db8:77:8000::/49"];
            for (prefix, gateway) in prefixes.iter().zip(&gateways) {
                let device = TUNNELS[1];
                let line = format!("ip route {what} {prefix} via {gateway} dev {device}");
                site.border().run(&line).expect("the kernel takes it");
            }
        };
        route("add");
        let (with_longer, _) = measure(2);
        assert_eq!(
            [with_longer[0][1], with_longer[1][0]],
            [0, 0],
            "{with_longer:?}"
        );
        assert!(
            with_longer[0][0] > many && with_longer[1][1] > many,
            "{with_longer:?}"
        );

        route("del");
        let (without, part) = measure(3);
        assert_eq!([without[0][1], without[1][1]], [0, 0]);
        assert!(without[0][0] > many && without[1][0] > many, "{without:?}");
        assert!(part < 0.1, "the kernel was asked for {part} of them");

        phase.store(END, Ordering::SeqCst);
        sender.join().expect("it sent").expect("it was there");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
