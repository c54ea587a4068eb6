//! A virtual queue held against the queue in front of a tunnel.

use splitter_policy::paths::TunnelPath;

/// A look at the queue in front of a tunnel, as told by whoever keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QueueLook {
    /// The time before it was asked for.
    pub(super) asked_ns: u64,
    /// The time when the answer was there.
    pub(super) answered_ns: u64,
    /// Bytes that waited.
    pub(super) bytes: u64,
    /// The longest packet that may have begun to leave last, or longer: of merged ones, all segments.
    pub(super) packet_bytes: u64,
}

/// So many looks are judged together.
const LOOKS: usize = 16;
/// So many eighths of a packet a median may differ from a right model by chance: 3.2 of its standard deviations, of which
/// that of 16 looks, each anywhere within a packet, has 0.118 of a packet.
const CHANCE_EIGHTHS: u64 = 3;
/// A look that took longer, and longer than a packet, counts for no more than is certain: when in that time it was taken
/// nobody tells. The kernel takes a fifth of it to list the queues of some ten devices; a thread that has to wait for a
/// processor, or for others who change devices, takes milliseconds.
const LONGEST_LOOK_NS: u64 = 500_000;
/// The most judgements that a model stands for, which weigh as much as it when the next is made.
const MOST_JUDGEMENTS: i64 = 16;
/// Looks from before a pause of so long are not judged with later ones: the model may have been right again meanwhile. While
/// something waits they follow each other by some hundredths of it, on a machine that has time for them.
const LONGEST_PAUSE_NS: u64 = 2_000_000_000;

/// The judgement of several looks at the queue in front of a tunnel on its virtual queue.
///
/// What waits begins to leave at once, or as late as the packet in front of it has had its time; where between,
/// nobody tells. So a single look says how full the queue is to within a packet, and the median of several says it
/// much better; a shaper whose timer was late once does not move it.
///
/// A model counts every packet, so it stays as right as it is, and what one median says of it after another is chance
/// for the most part. So it is the mean of what they say; one that differs by more than chance begins that again.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// By how much the queue seemed fuller than the model, in ns.
    fuller_ns: [i64; LOOKS],
    count: usize,
    /// When the last of them was asked.
    last_asked_ns: u64,
    /// The judgements that the model is the mean of.
    judgements: i64,
}

impl Comparison {
    /// Looks at the queue of `tunnel`, whose model held `before_ns` ahead of the question and `after_ns` behind the
    /// answer. Returns by how many ns the model has to be fuller, or emptier if that is negative. A model that was
    /// empty for long is one that is empty now: what waits there has come by no packet that chose.
    pub(super) fn look(
        &mut self,
        tunnel: &TunnelPath,
        before_ns: u64,
        after_ns: u64,
        look: &QueueLook,
    ) -> i64 {
        let (before_ns, after_ns) = (before_ns.max(look.asked_ns), after_ns.max(look.answered_ns));
        let bytes_ns = tunnel.service.of(look.bytes);
        let waits_ns = bytes_ns.saturating_add(tunnel.burst_ns);
        let packet_ns = tunnel.service.of(look.packet_bytes);
        let lasts_ns = waits_ns.saturating_add(packet_ns);
        let latest_ns = look.answered_ns.saturating_add(lasts_ns);
        // For certain. What was seen before is then of a model that was fuller by as much.
        let certain_ns = before_ns.saturating_sub(latest_ns).cast_signed();
        for fuller_ns in &mut self.fuller_ns[..self.count] {
            *fuller_ns = fuller_ns.wrapping_add(certain_ns);
        }
        let fuller_ns = Self::fuller_ns(look, [before_ns, after_ns], waits_ns, packet_ns);
        let Some(fuller_ns) = fuller_ns.filter(|_| look.bytes > 0) else {
            // It may have been empty for long.
            return certain_ns.wrapping_neg();
        };
        if look.asked_ns.saturating_sub(self.last_asked_ns) > LONGEST_PAUSE_NS {
            self.count = 0;
        }
        self.last_asked_ns = look.asked_ns;
        self.fuller_ns[self.count] = fuller_ns.wrapping_add(certain_ns);
        self.count += 1;
        if self.count < LOOKS {
            return certain_ns.wrapping_neg();
        }
        self.count = 0;
        self.fuller_ns.sort_unstable();
        let median_ns = self.fuller_ns[LOOKS / 2];
        self.believed_ns(median_ns, packet_ns)
            .wrapping_sub(certain_ns)
    }

    /// By how much a queue is fuller than its model as one look says; none where that took long and says nothing.
    fn fuller_ns(
        look: &QueueLook,
        [before_ns, after_ns]: [u64; 2],
        waits_ns: u64,
        packet_ns: u64,
    ) -> Option<i64> {
        let took_ns = look.answered_ns.saturating_sub(look.asked_ns);
        if took_ns > LONGEST_LOOK_NS.max(packet_ns) {
            // It was taken at the question at the earliest, and then the model held no more than at the answer.
            let earliest_ns = look.asked_ns.saturating_add(waits_ns);
            return earliest_ns.checked_sub(after_ns).map(u64::cast_signed);
        }
        let usual_ns = waits_ns.saturating_add(packet_ns / 2);
        let tail_ns = look.asked_ns.midpoint(look.answered_ns);
        let model_ns = before_ns.midpoint(after_ns);
        let fuller_ns = tail_ns.saturating_add(usual_ns).wrapping_sub(model_ns);
        Some(fuller_ns.cast_signed())
    }

    /// The part of a median that is believed: all of what is more than a packet, half of what is no chance, and of the
    /// rest as much as makes the model the mean of what was judged.
    fn believed_ns(&mut self, median_ns: i64, packet_ns: u64) -> i64 {
        let differs_ns = median_ns.unsigned_abs();
        if differs_ns > packet_ns / 8 * CHANCE_EIGHTHS {
            self.judgements = 0;
        }
        if differs_ns > packet_ns {
            return median_ns;
        }
        self.judgements = MOST_JUDGEMENTS.min(self.judgements + 1);
        median_ns / (self.judgements + 1)
    }
}

#[cfg(test)]
mod tests;
