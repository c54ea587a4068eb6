//! What a tap on both borders sees of each request.

use std::time::Duration;

use flow_recording::FlowRecord;
use flow_twin::{Observer, Passage};

use super::super::schedule::{Kind, Request};

/// Watches the packets that the server sends, as the taps do.
#[derive(Debug)]
pub(super) struct Watch {
    flows: Vec<Watched>,
}

#[derive(Debug)]
struct Watched {
    request: Request,
    start_ns: u64,
    /// The first packet of the server at its border, and the last at the client's.
    first_ns: u64,
    last_ns: u64,
    ended_ns: Option<u64>,
    /// When each packet of a listing came to the server's border, and how long it took to the client's.
    packets: Vec<(u64, u64)>,
}

/// A request and what was seen of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) request: Request,
    /// From the server's first packet at its border to its last at the client's.
    pub(super) completion_ms: f64,
    /// From the request to its end, if that came in time.
    pub(super) ended: Option<Duration>,
}

impl Watch {
    pub(super) fn new(requests: &[Request], records: &[FlowRecord]) -> Self {
        let watched = |(request, record): (&Request, &FlowRecord)| Watched {
            request: *request,
            start_ns: record.start_us * 1_000,
            first_ns: u64::MAX,
            last_ns: 0,
            ended_ns: None,
            packets: Vec::new(),
        };
        Self {
            flows: requests.iter().zip(records).map(watched).collect(),
        }
    }

    /// All requests; what had not ended by `until` is unanswered.
    pub(super) fn seen(&self, until: Duration) -> Vec<Seen> {
        let until_ns = until.as_nanos() as u64;
        let seen = |it: &Watched| Seen {
            request: it.request,
            completion_ms: it.last_ns.saturating_sub(it.first_ns) as f64 / 1e6,
            ended: it
                .ended_ns
                .filter(|ended| *ended <= until_ns)
                .map(|ended| Duration::from_nanos(ended - it.start_ns)),
        };
        self.flows.iter().map(seen).collect()
    }

    /// How much the delays of each listing's successive packets differ, in microseconds (RFC 3393), without the sign.
    pub(super) fn jitter_us(&self) -> Vec<f64> {
        let mut jitter = Vec::new();
        for flow in &self.flows {
            let mut packets = flow.packets.clone();
            packets.sort_by_key(|it| it.0);
            let pairs = packets.windows(2);
            jitter.extend(pairs.map(|pair| pair[0].1.abs_diff(pair[1].1) as f64 / 1e3));
        }
        jitter
    }
}

impl Observer for Watch {
    fn arrived(&mut self, passage: Passage) {
        let Some(flow) = self.flows.get_mut(passage.flow as usize) else {
            return;
        };
        if !passage.to_site {
            return;
        }
        flow.first_ns = flow.first_ns.min(passage.left_ns);
        flow.last_ns = flow.last_ns.max(passage.arrived_ns);
        if flow.request.kind == Kind::List {
            flow.packets
                .push((passage.left_ns, passage.arrived_ns - passage.left_ns));
        }
    }

    fn completed(&mut self, flow: u64, at_ns: u64) {
        if let Some(flow) = self.flows.get_mut(flow as usize) {
            flow.ended_ns.get_or_insert(at_ns);
        }
    }
}
