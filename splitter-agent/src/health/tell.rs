//! What happens to the tunnels, in words and numbers: for the log, and for the report.

use std::time::Duration;

use splitter_common::flow::Class;

use super::line::Line;
use super::machine::{Change, Condition};
use super::placement::{Placement, Seat};
use super::report::{ClassReport, TunnelReport, unix_ms};
use super::socket::SocketError;
use super::watch::{Evidence, PeerPresence};

pub(super) fn told(line: &mut Line, change: Change) {
    line.last_cause = change.cause;
    let (tunnel, device) = (line.tunnel.name(), &line.device);
    let (from, to) = (change.from.name(), change.to.name());
    let words = format!(
        "{tunnel} tunnel {from} -> {to}: {}",
        change.cause.in_words()
    );
    match change.to {
        Condition::Down => tracing::warn!(%device, "{words}"),
        _ if change.from == Condition::Down || change.from == Condition::Returning => {
            tracing::info!(%device, "{words}");
        }
        // A lossy link comes here again and again.
        _ => tracing::debug!(%device, "{words}"),
    }
}

pub(super) fn tell_evidence(line: &mut Line, presence: PeerPresence, now: Duration) {
    let evidence = line.watch.evidence(presence, now);
    let before = line.last_evidence.replace(evidence);
    let (device, by) = (&line.device, evidence.name());
    match before {
        Some(Evidence::Echo) if evidence != Evidence::Echo => {
            tracing::warn!(%device, "the peer's host refuses probes, so its agent does not run: {by} tells now");
        }
        Some(before) if before != evidence => {
            tracing::info!(%device, "{} told so far, {by} tells now", before.name());
        }
        _ => {}
    }
}

pub(super) fn complain(line: &mut Line, error: &SocketError) {
    let problem = error.to_string();
    if line.is_news(&problem) {
        tracing::warn!("{problem}; trying again");
    }
}

/// Why a class goes from one seat to another: because of the tunnel it leaves, or because of the
/// one that it can go to.
pub(super) fn reason(lines: &[Line; 2], from: Seat, to: Seat) -> String {
    let line = |seat: Seat| seat.tunnel().map(|tunnel| &lines[tunnel as usize]);
    let stands = |line: &Line| {
        let condition = line.watch.machine().condition();
        let cause = line.last_cause.in_words();
        format!("{} is {}, {cause}", line.device, condition.name())
    };
    let is_dead = |line: &&Line| !line.watch.machine().condition().is_usable();
    match (line(from).filter(is_dead), line(to)) {
        (Some(left), _) => stands(left),
        (None, Some(found)) => stands(found),
        (None, None) => "no tunnel is alive".to_owned(),
    }
}

pub(super) fn class_report(class: Class) -> ClassReport {
    ClassReport {
        class: class.name().to_owned(),
        tunnel: Placement::HOME.of(class),
        moves: [0; Seat::ALL.len()],
    }
}

pub(super) fn tunnel_report(line: &Line, presence: PeerPresence, now: Duration) -> TunnelReport {
    let machine = line.watch.machine();
    let measure = line.watch.prober().map(|prober| prober.measure());
    let since = now.saturating_sub(machine.since()).as_millis();
    TunnelReport {
        tunnel: line.tunnel.name().to_owned(),
        device: line.device.clone(),
        condition: machine.condition(),
        since_unix_ms: unix_ms().saturating_sub(u64::try_from(since).unwrap_or(u64::MAX)),
        evidence: line.watch.evidence(presence, now),
        downs: machine.downs(),
        probes_sent: measure.map_or(0, |it| it.sent_total()),
        probes_lost: measure.map_or(0, |it| it.lost_total()),
        loss: measure.and_then(|it| it.loss()),
        round_trip_s: measure.and_then(|it| Some(it.round_trip()?.as_secs_f64())),
        jitter_s: measure.and_then(|it| Some(it.jitter()?.as_secs_f64())),
    }
}
