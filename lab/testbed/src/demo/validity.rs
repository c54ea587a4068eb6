//! Decides whether a comparison says anything: a machine that was busy, or taken away, has measured
//! itself and not the links.

use super::{ECMP_FLOW, render::label};
use crate::{
    experiment::{Conditions, Measurement},
    timed::Bounds,
};

/// The largest share of their rate that tunnels may have lost while packets waited, 0 to 1.
///
/// A tunnel that loses more has a rate that the figures do not state, and mean completion times
/// repeat within some percent only (docs/src/explanation/demo.md).
const SHORTFALL: f64 = 0.02;

/// Lists why what was measured says nothing; empty where it is valid.
pub(super) fn objections(measurements: &[Measurement]) -> Vec<String> {
    let mut objections = Vec::new();
    for it in measurements {
        for (round, conditions) in (1..).zip(&it.conditions) {
            let excesses = excesses(conditions, it.name == ECMP_FLOW);
            let at = format!("{}, round {round}", label(&it.name));
            objections.extend(excesses.into_iter().map(|it| format!("{at}: {it}")));
        }
    }
    objections
}

/// What was out of bounds in a round. `is_queueing` where the tunnels are to be full at times.
fn excesses(conditions: &Conditions, is_queueing: bool) -> Vec<String> {
    let mut excesses = Vec::from_iter(conditions.strain.exceeded(&Bounds::COMPARISON));
    match conditions.delivery.shortfall() {
        Some(lost) if lost > SHORTFALL => excesses.push(format!(
            "the tunnels lost {:.1} % of their rate while packets waited (bound {:.1} %)",
            lost * 100.0,
            SHORTFALL * 100.0
        )),
        None if is_queueing => excesses.push(
            "packets hardly ever waited for a tunnel, so it was not the links that were measured"
                .to_owned(),
        ),
        _ => {}
    }
    excesses
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{experiment::Delivery, timed::Strain};

    /// The tunnels had a queue for a second and sent this share of their rate.
    fn delivered(share: f64) -> Delivery {
        Delivery {
            queued: Duration::from_secs(1),
            due_bytes: 1e6,
            sent_bytes: (1e6 * share) as u64,
        }
    }

    fn excesses_of(strain: Strain, delivery: Delivery) -> Vec<String> {
        excesses(&Conditions { strain, delivery }, true)
    }

    #[test]
    fn quiet_machine_gives_no_objection() {
        let own_traffic = Strain {
            busy: 0.6,
            pressure: Some(0.3),
            shortfall: Some(0.005),
            ..Strain::NONE
        };
        assert!(excesses_of(own_traffic, delivered(0.995)).is_empty());
    }

    #[test]
    fn each_thing_that_a_machine_lacks_is_an_objection() {
        let quiet = Strain::NONE;
        for (strain, part) in [
            (
                Strain {
                    stolen: 0.1,
                    ..quiet
                },
                "10.0 % of the processor time was stolen",
            ),
            (
                Strain {
                    busy: 0.97,
                    ..quiet
                },
                "97.0 % of the processor time was used",
            ),
            (
                Strain {
                    pressure: Some(0.8),
                    ..quiet
                },
                "80.0 % of the time tasks waited",
            ),
            (
                Strain {
                    shortfall: Some(0.03),
                    ..quiet
                },
                "3.0 % of its rate was lost",
            ),
            (
                Strain {
                    dropped: 1,
                    ..quiet
                },
                "1 packets found no room",
            ),
        ] {
            let excesses = excesses_of(strain, delivered(1.0));
            assert!(
                excesses.len() == 1 && excesses[0].starts_with(part),
                "{excesses:?}"
            );
        }
    }

    #[test]
    fn rate_that_tunnels_do_not_keep_is_an_objection() {
        let excesses = excesses_of(Strain::NONE, delivered(0.95));
        assert_eq!(excesses.len(), 1);
        assert!(
            excesses[0].contains("lost 5.0 % of their rate"),
            "{excesses:?}"
        );
    }

    #[test]
    fn tunnels_that_never_fill_are_an_objection_where_they_should() {
        let conditions = Conditions {
            strain: Strain::NONE,
            delivery: Delivery::default(),
        };
        assert_eq!(excesses(&conditions, true).len(), 1);
        assert!(excesses(&conditions, false).is_empty());
    }
}
