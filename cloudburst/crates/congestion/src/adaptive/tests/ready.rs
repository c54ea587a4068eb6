//! Readiness of a peer: a scheduler has it wait until it may be sent to, and asks no earlier.

use proptest::{collection::vec, prelude::*};

use super::*;

proptest! {
    #[test]
    fn who_may_send_is_ready_and_who_may_not_has_to_wait(
        steps in vec((0u8..9, 0u32..40, any::<bool>()), 1..80),
    ) {
        let mut rig = Rig::new();
        let mut in_flight = 0;
        for (what, number, has_queue) in steps {
            let queue = if has_queue { QUEUE } else { EMPTY };
            match what {
                0..=3 => {
                    let within = Duration::from_micros(number.into());
                    in_flight += rig.send(within, 1 + number);
                }
                4..=6 => {
                    let sent = number.min(in_flight);
                    in_flight -= sent;
                    let lost = if what == 4 { sent / 10 } else { 0 };
                    let mut news = rig.news(0, sent, lost, queue);
                    news.in_flight = u64::from(in_flight) * DATAGRAM;
                    rig.take(&news);
                }
                7 => rig.now = rig.now + Duration::from_millis(number.into()),
                _ if in_flight > 0 => {
                    rig.controller.timed_out(rig.now, &rig.paths);
                    in_flight = 0;
                }
                _ => rig.controller.restart(rig.now),
            }
            let (credit, ready_at) = (rig.controller.credit(rig.now), rig.controller.ready_at());
            prop_assert_eq!(credit > 0, ready_at <= rig.now, "{} bytes, {:?} at {:?}", credit, ready_at, rig.now);
        }
    }
}
