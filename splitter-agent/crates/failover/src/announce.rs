//! What happens to the tunnels, in words and numbers: for the log, and for the report.

use std::num::NonZeroU8;
use std::time::Duration;

use splitter_config::SiteName;
use splitter_health::{
    Cause, Change, Condition, Evidence, LinkKind, Overload, PeerPresence, Untimed,
};
use splitter_netlink::{InterfaceName, list_names};
use splitter_policy::flow::Class;
use splitter_policy::histogram::Histogram;
use splitter_steering::{Egress, Placement};

use super::monitored_tunnel::MonitoredTunnel;
use super::socket::SocketError;
use super::untimed::untimed;
use splitter_instance::report::{ClassReport, Move, TunnelReport, class_of, unix_ms};

/// A machine that stays overloaded says so again after this time.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(10);

/// A tunnel has become unknown. An overload that comes and goes does not fill the log.
pub(super) fn log_unknown(tunnel: &mut MonitoredTunnel, overload: Overload, now: Duration) {
    tunnel.last_cause = Cause::Overload;
    let was_logged = tunnel.unknown_logged;
    if was_logged.is_some_and(|at| now.saturating_sub(at) < UNKNOWN_AGAIN) {
        return;
    }
    tunnel.unknown_logged = Some(now);
    let (name, device) = (tunnel.spec.role.name(), &tunnel.device);
    tracing::warn!(
        event = "tunnel_unknown",
        %device,
        "it is unknown whether the {name} tunnel is alive, so it keeps its flows: no answer, but \
         this machine is overloaded: {overload}"
    );
}

pub(super) fn log_change(tunnel: &mut MonitoredTunnel, change: Change) {
    tunnel.last_cause = change.cause;
    let (tunnel, device) = (tunnel.spec.role.name(), &tunnel.device);
    let (from, to) = (change.from.name(), change.to.name());
    let words = format!(
        "{tunnel} tunnel {from} -> {to}: {}",
        change.cause.description()
    );
    match change.to {
        Condition::Down => tracing::warn!(event = "tunnel_down", %device, "{words}"),
        _ if change.from == Condition::Down || change.from == Condition::Returning => {
            tracing::info!(event = "tunnel_returned", %device, "{words}");
        }
        // A lossy link comes here again and again.
        _ => tracing::debug!(%device, "{words}"),
    }
}

/// A tunnel that carries nothing has another link, which changes nothing yet.
pub(super) fn log_link(tunnel: &mut MonitoredTunnel, from: LinkKind, to: LinkKind) {
    tunnel.last_cause = cause_of(to);
    let (name, device) = (tunnel.spec.role.name(), &tunnel.device);
    let (from, to) = (from.words(), to.words());
    tracing::info!(event = "tunnel_link", %device, "the {name} tunnel's device was {from} and is {to}");
}

/// A tunnel cannot be used when it begins to be watched.
pub(super) fn log_awaited(tunnel: &MonitoredTunnel, link: LinkKind) {
    let (name, device) = (tunnel.spec.role.name(), &tunnel.device);
    let link = link.words();
    tracing::warn!(
        event = "tunnel_awaited",
        %device,
        "the {name} tunnel's device is {link}; the tunnel carries nothing until that has changed"
    );
}

/// Why a tunnel with such a link does not answer.
pub(super) fn cause_of(link: LinkKind) -> Cause {
    match link {
        LinkKind::Up => Cause::Silence,
        LinkKind::NoAddress => Cause::NoAddress,
        LinkKind::Down => Cause::LinkDown,
        LinkKind::Absent => Cause::NoDevice,
    }
}

/// An earlier agent had moved the classes of a site.
pub(super) fn log_taken_over(site: &SiteName, left: &Placement) {
    let Placement {
        short,
        long,
        disabled,
    } = left;
    let without = match list_names(disabled) {
        none if none.is_empty() => none,
        devices => format!(", without {devices}"),
    };
    let [short_class, long_class] = Class::ALL.map(|class| class_of(site, class.name()));
    tracing::warn!(
        event = "placement_taken_over",
        "an earlier agent has left {short_class} in {short} and {long_class} in {long}{without}"
    );
}

