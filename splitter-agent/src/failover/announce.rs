//! What happens to the tunnels, in words and numbers: for the log, and for the report.

use std::num::NonZeroU8;
use std::time::Duration;

use splitter_health::{Change, Condition, Evidence, PeerPresence};
use splitter_netlink::InterfaceName;
use splitter_policy::flow::Class;
use splitter_steering::{Placement, Seat};

use super::monitored_tunnel::Line;
use super::report::{ClassReport, Move, TunnelReport, unix_ms};
use super::socket::SocketError;

pub(super) fn told(line: &mut Line, change: Change) {
    line.last_cause = change.cause;
    let (tunnel, device) = (line.subject.home.name(), &line.device);
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

/// What has become of a class, if anything has.
pub(super) fn moved(
    lines: &[Line],
    class: Class,
    before: &Placement,
    after: &Placement,
) -> Option<Move> {
    let (from, to) = (before.of(class), after.of(class));
    // Where the whole class goes, that says it all.
    let (left, taken_up) = match from == to {
        true => (
            differing(lines, to, |device| {
                after.out.contains(device) && !before.out.contains(device)
            }),
            differing(lines, to, |device| {
                before.out.contains(device) && !after.out.contains(device)
            }),
        ),
        false => (Vec::new(), Vec::new()),
    };
    if from == to && left.is_empty() && taken_up.is_empty() {
        return None;
    }
    let reason = match (&left[..], &taken_up[..]) {
        ([], []) => reason(lines, from, to),
        (left, taken_up) => {
            let named = lines
                .iter()
                .filter(|line| left.contains(&line.device) || taken_up.contains(&line.device));
            named.map(stands).collect::<Vec<_>>().join("; ")
        }
    };
    Some(Move {
        unix_ms: unix_ms(),
        class: class.name().to_owned(),
        from,
        to,
        left,
        taken_up,
        reason,
    })
}

/// The tunnels of a seat of which something is true.
fn differing(
    lines: &[Line],
    seat: Seat,
    is_so: impl Fn(&InterfaceName) -> bool,
) -> Vec<InterfaceName> {
    let devices = of_seat(lines, seat).map(|line| &line.device);
    devices.filter(|it| is_so(it)).cloned().collect()
}

fn of_seat(lines: &[Line], seat: Seat) -> impl Iterator<Item = &Line> {
    let is_there = move |line: &&Line| seat.tunnel() == Some(line.subject.home);
    lines.iter().filter(is_there)
}

/// Why a class goes from one seat to another: because of the tunnels it leaves, or because of
/// those that it can go to.
fn reason(lines: &[Line], from: Seat, to: Seat) -> String {
    let is_dead = |line: &&Line| !line.watch.machine().condition().is_usable();
    let dead: Vec<_> = of_seat(lines, from).filter(is_dead).map(stands).collect();
    if !dead.is_empty() {
        return dead.join("; ");
    }
    match of_seat(lines, to).find(|line| !is_dead(line)) {
        Some(found) => stands(found),
        None => "no tunnel is alive".to_owned(),
    }
}

fn stands(line: &Line) -> String {
    let condition = line.watch.machine().condition();
    let cause = line.last_cause.in_words();
    format!("{} is {}, {cause}", line.device, condition.name())
}

pub(super) fn class_report(class: Class) -> ClassReport {
    ClassReport {
        class: class.name().to_owned(),
        tunnel: Placement::HOME.of(class),
        moves: [0; Seat::ALL.len()],
    }
}

pub(super) fn tunnel_report(
    line: &Line,
    weight: NonZeroU8,
    in_use: bool,
    presence: PeerPresence,
    now: Duration,
) -> TunnelReport {
    let machine = line.watch.machine();
    let measure = line.watch.prober().map(|prober| prober.measure());
    let since = now.saturating_sub(machine.since()).as_millis();
    TunnelReport {
        tunnel: line.subject.home.name().to_owned(),
        device: line.device.clone(),
        weight,
        in_use,
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
