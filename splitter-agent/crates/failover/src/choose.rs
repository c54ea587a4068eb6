//! The choice of the tunnels that carry each class, from what the tunnels may be used for.

use splitter_health::Grade;
use splitter_netlink::InterfaceName;
use splitter_policy::flow::TunnelRole;
use splitter_steering::{Egress, Placement};

/// A tunnel, and what it may be used for.
#[derive(Debug, Clone, Copy)]
pub struct Graded<'a> {
    /// The class that it is for.
    pub role: TunnelRole,
    /// Its device.
    pub device: &'a InterfaceName,
    /// What it may be used for.
    pub grade: Grade,
}

/// The best that these tunnels allow: its own ones for each class if any is usable, else
/// those of the other class; of tunnels that only just answer again, these rather than none;
/// and if there is none, what the main table says. Of the tunnels of a class, those carry it
/// that are as good as the best of them.
#[must_use]
pub fn choose(tunnels: &[Graded<'_>]) -> Placement {
    let best = |role: TunnelRole| {
        let own = tunnels.iter().filter(|it| it.role == role);
        own.map(|it| it.grade).max().unwrap_or(Grade::Unusable)
    };
    let egress = |role: TunnelRole| {
        let other = match role {
            TunnelRole::Short => TunnelRole::Long,
            TunnelRole::Long => TunnelRole::Short,
        };
        [Grade::Usable, Grade::LastResort]
            .into_iter()
            .find_map(|wanted| {
                let mut candidates = [role, other].into_iter();
                candidates.find(|tunnel| best(*tunnel) >= wanted)
            })
            .map_or(Egress::Main, Egress::of)
    };
    let (short, long) = (egress(TunnelRole::Short), egress(TunnelRole::Long));
    let carries = |it: &&Graded<'_>| {
        let is_used = [short, long].contains(&Egress::of(it.role));
        is_used && it.grade == best(it.role)
    };
    let out = tunnels.iter().filter(|it| !carries(it));
    Placement {
        short,
        long,
        disabled: out.map(|it| it.device.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use Grade::{LastResort, Unusable, Usable};

    use super::*;

    fn device(index: usize) -> InterfaceName {
        format!("wan{index}").try_into().unwrap()
    }

    fn choose(short: &[Grade], long: &[Grade]) -> Placement {
        let homes = short.iter().map(|it| (TunnelRole::Short, *it));
        let all: Vec<_> = homes
            .chain(long.iter().map(|it| (TunnelRole::Long, *it)))
            .collect();
        let devices: Vec<_> = (0..all.len()).map(device).collect();
        let graded = all
            .iter()
            .zip(&devices)
            .map(|((role, grade), device)| Graded {
                role: *role,
                device,
                grade: *grade,
            });
        super::choose(&graded.collect::<Vec<_>>())
    }

    fn disabled(indices: &[usize]) -> Vec<InterfaceName> {
        indices.iter().copied().map(device).collect()
    }

    #[test]
    fn every_pair_of_grades_has_its_placement() {
        let cases: [(_, _, &[usize]); 9] = [
            ([Usable, Usable], (Egress::Short, Egress::Long), &[]),
            ([Usable, LastResort], (Egress::Short, Egress::Short), &[1]),
            ([Usable, Unusable], (Egress::Short, Egress::Short), &[1]),
            ([LastResort, Usable], (Egress::Long, Egress::Long), &[0]),
            ([LastResort, LastResort], (Egress::Short, Egress::Long), &[]),
            ([LastResort, Unusable], (Egress::Short, Egress::Short), &[1]),
            ([Unusable, Usable], (Egress::Long, Egress::Long), &[0]),
            ([Unusable, LastResort], (Egress::Long, Egress::Long), &[0]),
            ([Unusable, Unusable], (Egress::Main, Egress::Main), &[0, 1]),
        ];
        for ([of_short, of_long], (short, long), unused) in cases {
            let disabled = disabled(unused);
            assert_eq!(
                choose(&[of_short], &[of_long]),
                Placement {
                    short,
                    long,
                    disabled
                },
                "{of_short:?} {of_long:?}"
            );
        }
    }

    #[test]
    fn class_stays_while_one_of_its_tunnels_is_alive_and_leaves_the_others() {
        let role = choose(&[Usable; 3], &[Usable]);
        assert!(role.is_primary());
        let two = choose(&[Usable, Unusable, Usable], &[Usable, LastResort]);
        let expected = Placement {
            disabled: disabled(&[1, 4]),
            ..Placement::PRIMARY
        };
        assert_eq!(two, expected);
        assert!(
            two.uses(TunnelRole::Short, &device(0)) && !two.uses(TunnelRole::Short, &device(1))
        );
        let survivors = choose(&[Unusable, LastResort], &[Usable, Unusable, Usable]);
        assert_eq!(
            (survivors.short, survivors.long),
            (Egress::Long, Egress::Long)
        );
        assert_eq!(survivors.disabled, disabled(&[0, 1, 3]));
        // What only just answers again carries where nothing better is left.
        let last = choose(&[Unusable, LastResort], &[Unusable, Unusable]);
        assert_eq!((last.short, last.long), (Egress::Short, Egress::Short));
        assert_eq!(last.disabled, disabled(&[0, 2, 3]));
        let none = choose(&[Unusable; 2], &[Unusable; 2]);
        assert_eq!((none.short, none.long), (Egress::Main, Egress::Main));
        assert_eq!(none.disabled.len(), 4);
    }
}
