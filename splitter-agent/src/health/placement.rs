//! Which tunnel carries which class: a pure choice from what the tunnels may be used for.

use std::fmt;

use serde::{Deserialize, Serialize};
use splitter_common::flow::{Class, Tunnel};

use super::machine::Grade;

/// Where the packets of a class go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seat {
    /// Into the short tunnel.
    Short,
    /// Into the long tunnel.
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

/// Where both classes go. The default is home: each in its own tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Where short flows go, and everything that is not split.
    pub short: Seat,
    /// Where long flows go.
    pub long: Seat,
}

impl Default for Placement {
    fn default() -> Self {
        Self::HOME
    }
}

impl Placement {
    /// Each class in its own tunnel.
    pub const HOME: Self = Self {
        short: Seat::Short,
        long: Seat::Long,
    };

    /// The best that these tunnels allow, grades in the order of [`Tunnel::ALL`]: its own tunnel
    /// for each class if that is usable, else the other one; of tunnels that only just answer
    /// again, one rather than none; and if there is none, what the main table says.
    #[must_use]
    pub fn choose(grades: [Grade; 2]) -> Self {
        let seat = |home: Tunnel| {
            let other = match home {
                Tunnel::Short => Tunnel::Long,
                Tunnel::Long => Tunnel::Short,
            };
            let grade = |tunnel: Tunnel| grades[tunnel as usize];
            [Grade::Usable, Grade::LastResort]
                .into_iter()
                .find_map(|wanted| {
                    let mut candidates = [home, other].into_iter();
                    candidates.find(|tunnel| grade(*tunnel) >= wanted)
                })
                .map_or(Seat::Main, Seat::of)
        };
        Self {
            short: seat(Tunnel::Short),
            long: seat(Tunnel::Long),
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

    /// Whether each class is in its own tunnel.
    #[must_use]
    pub fn is_home(&self) -> bool {
        *self == Self::HOME
    }
}

#[cfg(test)]
mod tests {
    use super::Grade::{LastResort, Unusable, Usable};
    use super::*;

    #[test]
    fn every_pair_of_grades_has_its_placement() {
        let cases = [
            ([Usable, Usable], (Seat::Short, Seat::Long)),
            ([Usable, LastResort], (Seat::Short, Seat::Short)),
            ([Usable, Unusable], (Seat::Short, Seat::Short)),
            ([LastResort, Usable], (Seat::Long, Seat::Long)),
            ([LastResort, LastResort], (Seat::Short, Seat::Long)),
            ([LastResort, Unusable], (Seat::Short, Seat::Short)),
            ([Unusable, Usable], (Seat::Long, Seat::Long)),
            ([Unusable, LastResort], (Seat::Long, Seat::Long)),
            ([Unusable, Unusable], (Seat::Main, Seat::Main)),
        ];
        for (grades, (short, long)) in cases {
            assert_eq!(
                Placement::choose(grades),
                Placement { short, long },
                "{grades:?}"
            );
        }
    }
}
