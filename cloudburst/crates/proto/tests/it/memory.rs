//! Memory of idle peers and of messages under way: what [`Transport`] states.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use cloudburst_proto::{
    Ecn, FourTuple, MessageKind, SecretKey, Security, SocketId, Time, Transport, TransportConfig,
};

/// Counts what each thread holds; all of this test is on one.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn hold(bytes: usize) {
    // A thread that ends may allocate after its locals are gone.
    let _ = HELD.try_with(|held| held.set(held.get() + bytes as i64));
}

fn release(bytes: usize) {
    let _ = HELD.try_with(|held| held.set(held.get() - bytes as i64));
}

// SAFETY: all is left to the system's allocator; what counts allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        hold(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        release(layout.size());
        hold(bytes);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        release(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PEERS: u16 = 1_000;
/// Peers before counting begins: what grows with use alone has grown by then, and tables that double are nearly
/// full in the end.
const BEFORE: u16 = 24;
const SERVER: u16 = 5_000;
const SERVER_KEY: u16 = u16::MAX;
const CLIENT_PORTS: u16 = 7_000;
const CALENDAR: Duration = Duration::from_secs(1_700_000_000);
/// First flights are taken from then on.
const SETTLED: Duration = Duration::from_secs(60);
/// A client takes so many steps of a millisecond: all have come before the first is forgotten.
const STEPS: u32 = 60;

fn secret(number: u16) -> SecretKey {
    let mut bytes = [9; 32];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    SecretKey::new(bytes)
}

fn machine(security: Security, number: u16, now: Time) -> Transport {
    let mut config = TransportConfig::new(security);
    config.unix_time = Some(CALENDAR + now.since(Time::ZERO));
    let mut seed = [1; 32];
    seed[..2].copy_from_slice(&number.to_be_bytes());
    Transport::deterministic(config, seed, now).expect("it is a valid one")
}

/// Somebody with a key of its own sends a message by so many paths, of which as many datagrams arrive, and says
/// nothing more. Returns whether it was delivered.
fn meet(
    server: &mut Transport,
    now: &mut Time,
    number: u16,
    paths: u16,
    (message_bytes, mut arriving): (usize, usize),
) -> bool {
    let [high, low] = number.to_be_bytes();
    let ip = Ipv4Addr::new(10, 1, high, low);
    let to = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), SERVER));
    let mut client = machine(Security::key_pair(secret(number)), number, *now);
    let tuples: Vec<_> = (0..paths)
        .map(|socket| FourTuple::new(SocketId(socket), to))
        .collect();
    let key = secret(SERVER_KEY).public();
    let peer = client.connect(*now, &tuples, Some(key)).expect("it is one");
    let message = vec![7; message_bytes];
    let sent = client.send(*now, peer, MessageKind::Message, &message);
    sent.expect("there is capacity");
    let mut buffer = vec![0; 65_535];
    for _ in 0..STEPS {
        while let Some(transmit) = client.poll_transmit(*now, &mut buffer) {
            let port = CLIENT_PORTS + transmit.four_tuple.socket.0;
            let from = FourTuple::new(SocketId(0), SocketAddr::from((ip, port)));
            let datagrams = buffer[..transmit.bytes].chunks_mut(transmit.segment_bytes);
            for datagram in datagrams.take(arriving) {
                server.handle_datagram(*now, from, Ecn::NotCapable, datagram);
                arriving -= 1;
            }
        }
        while let Some(transmit) = server.poll_transmit(*now, &mut buffer) {
            let remote = transmit.four_tuple.remote;
            // Those before are gone.
            if remote.ip() == ip {
                let from = FourTuple::new(SocketId(remote.port() - CLIENT_PORTS), to);
                for datagram in buffer[..transmit.bytes].chunks_mut(transmit.segment_bytes) {
                    client.handle_datagram(*now, from, Ecn::NotCapable, datagram);
                }
            }
        }
        *now = *now + Duration::from_millis(1);
        for machine in [&mut client, &mut *server] {
            machine.handle_timeout(*now);
            while machine.poll_event().is_some() {}
        }
    }
    client.statistics().messages_delivered == 1
}

/// Bytes that a server holds for each of so many peers, and how many paths each has.
fn held_for_each(paths: u16) -> (f64, f64) {
    let listed = (0..BEFORE + PEERS).map(|number| secret(number).public());
    let security = Security::with_allowed(secret(SERVER_KEY), listed);
    let mut server = machine(security, SERVER_KEY, Time::ZERO);
    let mut now = Time::ZERO + SETTLED;
    let whole = (60_000, usize::MAX);
    for number in 0..BEFORE {
        assert!(meet(&mut server, &mut now, number, paths, whole));
    }
    let before = HELD.get();
    for number in BEFORE..BEFORE + PEERS {
        assert!(meet(&mut server, &mut now, number, paths, whole));
    }
    let held = HELD.get() - before;
    let peers: Vec<_> = server.peers().collect();
    assert_eq!(peers.len(), usize::from(BEFORE + PEERS));
    let all_paths = peers.iter().map(|peer| server.paths(now, *peer).count());
    let each = f64::from(BEFORE + PEERS);
    let paths = all_paths.sum::<usize>() as f64 / each;
    (held as f64 / f64::from(PEERS), paths)
}

