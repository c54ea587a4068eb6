//! A border router, which is this machine, between a site and two tunnels.
//!
//! ```text
//! site0 ── lan0 border tun0 ── far0 server
//!                      tun1 ── far1
//! ```
//!
//! Through each cable there may be a VLAN, from `tun0.4` to `far0.4` and from `tun1.5` to `far1.5`.
//!
//! Made through netlink: the machine has no programs besides ours.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use nix::sched::{CloneFlags, setns, unshare};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, LinkVlan, RouteMessageBuilder};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use splitter_config::PacketLog;
use splitter_datapath::Object;
use splitter_policy::dscp::Dscp;

pub(crate) const LAN: &str = "lan0";
/// What the border's tunnels are made of.
pub(crate) const CABLES: [Tunnel; 2] = [
    Tunnel::new("tun0", "far0", 2),
    Tunnel::new("tun1", "far1", 3),
];
/// The same with a tag on each packet.
pub(crate) const VLANS: [Tunnel; 2] = [
    Tunnel::new("tun0.4", "far0.4", 4),
    Tunnel::new("tun1.5", "far1.5", 5),
];
/// Reached through either tunnel.
pub(crate) const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 0, 9, 9), 5001);
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Network {
    site: Space,
    far: Space,
}

/// A network namespace.
pub(crate) struct Space(File);

/// One way from the border to the server.
#[derive(Clone, Copy)]
pub(crate) struct Tunnel {
    /// The border's device.
    pub(crate) device: &'static str,
    /// The server's device.
    far: &'static str,
    /// Of its network, and of the VLAN where it is one.
    number: u8,
}

/// A TCP connection from the site to the server, which sends back what it gets.
pub(crate) struct Connection(TcpStream);

/// TCP packets as they come out of a tunnel.
pub(crate) struct Capture(Socket);

/// What matters of a packet that came out of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) dscp: u8,
}

impl Network {
    pub(crate) fn build() -> Result<Self> {
        let network = Self {
            site: Space::new()?,
            far: Space::new()?,
        };
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        with_netlink(async |it| {
            cable(it, LAN, "site0", &network.site).await?;
            for tunnel in CABLES {
                cable(it, tunnel.device, tunnel.far, &network.far).await?;
            }
            set_up(it, "lo", None).await?;
            set_up(it, LAN, Some([10, 0, 1, 1])).await?;
            for tunnel in CABLES {
                set_up(it, tunnel.device, Some(tunnel.address(1))).await?;
            }
            add_default_route(it, CABLES[0].gateway()).await
        })?;
        network.site.enter(|| {
            with_netlink(async |it| {
                set_up(it, "site0", Some([10, 0, 1, 2])).await?;
                add_default_route(it, Ipv4Addr::new(10, 0, 1, 1)).await
            })
        })?;
        network.far.enter(|| {
            with_netlink(async |it| {
                set_up(it, "lo", Some(SERVER.0.octets())).await?;
                for tunnel in CABLES {
                    set_up(it, tunnel.far, Some(tunnel.address(2))).await?;
                }
                add_default_route(it, Ipv4Addr::new(10, 0, 2, 1)).await
            })
        })?;
        let listener = network.far.enter(|| TcpListener::bind(SERVER))?;
        thread::spawn(move || serve(&listener));
        Ok(network)
    }