/// What a site does without, in words: tunnels that are dead, and the classes that are out of theirs.
pub(super) fn degraded(monitored: &[MonitoredTunnel], placement: &Placement) -> Option<String> {
    let dead = monitored
        .iter()
        .filter(|it| !it.watch.machine().condition().is_usable());
    let away = Class::ALL.into_iter().filter_map(|class| {
        let (own, egress) = (Placement::PRIMARY.of(class), placement.of(class));
        (egress != own).then(|| format!("the {} class is in {egress}", class.name()))
    });
    let words: Vec<_> = dead.map(stands).chain(away).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

pub(super) fn log_evidence(tunnel: &mut MonitoredTunnel, presence: PeerPresence, now: Duration) {
    let evidence = tunnel.watch.evidence(presence, now);
    let before = tunnel.last_evidence.replace(evidence);
    let (device, by) = (&tunnel.device, evidence.name());
    match before {
        Some(Evidence::Echo) if evidence != Evidence::Echo => {
            tracing::warn!(event = "peer_absent", %device, "the peer's host refuses probes, so its agent does not run: {by} decides now");
        }
        Some(before) if before != evidence => {
            tracing::info!(event = "evidence_changed", %device, "{} decided so far, {by} decides now", before.name());
        }
        _ => {}
    }
}

pub(super) fn warn_once(tunnel: &mut MonitoredTunnel, error: &SocketError) {
    let problem = error.to_string();
    if tunnel.is_new_problem(&problem) {
        tracing::warn!(event = "probe_socket_failed", "{problem}; trying again");
    }
}

/// What has become of a class of a site, if anything has.
pub(super) fn moved(
    site: &SiteName,
    monitored: &[MonitoredTunnel],
    class: Class,
    before: &Placement,
    after: &Placement,
) -> Option<Move> {
    let (from, to) = (before.of(class), after.of(class));
    // Where the whole class goes, that says it all.
    let (left, taken_up) = match from == to {
        true => (
            differing(monitored, to, |device| {
                after.disabled.contains(device) && !before.disabled.contains(device)
            }),
            differing(monitored, to, |device| {
                before.disabled.contains(device) && !after.disabled.contains(device)
            }),
        ),
        false => (Vec::new(), Vec::new()),
    };
    if from == to && left.is_empty() && taken_up.is_empty() {
        return None;
    }
    let reason = match (&left[..], &taken_up[..]) {
        ([], []) => reason(monitored, from, to),
        (left, taken_up) => {
            let named = monitored.iter().filter(|tunnel| {
                left.contains(&tunnel.device) || taken_up.contains(&tunnel.device)
            });
            named.map(stands).collect::<Vec<_>>().join("; ")
        }
    };
    Some(Move {
        unix_ms: unix_ms(),
        site: site.clone(),
        class: class.name().to_owned(),
        from,
        to,
        left,
        taken_up,
        reason,
    })
}

/// The tunnels of a egress of which something is true.
fn differing(
    monitored: &[MonitoredTunnel],
    egress: Egress,
    is_so: impl Fn(&InterfaceName) -> bool,
) -> Vec<InterfaceName> {
    let devices = of_egress(monitored, egress).map(|tunnel| &tunnel.device);
    devices.filter(|it| is_so(it)).cloned().collect()
}

fn of_egress(
    monitored: &[MonitoredTunnel],
    egress: Egress,
) -> impl Iterator<Item = &MonitoredTunnel> {
    let is_there = move |tunnel: &&MonitoredTunnel| egress.tunnel() == Some(tunnel.spec.role);
    monitored.iter().filter(is_there)
}

/// Why a class goes from one egress to another: because of the tunnels it leaves, or because of
/// those that it can go to.
fn reason(monitored: &[MonitoredTunnel], from: Egress, to: Egress) -> String {
    let is_dead = |tunnel: &&MonitoredTunnel| !tunnel.watch.machine().condition().is_usable();
    let dead: Vec<_> = of_egress(monitored, from)
        .filter(is_dead)
        .map(stands)
        .collect();
    if !dead.is_empty() {
        return dead.join("; ");
    }
    match of_egress(monitored, to).find(|tunnel| !is_dead(tunnel)) {
        Some(found) => stands(found),
        None => "no tunnel is alive".to_owned(),
    }
}

fn stands(tunnel: &MonitoredTunnel) -> String {
    let condition = tunnel.watch.machine().condition();
    let cause = tunnel.last_cause.description();
    format!("{} is {}, {cause}", tunnel.device, condition.name())
}

pub(super) fn class_report(site: &SiteName, class: Class) -> ClassReport {
    ClassReport {
        site: site.clone(),
        class: class.name().to_owned(),
        tunnel: Placement::PRIMARY.of(class),
        moves: [0; Egress::ALL.len()],
        jitter: Histogram::EMPTY,
    }
}

/// The jitter that each class met since it was last taken, in the tunnels that it is in.
pub(super) fn take_jitter(
    monitored: &mut [MonitoredTunnel],
    placement: &Placement,
) -> [Histogram; Class::ALL.len()] {
    let mut jitter = [Histogram::EMPTY; Class::ALL.len()];
    for tunnel in monitored {
        let taken = tunnel.watch.take_jitter();
        for (class, met) in Class::ALL.into_iter().zip(&mut jitter) {
            if placement.has(class, tunnel.spec.role, &tunnel.device) {
                met.add(&taken);
            }
        }
    }
    jitter
}

pub(super) fn tunnel_report(
    site: &SiteName,
    tunnel: &MonitoredTunnel,
    weight: NonZeroU8,
    in_use: bool,
    presence: PeerPresence,
    now: Duration,
) -> TunnelReport {
    let machine = tunnel.watch.machine();
    let measure = tunnel.watch.prober().map(|prober| prober.measure());
    let since = now.saturating_sub(machine.since()).as_millis();
    TunnelReport {
        site: site.clone(),
        tunnel: tunnel.spec.role.name().to_owned(),
        device: tunnel.device.clone(),
        weight,
        in_use,
        link: tunnel.watch.link_state().kind(),
        condition: machine.condition(),
        since_unix_ms: unix_ms().saturating_sub(u64::try_from(since).unwrap_or(u64::MAX)),
        evidence: tunnel.watch.evidence(presence, now),
        downs: machine.downs(),
        probes_sent: measure.map_or(0, |it| it.sent_total()),
        probes_lost: measure.map_or(0, |it| it.lost_total()),
        loss: measure.and_then(|it| it.loss()),
        round_trip_s: measure.and_then(|it| Some(it.round_trip()?.as_secs_f64())),
        jitter_s: measure.and_then(|it| Some(it.jitter()?.as_secs_f64())),
        untimed: untimed(tunnel),
        untimed_answers: measure.map_or([0; Untimed::ALL.len()], |it| it.untimed_totals()),
    }
}