#[test]
fn an_idle_peer_takes_the_memory_that_is_stated() {
    // Lists that double are full with either. Of a peer 2 KiB are bits that tell which messages are done.
    let (few, few_paths) = held_for_each(4);
    let (many, many_paths) = held_for_each(16);
    let path = (many - few) / (many_paths - few_paths);
    let own = few - path * few_paths;
    println!("{own:.0} bytes for a peer, and {path:.0} for each of {many_paths:.1} paths");
    assert!((6_000.0..7_500.0).contains(&own), "{own} bytes for a peer");
    assert!(
        (1_250.0..1_550.0).contains(&path),
        "{path} bytes for a path"
    );
}

/// Peers that begin a message, of which the rest is lost; and how many before counting begins.
const BEGINNERS: u16 = 16;
const BEGINNERS_BEFORE: u16 = 4;
/// So many datagrams of it arrive: the handshake and some symbols.
const ARRIVING: usize = 12;

/// Bytes that a server holds for each peer that has begun a message of so many.
fn held_for_each_incoming(message_bytes: usize) -> f64 {
    let listed = (0..BEGINNERS_BEFORE + BEGINNERS).map(|number| secret(number).public());
    let security = Security::with_allowed(secret(SERVER_KEY), listed);
    let mut server = machine(security, SERVER_KEY, Time::ZERO);
    let mut now = Time::ZERO + SETTLED;
    let part = (message_bytes, ARRIVING);
    for number in 0..BEGINNERS_BEFORE {
        assert!(!meet(&mut server, &mut now, number, 1, part));
    }
    let before = HELD.get();
    for number in BEGINNERS_BEFORE..BEGINNERS_BEFORE + BEGINNERS {
        assert!(!meet(&mut server, &mut now, number, 1, part));
    }
    (HELD.get() - before) as f64 / f64::from(BEGINNERS)
}

#[test]
fn an_incoming_message_takes_the_memory_that_is_stated() {
    let held = [20_000, 60_000, 120_000].map(|bytes| (bytes, held_for_each_incoming(bytes)));
    for [(small, of_small), (large, of_large)] in [[held[0], held[1]], [held[1], held[2]]] {
        // Twice what is more of it; and 1.3 KiB for 64 symbols of some 1,200 bytes are 0.02 for each byte.
        let of_byte = (of_large - of_small) / (large - small) as f64;
        println!("{of_small:.0} bytes with {small}, {of_large:.0} with {large}: {of_byte:.3} each");
        assert!((2.0..2.05).contains(&of_byte), "{of_byte} bytes for each");
        // And nothing besides but the peer and its path.
        let own = of_small - of_byte * small as f64;
        assert!((7_500.0..11_500.0).contains(&own), "{own} bytes besides");
    }
}

/// Bytes that a client holds for each of its messages of so many bytes, which nobody answers.
fn held_for_each_outgoing(message_bytes: usize) -> f64 {
    let mut client = machine(Security::key_pair(secret(0)), 0, Time::ZERO);
    let to = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), SERVER));
    let tuples = [FourTuple::new(SocketId(0), to)];
    let key = secret(SERVER_KEY).public();
    let peer = client.connect(Time::ZERO, &tuples, Some(key));
    let peer = peer.expect("it is one");
    let message = vec![7; message_bytes];
    let mut send = |count: u16| {
        for _ in 0..count {
            let sent = client.send(Time::ZERO, peer, MessageKind::Message, &message);
            sent.expect("there is capacity");
        }
    };
    send(BEFORE);
    let before = HELD.get();
    send(PEERS);
    (HELD.get() - before) as f64 / f64::from(PEERS)
}

#[test]
fn an_outgoing_message_takes_the_memory_that_is_stated() {
    let [small, large] = [1_000, 9_000].map(held_for_each_outgoing);
    let (of_byte, own) = ((large - small) / 8_000.0, small - 1_000.0);
    println!("{own:.0} bytes for a message, and {of_byte:.2} for each of its bytes");
    // Lists that double are three quarters full.
    assert!((700.0..950.0).contains(&own), "{own} bytes for a message");
    assert!((0.99..1.01).contains(&of_byte), "{of_byte} bytes for each");
}
