//! The choice of the tunnels that carry each class, from what the tunnels may be used for.

use splitter_health::Grade;
use splitter_netlink::InterfaceName;
use splitter_policy::flow::TunnelRole;
use splitter_steering::{Placement, Seat};

/// A tunnel, and what it may be used for.
#[derive(Debug, Clone, Copy)]
pub struct Graded<'a> {
    /// The class that it is for.
    pub home: TunnelRole,
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
    let best = |home: TunnelRole| {
        let own = tunnels.iter().filter(|it| it.home == home);
        own.map(|it| it.grade).max().unwrap_or(Grade::Unusable)
    };
    let seat = |home: TunnelRole| {
        let other = match home {
            TunnelRole::Short => TunnelRole::Long,
            TunnelRole::Long => TunnelRole::Short,
        };
        [Grade::Usable, Grade::LastResort]
            .into_iter()
            .find_map(|wanted| {
                let mut candidates = [home, other].into_iter();
                candidates.find(|tunnel| best(*tunnel) >= wanted)
            })
            .map_or(Seat::Main, Seat::of)
    };
    let (short, long) = (seat(TunnelRole::Short), seat(TunnelRole::Long));
    let carries = |it: &&Graded<'_>| {
        let is_used = [short, long].contains(&Seat::of(it.home));
        is_used && it.grade == best(it.home)
    };
    let out = tunnels.iter().filter(|it| !carries(it));
    Placement {
        short,
        long,
        out: out.map(|it| it.device.clone()).collect(),
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
            .map(|((home, grade), device)| Graded {
                home: *home,
                device,
                grade: *grade,
            });
        super::choose(&graded.collect::<Vec<_>>())
    }

    fn out(indices: &[usize]) -> Vec<InterfaceName> {
        indices.iter().copied().map(device).collect()
    }

    #[test]
    fn every_pair_of_grades_has_its_placement() {
        let cases: [(_, _, &[usize]); 9] = [
            ([Usable, Usable], (Seat::Short, Seat::Long), &[]),
            ([Usable, LastResort], (Seat::Short, Seat::Short), &[1]),
            ([Usable, Unusable], (Seat::Short, Seat::Short), &[1]),
            ([LastResort, Usable], (Seat::Long, Seat::Long), &[0]),
            ([LastResort, LastResort], (Seat::Short, Seat::Long), &[]),
            ([LastResort, Unusable], (Seat::Short, Seat::Short), &[1]),
            ([Unusable, Usable], (Seat::Long, Seat::Long), &[0]),
            ([Unusable, LastResort], (Seat::Long, Seat::Long), &[0]),
            ([Unusable, Unusable], (Seat::Main, Seat::Main), &[0, 1]),
        ];
        for ([of_short, of_long], (short, long), unused) in cases {
            let out = out(unused);
            assert_eq!(
                choose(&[of_short], &[of_long]),
                Placement { short, long, out },
                "{of_short:?} {of_long:?}"
            );
        }
    }

    #[test]
    fn class_stays_while_one_of_its_tunnels_is_alive_and_leaves_the_others() {
        let home = choose(&[Usable; 3], &[Usable]);
        assert!(home.is_home());
        let two = choose(&[Usable, Unusable, Usable], &[Usable, LastResort]);
        let expected = Placement {
            out: out(&[1, 4]),
            ..Placement::HOME
        };
        assert_eq!(two, expected);
        assert!(
            two.uses(TunnelRole::Short, &device(0)) && !two.uses(TunnelRole::Short, &device(1))
        );
        let survivors = choose(&[Unusable, LastResort], &[Usable, Unusable, Usable]);
        assert_eq!((survivors.short, survivors.long), (Seat::Long, Seat::Long));
        assert_eq!(survivors.out, out(&[0, 1, 3]));
        // What only just answers again carries where nothing better is left.
        let last = choose(&[Unusable, LastResort], &[Unusable, Unusable]);
        assert_eq!((last.short, last.long), (Seat::Short, Seat::Short));
        assert_eq!(last.out, out(&[0, 2, 3]));
        let none = choose(&[Unusable; 2], &[Unusable; 2]);
        assert_eq!((none.short, none.long), (Seat::Main, Seat::Main));
        assert_eq!(none.out.len(), 4);
    }
}
