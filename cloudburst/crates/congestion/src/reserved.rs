//! Reserved congestion control: a stated share of a stated link, and less where less gets through.

use core::time::Duration;

use super::{Acknowledged, PathRates, circuit_breaker::CircuitBreaker};
use crate::{
    congestion_control::Reservation,
    estimate::{DeliveryRate, Overload},
    pacer::Pacer,
    silence::Silence,
};
use cloudburst_wire::Time;

/// How much faster than was measured a peer is sent to, so that more is found
/// out if there is more.
const PROBING_GAIN: f64 = 1.1;
/// The same while even the shortest queue of ours is longer than this.
const DRAINING_GAIN: f64 = 0.8;
const LONG_QUEUE: Duration = Duration::from_millis(3);
/// How much faster after each time that most got through again.
const RECOVERY_GAIN: f64 = 1.25;
/// The least share of the link that is used for a peer.
const LEAST_SHARE: f64 = 1.0 / 4_096.0;
/// And of what its paths carry, if that is known: others who fill queues do not give way to
/// who gives way always.
const LEAST_KNOWN_SHARE: f64 = 0.25;
/// Shortest time over which it is measured how much gets through.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Congestion control of a peer that a share of the link is reserved for: a rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReservedController {
    link_bytes_per_s: f64,
    delivery: DeliveryRate,
    /// Bytes per second that are not exceeded after more than half was lost.
    ceiling: f64,
    pacer: Pacer,
    breaker: CircuitBreaker,
    /// Nothing was heard by any path, and it is not sure yet that enough gets through again.
    silence: Option<Silence>,
}

impl ReservedController {
    pub(super) fn new(now: Time, reservation: &Reservation) -> Self {
        let link_bytes_per_s = reservation.bytes_per_s();
        Self {
            link_bytes_per_s,
            delivery: DeliveryRate::new(now),
            ceiling: link_bytes_per_s,
            pacer: Pacer::new(now, link_bytes_per_s),
            breaker: CircuitBreaker::new(now, reservation.most_loss),
            silence: None,
        }
    }

    /// Bytes that may be sent now.
    pub(super) fn credit(&self, now: Time) -> usize {
        let paced = self.pacer.credit(now);
        match &self.silence {
            Some(silence) => silence.credit(now, paced),
            None => paced,
        }
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.pacer.bytes_per_s()
    }

    /// When something may be sent again.
    pub(super) fn ready_at(&self) -> Time {
        let paced = self.pacer.ready_at();
        match &self.silence {
            Some(silence) => silence.ready_at(paced),
            None => paced,
        }
    }

    /// Whether the circuit breaker has tripped.
    pub(super) fn is_broken(&self) -> bool {
        self.breaker.is_open()
    }

    pub(super) fn sent(&mut self, now: Time, bytes: usize) {
        self.pacer.sent(now, bytes);
        if let Some(silence) = &mut self.silence {
            silence.sent(now, bytes);
        }
    }

    /// Nothing is heard by any path: what a rate is reserved for may be gone, and nobody would ever report a
    /// loss (RFC 8084 §4, RFC 8085 §3.1.1).
    pub(super) fn timed_out(&mut self, now: Time, paths: &PathRates) {
        match &mut self.silence {
            Some(silence) => silence.timed_out(),
            None => self.silence = Some(Silence::new(now, paths)),
        }
    }

    /// Enough gets through again, or the peer was restarted: it is sent to at the rate of before.
    pub(super) fn end_silence(&mut self, now: Time) {
        if self.silence.take().is_some() {
            self.delivery = DeliveryRate::new(now);
        }
    }

    /// Nothing was sent until now: the silence before does not tell of a rate.
    pub(super) fn restart_measuring(&mut self, now: Time) {
        self.delivery = DeliveryRate::new(now);
    }

    /// What was lost was refused by the receiver, and tells nothing of the paths: nor that enough gets through again.
    pub(super) fn discount_losses(&mut self, now: Time) {
        if let Some(silence) = &mut self.silence {
            silence.discount_losses();
        }
        self.delivery = DeliveryRate::new(now);
        self.ceiling = self.link_bytes_per_s;
    }

