//! What is in round trips besides the path, since nobody tells how long it takes: in words, once.

use splitter_health::Untimed;

use super::monitored_tunnel::MonitoredTunnel;

/// So many answers of which a part is not told are no chance: a kernel that has just been asked may not note the
/// first ones.
const CERTAIN: u64 = 8;

/// Logs once for a tunnel which part of its round trips nobody tells.
pub(super) fn log_untimed(tunnel: &mut MonitoredTunnel) {
    for part in newly_certain(tunnel) {
        let (device, words) = (&tunnel.device, words(part));
        let part = part.name();
        tracing::warn!(event = "probe_untimed", %device, part, "the delay of {device} has more in it than the path: {words}");
    }
}

/// The parts that the last round trip of a tunnel had besides the path, where packets choose by it.
pub(super) fn untimed(tunnel: &MonitoredTunnel) -> Vec<String> {
    let prober = tunnel.watch.prober().filter(|_| tunnel.spec.is_timed);
    let parts = prober
        .into_iter()
        .flat_map(|it| it.measure().last_untimed());
    parts.map(|it| it.name().to_owned()).collect()
}

fn newly_certain(tunnel: &mut MonitoredTunnel) -> Vec<Untimed> {
    let Some(prober) = tunnel.watch.prober().filter(|_| tunnel.spec.is_timed) else {
        return Vec::new();
    };
    let counts = prober.measure().untimed_totals();
    let each = counts.into_iter().zip(&mut tunnel.has_logged_untimed);
    let news = Untimed::ALL.into_iter().zip(each);
    news.filter_map(|(part, (count, is_logged))| {
        let is_news = count >= CERTAIN && !*is_logged;
        *is_logged |= is_news;
        is_news.then_some(part)
    })
    .collect()
}

fn words(part: Untimed) -> &'static str {
    match part {
        Untimed::Departure => {
            "the kernel does not tell when probes leave, so the queue in front of the tunnel counts, too; state delay_ms \
             where that is not empty at times"
        }
        Untimed::Arrival => {
            "the kernel does not tell when answers come, so how long this agent takes to wake up counts, too"
        }
        Untimed::Stay => {
            "the peer does not tell for how long it has a probe, so how long its agent takes to wake up counts, too; it asks \
             its kernel where it has `balance` as well"
        }
        Untimed::ImpossibleStay => {
            "the peer says that it has probes for longer than their whole round trip, which is not used; is its clock \
             being set?"
        }
    }
}
