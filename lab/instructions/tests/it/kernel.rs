//! The interpreter beside the kernel: what one makes of a packet the other does, byte for byte.

use flow_testbed::require;
use flow_testbed::require::Requirement::Root;
use instructions::{Border, Object, TABLE_SIZE};
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;

use crate::loaded::Loaded;
use crate::shapes::every_shape_with;
use crate::{objects, packet};

/// What the kernel wants of a frame to run a program on it.
const SHORTEST_FRAME: usize = 14;

/// Flows change tunnels as soon as they are long, so that the two clocks decide nothing.
fn eager() -> PolicyConfig {
    PolicyConfig {
        drain_margin_ns: 0,
        ..PolicyConfig::default()
    }
}

#[test]
fn every_shape_becomes_in_the_interpreter_what_the_kernel_makes_of_it() {
    require!(Root);
    let mut both = Both::new();
    for traffic_class in [0x00, 0x09, 0x12] {
        for shape in every_shape_with(traffic_class) {
            both.send(&shape.frame, &shape.name);
            let half = &shape.frame[..SHORTEST_FRAME.max(shape.needed_bytes / 2)];
            both.send(half, &shape.name);
        }
    }
    both.compare();
}

#[test]
fn flow_turns_long_in_the_interpreter_where_it_does_in_the_kernel() {
    require!(Root);
    let mut both = Both::new();
    for number in 0..60 {
        for packet in [packet::Packet::tcp_v4(), packet::Packet::tcp_v6()] {
            both.send(&packet.bytes(), &format!("packet {number}"));
        }
    }
    both.compare();
    let counters = both.interpreter.counters().expect("are there");
    assert_eq!(counters.packets(Class::Long, TunnelRole::Long), 40);
    assert_eq!(counters.events(FlowEvent::Started), 2);
}

/// The same program under the same settings, twice.
struct Both {
    kernel: Loaded,
    interpreter: Border,
}

impl Both {
    fn new() -> Self {
        let objects = objects();
        let object = objects.of(Object::Splitter);
        let mut kernel = Loaded::new(object, TABLE_SIZE);
        kernel.load_xdp("split");
        kernel.set(eager());
        let interpreter = Border::new(object, "split", eager()).expect("loads");
        Self {
            kernel,
            interpreter,
        }
    }

    fn send(&mut self, frame: &[u8], what: &str) {
        let mut out = vec![0; frame.len()];
        let ran = self.kernel.run_xdp("split", frame, Some(&mut out), 1);
        let interpreted = self.interpreter.send(frame).expect("runs");
        assert_eq!(interpreted.verdict, ran.return_value, "{what}");
        assert_eq!(interpreted.frame, out, "{what}");
    }

    /// Both counted the same.
    fn compare(&self) {
        let [ours, theirs] = [
            self.interpreter.counters().expect("are there"),
            self.kernel.counters(),
        ];
        assert_eq!(figures(&ours), figures(&theirs));
        assert!(figures(&ours).iter().any(|count| *count > 0));
    }
}

/// All that no clock decides.
fn figures(counters: &Counters) -> Vec<u64> {
    let classes = [Class::Short, Class::Long];
    let tunnels = [TunnelRole::Short, TunnelRole::Long];
    let pairs = classes.map(|class| tunnels.map(|tunnel| (class, tunnel)));
    let sent = pairs.as_flattened().iter();
    let sent = sent.flat_map(|(class, tunnel)| {
        [
            counters.packets(*class, *tunnel),
            counters.bytes(*class, *tunnel),
        ]
    });
    let passed = PassReason::ALL.map(|it| counters.passed(it));
    let events = (0..FlowEvent::COUNT as u64).filter_map(FlowEvent::from_code);
    let events = events.map(|it| counters.events(it));
    let others = [counters.marks_overridden, counters.mark_failures];
    sent.chain(passed).chain(events).chain(others).collect()
}