    /// Has the far ends of the tunnels take what is redirected into the near ones, for as long as the
    /// result lives: a veth device does so where an XDP program runs.
    pub(crate) fn receive_redirected(&self) -> Result<Ebpf> {
        let object = Object::for_level(PacketLog::Off)?;
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("FLOWS_V4", 1)
            .map_max_entries("FLOWS_V6", 1)
            .map_max_entries("TAGS", 1)
            .load(object.bytes())?;
        let passing = ebpf.program_mut("read_clocks").context("it is there")?;
        let passing: &mut Xdp = passing.try_into()?;
        passing.load()?;
        self.far.enter(|| {
            for device in ["far0", "far1"] {
                passing.attach(device, XdpMode::Driver)?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        // As on a wire: what leaves its checksum to the device goes by the stack.
        self.send_single_packets()?;
        Ok(ebpf)
    }

    /// Opens a connection and gets some bytes back.
    pub(crate) fn check_reachable(&self) -> Result<()> {
        self.connect()?.send(3, Duration::ZERO)
    }

    pub(crate) fn connect(&self) -> Result<Connection> {
        Connection::open_in(&self.site)
    }

    /// Has the site's connections be marked where they would be dropped (ECN), or no more.
    pub(crate) fn set_ecn(&self, is_asked_for: bool) -> Result<()> {
        let value = u8::from(is_asked_for).to_string();
        let set = || std::fs::write("/proc/sys/net/ipv4/tcp_ecn", value);
        self.site.enter(set).context("cannot set ECN")
    }

    /// Has the site send one packet at a time, as on a wire.
    pub(crate) fn send_single_packets(&self) -> Result<()> {
        self.site.enter(|| finish_checksums("site0"))
    }

    /// Puts a VLAN through each cable.
    pub(crate) fn add_vlans(&self) -> Result<()> {
        let add = |end: fn(&Tunnel) -> &'static str, host| {
            with_netlink(async |it| {
                for (below, tunnel) in CABLES.iter().zip(VLANS) {
                    let below = nix::net::if_::if_nametoindex(end(below))?;
                    let vlan = LinkVlan::new(end(&tunnel), below, tunnel.number.into());
                    let made = it.link().add(vlan.build()).execute().await;
                    made.with_context(|| format!("cannot make the VLAN {}", end(&tunnel)))?;
                    set_up(it, end(&tunnel), Some(tunnel.address(host))).await?;
                }
                Ok(())
            })
        };
        add(|it| it.device, 1)?;
        self.far.enter(|| add(|it| it.far, 2))
    }

    /// Captures at the far end of a tunnel from now on.
    pub(crate) fn capture(&self, tunnel: Tunnel) -> Result<Capture> {
        let socket = self.far.enter(|| {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))?;
            socket.bind_device(Some(tunnel.far.as_bytes()))?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>(socket)
        });
        Ok(Capture(socket.context("cannot capture")?))
    }
}

impl Tunnel {
    const fn new(device: &'static str, far: &'static str, number: u8) -> Self {
        Self {
            device,
            far,
            number,
        }
    }

    /// The server's address in it.
    pub(crate) const fn gateway(self) -> Ipv4Addr {
        let [a, b, c, d] = self.address(2);
        Ipv4Addr::new(a, b, c, d)
    }

    const fn address(self, host: u8) -> [u8; 4] {
        [10, 0, self.number, host]
    }
}

