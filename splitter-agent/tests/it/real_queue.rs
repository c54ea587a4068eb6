//! A flow that is to change shared tunnels waits for the queue that there is, and not only for the
//! model of it, which runs ahead of a shaper that stands still.

use crate::policy::packet::{Packet, Upper};
use crate::support::queues::sent_by;
use crate::support::site::{Site, on_site, stderr};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use aya_obj::programs::XdpAttachType;
use flow_testbed::require::skip;
use flow_testbed::topology::TUNNELS;
use splitter_config::{Config, SteeringMode};
use splitter_datapath::{Dataplane, Pins};
use splitter_policy::counters::FlowEvent;

const SHARE: &str = "policy = 'share'\n[share]\nshape_percent = 97\n";
const FLOWS: u16 = 20;
/// Beyond the threshold of 40, and not yet twice as many.
const PACKETS: u32 = 45;
/// Longer than the model needs for as many packets, and than a flow waits at least.
const PAUSE: Duration = Duration::from_millis(20);

/// The border's program as it is pinned, given packets by hand.
struct Border<'a> {
    site: &'a Site,
    config: Config,
    program: Xdp,
    dataplane: Dataplane,
    /// By `splitter up`.
    said: String,
}

impl<'a> Border<'a> {
    fn up(site: &'a Site) -> Self {
        site.configure(SHARE);
        let up = site.splitter(&["up"]);
        assert!(up.status.success(), "{up:?}");
        let said = stderr(&up);
        let text = std::fs::read_to_string(site.config()).expect("a file");
        let config = Config::parse(&text, "test").expect("it is right");
        let pins = Pins::new(&config.bpffs, &config.pin_dir());
        let path: PathBuf = pins.program_of(SteeringMode::Dscp);
        let program = Xdp::from_pin(path, XdpAttachType::Interface).expect("it is pinned");
        let dataplane = Dataplane::open(&pins).expect("it is ours");
        Self {
            site,
            config,
            program,
            dataplane: dataplane.expect("it is up"),
            said,
        }
    }

    /// Gives the program packets of a flow.
    fn give(&self, port: u16, repeat: u32) {
        let packet = Packet {
            upper: Upper::Tcp {
                ports: (port, 443),
                flags: 0x10,
                option_bytes: 0,
            },
            payload_bytes: 1_400,
            ..Packet::tcp_v4()
        };
        let run = self.program.test_run(TestRunOptions {
            data_in: Some(&packet.bytes()),
            repeat,
            ..TestRunOptions::default()
        });
        run.expect("the kernel runs it");
    }

    /// How many of some flows change tunnels that turn long, pause and go on.
    fn handed_over(&self, first_port: u16) -> u64 {
        let events = || {
            let counters = self.dataplane.counters().expect("they are read");
            counters.events(FlowEvent::HandedOverDrained)
        };
        let before = events();
        let ports = first_port..first_port + FLOWS;
        // Those that start at once are spread over both tunnels.
        ports.clone().for_each(|port| self.give(port, 1));
        // So are those that turn long, and here all that started in one tunnel come first.
        let (even, odd): (Vec<_>, Vec<_>) = ports.partition(|port| port % 2 == 0);
        for port in even.into_iter().chain(odd) {
            self.give(port, PACKETS);
            std::thread::sleep(PAUSE);
            // Behind it, which must not be taken for all that waits.
            (0..2).for_each(|number| self.give(port + 2 * FLOWS + number * FLOWS, 1));
            self.give(port, 1);
        }
        events() - before
    }

    /// Has the program take the number at this address for what waits in each queue.
    fn look_at(&self, address: u64) {
        let map = MapData::from_pin(self.dataplane.pins().map("SHORT_QUEUES"));
        let map = Map::Array(map.expect("it is pinned"));
        // Two addresses, and the devices, which no program looks at.
        let mut queues: Array<_, [u64; 3]> = map.try_into().expect("an array");
        let written = queues.set(0, [address, address, 0], 0);
        written.expect("it is written");
    }

    fn run(&self, command: &str) -> String {
        self.site.border().run(command).expect(command)
    }

    /// Lets the short class of both tunnels stand still with packets in it.
    fn stop_queues(&self) {
        let near = &self.site.topology.borders[0];
        for (index, device) in TUNNELS.iter().enumerate() {
            let gateway = &near.gateway_addresses(index)[0];
            let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
            let socket = near.namespace.enter(bind);
            let socket = socket.expect("it exists").expect("a port");
            let service = u32::from(self.config.marks.short.policy().value()) << 2;
            let settings = socket2::SockRef::from(&socket);
            settings.set_tos_v4(service).expect("a setting");
            socket.connect((gateway.as_str(), 9)).expect("an address");
            // Who is there is known before nothing gets through any more.
            let before = sent_by(&near.namespace, device, "10");
            self.site.wait_for("a datagram to leave", || {
                // Nobody listens, and the gateway says so.
                let _ = socket.send(&[0; 100]);
                let sent = sent_by(&near.namespace, device, "10").since(before);
                (sent.bytes > 142).then_some(())
            });
            let change = format!(
                "tc class change dev {device} parent 7400:1 classid 7400:10 htb rate 1kbit"
            );
            self.run(&change);
            for _ in 0..4 {
                let _ = socket.send(&[0; 1_400]);
            }
            let queue = self.run(&format!("tc -s qdisc show dev {device} handle 7410:"));
            let stands = queue.contains("bfifo") && !queue.contains("backlog 0b");
            assert!(stands, "{device}: {queue}");
        }
    }
}

#[test]
fn no_flow_is_handed_over_from_a_queue_that_stands_still() {
    on_site(|site| {
        let border = Border::up(site);
        let seen = border.dataplane.short_queues().expect("it is read");
        if seen.is_none_or(|it| it.backlogs.contains(&0)) {
            assert!(
                border.said.contains("cannot see the queues"),
                "{}",
                border.said
            );
            // `cargo xtask vm-test` finds them on other kernels.
            return skip(
                "real_queue::standing",
                border.said.lines().next().unwrap_or(""),
            );
        }
        let moving = border.handed_over(40_000);
        assert!(moving > 0, "of {FLOWS} flows some are placed elsewhere");
        border.stop_queues();
        let standing = border.handed_over(50_000);
        println!("{moving} of {FLOWS} handed over, {standing} from queues that stand still");
        assert_eq!(standing, 0);
    });
}

/// The number that the program reads is any of the kernel's; where there is none it goes by its model.
#[test]
fn program_looks_into_the_queue_before_it_hands_a_flow_over() {
    on_site(|site| {
        let border = Border::up(site);
        border.look_at(0);
        assert!(border.handed_over(40_000) > 0);
        // Its first instructions, as a number, are some megabytes at least.
        border.look_at(address_of("fifo_dump"));
        assert_eq!(border.handed_over(41_000), 0);
        const NOWHERE: u64 = 0xdead_0000_0000_0000;
        border.look_at(NOWHERE);
        assert!(border.handed_over(42_000) > 0);
    });
}

fn address_of(symbol: &str) -> u64 {
    let symbols = std::fs::read_to_string("/proc/kallsyms").expect("Linux has it");
    let mut lines = symbols.lines().map(|line| line.split_whitespace());
    let address = lines.find_map(|mut words| {
        let address = words.next()?;
        (words.nth(1) == Some(symbol)).then_some(address)
    });
    u64::from_str_radix(address.expect("it is exported"), 16).expect("an address")
}
