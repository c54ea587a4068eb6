//! What arrives from a peer, path by path: for replay protection, and for reports to it.

use cloudburst_wire::{Ecn, EcnCounts, Header, ReplayWindow, Report, Time};

/// Paths of a peer that are kept track of, at most.
const MAX_PATHS: usize = 72;

/// Paths by which a peer's datagrams come, the one heard from last in front.
#[derive(Debug, Default)]
pub struct Inbound {
    paths: Vec<InboundPath>,
    /// Paths up to here that are not in the list have been forgotten: what comes
    /// by them may be a replay.
    forgotten: Option<u16>,
}

#[derive(Debug)]
struct InboundPath {
    id: u16,
    window: ReplayWindow,
    received: u32,
    highest: u64,
    /// Of the newest datagram: arrival by our clock less sending by the peer's.
    delay_us: u32,
    ecn: EcnCounts,
}

impl Inbound {
    /// Returns true if a datagram may be new; to be asked before it is opened.
    pub fn may_be_new(&self, path: u16, sequence: u64) -> bool {
        match self.paths.iter().find(|known| known.id == path) {
            Some(known) => known.window.check(sequence).is_ok(),
            None => self.forgotten.is_none_or(|forgotten| path > forgotten),
        }
    }

    /// Takes note of a datagram that was opened, and of how it was marked.
    pub fn take(&mut self, now: Time, header: &Header, ecn: Ecn) {
        let Header {
            path,
            sequence,
            sent_us,
            ..
        } = *header;
        let delay_us = now.as_wire_micros().wrapping_sub(sent_us);
        let index = match self.paths.iter().position(|known| known.id == path) {
            Some(index) => index,
            None => self.add(path),
        };
        let known = &mut self.paths[index];
        if known.window.accept(sequence).is_err() {
            return;
        }
        known.received = known.received.wrapping_add(1);
        known.ecn.count(ecn);
        if sequence >= known.highest {
            known.highest = sequence;
            known.delay_us = delay_us;
        }
        // Keeps the others' order; the list is short, and mostly nothing moves far.
        self.paths[..=index].rotate_right(1);
    }

    fn add(&mut self, id: u16) -> usize {
        if self.paths.len() == MAX_PATHS
            && let Some(oldest) = self.paths.pop()
        {
            self.forgotten = self.forgotten.max(Some(oldest.id));
        }
        self.paths.push(InboundPath {
            id,
            window: ReplayWindow::default(),
            received: 0,
            highest: 0,
            delay_us: 0,
            ecn: EcnCounts::default(),
        });
        self.paths.len().saturating_sub(1)
    }

    /// Returns reports to the peer in answer to a datagram that came by path `answered`: of this one
    /// first, for there may not be capacity for more, then of those heard from last.
    pub fn reports(&self, answered: u16) -> impl Iterator<Item = Report> + '_ {
        let of = move |own: bool| move |path: &&InboundPath| (path.id == answered) == own;
        let own = self.paths.iter().filter(of(true));
        own.chain(self.paths.iter().filter(of(false)))
            .map(|path| Report {
                path: path.id,
                received: path.received,
                highest: path.highest as u32,
                delay_us: path.delay_us,
                ecn: Some(path.ecn),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloudburst_wire::{Form, PacketKind};

    fn header(path: u16, sequence: u64) -> Header {
        Header {
            kind: PacketKind::Symbol,
            form: Form::Data,
            path,
            sent_us: 4,
            session: 5,
            sequence,
        }
    }

    #[test]
    fn tells_replays_and_reports_the_answered_first() {
        let mut inbound = Inbound::default();
        let now = Time::from_nanos(9_000);
        for (path, sequence, ecn) in [
            (1, 0, Ecn::Capable),
            (2, 5, Ecn::NotCapable),
            (1, 1, Ecn::CongestionExperienced),
            // A replay counts for nothing, however it is marked.
            (1, 1, Ecn::CongestionExperienced),
        ] {
            inbound.take(now, &header(path, sequence), ecn);
        }
        assert!(!inbound.may_be_new(1, 1));
        assert!(inbound.may_be_new(2, 4));
        let reports: Vec<_> = inbound.reports(2).collect();
        assert_eq!(
            reports.iter().map(|report| report.path).collect::<Vec<_>>(),
            [2, 1]
        );
        assert_eq!(reports[0].ecn, Some(EcnCounts::default()));
        assert_eq!(
            reports[1],
            Report {
                path: 1,
                received: 2,
                highest: 1,
                delay_us: 5,
                ecn: Some(EcnCounts {
                    capable: 2,
                    marked: 1
                })
            }
        );
    }

    #[test]
    fn forgets_the_path_heard_from_least() {
        let mut inbound = Inbound::default();
        for path in 1..=MAX_PATHS as u16 + 1 {
            inbound.take(Time::ZERO, &header(path, 0), Ecn::NotCapable);
        }
        assert!(!inbound.may_be_new(1, 1), "it was forgotten");
        assert!(inbound.may_be_new(2, 1));
        assert!(inbound.may_be_new(100, 0));
    }
}
