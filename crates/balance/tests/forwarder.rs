//! The example `forwarder` as a user runs it: over loopback, by two source addresses.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The forwarder, which ends with the test.
struct Forwarder(Child);

impl Drop for Forwarder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cargo builds examples with the tests of their package, next to them.
fn forwarder() -> Command {
    let mut path = std::env::current_exe().expect("the path of this test");
    path.pop();
    path.pop();
    Command::new(path.join("examples/forwarder"))
}

/// A port that is free now.
fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.local_addr().expect("its address").port()
}

#[test]
fn datagrams_of_one_flow_are_spread_by_rate_and_arrive_in_order() {
    let destination = UdpSocket::bind("127.0.0.1:0").expect("the destination");
    destination
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a timeout");
    let (listen, to) = (free_port(), destination.local_addr().expect("its address"));
    let _forwarder = Forwarder(
        forwarder()
            .args([&format!("127.0.0.1:{listen}"), &to.to_string()])
            .args(["127.0.0.2,30,1", "127.0.0.3,10,1"])
            .spawn()
            .expect("examples are built by `cargo test -p flow-balance`"),
    );
    let sender = UdpSocket::bind("127.0.0.1:0").expect("the sender");
    sender.connect(("127.0.0.1", listen)).expect("loopback");
    let mut buffer = [0; 2048];
    for attempt in 0.. {
        assert!(attempt < 100, "the forwarder does not forward");
        // Refused as long as nobody listens.
        let _ = sender.send(&[0xff; 4]);
        if destination.recv_from(&mut buffer).is_ok() {
            break;
        }
    }

    const DATAGRAMS: u32 = 400;
    let (mut by_source, mut numbers) = (HashMap::<IpAddr, u32>::new(), Vec::new());
    for number in 0..DATAGRAMS {
        let mut datagram = [0; 1_200];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        sender.send(&datagram).expect("sent");
        // One at a time, so that no socket's buffer overflows.
        let (length, source) = destination.recv_from(&mut buffer).expect("forwarded");
        if length == 1_200 {
            *by_source.entry(source.ip()).or_default() += 1;
            numbers.push(u32::from_be_bytes(buffer[..4].try_into().expect("four")));
        }
    }
    println!("{by_source:?}");
    assert!(numbers.is_sorted());
    let fast = by_source[&IpAddr::from([127, 0, 0, 2])];
    let slow = by_source[&IpAddr::from([127, 0, 0, 3])];
    assert!(slow > 0 && fast > slow, "{by_source:?}");
}

#[test]
fn what_is_no_path_is_refused_by_name() {
    for (paths, message) in [
        (
            &["127.0.0.2,30"][..],
            "127.0.0.2,30 is not SOURCE,MBIT,DELAY_MS",
        ),
        (&[], "1 to 16 paths are needed"),
    ] {
        let output = forwarder()
            .args(["127.0.0.1:0", "127.0.0.1:9"])
            .args(paths)
            .stdout(Stdio::null())
            .output()
            .expect("examples are built by `cargo test -p flow-balance`");
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(message), "{said}");
    }
}
