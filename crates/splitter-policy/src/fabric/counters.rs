//! Outcomes of a packet at a leaf or a spine, and how often each came about.

/// A step that was done to an ACK; each is a counter of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FabricStep {
    /// A leaf has put hops and mark into an ACK that leaves it.
    Written,
    /// A leaf has taken the fabric's mark off a host's ACK.
    Cleared,
    /// A spine has written how full its port is.
    Reported,
    /// A leaf has restored an ACK, and read what a spine reported.
    Read,
    /// A leaf has restored an ACK on which nobody had reported.
    Restored,
    /// A leaf has restored an ACK without reading it: it comes from no leaf that is known, by more routers
    /// than were agreed on, by a device that is no port, or with a VLAN tag.
    Unread,
}

impl FabricStep {
    /// All steps, in the order of their counters.
    pub const ALL: [Self; 6] = [
        Self::Written,
        Self::Cleared,
        Self::Reported,
        Self::Read,
        Self::Restored,
        Self::Unread,
    ];

    /// The name that metrics and tables show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Cleared => "cleared",
            Self::Reported => "reported",
            Self::Read => "read",
            Self::Restored => "restored",
            Self::Unread => "unread",
        }
    }
}

/// The reason why a packet passes a fabric's program as it is; each is a counter of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FabricPass {
    /// All but an unfragmented TCP segment without payload, IP options and flags other than ACK and those
    /// of ECN.
    NotPureAck,
    /// It leaves a leaf to, or from, an address that lies at no leaf that is known.
    UnknownLeaf,
    /// It did not start with a TTL of 64 at a host next to the leaf.
    InitialTtl,
    /// Its host has given it a DSCP, which could not be restored.
    OwnDscp,
    /// No leaf has written it.
    NotWritten,
    /// It has the mark, and has come by more routers, or by fewer, than were agreed on.
    Hops,
    /// Another spine has reported already.
    AlreadyReported,
    /// The device is none of the configuration.
    UnknownPort,
    /// The kernel did not let it be written.
    Unwritable,
    /// It leaves a leaf as it came in: by a port of the fabric, and from no host.
    NotFromHost,
    /// It has a VLAN tag, and belongs to a device on top of the port.
    VlanTag,
}

impl FabricPass {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 11] = [
        Self::NotPureAck,
        Self::UnknownLeaf,
        Self::InitialTtl,
        Self::OwnDscp,
        Self::NotWritten,
        Self::Hops,
        Self::AlreadyReported,
        Self::UnknownPort,
        Self::Unwritable,
        Self::NotFromHost,
        Self::VlanTag,
    ];

    /// The name that metrics and tables show.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotPureAck => "not_pure_ack",
            Self::UnknownLeaf => "unknown_leaf",
            Self::InitialTtl => "initial_ttl",
            Self::OwnDscp => "own_dscp",
            Self::NotWritten => "not_written",
            Self::Hops => "hops",
            Self::AlreadyReported => "already_reported",
            Self::UnknownPort => "unknown_port",
            Self::Unwritable => "unwritable",
            Self::NotFromHost => "not_from_host",
            Self::VlanTag => "vlan_tag",
        }
    }
}

/// Counts of one CPU: what was done to ACKs, and why others passed; 192 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    done: [u64; STEPS],
    passed: [u64; REASONS],
}

/// Powers of two, so that a mask says what the types promise: the kernel's verifier takes no program that
/// could panic, and a compiler that has lost sight of the types would see to that.
const STEPS: usize = FabricStep::ALL.len().next_power_of_two();
const REASONS: usize = FabricPass::ALL.len().next_power_of_two();

impl FabricCounters {
    /// Counts what became of a packet.
    #[inline(always)]
    pub const fn count(&mut self, outcome: Result<FabricStep, FabricPass>) {
        match outcome {
            Ok(step) => self.done[step as usize & (STEPS - 1)] += 1,
            Err(reason) => self.passed[reason as usize & (REASONS - 1)] += 1,
        }
    }

    /// How often a step was done.
    #[must_use]
    pub const fn done(&self, step: FabricStep) -> u64 {
        self.done[step as usize]
    }

    /// How many packets passed for a reason.
    #[must_use]
    pub const fn passed(&self, reason: FabricPass) -> u64 {
        self.passed[reason as usize]
    }

    /// Adds the counts of another CPU.
    pub fn add(&mut self, other: &Self) {
        let sums = self.done.iter_mut().chain(&mut self.passed);
        for (sum, count) in sums.zip(other.done.iter().chain(&other.passed)) {
            *sum += *count;
        }
    }
}
