//! Why packets go by the network stack.

/// The reason why a packet that was split goes by the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fallback {
    /// It is the first of a TCP connection.
    Opening = 0,
    /// Its TTL or hop limit is used up; the stack tells its sender.
    Ttl = 1,
    /// It is a fragment.
    Fragment = 2,
    /// It has VLAN tags, IPv4 options or IPv6 extension headers.
    Options = 3,
    /// It does not lie in one piece of memory.
    Scattered = 4,
    /// It is for another station on the link.
    NotOurs = 5,
    /// Routing knows no path for it, or not one for packets that are forwarded.
    NoRoute = 6,
    /// The link address of the next hop is not known yet.
    NoNeighbour = 7,
    /// It is larger than the path's MTU.
    TooLarge = 8,
    /// Its path does not lead through a tunnel that packets can be put into.
    OtherDevice = 9,
    /// The kernel refused to look, or the packet could not be changed.
    Failed = 10,
    /// Its checksum is left to the device that sends it, which a redirected packet
    /// does not tell: it comes from this machine, a container or a guest.
    Checksum = 11,
}

impl Fallback {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 12] = [
        Self::Opening,
        Self::Ttl,
        Self::Fragment,
        Self::Options,
        Self::Scattered,
        Self::NotOurs,
        Self::NoRoute,
        Self::NoNeighbour,
        Self::TooLarge,
        Self::OtherDevice,
        Self::Failed,
        Self::Checksum,
    ];

    /// Reads the kernel's answer to a FIB lookup; `None` where it found a path.
    #[inline(always)]
    pub const fn from_fib_result(code: i64) -> Option<Self> {
        match code {
            0 => None,
            1..=6 => Some(Self::NoRoute),
            7 => Some(Self::NoNeighbour),
            8 => Some(Self::TooLarge),
            _ => Some(Self::Failed),
        }
    }

    /// The name that metrics and tables show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Ttl => "ttl",
            Self::Fragment => "fragment",
            Self::Options => "options",
            Self::Scattered => "scattered",
            Self::NotOurs => "not_ours",
            Self::NoRoute => "no_route",
            Self::NoNeighbour => "no_neighbour",
            Self::TooLarge => "too_large",
            Self::OtherDevice => "other_device",
            Self::Failed => "failed",
            Self::Checksum => "checksum",
        }
    }
}
