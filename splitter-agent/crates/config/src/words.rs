//! Values that are one of a few words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Defines an enum whose variants are words in the configuration, and their list.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every word with what it means.
            pub const WORDS: &[(&'static str, Self)] = &[$(($word, Self::$variant),)*];

            /// The word in the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// How the XDP program is attached.
    AttachMode {
        /// In the driver, or not at all.
        Native = "native",
        /// In the network stack, for any device; slower.
        Generic = "generic",
        /// Native where the driver has it, else generic; what it became is reported.
        #[default]
        Auto = "auto",
    }
}

words! {
    /// How packets get into the tunnel of their class.
    SteeringMode {
        /// By the DSCP that they are given, and rules for it: the paper's way.
        #[default]
        Dscp = "dscp",
        /// By the mark that the kernel keeps beside them, and rules for it; they stay as they came.
        Mark = "mark",
        /// As `dscp`, and without the network stack where that is possible.
        Redirect = "redirect",
    }
}

words! {
    /// How the kernel's rules match a mark.
    DscpMatch {
        /// Exactly (`FRA_DSCP`, Linux 6.13).
        Dscp = "dscp",
        /// By the three bits that `tos` rules of any kernel see.
        Tos = "tos",
        /// The best that the running kernel has.
        #[default]
        Auto = "auto",
    }
}

words! {
    /// What the two tunnels are for.
    TunnelPolicy {
        /// One for short flows, one for long ones: the paper's way.
        #[default]
        Dedicated = "dedicated",
        /// Both carry both; short flows come first on each, and long ones are placed where there
        /// is room.
        Share = "share",
    }
}

words! {
    /// A protocol whose flows are split.
    Protocol {
        /// A flow for each direction of a connection.
        #[default]
        Tcp = "tcp",
        /// A flow for each pair of addresses and ports: QUIC connections and all else.
        Udp = "udp",
        /// A flow for each SPI.
        Esp = "esp",
        /// A flow for each key, or all between two hosts without one.
        Gre = "gre",
    }
}

words! {
    /// Log level of the kernel program.
    PacketLog {
        /// Nothing; the program carries no logging code.
        #[default]
        Off = "off",
        /// Packets that pass untreated.
        Debug = "debug",
        /// Every packet.
        Trace = "trace",
    }
}