impl Connection {
    pub(crate) fn open_in(site: &Space) -> Result<Self> {
        let connect = || TcpStream::connect_timeout(&SERVER.into(), PATIENCE);
        let stream = site.enter(connect).context("cannot reach the server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// Has its packets carry a DSCP from now on.
    pub(crate) fn mark(&self, dscp: Dscp) -> Result<()> {
        let tos = u32::from(dscp.value()) << 2;
        Ok(SockRef::from(&self.0).set_tos_v4(tos)?)
    }

    /// Sends so many small packets with a pause after each, and waits until they have come back.
    pub(crate) fn send(&mut self, packets: usize, pause: Duration) -> Result<()> {
        let (message, mut answer) = ([7; 100], [0; 100]);
        for number in 1..=packets {
            let lost = || format!("packet {number} of {packets} was lost");
            self.0.write_all(&message).with_context(lost)?;
            self.0.read_exact(&mut answer).with_context(lost)?;
            ensure!(answer == message, "packet {number} came back changed");
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Sends so many bytes, with little of it under way at a time, and waits until all have come back.
    pub(crate) fn transfer(&mut self, bytes: usize) -> Result<()> {
        const UNDER_WAY_BYTES: usize = 60_000;
        SockRef::from(&self.0).set_send_buffer_size(UNDER_WAY_BYTES)?;
        let mut receiver = self.0.try_clone()?;
        let receiving = thread::spawn(move || {
            let mut answer = vec![0; bytes];
            receiver.read_exact(&mut answer).map(|()| answer)
        });
        let message = vec![7; bytes];
        self.0.write_all(&message).context("cannot send")?;
        let answer = receiving.join().expect("no panic");
        ensure!(
            answer.context("not all came back")? == message,
            "it came back changed"
        );
        Ok(())
    }

    /// Sends all at once and waits for nothing.
    pub(crate) fn begin(&mut self, message: &[u8]) -> Result<()> {
        self.0.write_all(message).context("cannot send")
    }

    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.0.local_addr()?.port())
    }
}

impl Capture {
    /// All that has arrived until now.
    pub(crate) fn packets(self) -> Result<Vec<Arrived>> {
        let (mut socket, mut packet) = (self.0, [0; 2048]);
        let mut packets = Vec::new();
        loop {
            match socket.read(&mut packet) {
                // A raw socket hands over the IP header.
                Ok(length) if length >= 20 => packets.push(Arrived {
                    dscp: packet[1] >> 2,
                }),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(packets),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Space {
    pub(crate) fn new() -> Result<Self> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        };
        let made = thread::scope(|scope| scope.spawn(make).join().expect("no panic"));
        made.map(Self).context("cannot make a network namespace")
    }

    /// Runs `work` on a thread of its own in there.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("this is root");
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().expect("no panic"))
    }
}

/// Has the stack finish the checksums of what this device sends, as `ethtool -K DEVICE tx off`.
fn finish_checksums(device: &str) -> Result<()> {
    const SIOCETHTOOL: u64 = 0x8946;
    /// `struct ethtool_value` with `ETHTOOL_STXCSUM`, off.
    static OFF: [u32; 2] = [0x17, 0];
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        value: *const [u32; 2],
        rest: [u64; 2],
    }
    let mut request = Request {
        name: [0; 16],
        value: &OFF,
        rest: [0; 2],
    };
    request.name[..device.len()].copy_from_slice(device.as_bytes());
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: a request as large as the kernel's, with a pointer that it only reads.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw const request) };
    ensure!(
        result == 0,
        "cannot switch off checksums of {device}: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// Sends back what each connection sends.
pub(crate) fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            let _ = stream.set_nodelay(true);
            let (mut reader, mut writer) = (&stream, &stream);
            let _ = std::io::copy(&mut reader, &mut writer);
        });
    }
}

/// Talks to the kernel about the network namespace of this thread.
pub(crate) fn with_netlink<T>(work: impl AsyncFnOnce(&Handle) -> Result<T>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        tokio::spawn(connection);
        work(&handle).await
    })
}

pub(crate) async fn cable(netlink: &Handle, here: &str, there: &str, space: &Space) -> Result<()> {
    let veth = LinkVeth::new(here, there).build();
    let made = netlink.link().add(veth).execute().await;
    made.with_context(|| format!("cannot make the pair {here} and {there}"))?;
    let moved = LinkUnspec::new_with_name(there).setns_by_fd(space.0.as_raw_fd());
    netlink.link().set(moved.build()).execute().await?;
    Ok(())
}

/// Sets a device up, with an address in a network of 256.
pub(crate) async fn set_up(netlink: &Handle, device: &str, address: Option<[u8; 4]>) -> Result<()> {
    let up = LinkUnspec::new_with_name(device).up().build();
    netlink.link().set(up).execute().await?;
    if let Some(address) = address {
        let index = nix::net::if_::if_nametoindex(device)?;
        let address = IpAddr::from(address);
        netlink.address().add(index, address, 24).execute().await?;
    }
    Ok(())
}

pub(crate) async fn add_default_route(netlink: &Handle, gateway: Ipv4Addr) -> Result<()> {
    let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway);
    Ok(netlink.route().add(route.build()).execute().await?)
}
