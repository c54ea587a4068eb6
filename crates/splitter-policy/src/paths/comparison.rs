//! A virtual queue held against the queue in front of a tunnel.

use super::TunnelPath;

/// A look at the queue in front of a tunnel, as told by whoever keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLook {
    /// The time before it was asked for.
    pub asked_ns: u64,
    /// The time when the answer was there.
    pub answered_ns: u64,
    /// Bytes that waited.
    pub bytes: u64,
    /// The longest packet that may have begun to leave last, or longer: of merged ones, all segments.
    pub packet_bytes: u64,
}

/// So many looks are judged together.
const LOOKS: usize = 16;

/// The judgement of several looks at the queue in front of a tunnel on its virtual queue.
///
/// What waits begins to leave at once, or as late as the packet in front of it has had its time; where between,
/// nobody tells. So a single look says how full the queue is to within a packet, and the median of several says it
/// much better; a shaper whose timer was late once does not move it.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// By how much the queue seemed fuller than the model, in ns.
    fuller_ns: [i64; LOOKS],
    count: usize,
}

impl Comparison {
    /// Looks at the queue of `tunnel`, whose model held `before_ns` ahead of the question and `after_ns` behind the
    /// answer. Returns by how many ns the model has to be fuller, or emptier if that is negative. A model that was
    /// empty for long is one that is empty now: what waits there has come by no packet that chose.
    pub fn look(
        &mut self,
        tunnel: &TunnelPath,
        before_ns: u64,
        after_ns: u64,
        look: &QueueLook,
    ) -> i64 {
        let (before_ns, after_ns) = (before_ns.max(look.asked_ns), after_ns.max(look.answered_ns));
        let waits_ns = tunnel
            .service
            .of(look.bytes)
            .saturating_add(tunnel.burst_ns);
        let packet_ns = tunnel.service.of(look.packet_bytes);
        let latest_ns = look
            .answered_ns
            .saturating_add(waits_ns)
            .saturating_add(packet_ns);
        // For certain. What was seen before is then of a model that was fuller by as much.
        let certain_ns = before_ns.saturating_sub(latest_ns).cast_signed();
        for fuller_ns in &mut self.fuller_ns[..self.count] {
            *fuller_ns = fuller_ns.wrapping_add(certain_ns);
        }
        if look.bytes == 0 {
            // It may have been empty for long.
            return certain_ns.wrapping_neg();
        }
        let middle_ns = mean(look.asked_ns, look.answered_ns)
            .saturating_add(waits_ns)
            .saturating_add(packet_ns / 2);
        let fuller_ns = middle_ns.wrapping_sub(mean(before_ns, after_ns));
        self.fuller_ns[self.count] = fuller_ns.cast_signed().wrapping_add(certain_ns);
        self.count += 1;
        if self.count < LOOKS {
            return certain_ns.wrapping_neg();
        }
        self.count = 0;
        self.fuller_ns.sort_unstable();
        let median_ns = self.fuller_ns[LOOKS / 2];
        // What is less than a packet may be chance, and is believed by halves.
        let believed_ns = match median_ns.unsigned_abs() > packet_ns {
            true => median_ns,
            false => median_ns / 2,
        };
        believed_ns.wrapping_sub(certain_ns)
    }
}

const fn mean(a: u64, b: u64) -> u64 {
    a / 2 + b / 2 + (a & b & 1)
}
