//! Decides whether a comparison says anything: a machine that was busy, or taken away, has measured
//! itself and not the links.

use crate::timed::{Bounds, Strain};

/// Lists why a comparison says nothing; empty where it is valid.
///
/// `carried` tells for the rate whether emulated links kept it before the first round. `rounds` are
/// what the machine lacked in each round of each mode, which is shown under the mode's label.
pub(super) fn objections<'a>(
    mbit: u32,
    carried: bool,
    rounds: impl IntoIterator<Item = (&'a str, &'a [Strain])>,
) -> Vec<String> {
    let not_carried = (!carried).then(|| {
        format!("an emulated link did not keep {mbit} Mbit/s and its spacing here beforehand")
    });
    let strained = rounds
        .into_iter()
        .flat_map(|(mode, strains)| strains.iter().map(move |it| (mode, it)))
        .filter_map(|(mode, strain)| {
            let excess = strain.exceeded(&Bounds::COMPARISON)?;
            Some(format!("{mode}: {excess}"))
        });
    not_carried.into_iter().chain(strained).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objections_to(carried: bool, strain: Strain) -> Vec<String> {
        objections(100, carried, [("share", &[Strain::NONE, strain][..])])
    }

    #[test]
    fn quiet_machine_gives_no_objection() {
        let own_traffic = Strain {
            busy: 0.6,
            pressure: Some(0.3),
            shortfall: Some(0.005),
            ..Strain::NONE
        };
        assert!(objections_to(true, own_traffic).is_empty());
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
                "share: 10.0 % of the processor time was stolen",
            ),
            (
                Strain {
                    busy: 0.97,
                    ..quiet
                },
                "share: 97.0 % of the processor time was used",
            ),
            (
                Strain {
                    pressure: Some(0.8),
                    ..quiet
                },
                "share: 80.0 % of the time tasks waited",
            ),
            (
                Strain {
                    shortfall: Some(0.03),
                    ..quiet
                },
                "share: 3.0 % of its rate was lost",
            ),
        ] {
            let objections = objections_to(true, strain);
            assert!(
                objections.len() == 1 && objections[0].starts_with(part),
                "{objections:?}"
            );
        }
    }

    #[test]
    fn rate_that_links_do_not_keep_is_an_objection() {
        let objections = objections_to(false, Strain::NONE);
        assert_eq!(objections.len(), 1);
        assert!(
            objections[0].contains("did not keep 100 Mbit/s"),
            "{objections:?}"
        );
    }
}
