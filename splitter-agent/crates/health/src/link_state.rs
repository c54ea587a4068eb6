//! What the kernel says of a tunnel's device, and what that makes of the tunnel at a start.

use serde::{Deserialize, Serialize};

/// Holds what the kernel says of a tunnel's device. The number is the device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// Up, with a carrier, and with an address in the network of each of its gateways.
    Up(u32),
    /// Up, but a gateway is in no network that it is in, so that nothing can be routed by it.
    NoAddress(u32),
    /// Down, or without a carrier.
    Down(u32),
    /// There is no such device.
    Absent,
}

impl LinkState {
    /// The device's number, if it is there.
    #[must_use]
    pub fn index(self) -> Option<u32> {
        match self {
            Self::Up(index) | Self::NoAddress(index) | Self::Down(index) => Some(index),
            Self::Absent => None,
        }
    }

    /// Returns the state without the number.
    #[must_use]
    pub fn kind(self) -> LinkKind {
        match self {
            Self::Up(_) => LinkKind::Up,
            Self::NoAddress(_) => LinkKind::NoAddress,
            Self::Down(_) => LinkKind::Down,
            Self::Absent => LinkKind::Absent,
        }
    }
}

/// Says how a tunnel's device is, for reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// It can be used.
    #[default]
    Up,
    /// It is up, but has no address in the network of its gateway.
    NoAddress,
    /// It is down, or has no carrier.
    Down,
    /// There is no such device.
    Absent,
}

impl LinkKind {
    /// All of them, in the order of their metrics.
    pub const ALL: [Self; 4] = [Self::Up, Self::NoAddress, Self::Down, Self::Absent];

    /// The value of the `state` label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoAddress => "no_address",
            Self::Down => "down",
            Self::Absent => "absent",
        }
    }

    /// The state in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoAddress => "without an address in the network of its gateway",
            _ => self.name(),
        }
    }
}

/// Says what is made of a tunnel when it begins to be watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It is taken to be alive until it is silent.
    Trusted,
    /// It cannot be used yet, and has not failed either: the first sign of life takes it into use.
    Unseen,
    /// An earlier agent did not use it: it has to prove itself throughout the hold-down.
    GivenUp,
}

impl Start {
    /// Decides what is made of a tunnel with this link; `was_used` by an earlier agent, or new.
    #[must_use]
    pub fn of(link: LinkKind, was_used: bool) -> Self {
        match (was_used, link) {
            (false, _) => Self::GivenUp,
            (true, LinkKind::Up) => Self::Trusted,
            (true, _) => Self::Unseen,
        }
    }
}
