//! A border in the kernel and one on the host, which must do the same.

use splitter_config::PacketLog;
use splitter_datapath::{Object, PROGRAM};
use splitter_policy::config::PolicyConfig;
use splitter_policy::counters::{Counters, FlowEvent};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::pass_reason::PassReason;
use splitter_policy::split::Outcome;

use super::loaded::Loaded;
use crate::policy::host::Host;

/// More flows than any test here makes.
pub(crate) const TABLE_SIZE: u32 = 4_096;
const XDP_PASS: u32 = 2;

/// A border in the kernel and one on the host, side by side.
pub(crate) struct Borders {
    pub(crate) kernel: Loaded,
    pub(crate) host: Host,
}

impl Borders {
    pub(crate) fn new(config: PolicyConfig) -> Self {
        Self::with_log(PacketLog::Off, config)
    }

    pub(crate) fn with_log(level: PacketLog, config: PolicyConfig) -> Self {
        let object = Object::for_level(level).expect("is embedded");
        let mut kernel = Loaded::new(object.bytes(), TABLE_SIZE);
        kernel.load_xdp(PROGRAM);
        kernel.set(config);
        let host = Host::new(config, TABLE_SIZE);
        Self { kernel, host }
    }

    /// Sends the frame through both; what came out of both.
    pub(crate) fn split(&mut self, frame: &[u8], name: &str) -> (Outcome, Vec<u8>) {
        let mut of_host = frame.to_vec();
        self.host.now_ns += 1_000;
        let outcome = self.host.split(&mut of_host);

        let mut of_kernel = vec![0; frame.len()];
        let run = self.kernel.run_xdp(PROGRAM, frame, Some(&mut of_kernel), 1);
        assert_eq!(run.return_value, XDP_PASS, "{name}");
        assert_eq!(run.data_size_out as usize, frame.len(), "{name}");
        assert_eq!(of_kernel, of_host, "{name}: {outcome:?}");
        (outcome, of_kernel)
    }

    /// Both have counted the same and know the same of every flow.
    pub(crate) fn compare(&self) {
        assert_eq!(counts(&self.kernel.counters()), counts(&self.host.counters));
        for (key, of_host) in self.host.flows() {
            let of_kernel = self.kernel.flow(&key).expect("the kernel knows it as well");
            assert_eq!(of_kernel.packets, of_host.packets);
            assert_eq!(of_kernel.bytes, of_host.bytes);
            assert_eq!(of_kernel.class(), of_host.class());
            assert_eq!(of_kernel.flags, of_host.flags);
        }
    }
}

/// Every count by its name; of completion times only how many there are, since
/// the two borders' clocks differ.
fn counts(counters: &Counters) -> Vec<(String, u64)> {
    const EVENTS: [FlowEvent; FlowEvent::COUNT] = [
        FlowEvent::Started,
        FlowEvent::RestartedIdle,
        FlowEvent::RestartedSyn,
        FlowEvent::BecameLong,
        FlowEvent::HandedOverDrained,
        FlowEvent::HandedOverAtMaxWait,
        FlowEvent::Evicted,
        FlowEvent::Untracked,
        FlowEvent::KeptTunnel,
        FlowEvent::KeptTunnelAtMaxWait,
        FlowEvent::ChangedTunnelLater,
        FlowEvent::DroppedToDrain,
    ];
    let mut counts = Vec::new();
    let mut note = |name: String, count| counts.push((name, count));
    for class in Class::ALL {
        for tunnel in TunnelRole::ALL {
            let name = format!("{class:?} to {tunnel:?}");
            note(format!("{name} packets"), counters.packets(class, tunnel));
            note(format!("{name} bytes"), counters.bytes(class, tunnel));
        }
        note(format!("{class:?} finished"), counters.finished(class));
        let completions = counters.completion(class).buckets.iter().sum();
        note(format!("{class:?} completions"), completions);
    }
    for reason in PassReason::ALL {
        note(reason.name().to_owned(), counters.passed(reason));
    }
    for event in EVENTS {
        note(format!("{event:?}"), counters.events(event));
    }
    note("marks overridden".to_owned(), counters.marks_overridden);
    note("mark failures".to_owned(), counters.mark_failures);
    counts
}
