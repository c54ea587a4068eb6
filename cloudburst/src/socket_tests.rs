use std::time::Duration;

use super::*;
use cloudburst_proto::Ecn;

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn bind(address: SocketAddr, dscp: u8, buffer_bytes: usize) -> Result<UdpSocket, BindError> {
    UdpSocket::bind(&SocketOptions {
        dscp,
        buffer_bytes,
        ..SocketOptions::new(address)
    })
}

fn train(remote: SocketAddr, segment_bytes: usize, contents: &[u8]) -> Datagrams<'_> {
    Datagrams {
        ecn: Ecn::Capable,
        segment_bytes,
        ..Datagrams::one(remote, contents)
    }
}

/// Sends a train as the driver does, and returns the calls it took.
async fn send_all(socket: &mut UdpSocket, mut train: Datagrams<'_>) -> usize {
    let mut calls = 0;
    while !train.contents.is_empty() {
        match socket.send(&train) {
            Ok(sent) => {
                calls += 1;
                train.contents = &train.contents[sent..];
            }
            // Elsewhere than on Linux the runtime has to hear first that there is room.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::task::yield_now().await;
            }
            Err(_) => {
                socket.stop_offload();
            }
        }
    }
    calls
}

/// Everything that arrives until `count` datagrams did.
async fn receive(socket: &UdpSocket, count: usize) -> Vec<(SocketAddr, Ecn, Vec<u8>)> {
    let (mut buffers, mut all) = (ReceiveBuffers::new(), Vec::new());
    while all.len() < count {
        let readable = tokio::time::timeout(Duration::from_secs(5), socket.io.readable());
        let _ = readable.await.expect("datagrams arrive").unwrap();
        if socket.receive(&mut buffers).is_ok() {
            let datagrams = buffers.datagrams();
            all.extend(datagrams.map(|(from, bytes)| (from.remote, from.ecn, bytes.to_vec())));
        }
    }
    all
}

/// Else a host wakes for each datagram that one of its queues has held, and that nobody waits for.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_system_announces_no_room_to_send_in() {
    use std::{fs, os::fd::AsRawFd as _};

    const EPOLLOUT: u32 = 0x4;
    let socket = bind(loopback(), 0, 1 << 20).unwrap();
    let own = socket.io.as_raw_fd().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        // Other tests of this process open and close descriptors meanwhile.
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        let lines = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
        for mut words in lines.map(str::split_whitespace) {
            let (descriptor, events) = (words.next(), words.nth(1));
            if descriptor == Some(&own) {
                found.push(u32::from_str_radix(events.unwrap(), 16).unwrap());
            }
        }
    }
    assert!(!found.is_empty(), "the runtime watches it");
    assert!(found.iter().all(|it| it & EPOLLOUT == 0), "{found:x?}");
}

/// Else each wake would take a call more, which finds nothing.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[tokio::test]
async fn a_socket_that_was_emptied_is_readable_again_only_when_more_comes() {
    let mut sender = bind(loopback(), 0, 1 << 20).unwrap();
    let receiver = bind(loopback(), 0, 1 << 20).unwrap();
    let mut buffers = ReceiveBuffers::new();
    for _ in 0..3 {
        send_all(&mut sender, train(receiver.local_addr(), 4, b"0123")).await;
        let readable = tokio::time::timeout(Duration::from_secs(5), receiver.io.readable());
        let _ = readable.await.expect("a datagram arrives").unwrap();
        receiver.receive(&mut buffers).unwrap();
        assert_eq!(buffers.filled, 1);
        let is_empty = std::future::poll_fn(|context| {
            Poll::Ready(poll_receive_ready(&receiver.io, context).is_pending())
        });
        assert!(is_empty.await);
    }
}

