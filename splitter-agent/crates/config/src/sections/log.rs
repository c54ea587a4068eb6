//! `[log]`: what the kernel program logs.

use crate::declaration::key;
use crate::declare::section;
use crate::key::Change::Restart;
use crate::kind::{enumeration, word};

const OTHER_BUILD: &str = "another build of the program is needed: end the agent, then start it \
                           again; flows stay known";

section! {
    /// Says what the kernel program logs.
    pub struct Log, GivenLog {
        /// The kernel program logs these packets: "off" (none), "debug" (those that pass
        /// untreated) or "trace" (every one). Anything but "off" loads a slower build of it.
        packets: PacketLog = key("packets", Restart(OTHER_BUILD), word())
            .default(PacketLog::Off)
            .trade_off(
                "`splitter run` prints the log, and reading it needs root. For hunting a fault on a \
                 quiet network.",
            );
    }
}

enumeration! {
    /// The log level of the kernel program.
    PacketLog {
        /// Nothing; the program carries no logging code.
        Off = "off",
        /// Packets that pass untreated.
        Debug = "debug",
        /// Every packet.
        Trace = "trace",
    }
}