    /// The peer reported that of so many datagrams so many arrived. Sends as fast as its paths
    /// carry, as far as that is known, and no faster than what gets through if most is lost.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        news: &Acknowledged,
        paths: &PathRates,
    ) -> Option<f64> {
        let (sent, received) = (news.sent, news.received);
        let link = self.link_bytes_per_s;
        match self.overload(now, news, paths) {
            Some(Overload::Yes(datagrams_per_s)) => {
                let rate = self.pacer.bytes_per_s();
                let through = datagrams_per_s * paths.datagram_bytes as f64;
                // If there was little to send, what got through is no measure.
                self.ceiling = through.clamp(rate / 2.0, rate);
            }
            Some(Overload::No) => self.ceiling = (self.ceiling * RECOVERY_GAIN).min(link),
            None => {}
        }
        let gain = if paths.own_queue > LONG_QUEUE {
            DRAINING_GAIN
        } else {
            PROBING_GAIN
        };
        let rate = paths.bytes_per_s.map_or(link, |rate| rate * gain);
        let least = paths
            .bytes_per_s
            .map_or(link * LEAST_SHARE, |rate| rate * LEAST_KNOWN_SHARE);
        let rate = rate.min(self.ceiling).clamp(least.min(link), link);
        self.pacer.set_rate(now, rate);
        self.breaker.take(now, sent, sent.saturating_sub(received))
    }

    /// Takes a report for whether more is sent than gets through. What a silence has lost, and what finds out if it is over,
    /// says nothing of a rate.
    fn overload(&mut self, now: Time, news: &Acknowledged, paths: &PathRates) -> Option<Overload> {
        let target = (self.pacer.bytes_per_s(), self.breaker.most_loss());
        if let Some(silence) = &mut self.silence {
            if silence.acknowledged(now, news, paths, target) {
                self.end_silence(now);
            }
            return None;
        }
        self.delivery.add(news.sent, news.received);
        let pause = paths.ack_timeout.max(LEAST_PAUSE);
        self.delivery.judge(now, pause)
    }

    pub(super) fn set_rate(&mut self, now: Time, bytes_per_s: f64) {
        self.pacer.set_rate(now, bytes_per_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: f64 = 1e8;

    fn paths(bytes_per_s: f64, own_queue: Duration) -> PathRates {
        PathRates {
            bytes_per_s: Some(bytes_per_s),
            own_queue,
            datagram_bytes: 1_200,
            ack_timeout: Duration::from_millis(5),
            round_trip: None,
            bottlenecks: 1,
            ..PathRates::default()
        }
    }

    fn news(sent: u32, received: u32) -> Acknowledged {
        Acknowledged {
            sent,
            received,
            ..Acknowledged::default()
        }
    }

    #[test]
    fn the_rate_probes_beyond_what_paths_carry_and_drains_long_queues() {
        let mut controller =
            ReservedController::new(Time::ZERO, &Reservation::new(8 * LINK as u64));
        controller.acknowledged(Time::ZERO, &news(1, 1), &paths(1e7, Duration::ZERO));
        assert!((controller.pacer.bytes_per_s() - 1.1e7).abs() < 1.0);
        controller.acknowledged(Time::ZERO, &news(1, 1), &paths(1e7, LONG_QUEUE * 2));
        assert!((controller.pacer.bytes_per_s() - 0.8e7).abs() < 1.0);
    }

    #[test]
    fn more_than_half_lost_halves_the_rate_until_most_gets_through_again() {
        let mut controller =
            ReservedController::new(Time::ZERO, &Reservation::new(8 * LINK as u64));
        let mut now = Time::ZERO;
        let mut round = |controller: &mut ReservedController, received| {
            now = now + Duration::from_millis(20);
            controller.acknowledged(now, &news(1_000, received), &paths(LINK, Duration::ZERO));
            controller.pacer.bytes_per_s()
        };
        let before = round(&mut controller, 1_000);
        let after = round(&mut controller, 100);
        assert!((after - before / 2.0).abs() < 1.0, "{before} {after}");
        let recovered = (0..8).map(|_| round(&mut controller, 1_000)).last();
        assert!(recovered > Some(before * 0.9), "{recovered:?}");
    }

    #[test]
    fn silence_is_answered_by_pauses_that_double_up_to_a_second_until_something_is_heard() {
        let known = paths(LINK, Duration::ZERO);
        let mut controller =
            ReservedController::new(Time::ZERO, &Reservation::new(8 * LINK as u64));
        let mut now = Time::ZERO;
        let mut second = |controller: &mut ReservedController| {
            let end = now + Duration::from_secs(1);
            let mut sent = 0;
            while now < end && sent < 100 {
                if controller.credit(now) > 0 {
                    controller.sent(now, 1_200);
                    sent += 1;
                }
                now = controller.ready_at().max(now);
            }
            now = end;
            sent
        };
        assert_eq!(
            second(&mut controller),
            100,
            "at its rate, while all is well"
        );
        controller.timed_out(Time::ZERO, &known);
        let sent: Vec<u32> = (0..12).map(|_| second(&mut controller)).collect();
        assert!((3..=9).contains(&sent[0]), "{sent:?}");
        assert!(sent[3..].iter().all(|&sent| sent <= 1), "{sent:?}");
        // Another path that dies begins nothing anew.
        controller.timed_out(Time::ZERO, &known);
        assert!(second(&mut controller) <= 1);
        controller.discount_losses(Time::ZERO);
        assert!(second(&mut controller) <= 1, "a refusal gives no rate back");
        controller.acknowledged(Time::ZERO, &news(8, 0), &known);
        assert!(second(&mut controller) <= 1, "a loss is no answer");
        controller.acknowledged(Time::ZERO, &news(1, 1), &known);
        let after = second(&mut controller);
        assert!((2..=3).contains(&after), "{after} after one word");
    }
}