#[tokio::test]
async fn a_train_arrives_in_order_with_its_mark() {
    for dscp in [0, 46] {
        let mut sender = bind(loopback(), dscp, 1 << 20).unwrap();
        let receiver = bind(loopback(), 0, 1 << 20).unwrap();
        let bytes: Vec<u8> = (0..70_u8).flat_map(|it| [it; 100]).collect();
        let train = train(receiver.local_addr(), 100, &bytes[..bytes.len() - 1]);
        let calls = send_all(&mut sender, train).await;
        assert!(calls == 2 || sender.segments() == 1, "{calls} calls");

        let all = receive(&receiver, 70).await;
        for (index, (from, ecn, datagram)) in all.iter().enumerate() {
            assert_eq!(
                (*from, *ecn),
                (sender.local_addr(), Ecn::Capable),
                "{index}, dscp {dscp}, {} segments, {calls} calls",
                sender.segments()
            );
            let len = if index == 69 { 99 } else { 100 };
            assert_eq!(*datagram, vec![index as u8; len]);
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_code_point_is_on_every_datagram() {
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sockopt};
    use std::os::fd::AsRawFd as _;

    let receiver = std::net::UdpSocket::bind(loopback()).unwrap();
    nix::sys::socket::setsockopt(&receiver, sockopt::IpRecvTos, &true).unwrap();
    let mut sender = bind(loopback(), 46, 1 << 20).unwrap();
    let to = receiver.local_addr().unwrap();
    send_all(&mut sender, train(to, 4, b"0123456789")).await;
    for _ in 0..3 {
        let mut payload = [0; 16];
        let mut payload = [IoSliceMut::new(&mut payload)];
        let mut control = nix::cmsg_space!(i32);
        let message = recvmsg::<SockaddrStorage>(
            receiver.as_raw_fd(),
            &mut payload,
            Some(&mut control),
            MsgFlags::empty(),
        );
        let message = message.unwrap();
        let tos = message.cmsgs().unwrap().find_map(|cmsg| match cmsg {
            ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
            _ => None,
        });
        assert_eq!(tos, Some(46 << 2 | 0b10));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn offload_that_fails_in_mid_life_is_given_up() {
    use std::os::fd::AsRawFd as _;

    for dscp in [0, 10] {
        let mut sender = bind(loopback(), dscp, 1 << 20).unwrap();
        let receiver = bind(loopback(), 0, 1 << 20).unwrap();
        let bytes = [7; 1_000];
        let train = train(receiver.local_addr(), 100, &bytes);
        send_all(&mut sender, train).await;
        // Without checksums the kernel refuses to segment: EINVAL.
        let on = 1_i32;
        // SAFETY: the descriptor is open, and the option's value is an int that outlives the call.
        let result = unsafe {
            let (value, len) = ((&raw const on).cast(), size_of::<i32>() as u32);
            let fd = sender.io.as_raw_fd();
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, value, len)
        };
        assert_eq!(result, 0);
        let calls = send_all(&mut sender, train).await;
        assert_eq!((calls, sender.segments()), (10, 1));
        assert_eq!(receive(&receiver, 20).await.len(), 20);
        // Had it been for the length of a datagram, another attempt would be worth while.
        sender.retry_offload();
        assert_eq!(sender.segments(), 64);
        let calls = send_all(&mut sender, train).await;
        assert_eq!((calls, sender.segments()), (10, 1));
    }
}

/// By both ways to send, quinn-udp's and our own, in one datagram and in trains.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn answers_leave_from_the_address_that_was_asked() {
    for (any, asked) in [("0.0.0.0:0", "127.0.0.2"), ("[::]:0", "::1")] {
        for dscp in [0, 46] {
            let Ok(mut server) = bind(any.parse().unwrap(), dscp, 1 << 20) else {
                println!("skipped: no {any} here");
                continue;
            };
            let asked: IpAddr = asked.parse().unwrap();
            let home = SocketAddr::new(asked, server.local_addr().port());
            let client = std::net::UdpSocket::bind(any).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(5)))
                .unwrap();
            client.send_to(b"where?", home).unwrap();
            let _ = server.io.readable().await.unwrap();
            let mut buffers = ReceiveBuffers::new();
            server.receive(&mut buffers).unwrap();
            let (from, ..) = buffers.datagrams().next().expect("it came");
            assert_eq!(from.local, Some(asked));
            let mut train = train(from.remote, 2, b"here!");
            train.local = server.reply_address(asked);
            assert_eq!(train.local, Some(asked));
            send_all(&mut server, train).await;
            for _ in 0..3 {
                let (_, from) = client.recv_from(&mut [0; 8]).unwrap();
                assert_eq!(from, home, "dscp {dscp}");
            }
        }
    }
}

#[tokio::test]
async fn only_an_address_of_ones_own_is_answered_from() {
    let any = bind("0.0.0.0:0".parse().unwrap(), 0, 1 << 16).unwrap();
    let one = bind(loopback(), 0, 1 << 16).unwrap();
    let asked = |it: &str| it.parse::<IpAddr>().unwrap();
    let own = asked("192.0.2.1");
    assert_eq!(any.reply_address(own), Some(own));
    for nobodys in ["224.0.0.1", "255.255.255.255", "ff02::1"] {
        assert_eq!(any.reply_address(asked(nobodys)), None);
    }
    let localhost = asked("127.0.0.1");
    assert_eq!(one.reply_address(localhost), None, "there is no other");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let first = bind(loopback(), 0, 1 << 16).unwrap();
    let error = bind(first.local_addr(), 0, 1 << 16).unwrap_err();
    assert!(error.is_in_use());
    assert!(error.to_string().contains(&first.local_addr().to_string()));
}

#[tokio::test]
async fn only_what_can_be_reached_is_a_route() {
    let socket = bind(loopback(), 0, 1 << 16).unwrap();
    assert!(socket.reaches("127.0.0.9:1".parse().unwrap()));
    assert!(!socket.reaches("192.0.2.1:1".parse().unwrap()));
    assert!(!socket.reaches("[::1]:1".parse().unwrap()));
}
