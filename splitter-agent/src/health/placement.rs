//! Which tunnels carry which class: a pure choice from what the tunnels may be used for.

use std::fmt;

use serde::{Deserialize, Serialize};
use splitter_netlink::InterfaceName;
use splitter_policy::flow::{Class, Tunnel};

use super::machine::Grade;

/// Where the packets of a class go: to the tunnels of one of the classes, as long as one of them
/// is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seat {
    /// Into the tunnels of the short class.
    Short,
    /// Into the tunnels of the long class.
    Long,
    /// The way of the main table, because no tunnel is alive.
    Main,
}

impl Seat {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 3] = [Self::Short, Self::Long, Self::Main];

    /// The value of the `tunnel` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Main => "main",
        }
    }

    /// The tunnel, if it is one.
    #[must_use]
    pub const fn tunnel(self) -> Option<Tunnel> {
        match self {
            Self::Short => Some(Tunnel::Short),
            Self::Long => Some(Tunnel::Long),
            Self::Main => None,
        }
    }

    const fn of(tunnel: Tunnel) -> Self {
        match tunnel {
            Tunnel::Short => Self::Short,
            Tunnel::Long => Self::Long,
        }
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the short tunnel",
            Self::Long => "the long tunnel",
            Self::Main => "the main table",
        })
    }
}

/// Where both classes go, and by which tunnels. The default is home: each in all its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Where short flows go, and everything that is not split.
    pub short: Seat,
    /// Where long flows go.
    pub long: Seat,
    /// The devices of the tunnels that carry nothing, in the order of the configuration.
    #[serde(default)]
    pub out: Vec<InterfaceName>,
}

impl Default for Placement {
    fn default() -> Self {
        Self::HOME
    }
}

/// A tunnel, and what it may be used for.
#[derive(Debug, Clone, Copy)]
pub struct Graded<'a> {
    /// The class that it is for.
    pub home: Tunnel,
    /// Its device.
    pub device: &'a InterfaceName,
    /// What it may be used for.
    pub grade: Grade,
}

impl Placement {
    /// Each class in all its own tunnels.
    pub const HOME: Self = Self {
        short: Seat::Short,
        long: Seat::Long,
        out: Vec::new(),
    };

    /// The best that these tunnels allow: its own ones for each class if any is usable, else
    /// those of the other class; of tunnels that only just answer again, these rather than none;
    /// and if there is none, what the main table says. Of the tunnels of a class, those carry it
    /// that are as good as the best of them.
    #[must_use]
    pub fn choose(tunnels: &[Graded<'_>]) -> Self {
        let best = |home: Tunnel| {
            let own = tunnels.iter().filter(|it| it.home == home);
            own.map(|it| it.grade).max().unwrap_or(Grade::Unusable)
        };
        let seat = |home: Tunnel| {
            let other = match home {
                Tunnel::Short => Tunnel::Long,
                Tunnel::Long => Tunnel::Short,
            };
            [Grade::Usable, Grade::LastResort]
                .into_iter()
                .find_map(|wanted| {
                    let mut candidates = [home, other].into_iter();
                    candidates.find(|tunnel| best(*tunnel) >= wanted)
                })
                .map_or(Seat::Main, Seat::of)
        };
        let (short, long) = (seat(Tunnel::Short), seat(Tunnel::Long));
        let carries = |it: &&Graded<'_>| {
            let is_used = [short, long].contains(&Seat::of(it.home));
            is_used && it.grade == best(it.home)
        };
        let out = tunnels.iter().filter(|it| !carries(it));
        Self {
            short,
            long,
            out: out.map(|it| it.device.clone()).collect(),
        }
    }

    /// Where a class goes.
    #[must_use]
    pub const fn of(&self, class: Class) -> Seat {
        match class {
            Class::Short => self.short,
            Class::Long => self.long,
        }
    }

    /// Whether a tunnel carries packets: those of its own class, of the other one or both.
    #[must_use]
    pub fn uses(&self, home: Tunnel, device: &InterfaceName) -> bool {
        let seat = Seat::of(home);
        (self.short == seat || self.long == seat) && !self.out.contains(device)
    }

    /// Whether each class is in all its own tunnels.
    #[must_use]
    pub fn is_home(&self) -> bool {
        *self == Self::HOME
    }
}

#[cfg(test)]
mod tests {
    use super::Grade::{LastResort, Unusable, Usable};
    use super::*;

    fn device(index: usize) -> InterfaceName {
        format!("wan{index}").try_into().unwrap()
    }

    fn choose(short: &[Grade], long: &[Grade]) -> Placement {
        let homes = short.iter().map(|it| (Tunnel::Short, *it));
        let all: Vec<_> = homes
            .chain(long.iter().map(|it| (Tunnel::Long, *it)))
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
        Placement::choose(&graded.collect::<Vec<_>>())
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
        assert!(two.uses(Tunnel::Short, &device(0)) && !two.uses(Tunnel::Short, &device(1)));
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

    #[test]
    fn what_an_agent_without_several_tunnels_has_left_is_read() {
        let left: Placement = serde_json::from_str(r#"{"short":"long","long":"long"}"#).unwrap();
        assert_eq!((left.short, left.out.len()), (Seat::Long, 0));
    }
}
